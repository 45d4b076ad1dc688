/* Ends with work outstanding: some CQEs polled, some not, some WRs never completed.
 *
 *   unpolled [--exit] [--kill]     how it ends: return from main, _exit, or SIGKILL
 */
#include "common.h"

#include <signal.h>

int main(int argc, char **argv)
{
	struct q *a;

	want_model();
	a = q_half_polled();
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
