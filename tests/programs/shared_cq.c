/* Many QPs on one CQ, sends and receives alike, every wr_id the same; at the end everything is flushed together. */
#include "common.h"

#define PAIRS 20
#define ID 7

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a[PAIRS], *b[PAIRS];
	struct shape s = { 0 };

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 4096);
	s.send_cq = s.recv_cq = cq;
	for (int i = 0; i < PAIRS; i++) {
		a[i] = q_make(d, &s);
		b[i] = q_make(d, &s);
		q_pair(a[i], b[i]);
	}
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < PAIRS; i++) {
			for (int k = 0; k <= i % 4; k++)
				CHECK(!post_recv(b[i], ID, 300) && !post(a[i], IBV_WR_SEND, ID, 300, 0));
			CHECK(!post(a[i], IBV_WR_RDMA_WRITE, ID, 50, IBV_SEND_SIGNALED));
			CHECK(!post_recv(a[i], ID, 40) && !post(b[i], IBV_WR_SEND_WITH_IMM, ID, 40, IBV_SEND_SIGNALED));
		}
		drain(cq);
	}
	for (int i = 0; i < PAIRS; i++) /* sends and receives flushed on one QP, with equal wr_ids */
		if (i % 2) {
			CHECK(!script_hold(a[i], true) && !post_recvs(a[i], ID, 1, 40));
			for (int k = 0; k < 3; k++)
				CHECK(!post(a[i], IBV_WR_RDMA_WRITE, ID, 10, k % 2 ? IBV_SEND_SIGNALED : 0));
			q_error(a[i]);
		}
	CHECK(drain(cq) == PAIRS / 2 * 4);
	for (int i = 0; i < PAIRS; i++) {
		CHECK(a[i]->n.send_wr_outstanding == 0 && a[i]->n.recv_wr_outstanding == 0);
		q_destroy(a[i]);
		q_destroy(b[i]);
	}
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
