/* The device refuses to make CQs, QPs and SRQs, as it does where a program tries out what it can have (libfabric does). What was
 * asked for stays as it was, errno says why, and what is made then works. */
#include "common.h"

#include <errno.h>

static struct ibv_qp_init_attr asked(struct ibv_cq *cq, enum ibv_qp_type type, uint32_t max_send_sge)
{
	return (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .qp_type = type,
					  .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = max_send_sge,
						   .max_recv_sge = 1 } };
}

/* A list of this length is longer than any device's. */
#define TOO_LONG 5000

static void no_qp(struct dev *d, struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = asked(cq, type, TOO_LONG), same = init;
	struct ibv_qp_init_attr_ex ex = { .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = init.cap,
					  .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = d->pd }, same_ex = ex;

	errno = 0;
	CHECK(!ibv_create_qp(d->pd, &init) && errno == EINVAL && !memcmp(&init, &same, sizeof(init)));
	errno = 0;
	CHECK(!ibv_create_qp_ex(d->ctx, &ex) && errno == EINVAL && !memcmp(&ex, &same_ex, sizeof(ex)));
	ex.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	same_ex = ex;
	errno = 0;
	CHECK(!ibv_create_qp_ex(d->ctx, &ex) && errno == EINVAL && !memcmp(&ex, &same_ex, sizeof(ex)));
}

int main(void)
{
	struct ibv_cq_init_attr_ex none = { .cqe = 0 };
	struct ibv_srq_init_attr empty = { .attr = { .max_wr = 0 } };
	struct dev *d;
	struct ibv_cq *cq;
	struct q *q;

	want_model();
	d = dev_open(0);
	errno = 0;
	CHECK(!ibv_create_cq(d->ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_cq(d->ctx, -8, NULL, NULL, 0) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_cq(d->ctx, 1 << 30, NULL, NULL, 0) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_cq_ex(d->ctx, &none) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_create_srq(d->pd, &empty) && errno == EINVAL);
	cq = cq_make(d, 64);
	no_qp(d, cq, IBV_QPT_RC);
	no_qp(d, cq, IBV_QPT_UC);
	no_qp(d, cq, IBV_QPT_UD);
	q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 16 });
	q_pair(q, q);
	no_qp(d, cq, IBV_QPT_RC);
	CHECK(!post(q, IBV_WR_RDMA_WRITE, 0, 8, IBV_SEND_SIGNALED) && drain(cq) == 1);
	q_destroy(q);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
