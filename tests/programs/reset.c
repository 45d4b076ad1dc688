/* RESET with WRs outstanding and with CQEs unpolled, then the same QP again with another peer, many times.
 *
 *   reset [--rounds N]
 */
#include "common.h"

int main(int argc, char **argv)
{
	long rounds = arg_number(argc, argv, "rounds", 100);
	struct dev *d;
	struct ibv_cq *cq, *cq_p;
	struct q *a, *peer[2];

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 256);
	cq_p = cq_make(d, 256);
	a = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	for (int i = 0; i < 2; i++)
		peer[i] = q_make(d, &(struct shape){ .send_cq = cq_p, .recv_cq = cq_p });

	for (long r = 0; r < rounds; r++) {
		struct q *p = peer[r % 2];

		q_pair(a, p);
		CHECK(!post_recvs(p, RECV_ID, 3, 100) && !post_recvs(a, RECV_ID, 2, 100));
		for (int i = 0; i < 3; i++)
			CHECK(!post(a, IBV_WR_SEND, (uint64_t)i, 100, i == 2 ? IBV_SEND_SIGNALED : 0));
		CHECK(drain(cq_p) == 3 && drain(cq) == 1);
		for (int i = 0; i < 5; i++) /* complete, but never polled */
			CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 10, IBV_SEND_SIGNALED));
		CHECK(!script_hold(a, true));
		for (int i = 0; i < 4; i++) /* not even executed */
			CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 1000, i % 2 ? IBV_SEND_SIGNALED : 0));
		CHECK(a->n.send_wr_outstanding == 9);
		q_reset(a);
		q_reset(p);
		CHECK(!script_hold(a, false) && drain(cq) == 0 && drain(cq_p) == 0);
	}
	CHECK(a->n.send_wr_completed == 3 * (uint64_t)rounds && a->n.send_wr_discarded == 9 * (uint64_t)rounds);
	CHECK(a->n.recv_wr_discarded == 2 * (uint64_t)rounds);
	q_destroy(a);
	q_destroy(peer[0]);
	q_destroy(peer[1]);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(cq_p));
	dev_close(d);
	report();
	return 0;
}
