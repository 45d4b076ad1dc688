/* One of two connected QPs, of two processes, takes from its peer what it may do, while both are in RTS.
 *
 *   rights [--others N]    waits for N QPs of a library's own before that, and for N more afterwards
 *
 * Prints `rights` with the access flags of all of them, `ready`, and stays until stdin closes. */
#include "pair.h"

#include <dlfcn.h>
#include <sys/wait.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static void until_closed(int fd)
{
	char sink[64];

	while (read(fd, sink, sizeof(sink)) > 0)
		;
}

static void member(long i)
{
	struct ibv_device **list;

	number_from(i);
	list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 256, NULL, NULL, 0)));
	qp = pair_create(pd, cq);
	CHECK(qp->qp_num == first_number(i));
	connect_to(qp, ctx, 1 + (int)i, 2 - (int)i, first_number(1 - i));
}

static void close_all(void)
{
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
}

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
		member(1);
		until_closed(hold[0]);
		close_all();
		return 0;
	}
	close(hold[0]);
	member(0);
	CHECK(access_of(0) == IBV_ACCESS_REMOTE_WRITE);
	if (others)
		access_of(others);
	CHECK(!ibv_modify_qp(qp, &none, IBV_QP_ACCESS_FLAGS) && access_of(0) == 0);
	printf("rights");
	for (long i = 1; i <= 2 * others; i++)
		printf(" %u", access_of(i));
	printf("\nready\n");
	fflush(stdout);
	until_closed(0);
	close_all();
	close(hold[1]);
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
