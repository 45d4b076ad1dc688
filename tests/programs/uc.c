/* An unreliable connection: WRITEs and SENDs succeed at the sender whatever becomes of them. */
#include "common.h"

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq_a, *cq_b;
	struct q *a, *b;
	struct chain c = { .n = 0 };

	want_model();
	d = dev_open(0);
	cq_a = cq_make(d, 128);
	cq_b = cq_make(d, 128);
	a = q_make(d, &(struct shape){ .type = IBV_QPT_UC, .send_cq = cq_a, .recv_cq = cq_a, .sig_all = true });
	b = q_make(d, &(struct shape){ .type = IBV_QPT_UC, .send_cq = cq_b, .recv_cq = cq_b });
	q_pair(a, b);
	CHECK(!post_recvs(b, RECV_ID, 6, 2000));
	for (int i = 0; i < 10; i++) {
		chain_add(&c, a, IBV_WR_RDMA_WRITE, (uint64_t)i, 1000, 0, 2);
		chain_add(&c, a, i % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, 100 + (uint64_t)i, 2000, 0, 1);
	}
	CHECK(!chain_post(&c, a, NULL));
	CHECK(drain(cq_a) == 20 && drain(cq_b) == 6 && a->n.send_wr_failed == 0);
	CHECK(post(a, IBV_WR_RDMA_READ, 1, 8, 0) == EINVAL);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq_a) && !ibv_destroy_cq(cq_b));
	dev_close(d);
	report();
	return 0;
}
