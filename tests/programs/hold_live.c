/* Goes on until stdin closes or SIGTERM comes: steady traffic on one QP, and a known number of WRs outstanding on
 * another. For looking at a live process.
 *
 *   hold_live [--outstanding N] [--size BYTES] [--per-second WRS]
 *
 * Prints `pid P`, the QPs as they stand and `ready`; at the end releases everything and reports.
 */
#include "common.h"

#include <poll.h>
#include <signal.h>

static volatile sig_atomic_t stop;

static void on_term(int sig) { stop = sig; }

int main(int argc, char **argv)
{
	long outstanding = arg_number(argc, argv, "outstanding", 24), size = arg_number(argc, argv, "size", 4096);
	long rate = arg_number(argc, argv, "per-second", 1000), ticks = 0;
	struct sigaction sa = { .sa_handler = on_term };
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct dev *d;
	struct ibv_cq *cq;
	struct q *held, *busy, *b[2];
	char sink[256];

	want_model();
	CHECK(outstanding >= 0 && outstanding <= 4096 && rate >= 1 && size >= 1 && size <= (long)(BUFFER / 2));
	sigaction(SIGTERM, &sa, NULL);
	d = dev_open(0);
	cq = cq_make(d, 8192);
	held = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 4096 });
	busy = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .port = 2 });
	for (int i = 0; i < 2; i++)
		b[i] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(held, b[0]);
	q_pair(busy, b[1]);
	CHECK(!script_hold(held, true));
	for (long i = 0; i < outstanding; i++)
		CHECK(!post(held, IBV_WR_RDMA_WRITE, (uint64_t)i, (uint32_t)size, IBV_SEND_SIGNALED));
	printf("pid %d\n", (int)getpid());
	report_qp(held);
	report_qp(busy);
	printf("ready\n");
	fflush(stdout);
	while (!stop) {
		long due = (ticks + 1) * rate / 100 - ticks * rate / 100; /* of this hundredth of a second */

		ticks++;
		for (long i = 0; i < due; i++) {
			CHECK(!post(busy, IBV_WR_RDMA_WRITE, (uint64_t)i, (uint32_t)size, IBV_SEND_SIGNALED));
			drain(cq);
		}
		if (poll(&in, 1, 10) > 0 && read(0, sink, sizeof(sink)) <= 0)
			break;
	}
	CHECK(!script_hold(held, false));
	drain(cq);
	CHECK(held->n.send_wr_outstanding == 0);
	q_destroy(held);
	q_destroy(busy);
	q_destroy(b[0]);
	q_destroy(b[1]);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
