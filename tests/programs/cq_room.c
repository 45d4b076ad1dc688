/* QPs on small CQs, more than these have room for if each adds completions of a library's own: one CQ stays as it is, one is
 * resized first. Each QP says what it was asked for. */
#include "common.h"

#define QPS 20

static void on_one(struct dev *d, struct ibv_cq *cq)
{
	struct q *q[QPS];

	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		q[i] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 16 });
		CHECK(!ibv_query_qp(q[i]->qp, &attr, IBV_QP_CAP, &init));
		CHECK(attr.cap.max_send_wr == 16 && init.cap.max_send_wr == 16);
		q_pair(q[i], q[i]);
		CHECK(!post(q[i], IBV_WR_RDMA_WRITE, 0, 8, IBV_SEND_SIGNALED) && drain(cq) == 1);
	}
	for (int i = 0; i < QPS; i++)
		q_destroy(q[i]);
	CHECK(!ibv_destroy_cq(cq));
}

int main(void)
{
	struct ibv_cq *resized;
	struct dev *d;

	want_model();
	d = dev_open(0);
	on_one(d, cq_make(d, 1));
	resized = cq_make(d, 1);
	CHECK(!ibv_resize_cq(resized, 64) && resized->cqe >= 64);
	on_one(d, resized);
	dev_close(d);
	report();
	return 0;
}
