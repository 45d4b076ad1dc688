/* Two processes with an RC QP each, connected to each other. Each line on stdin is a letter for both: `-` moves the QPs to
 * RESET, `+` connects them again. Prints `ready` at first, and after each letter when the first process has done it.
 *
 *   reconnect [--rounds N]    before `ready`, N times both, at once */
#include "pair.h"

#include <sys/wait.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

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
}

static void go(long i, char what)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	if (what == '-')
		CHECK(!ibv_modify_qp(qp, &reset, IBV_QP_STATE));
	if (what == '+')
		connect_to(qp, ctx, 1 + (int)i, 2 - (int)i, first_number(1 - i));
}

int main(int argc, char **argv)
{
	long rounds = arg_number(argc, argv, "rounds", 0);
	int status, tell[2];
	pid_t child;
	char what;

	CHECK(!pipe(tell) && (child = fork()) >= 0);
	close(tell[child == 0]);
	member(child == 0);
	go(child == 0, '+');
	for (long n = 0; n < rounds; n++) {
		usleep(1000 * (unsigned)(n % 7));
		go(child == 0, '-');
		usleep(1000 * (unsigned)(n % 5));
		go(child == 0, '+');
	}
	if (child) {
		printf("ready\n");
		fflush(stdout);
	}
	while (read(child ? 0 : tell[0], &what, 1) == 1) {
		if (child)
			CHECK(write(tell[1], &what, 1) == 1);
		go(child == 0, what);
		if (child && what != '\n') {
			printf("%c\n", what);
			fflush(stdout);
		}
	}
	if (child)
		close(tell[1]);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
