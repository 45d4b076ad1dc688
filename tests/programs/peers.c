/* Many processes with one RC QP each, connected in pairs: 0 with 1, 2 with 3, and so on. Even ones are at port 1 and its
 * GID 1, odd ones at port 2; with --same, all are at port 1. Nothing is said between them: member i has its QP numbers from
 * 4096 * (i + 1) on, its QP has the first, and K numbers after it go unused.
 *
 *   peers COUNT [--of SIDE] [--one I] [--same] [--skip K]    members 0 to COUNT - 1 (of side 0 or 1 alone), and I too
 *
 * Prints `ready` when all are in RTS; they stay until stdin closes. */
#include "pair.h"

#include <sys/wait.h>

static int member(long i, bool same, long skip)
{
	struct ibv_context *ctx = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 256, NULL, NULL, 0) : NULL;
	struct ibv_qp *qp;

	CHECK(cq);
	qp = pair_create(pd, cq);
	CHECK(qp->qp_num == first_number(i));
	for (long n = 0; n < skip; n++)
		CHECK(!ibv_destroy_qp(pair_create(pd, cq)));
	connect_to(qp, ctx, same ? 1 : 1 + (int)(i & 1), same ? 1 : 2 - (int)(i & 1), first_number(i ^ 1));
	CHECK(write(1, ".", 1) == 1);
	until_closed(0);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	return 0;
}

/* Starts a member, whose stdout is `out`. */
static void start(char **argv, long i, int out)
{
	pid_t child = fork();
	char name[32];

	CHECK(child >= 0);
	if (child)
		return;
	number_from(i);
	snprintf(name, sizeof(name), "%ld", i);
	setenv("PEERS_MEMBER", name, 1);
	CHECK(dup2(out, 1) == 1);
	execv("/proc/self/exe", argv);
	die("cannot execute");
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? strtol(argv[1], NULL, 0) : 0, one = arg_number(argc, argv, "one", -1);
	long side = arg_number(argc, argv, "of", -1), started = 0;
	const char *self = getenv("PEERS_MEMBER");
	int said[2], status, failed = 0;
	char dot;

	if (self)
		return member(strtol(self, NULL, 0), arg_flag(argc, argv, "same"), arg_number(argc, argv, "skip", 0));
	CHECK(count >= 0 && !pipe(said));
	for (long i = 0; i < (count > one ? count : one + 1); i++)
		if (i == one || (i < count && (side < 0 || side == (i & 1)))) {
			start(argv, i, said[1]);
			started++;
		}
	close(said[1]);
	for (long i = 0; i < started; i++)
		CHECK(read(said[0], &dot, 1) == 1);
	printf("ready\n");
	fflush(stdout);
	while (wait(&status) > 0)
		failed += status != 0;
	return failed > 0;
}
