/* Ends with work outstanding: some CQEs polled, some not, some WRs never completed.
 *
 *   unpolled [--exit] [--kill]     how it ends: return from main, _exit, or SIGKILL
 */
#include "common.h"

#include <signal.h>

int main(int argc, char **argv)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	b = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(a, b);
	for (int i = 0; i < 20; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 1000, i % 2 ? IBV_SEND_SIGNALED : 0));
	CHECK(drain_n(cq, 7) == 7);
	CHECK(!script_hold(a, true) && !post_recvs(a, RECV_ID, 3, 10));
	for (int i = 0; i < 5; i++)
		CHECK(!post(a, IBV_WR_RDMA_READ, (uint64_t)i, 500, IBV_SEND_SIGNALED));
	CHECK(a->n.send_wr_outstanding == 11 && a->n.send_bytes_outstanding == 8500);
	report();
	if (arg_flag(argc, argv, "exit"))
		_exit(0);
	if (arg_flag(argc, argv, "kill"))
		kill(getpid(), SIGKILL);
	return 0;
}
