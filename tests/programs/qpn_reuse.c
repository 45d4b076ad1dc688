/* A QP goes with WRs outstanding, and the next one gets its number, on the same CQ.
 *
 *   qpn_reuse [--rounds N] [--stale]
 *
 * --stale: the device keeps the CQEs of a destroyed QP (as some do), so one is polled after the number lives again.
 * Such a CQE is nobody's: the truth counts its WR as discarded with the old QP.
 */
#include "common.h"

int main(int argc, char **argv)
{
	long rounds = arg_number(argc, argv, "rounds", 20);
	bool stale = arg_flag(argc, argv, "stale");
	struct dev *d;
	struct ibv_cq *cq;
	struct q *b;
	uint32_t qpn = 0;

	want_model();
	if (stale)
		want("NULLVERBS_KEEP_CQES", "1");
	d = dev_open(0);
	cq = cq_make(d, 64);
	b = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	for (long r = 0; r < rounds; r++) {
		struct ibv_wc wc[8];
		struct q *a;

		if (qpn)
			CHECK(!script_reuse_qpn(qpn));
		a = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
		CHECK(!qpn || a->qpn == qpn);
		qpn = a->qpn;
		q_pair(a, b);
		if (stale && r) /* the unpolled CQE of the former owner */
			CHECK(ibv_poll_cq(cq, 8, wc) == 1 && wc[0].qp_num == qpn && wc[0].wr_id == 99);
		for (int i = 1; i <= 4; i++)
			CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 100 * (uint32_t)(r + 1), i == 4 ? IBV_SEND_SIGNALED : 0));
		CHECK(drain(cq) == 1 && a->n.send_wr_completed == 4);
		CHECK(!post(a, IBV_WR_RDMA_WRITE, 99, 7, IBV_SEND_SIGNALED)); /* its CQE stays unpolled */
		CHECK(!script_hold(a, true));
		CHECK(!post(a, IBV_WR_RDMA_WRITE, 100, 9, IBV_SEND_SIGNALED)); /* and this one never completes */
		q_destroy(a);
		CHECK(a->n.send_wr_discarded == 2);
		q_reset(b);
	}
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
