/* QPs and CQs on a parent domain with a thread domain; CQs that are resized with completions in them; queries; memory
 * windows, whose binding is a WR: by ibv_bind_mw, by ibv_post_send, and among ibv_wr_*. */
#include "common.h"

static void bind(struct q *q, struct ibv_mw *mw, uint64_t id, unsigned flags)
{
	struct ibv_mw_bind b = {
		.wr_id = id,
		.send_flags = flags,
		.bind_info = { q->dev->mr, (uintptr_t)q->dev->buf, 4096, IBV_ACCESS_REMOTE_WRITE },
	};

	CHECK(!ibv_bind_mw(q->qp, mw, &b));
	truth_sent(q, id, 0, q->sig_all || flags & IBV_SEND_SIGNALED);
}

static void work(struct q *q, struct ibv_mw *mw, struct ibv_cq *cq)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	for (uint64_t i = 0; i < 40; i++) {
		CHECK(!post(q, IBV_WR_RDMA_WRITE, i, 100 + (uint32_t)i, i % 4 == 3 ? IBV_SEND_SIGNALED : 0));
		if (i % 8 == 5)
			bind(q, mw, 1000 + i, i % 16 == 5 ? IBV_SEND_SIGNALED : 0);
		if (i % 10 == 9)
			CHECK(!ibv_resize_cq(cq, 40 + (int)i));
		if (i % 10 == 6) {
			CHECK(!ibv_query_qp(q->qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
			drain(cq);
		}
	}
	CHECK(ibv_resize_cq(cq, 1) == EINVAL);
	drain(cq);
	CHECK(q->n.send_wr_outstanding == 0);
}

int main(void)
{
	struct ibv_td_init_attr no_td_attr = { 0 };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_qp_init_attr_ex init = {
		.cap = { 64, 1, 4, 1, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
	};
	struct ibv_mw_bind_info info;
	struct ibv_pd *domain;
	struct ibv_qp_ex *x;
	struct ibv_cq *cq;
	struct ibv_mw *mw;
	struct dev *d;
	struct q *q[3];

	want_model();
	d = dev_open(0);
	parent.pd = d->pd;
	CHECK((parent.td = ibv_alloc_td(d->ctx, &no_td_attr)));
	CHECK((domain = ibv_alloc_parent_domain(d->ctx, &parent)));
	CHECK(ibv_dealloc_pd(d->pd) == EBUSY);
	attr.parent_domain = domain;
	CHECK((cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(d->ctx, &attr))));
	CHECK((mw = ibv_alloc_mw(d->pd, IBV_MW_TYPE_1)));

	q[0] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q[1] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sig_all = true });
	init.send_cq = init.recv_cq = cq;
	init.pd = domain;
	q[2] = q_adopt(d, ibv_create_qp_ex(d->ctx, &init));
	for (int i = 0; i < 3; i++) {
		q_pair(q[i], q[i]);
		work(q[i], mw, cq);
	}
	x = ibv_qp_to_qp_ex(q[2]->qp);
	info = (struct ibv_mw_bind_info){ d->mr, (uintptr_t)d->buf, 4096, IBV_ACCESS_REMOTE_WRITE };
	ibv_wr_start(x);
	x->wr_id = 5000;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(x, mw, 1, &info);
	CHECK(!ibv_wr_complete(x));
	truth_sent(q[2], 5000, 0, true);
	bind(q[2], mw, 5001, 0); /* the plain call after a batch */
	CHECK(!post(q[2], IBV_WR_RDMA_WRITE, 5002, 77, IBV_SEND_SIGNALED) && drain(cq) == 2);
	CHECK(!script_fail_post(q[2], 1, ENOMEM));
	{
		struct ibv_mw_bind refused = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info };

		CHECK(ibv_bind_mw(q[2]->qp, mw, &refused) == ENOMEM);
	}
	bind(q[0], mw, 6000, IBV_SEND_SIGNALED);
	printf("cqe %d\n", cq->cqe);
	for (int i = 0; i < 3; i++)
		q_destroy(q[i]);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(domain) && !ibv_dealloc_td(parent.td));
	dev_close(d);
	report();
	return 0;
}
