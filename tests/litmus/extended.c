/* `--extended`: the same WRs by ibv_wr_*, the same CQEs by ibv_start_poll. */
#include "litmus.h"

#define OPERATIONS \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

struct ibv_qp *extended_qp(struct side *s, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex x = { .send_cq = init->send_cq, .recv_cq = init->recv_cq, .srq = init->srq, .cap = init->cap,
					 .qp_type = init->qp_type, .sq_sig_all = init->sq_sig_all, .pd = s->pd,
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					 .send_ops_flags = OPERATIONS };
	struct ibv_qp *qp = ibv_create_qp_ex(s->ctx, &x);

	init->cap = x.cap;
	return qp;
}

struct ibv_cq *extended_cq(struct side *s, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex x = { .cqe = cqe, .channel = s->channel,
					 .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM };

	return ibv_cq_ex_to_cq(ibv_create_cq_ex(s->ctx, &x));
}

static void operation(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE: return ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return ibv_wr_rdma_write_imm(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
	case IBV_WR_RDMA_READ: return ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
	case IBV_WR_SEND: return ibv_wr_send(x);
	case IBV_WR_SEND_WITH_IMM: return ibv_wr_send_imm(x, wr->imm_data);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
					     wr->wr.atomic.swap);
	default:
		return ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
	}
}

static void data(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *e = wr->sg_list;

	if (!wr->num_sge)
		ibv_wr_set_sge_list(x, 0, NULL);
	else if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(x, (void *)(uintptr_t)e->addr, e->length);
	else
		ibv_wr_set_sge(x, e->lkey, e->addr, e->length);
}

/* A batch is taken or refused as a whole; of one that is refused the first WR is bad. What has several SGEs goes by
 * ibv_post_send: soft-RoCE's ibv_wr_set_sge_list takes each for as long as the first, and its
 * ibv_wr_set_inline_data_list sends nothing. */
int extended_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	static unsigned wrs;
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	int err = 0;

	while (wr && !err) {
		struct ibv_send_wr one = *wr, *ignored;

		*bad = wr;
		if (wr->num_sge > 1) {
			one.next = NULL;
			err = ibv_post_send(qp, &one, &ignored);
			wr = wr->next;
			continue;
		}
		ibv_wr_start(x);
		for (; wr && wr->num_sge <= 1; wr = wr->next) {
			x->wr_id = wr->wr_id;
			x->wr_flags = wr->num_sge ? wr->send_flags : wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
			operation(x, wr);
			data(x, wr);
			if (__atomic_add_fetch(&wrs, 1, __ATOMIC_RELAXED) % 8 == 0)
				usleep(500); /* the provider's lock is held meanwhile */
		}
		err = ibv_wr_complete(x);
	}
	return err;
}

static void look(struct ibv_cq_ex *cq, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){ .wr_id = cq->wr_id, .status = cq->status, .qp_num = ibv_wc_read_qp_num(cq) };
	if (!wc->status) {
		wc->opcode = ibv_wc_read_opcode(cq);
		wc->byte_len = ibv_wc_read_byte_len(cq);
		wc->wc_flags = ibv_wc_read_wc_flags(cq);
		wc->imm_data = ibv_wc_read_imm_data(cq);
	} else {
		wc->vendor_err = ibv_wc_read_vendor_err(cq);
	}
}

/* `two`: looks whether there is another one, which it keeps for the next time; of programs of one thread. */
int extended_poll(struct ibv_cq *base, struct ibv_wc *wc, bool two)
{
	static struct { struct ibv_cq *cq; struct ibv_wc wc; } second;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)base;
	struct ibv_poll_cq_attr attr = { 0 };
	int err;

	if (second.cq == base) {
		*wc = second.wc;
		second.cq = NULL;
		return 1;
	}
	err = ibv_start_poll(cq, &attr);
	if (err)
		return err == ENOENT ? 0 : -err;
	look(cq, wc);
	if (two && !second.cq) {
		err = ibv_next_poll(cq);
		if (err == ENOENT)
			return 1; /* soft-RoCE has ended the poll */
		if (err)
			return -err;
		look(cq, &second.wc);
		second.cq = base;
	}
	ibv_end_poll(cq);
	return 1;
}
