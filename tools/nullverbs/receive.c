/* The model's receive queues, and the flush that ERR brings to both queues of a QP. */
#include "nullverbs.h"

#include <errno.h>
#include <string.h>

static int accept_wr(struct nv_rq *rq, const struct ibv_recv_wr *wr)
{
	struct nv_rwr *w;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->head - rq->tail >= rq->cap)
		return ENOMEM;
	w = &rq->wr[rq->head % rq->cap];
	w->wr_id = wr->wr_id;
	w->num_sge = wr->num_sge;
	if (wr->num_sge)
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
	rq->head++;
	return 0;
}

static int accept_chain(struct nv_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		int err = accept_wr(rq, wr);

		if (err) {
			*bad_wr = wr;
			return err;
		}
	}
	return 0;
}

int nv_model_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct nv_qp *qp = nv_qp(base);
	int err = EINVAL;

	nv_lock();
	if (qp->st == IBV_QPS_RESET || base->srq)
		*bad_wr = wr;
	else
		err = accept_chain(&qp->rq, wr, bad_wr);
	if (qp->st == IBV_QPS_ERR)
		nv_flush(qp);
	else
		nv_run_stalled();
	nv_unlock();
	return err;
}

int nv_model_post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int err;

	nv_lock();
	err = accept_chain(&nv_srq(base)->rq, wr, bad_wr);
	nv_run_stalled();
	nv_unlock();
	return err;
}

/* Everything not yet executed completes in error, in post order, signaled or not. An SRQ keeps its WRs. */
void nv_flush(struct nv_qp *qp)
{
	while (qp->sq_next < qp->sq_head)
		nv_push_send_cqe(qp, qp->sq_next++, IBV_WC_WR_FLUSH_ERR, 0, 0);
	while (qp->rq.next < qp->rq.head) {
		struct nv_cqe e = { .qp = qp, .recv = true };

		memset(&e.wc, 0xA5, sizeof(e.wc));
		e.wc.wr_id = qp->rq.wr[qp->rq.next++ % qp->rq.cap].wr_id;
		e.wc.status = IBV_WC_WR_FLUSH_ERR;
		e.wc.vendor_err = 0;
		e.wc.qp_num = qp->base.qp_num;
		nv_cq_push(nv_cq(qp->base.recv_cq), &e, false);
	}
}

void nv_enter_error(struct nv_qp *qp)
{
	if (qp->st == IBV_QPS_ERR)
		return;
	qp->st = IBV_QPS_ERR;
	nv_unstall(qp);
	nv_flush(qp);
	if (qp->base.srq)
		nv_raise_async(qp->base.context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
}
