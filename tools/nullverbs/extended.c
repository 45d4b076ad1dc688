/* The wr_* interface of a QP: WRs are built in a private chain and posted at wr_complete, all or none.
 * Posting goes straight to the mode's function, not through the context's table, as in any provider. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct nv_builder {
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	uint8_t *bytes;
	uint32_t n, cap, max_sge, max_inline;
	int err;
	pthread_mutex_t lock;
	struct ibv_send_wr spare; /* takes what has no room */
};

static struct nv_builder *of(struct ibv_qp_ex *qp) { return ((struct nv_qp *)qp)->builder; }

static struct ibv_send_wr *begin(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
	struct nv_builder *b = of(qp);
	struct ibv_send_wr *wr = &b->spare;

	if (b->n < b->cap)
		wr = &b->wr[b->n++];
	else
		b->err = b->err ? b->err : ENOMEM;
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = qp->wr_id;
	wr->opcode = opcode;
	wr->send_flags = qp->wr_flags;
	return wr;
}

static struct ibv_send_wr *last(struct nv_builder *b) { return b->n && !b->err ? &b->wr[b->n - 1] : &b->spare; }

static void rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, uint32_t imm)
{
	struct ibv_send_wr *wr = begin(qp, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	wr->imm_data = imm;
}

static void wr_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr) { rdma(qp, IBV_WR_RDMA_READ, rkey, addr, 0); }
static void wr_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr) { rdma(qp, IBV_WR_RDMA_WRITE, rkey, addr, 0); }

static void wr_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void atomic(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, uint64_t a, uint64_t s)
{
	struct ibv_send_wr *wr = begin(qp, opcode);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = a;
	wr->wr.atomic.swap = s;
}

static void wr_swap(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t add)
{
	atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey) { begin(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey; }
static void wr_send(struct ibv_qp_ex *qp) { begin(qp, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm) { begin(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm; }
static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t key) { begin(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = key; }

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = last(of(qp));

	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t number) { last(of(qp))->qp_type.xrc.remote_srqn = number; }

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list)
{
	struct nv_builder *b = of(qp);
	struct ibv_send_wr *wr = last(b);

	if (wr == &b->spare)
		return;
	if (n > b->max_sge) {
		b->err = EINVAL;
		return;
	}
	wr->sg_list = b->sge + (size_t)(b->n - 1) * b->max_sge;
	wr->num_sge = (int)n;
	memcpy(wr->sg_list, list, n * sizeof(*list));
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t len)
{
	struct ibv_sge one = { .addr = addr, .length = len, .lkey = lkey };

	wr_set_sge_list(qp, len ? 1 : 0, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list)
{
	struct nv_builder *b = of(qp);
	struct ibv_send_wr *wr = last(b);
	struct ibv_sge one = { .length = 0 };
	uint8_t *at;

	if (wr == &b->spare)
		return;
	at = b->bytes + (size_t)(b->n - 1) * b->max_inline;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > b->max_inline - one.length) {
			b->err = EINVAL;
			return;
		}
		memcpy(at + one.length, list[i].addr, list[i].length);
		one.length += (uint32_t)list[i].length;
	}
	one.addr = (uintptr_t)at;
	wr->send_flags |= IBV_SEND_INLINE;
	wr_set_sge_list(qp, 1, &one);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t len)
{
	struct ibv_data_buf one = { addr, len };

	wr_set_inline_data_list(qp, 1, &one);
}

void nv_builder_lock(struct nv_qp *qp)
{
	if (qp->builder)
		pthread_mutex_lock(&qp->builder->lock);
}

void nv_builder_unlock(struct nv_qp *qp)
{
	if (qp->builder)
		pthread_mutex_unlock(&qp->builder->lock);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_send_tso(struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_TSO);

	wr->tso.hdr = hdr;
	wr->tso.hdr_sz = hdr_sz;
	wr->tso.mss = mss;
}

static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	rdma(qp, IBV_WR_ATOMIC_WRITE, rkey, addr, 0);
	wr_set_inline_data(qp, (void *)value, 8);
}

static void wr_start(struct ibv_qp_ex *qp)
{
	nv_builder_lock((struct nv_qp *)qp);
	of(qp)->n = 0;
	of(qp)->err = 0;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	of(qp)->n = 0;
	nv_builder_unlock((struct nv_qp *)qp);
}

static int submit(struct nv_qp *qp)
{
	struct nv_builder *b = qp->builder;
	struct ibv_send_wr *bad;
	uint64_t used = 0;

	if (b->err || !b->n)
		return b->err;
	if (nv_config()->model) {
		nv_lock();
		used = qp->sq_head - qp->sq_tail;
		nv_unlock();
	}
	if (used + b->n > b->cap)
		return ENOMEM;
	for (uint32_t i = 0; i + 1 < b->n; i++)
		b->wr[i].next = &b->wr[i + 1];
	return nv_config()->model ? nv_model_send(qp, b->wr, &bad) : nv_null_post_send(&qp->base, b->wr, &bad);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct nv_qp *qp = (struct nv_qp *)ex;
	int err = submit(qp);

	nv_builder_unlock(qp);
	return err;
}

void nv_builder_rearm(struct nv_qp *qp) { qp->ex.wr_complete = wr_complete; }

void nv_builder_free(struct nv_qp *qp)
{
	if (!qp->builder)
		return;
	free(qp->builder->wr);
	free(qp->builder->sge);
	free(qp->builder->bytes);
	free(qp->builder);
	qp->builder = NULL;
}

int nv_builder_attach(struct nv_qp *qp)
{
	const struct ibv_qp_cap *cap = &qp->init.cap;
	struct nv_builder *b = qp->builder = calloc(1, sizeof(*b));

	if (!b)
		return ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	b->cap = cap->max_send_wr;
	b->max_sge = cap->max_send_sge ? cap->max_send_sge : 1;
	b->max_inline = cap->max_inline_data;
	b->wr = calloc(b->cap + 1u, sizeof(*b->wr));
	b->sge = calloc((size_t)(b->cap + 1) * b->max_sge, sizeof(*b->sge));
	b->bytes = calloc(b->cap + 1u, b->max_inline + 1u);
	if (!b->wr || !b->sge || !b->bytes)
		return ENOMEM;
	qp->ex.comp_mask = 0;
	qp->ex.wr_atomic_cmp_swp = wr_swap;
	qp->ex.wr_atomic_fetch_add = wr_add;
	qp->ex.wr_atomic_write = wr_atomic_write;
	qp->ex.wr_bind_mw = wr_bind_mw;
	qp->ex.wr_local_inv = wr_local_inv;
	qp->ex.wr_rdma_read = wr_read;
	qp->ex.wr_rdma_write = wr_write;
	qp->ex.wr_rdma_write_imm = wr_write_imm;
	qp->ex.wr_send = wr_send;
	qp->ex.wr_send_imm = wr_send_imm;
	qp->ex.wr_send_inv = wr_send_inv;
	qp->ex.wr_send_tso = wr_send_tso;
	qp->ex.wr_set_ud_addr = wr_set_ud_addr;
	qp->ex.wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->ex.wr_set_inline_data = wr_set_inline_data;
	qp->ex.wr_set_inline_data_list = wr_set_inline_data_list;
	qp->ex.wr_set_sge = wr_set_sge;
	qp->ex.wr_set_sge_list = wr_set_sge_list;
	qp->ex.wr_start = wr_start;
	qp->ex.wr_abort = wr_abort;
	nv_builder_rearm(qp);
	return 0;
}
