/* Two processes with an RC QP each, connected to each other. Each line on stdin is a letter for both: `-` moves the QPs to
 * RESET, `+` connects them again. Prints `ready` at first, and after each letter when the first process has done it.
 *
 *   reconnect [--rounds N]    before `ready`, N times both, at once */
#include "pair.h"

#include <sys/wait.h>

static struct member m;

static void go(char what)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	if (what == '-')
		CHECK(!ibv_modify_qp(m.qp, &reset, IBV_QP_STATE));
	if (what == '+')
		member_connect(&m);
}

int main(int argc, char **argv)
{
	long rounds = arg_number(argc, argv, "rounds", 0);
	int status, tell[2];
	pid_t child;
	char what;

	CHECK(!pipe(tell) && (child = fork()) >= 0);
	close(tell[child == 0]);
	member_open(&m, child == 0);
	go('+');
	for (long n = 0; n < rounds; n++) {
		usleep(1000 * (unsigned)(n % 7));
		go('-');
		usleep(1000 * (unsigned)(n % 5));
		go('+');
	}
	if (child) {
		printf("ready\n");
		fflush(stdout);
	}
	while (read(child ? 0 : tell[0], &what, 1) == 1) {
		if (child)
			CHECK(write(tell[1], &what, 1) == 1);
		go(what);
		if (child && what != '\n') {
			printf("%c\n", what);
			fflush(stdout);
		}
	}
	if (child)
		close(tell[1]);
	member_close(&m);
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
