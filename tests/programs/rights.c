/* One of two connected QPs, of two processes, takes from its peer what it may do, while both are in RTS.
 *
 *   rights [--others N]    waits for N QPs of a library's own before that, and for N more afterwards
 *
 * Prints `rights` with the access flags of all of them, `ready`, and stays until stdin closes. */
#include "pair.h"

#include <dlfcn.h>
#include <sys/wait.h>

static struct member m;

/* The access flags of the I-th QP that is not the program's, once it is there. */
static unsigned access_of(long i)
{
	int (*f)(uint32_t, unsigned *) = (int (*)(uint32_t, unsigned *))dlsym(RTLD_DEFAULT, "nullverbs_access");
	unsigned flags;

	CHECK(f);
	while (f(first_number(0) + (uint32_t)i, &flags))
		usleep(1000);
	return flags;
}

int main(int argc, char **argv)
{
	struct ibv_qp_attr none = { .qp_access_flags = 0 };
	long others = arg_number(argc, argv, "others", 0);
	int status, hold[2];
	pid_t child;

	CHECK(!pipe(hold) && (child = fork()) >= 0);
	if (!child) {
		close(hold[1]);
		member_open(&m, 1);
		member_connect(&m);
		until_closed(hold[0]);
		member_close(&m);
		return 0;
	}
	close(hold[0]);
	member_open(&m, 0);
	member_connect(&m);
	CHECK(access_of(0) == IBV_ACCESS_REMOTE_WRITE);
	if (others)
		access_of(others);
	CHECK(!ibv_modify_qp(m.qp, &none, IBV_QP_ACCESS_FLAGS) && access_of(0) == 0);
	printf("rights");
	for (long i = 1; i <= 2 * others; i++)
		printf(" %u", access_of(i));
	printf("\nready\n");
	fflush(stdout);
	until_closed(0);
	member_close(&m);
	close(hold[1]);
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
