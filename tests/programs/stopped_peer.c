/* Two processes with COUNT connected RC QPs each, every one of a PD of its own. At the first letter on stdin, or its end, the
 * second process is stopped, and the first one destroys its first QP; at the end of stdin, all that it has.
 *
 *   stopped_peer COUNT [--one-pd]    all of one PD
 *
 * Prints `ready` when all QPs of the first process are in RTS, and `left` when the first one is destroyed. */
#include "pair.h"

#include <signal.h>
#include <sys/wait.h>

#define MOST 1024

static struct ibv_context *ctx;
static struct ibv_pd *pd[MOST];
static struct ibv_cq *cq[MOST];
static struct ibv_qp *qp[MOST];
static long count;
static bool one_pd;

static void member(long i)
{
	number_from(i);
	ctx = open_first();
	for (long n = 0; n < count; n++) {
		CHECK((pd[n] = one_pd && n ? pd[0] : ibv_alloc_pd(ctx)) && (cq[n] = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
		qp[n] = pair_create(pd[n], cq[n]);
		CHECK(qp[n]->qp_num == first_number(i) + (uint32_t)n);
	}
	for (long n = 0; n < count; n++)
		connect_to(qp[n], ctx, 1 + (int)i, 2 - (int)i, first_number(1 - i) + (uint32_t)n);
}

int main(int argc, char **argv)
{
	int status, hold[2];
	pid_t child;
	char letter;

	one_pd = arg_flag(argc, argv, "one-pd");
	count = argc > 1 ? strtol(argv[1], NULL, 0) : 1;
	CHECK(count > 0 && count <= MOST && !pipe(hold) && (child = fork()) >= 0);
	if (!child) {
		close(hold[1]);
		member(1);
		until_closed(hold[0]);
		return 0;
	}
	member(0);
	printf("ready\n");
	fflush(stdout);
	CHECK(read(0, &letter, 1) >= 0 && !kill(child, SIGSTOP));
	/* Its threads run on until one of them has taken the signal. */
	CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	CHECK(!ibv_destroy_qp(qp[0]));
	printf("left\n");
	fflush(stdout);
	until_closed(0);
	for (long n = 0; n < count; n++)
		CHECK((!n || !ibv_destroy_qp(qp[n])) && !ibv_destroy_cq(cq[n]) && (one_pd || !ibv_dealloc_pd(pd[n])));
	CHECK(!one_pd || !ibv_dealloc_pd(pd[0]));
	CHECK(!ibv_close_device(ctx) && !kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	return 0;
}
