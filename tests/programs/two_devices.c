/* Two devices whose QPs have the same numbers, each with traffic of its own, and a pair from one to the other. */
#include "common.h"

int main(void)
{
	struct dev *d[2];
	struct ibv_cq *cq[2];
	struct q *a[2], *b[2], *x, *y;

	want_model();
	want_devices(2);
	for (int i = 0; i < 2; i++) {
		d[i] = dev_open(i);
		cq[i] = cq_make(d[i], 256);
		a[i] = q_make(d[i], &(struct shape){ .send_cq = cq[i], .recv_cq = cq[i] });
		b[i] = q_make(d[i], &(struct shape){ .send_cq = cq[i], .recv_cq = cq[i], .port = 2 });
		q_pair(a[i], b[i]);
	}
	CHECK(a[0]->qpn == a[1]->qpn && b[0]->qpn == b[1]->qpn);
	for (int i = 0; i < 30; i++) {
		CHECK(!post(a[0], IBV_WR_RDMA_WRITE, (uint64_t)i, 100, IBV_SEND_SIGNALED));
		if (i % 3 == 0)
			CHECK(!post(a[1], IBV_WR_RDMA_READ, (uint64_t)i, 7000, IBV_SEND_SIGNALED));
		if (i % 5 == 0)
			CHECK(!post(b[1], IBV_WR_RDMA_WRITE, (uint64_t)i, 1, IBV_SEND_SIGNALED));
	}
	CHECK(drain(cq[0]) == 30 && drain(cq[1]) == 16);

	x = q_make(d[0], &(struct shape){ .send_cq = cq[0], .recv_cq = cq[0] });
	y = q_make(d[1], &(struct shape){ .send_cq = cq[1], .recv_cq = cq[1] });
	CHECK(x->qpn == y->qpn);
	q_pair(x, y);
	CHECK(!post_recvs(y, RECV_ID, 4, 500));
	for (int i = 0; i < 4; i++)
		CHECK(!post(x, IBV_WR_SEND, (uint64_t)i, 500, IBV_SEND_SIGNALED));
	CHECK(drain(cq[0]) == 4 && drain(cq[1]) == 4);
	CHECK(!script_hold(a[0], true)); /* named by number: the first device's */
	CHECK(!post(a[0], IBV_WR_RDMA_WRITE, 77, 11, IBV_SEND_SIGNALED));
	CHECK(!post(a[1], IBV_WR_RDMA_WRITE, 77, 13, IBV_SEND_SIGNALED));
	CHECK(drain(cq[0]) == 0 && drain(cq[1]) == 1 && a[0]->n.send_wr_outstanding == 1);

	q_destroy(x);
	q_destroy(y);
	for (int i = 0; i < 2; i++) {
		q_destroy(a[i]);
		q_destroy(b[i]);
		CHECK(!ibv_destroy_cq(cq[i]));
		dev_close(d[i]);
	}
	report();
	return 0;
}
