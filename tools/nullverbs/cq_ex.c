/* The extended CQ: one CQE at a time is taken out and looked at through readers. */
#include "nullverbs.h"

#include <errno.h>

static struct nv_cq *of(struct ibv_cq_ex *cq) { return (struct nv_cq *)cq; }

static int take(struct ibv_cq_ex *ex)
{
	struct nv_cq *cq = of(ex);
	bool got;

	if (nv_config()->model) {
		nv_lock();
		got = nv_cq_pop(cq, &cq->cur);
		nv_unlock();
	} else {
		got = nv_null_poll_cq(&cq->base, 1, &cq->cur.wc) == 1;
	}
	if (!got)
		return ENOENT;
	ex->wr_id = cq->cur.wc.wr_id;
	ex->status = cq->cur.wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&of(ex)->poll_lock);
	err = take(ex);
	if (err)
		pthread_mutex_unlock(&of(ex)->poll_lock);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex) { pthread_mutex_unlock(&of(ex)->poll_lock); }
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.imm_data; }
static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.src_qp; }
static unsigned read_wc_flags(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.slid; }
static uint8_t read_sl(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.sl; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex) { return of(ex)->cur.wc.dlid_path_bits; }

/* Readers that were not asked for at creation stay NULL, as in any provider. */
static void set_readers(struct ibv_cq_ex *ex, uint64_t want)
{
	ex->start_poll = start_poll;
	ex->next_poll = take;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	if (want & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = read_byte_len;
	if (want & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = read_imm_data;
	if (want & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = read_qp_num;
	if (want & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = read_src_qp;
	if (want & IBV_WC_EX_WITH_SLID)
		ex->read_slid = read_slid;
	if (want & IBV_WC_EX_WITH_SL)
		ex->read_sl = read_sl;
	if (want & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = read_dlid_path_bits;
}

struct ibv_cq_ex *nv_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *init)
{
	struct ibv_cq *cq;

	if (init->wc_flags & ~nv_config()->wc_flags || init->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = nv_create_cq(ctx, (int)init->cqe, init->channel, (int)init->comp_vector);
	if (!cq)
		return NULL;
	cq->cq_context = init->cq_context;
	set_readers(&nv_cq(cq)->ex, init->wc_flags);
	return &nv_cq(cq)->ex;
}
