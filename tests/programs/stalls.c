/* QPs whose sends wait, on orders from stdin; for the watch for stalls and the flight recorder.
 *
 *   stalls [--handler] [--ignore] [--fork]
 *
 *   --handler  a handler of its own for SIGUSR2 from the beginning: prints `usr2`
 *   --ignore   SIGUSR2 is ignored from the beginning
 *   --fork     forks first of all, once the device is open, a child that must die of its own SIGUSR2
 *
 * Orders, a letter each: h hold 5 sends; r release and poll them; l 5 sends complete, and are not polled; p poll; u 3 held
 * sends that ask for no completion; v 4 receives; e a send fails; i its own handler for SIGUSR2. Prints `done X` after each, and
 * at first `ready`. */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

static void on_usr2(int sig)
{
	(void)sig;
	CHECK(write(1, "usr2\n", 5) == 5);
}

static void child_dies(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		raise(SIGUSR2);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
}

int main(int argc, char **argv)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *q, *peer;
	uint64_t id = 1;
	char order;

	want_model();
	if (arg_flag(argc, argv, "handler"))
		signal(SIGUSR2, on_usr2);
	if (arg_flag(argc, argv, "ignore"))
		signal(SIGUSR2, SIG_IGN);
	d = dev_open(0);
	cq = cq_make(d, 64);
	q = q_couple(d, cq, &peer);
	if (arg_flag(argc, argv, "fork"))
		child_dies();
	printf("qp %u\nready\n", q->qpn);
	fflush(stdout);
	while (read(0, &order, 1) == 1) {
		switch (order) {
		case 'h':
		case 'u':
			CHECK(!script_hold(q, true));
			for (int i = 0; i < (order == 'h' ? 5 : 3); i++)
				CHECK(!post(q, IBV_WR_RDMA_WRITE, id++, 1000, order == 'h' ? IBV_SEND_SIGNALED : 0));
			break;
		case 'r': CHECK(!script_hold(q, false) && drain(cq) == 5); break;
		case 'l':
			for (int i = 0; i < 5; i++)
				CHECK(!post(q, IBV_WR_RDMA_WRITE, id++, 1000, IBV_SEND_SIGNALED));
			break;
		case 'p': CHECK(drain(cq) > 0); break;
		case 'v': CHECK(!post_recvs(q, RECV_ID | id, 4, 64)); break;
		case 'e':
			CHECK(!script_fail_next(q, 2, IBV_WC_REM_OP_ERR, 0x77));
			CHECK(!script_hold(q, true) && !post(q, IBV_WR_RDMA_WRITE, id++, 1000, 0) &&
			      !post(q, IBV_WR_RDMA_WRITE, id++, 1000, IBV_SEND_SIGNALED) &&
			      !post(q, IBV_WR_RDMA_WRITE, id++, 1000, IBV_SEND_SIGNALED));
			CHECK(!script_hold(q, false) && drain(cq) == 2);
			break;
		case 'i': signal(SIGUSR2, on_usr2); break;
		default: continue;
		}
		printf("done %c\n", order);
		fflush(stdout);
	}
	q_destroy(q);
	q_destroy(peer);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	return 0;
}
