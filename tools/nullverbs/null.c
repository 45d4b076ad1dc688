/* The null mode's data path: posting keeps 16 bytes per signaled WR, polling hands them back. No lock, no copy.
 *
 * A CQ is a ring with one writer and one reader: it is right when one thread posts to all QPs of a CQ and one
 * (the same or another) polls it. Receives are accepted and forgotten. A full ring refuses the WR with ENOMEM.
 */
#include "nullverbs.h"

#include <errno.h>

static const uint8_t wc_opcode[16] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[IBV_WR_TSO] = IBV_WC_TSO,
	[IBV_WR_ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
};

enum ibv_wc_opcode nv_wc_opcode(enum ibv_wr_opcode op)
{
	return (enum ibv_wc_opcode)wc_opcode[op & 15];
}

int nv_null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct nv_cq *cq = nv_cq(qp->send_cq);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t mask = cq->mask;
	unsigned all = qp->handle & 1 ? IBV_SEND_SIGNALED : 0; /* bit 0 of the handle says sq_sig_all */
	uint32_t qpn = qp->qp_num << 8;
	int err = 0;

	for (; wr; wr = wr->next) {
		struct nv_tiny_cqe *e;

		if (!((wr->send_flags | all) & IBV_SEND_SIGNALED))
			continue;
		/* SYNC POINT: pairs with the release of tail in nv_null_poll_cq */
		if (head - atomic_load_explicit(&cq->tail, memory_order_acquire) > mask) {
			*bad_wr = wr;
			err = ENOMEM;
			break;
		}
		e = &cq->tiny[head & mask];
		e->wr_id = wr->wr_id;
		e->qpn_op = qpn | wc_opcode[wr->opcode & 15];
		head++;
	}
	/* SYNC POINT: pairs with the acquire of head in nv_null_poll_cq */
	atomic_store_explicit(&cq->head, head, memory_order_release);
	return err;
}

int nv_null_poll_cq(struct ibv_cq *base, int num, struct ibv_wc *wc)
{
	struct nv_cq *cq = nv_cq(base);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t have = atomic_load_explicit(&cq->head, memory_order_acquire) - tail;
	int n;

	if (!have)
		return 0;
	for (n = 0; n < num && have; n++, have--, tail++, wc++) {
		const struct nv_tiny_cqe *e = &cq->tiny[tail & cq->mask];

		wc->wr_id = e->wr_id;
		wc->status = IBV_WC_SUCCESS;
		wc->opcode = (enum ibv_wc_opcode)(e->qpn_op & 0xff);
		wc->vendor_err = 0;
		wc->byte_len = 0;
		wc->qp_num = e->qpn_op >> 8;
		wc->wc_flags = 0;
	}
	atomic_store_explicit(&cq->tail, tail, memory_order_release);
	return n;
}

int nv_null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)qp, (void)wr, (void)bad_wr;
	return 0;
}

int nv_null_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)srq, (void)wr, (void)bad_wr;
	return 0;
}
