/* Receive queues that are not a QP's, as far as their completions go: tag matching in an SRQ, and work queues. Neither
 * ever gets a message: an operation or a receive completes at once. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>

static void complete(struct nv_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode, uint32_t number)
{
	struct nv_cqe e = { .recv = true };

	e.wc.wr_id = wr_id;
	e.wc.opcode = opcode;
	e.wc.qp_num = number;
	nv_cq_push(cq, &e, false);
}

int nv_post_srq_ops(struct ibv_srq *base, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	struct nv_srq *srq = nv_srq(base);

	for (; op; op = op->next) {
		if (!srq->cq || (op->opcode != IBV_WR_TAG_ADD && op->opcode != IBV_WR_TAG_DEL)) {
			*bad = op;
			return EINVAL;
		}
		nv_lock();
		if (op->flags & IBV_OPS_SIGNALED)
			complete(srq->cq, op->wr_id, op->opcode == IBV_WR_TAG_ADD ? IBV_WC_TM_ADD : IBV_WC_TM_DEL, 0);
		nv_unlock();
	}
	return 0;
}

static int post_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)bad;
	for (; wr; wr = wr->next) {
		nv_lock();
		complete(nv_cq(wq->cq), wr->wr_id, IBV_WC_RECV, wq->wq_num);
		nv_unlock();
	}
	return 0;
}

struct ibv_wq *nv_create_wq(struct ibv_context *ctx, struct ibv_wq_init_attr *init)
{
	static _Atomic uint32_t next = 0x800001;
	struct ibv_wq *wq = calloc(1, sizeof(*wq));

	if (!wq) {
		errno = ENOMEM;
		return NULL;
	}
	wq->context = ctx;
	wq->wq_context = init->wq_context;
	wq->pd = init->pd;
	wq->cq = init->cq;
	wq->wq_num = next++;
	wq->wq_type = init->wq_type;
	wq->post_recv = post_recv;
	return wq;
}

int nv_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	if (attr->attr_mask & IBV_WQ_ATTR_STATE)
		wq->state = attr->wq_state;
	return 0;
}

int nv_destroy_wq(struct ibv_wq *wq)
{
	free(wq);
	return 0;
}

struct ibv_rwq_ind_table *nv_create_rwq_ind_table(struct ibv_context *ctx, struct ibv_rwq_ind_table_init_attr *init)
{
	struct ibv_rwq_ind_table *t = calloc(1, sizeof(*t));

	(void)init;
	if (t)
		t->context = ctx;
	return t;
}

int nv_destroy_rwq_ind_table(struct ibv_rwq_ind_table *t)
{
	free(t);
	return 0;
}
