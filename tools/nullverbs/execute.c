/* What one send WR does in the model: finds its target in this process, checks keys, moves the bytes, consumes a
 * receive. Nothing is lost or late on the way; UC and UD drop what does not fit, RC reports it. */
#include "nullverbs.h"

#include <string.h>

struct piece {
	uint8_t *at;
	uint64_t len;
};

struct pieces {
	struct piece p[NV_MAX_SGE];
	int n;
	uint64_t total;
};

static const struct nv_result done = { .status = IBV_WC_SUCCESS };

static struct nv_result fail(const struct nv_qp *qp, enum ibv_wc_status status)
{
	return qp->base.qp_type == IBV_QPT_RC || qp->base.qp_type == IBV_QPT_XRC_SEND ? (struct nv_result){ .status = (int)status } : done;
}

static bool collect(struct nv_device *dev, struct ibv_pd *pd, const struct ibv_sge *sge, int n, unsigned access,
		    struct pieces *out)
{
	out->n = 0;
	out->total = 0;
	for (int i = 0; i < n; i++) {
		void *at;

		if (!sge[i].length)
			continue;
		at = nv_translate(dev, pd, sge[i].lkey, sge[i].addr, sge[i].length, access);
		if (!at)
			return false;
		out->p[out->n++] = (struct piece){ at, sge[i].length };
		out->total += sge[i].length;
	}
	return true;
}

static bool collect_local(struct nv_qp *qp, struct nv_swr *w, unsigned access, struct pieces *out)
{
	if (w->flags & IBV_SEND_INLINE) {
		*out = (struct pieces){ .n = 1, .p = { { w->inline_data, w->inline_len } }, .total = w->inline_len };
		return true;
	}
	return collect(qp->dev, qp->base.pd, w->sge, w->num_sge, access, out);
}

/* The target must have room for all of the source. */
static void move(const struct pieces *to, const struct pieces *from)
{
	uint64_t t_off = 0, f_off = 0;

	for (int t = 0, f = 0; f < from->n && t < to->n;) {
		uint64_t n = from->p[f].len - f_off, room = to->p[t].len - t_off;

		n = n < room ? n : room;
		if (n)
			memmove(to->p[t].at + t_off, from->p[f].at + f_off, n);
		f_off += n;
		t_off += n;
		if (f_off == from->p[f].len)
			f++, f_off = 0;
		if (t_off == to->p[t].len)
			t++, t_off = 0;
	}
}

/* ---- the receive side ---- */

struct message {
	const struct nv_swr *wr;
	const struct pieces *data; /* NULL: placed by the WRITE already */
	uint64_t byte_len;
	enum ibv_wc_opcode opcode;
	unsigned wc_flags;
	uint32_t imm;
	uint32_t src_qp;
	bool solicited;
};

/* The SRQ that a message is received from: the QP's, or the one that an XRC message names. */
static struct nv_srq *srq_of(struct nv_qp *t, const struct nv_swr *w)
{
	return t->base.qp_type == IBV_QPT_XRC_RECV ? nv_xrc_srq(w->xrc_srqn) : nv_srq(t->base.srq);
}

static struct nv_rq *queue_of(struct nv_qp *t, const struct nv_swr *w)
{
	struct nv_srq *srq = srq_of(t, w);

	return srq ? &srq->rq : &t->rq;
}

static bool has_receive(struct nv_qp *t, const struct nv_swr *w)
{
	return queue_of(t, w)->next < queue_of(t, w)->head;
}

static void check_limit(struct nv_srq *srq)
{
	if (srq && srq->limit && srq->rq.head - srq->rq.next < srq->limit) {
		srq->limit = 0;
		nv_raise_async(srq->base.context, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
}

/* Returns what the receiver's CQE says. */
static enum ibv_wc_status place(struct nv_qp *t, struct nv_srq *srq, const struct nv_rwr *r, const struct message *m)
{
	struct ibv_pd *pd = srq ? srq->base.pd : t->base.pd;
	struct pieces to;

	if (!m->data)
		return IBV_WC_SUCCESS;
	if (!collect(t->dev, pd, r->sge, r->num_sge, IBV_ACCESS_LOCAL_WRITE, &to))
		return IBV_WC_LOC_PROT_ERR;
	if (to.total < m->byte_len)
		return IBV_WC_LOC_LEN_ERR;
	move(&to, m->data);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status deliver(struct nv_qp *t, const struct message *m)
{
	struct nv_srq *srq = srq_of(t, m->wr);
	struct nv_rq *rq = queue_of(t, m->wr);
	const struct nv_rwr *r = &rq->wr[rq->next % rq->cap];
	struct nv_cqe e = { .qp = t, .srq = srq, .recv = true };
	enum ibv_wc_status status = place(t, srq, r, m);

	if (status != IBV_WC_SUCCESS) {
		memset(&e.wc, 0xA5, sizeof(e.wc));
		e.wc.vendor_err = 0;
	} else {
		e.wc.opcode = m->opcode;
		e.wc.byte_len = (uint32_t)m->byte_len;
		e.wc.imm_data = m->imm;
		e.wc.src_qp = m->src_qp;
		e.wc.wc_flags = m->wc_flags;
	}
	e.wc.wr_id = r->wr_id;
	e.wc.status = status;
	e.wc.qp_num = t->base.qp_num;
	rq->next++;
	nv_cq_push(srq && srq->cq ? srq->cq : nv_cq(t->base.recv_cq), &e, m->solicited);
	check_limit(srq);
	return status;
}

/* ---- the send side ---- */

static bool hears(const struct nv_qp *t, const struct nv_qp *from)
{
	enum ibv_qp_type from_type = from->base.qp_type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : from->base.qp_type;

	return t && t->base.qp_type == from_type &&
	       (t->st == IBV_QPS_RTR || t->st == IBV_QPS_RTS || t->st == IBV_QPS_SQD);
}

/* rnr_retry 7 means to try for ever, as on the wire. */
static struct nv_result no_receive(const struct nv_qp *qp)
{
	if (qp->base.qp_type != IBV_QPT_UC && qp->attr.rnr_retry == 7)
		return (struct nv_result){ .status = NV_WAIT };
	return fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void *remote(struct nv_qp *t, const struct nv_swr *w, uint64_t len, unsigned access)
{
	if (!(t->attr.qp_access_flags & access))
		return NULL;
	return nv_translate(t->dev, t->base.pd, w->rkey, w->remote_addr, len, access);
}

static struct nv_result message(struct nv_qp *qp, struct nv_qp *t, const struct nv_swr *w, const struct pieces *data,
				enum ibv_wc_opcode opcode, uint64_t byte_len)
{
	struct message m = {
		.wr = w,
		.data = data,
		.byte_len = byte_len,
		.opcode = opcode,
		.src_qp = qp->base.qp_num,
		.solicited = w->flags & IBV_SEND_SOLICITED,
	};
	enum ibv_wc_status at_target;

	if (w->opcode == IBV_WR_SEND_WITH_INV)
		m.wc_flags = IBV_WC_WITH_INV;
	else if (w->opcode != IBV_WR_SEND)
		m.wc_flags = IBV_WC_WITH_IMM;
	if (m.wc_flags)
		m.imm = w->imm;
	at_target = deliver(t, &m);
	if (at_target == IBV_WC_SUCCESS)
		return (struct nv_result){ .byte_len = (uint32_t)byte_len };
	nv_enter_error(t);
	return fail(qp, at_target == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
}

static struct nv_result write_memory(struct nv_qp *qp, struct nv_qp *t, const struct nv_swr *w,
				     const struct pieces *local)
{
	struct pieces to = { .n = 1, .total = local->total };

	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && !has_receive(t, w))
		return no_receive(qp);
	if (local->total) {
		to.p[0].at = remote(t, w, local->total, IBV_ACCESS_REMOTE_WRITE);
		to.p[0].len = local->total;
		if (!to.p[0].at)
			return fail(qp, IBV_WC_REM_ACCESS_ERR);
		move(&to, local);
	}
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		return message(qp, t, w, NULL, IBV_WC_RECV_RDMA_WITH_IMM, local->total);
	return (struct nv_result){ .byte_len = (uint32_t)local->total };
}

static struct nv_result read_memory(struct nv_qp *qp, struct nv_qp *t, const struct nv_swr *w,
				    const struct pieces *local)
{
	struct pieces from = { .n = 1, .total = local->total };

	if (local->total) {
		from.p[0].at = remote(t, w, local->total, IBV_ACCESS_REMOTE_READ);
		from.p[0].len = local->total;
		if (!from.p[0].at)
			return fail(qp, IBV_WC_REM_ACCESS_ERR);
		move(local, &from);
	}
	return (struct nv_result){ .byte_len = (uint32_t)local->total };
}

static struct nv_result atomic(struct nv_qp *qp, struct nv_qp *t, const struct nv_swr *w, const struct pieces *local)
{
	struct pieces old = { .n = 1, .total = 8 };
	uint64_t *at, before;

	if (w->remote_addr % 8)
		return fail(qp, IBV_WC_REM_INV_REQ_ERR);
	if (local->total != 8)
		return (struct nv_result){ .status = IBV_WC_LOC_LEN_ERR };
	if (w->opcode == IBV_WR_ATOMIC_WRITE)
		return write_memory(qp, t, w, local);
	at = remote(t, w, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if (!at)
		return fail(qp, IBV_WC_REM_ACCESS_ERR);
	before = *at;
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*at = before + w->compare_add;
	else if (before == w->compare_add)
		*at = w->swap;
	old.p[0] = (struct piece){ (uint8_t *)&before, 8 };
	move(local, &old);
	return (struct nv_result){ .byte_len = 8 };
}

/* A datagram arrives behind 40 bytes of GRH; what nobody waits for is gone. */
static struct nv_result datagram(struct nv_qp *qp, struct nv_swr *w, const struct pieces *local)
{
	struct nv_qp *t = nv_qpn_find(w->ud_dev, w->ud_qpn);
	struct nv_result r = { .byte_len = (uint32_t)local->total };
	struct ibv_grh grh = { .next_hdr = 0x1b, .hop_limit = w->ud_av.grh.hop_limit, .dgid = w->ud_av.grh.dgid };
	struct pieces framed = { .n = 1, .total = local->total + sizeof(grh) };
	struct message m = {
		.wr = w,
		.data = &framed,
		.byte_len = framed.total,
		.opcode = IBV_WC_RECV,
		.wc_flags = IBV_WC_GRH | (w->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0),
		.imm = w->opcode == IBV_WR_SEND_WITH_IMM ? w->imm : 0,
		.src_qp = qp->base.qp_num,
		.solicited = w->flags & IBV_SEND_SOLICITED,
	};

	if (local->total > 4096)
		return (struct nv_result){ .status = IBV_WC_LOC_LEN_ERR };
	/* a sender that names a qkey with its top bit set means the one of its own QP */
	if (!hears(t, qp) || !has_receive(t, w) ||
	    t->attr.qkey != (w->ud_qkey & 0x80000000u ? qp->attr.qkey : w->ud_qkey))
		return r;
	nv_gid(qp->dev, w->ud_av.port_num, w->ud_av.grh.sgid_index, &grh.sgid);
	framed.p[0] = (struct piece){ (uint8_t *)&grh, sizeof(grh) };
	for (int i = 0; i < local->n && framed.n < (int)NV_MAX_SGE; i++)
		framed.p[framed.n++] = local->p[i];
	if (deliver(t, &m) != IBV_WC_SUCCESS)
		nv_enter_error(t);
	return r;
}

struct nv_result nv_execute(struct nv_qp *qp, struct nv_swr *w)
{
	bool into = w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		    w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct pieces local;
	struct nv_qp *t;

	if (w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW)
		return done;
	if (!collect_local(qp, w, into ? IBV_ACCESS_LOCAL_WRITE : 0, &local))
		return (struct nv_result){ .status = IBV_WC_LOC_PROT_ERR };
	if (local.total > NV_MAX_MSG)
		return (struct nv_result){ .status = IBV_WC_LOC_LEN_ERR };
	if (qp->base.qp_type == IBV_QPT_UD)
		return datagram(qp, w, &local);
	t = nv_qpn_find(qp->peer_dev, qp->attr.dest_qp_num);
	if (!hears(t, qp) || t->attr.dest_qp_num != qp->base.qp_num)
		return fail(qp, IBV_WC_RETRY_EXC_ERR);
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return write_memory(qp, t, w, &local);
	case IBV_WR_RDMA_READ:
		return read_memory(qp, t, w, &local);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_WRITE:
		return atomic(qp, t, w, &local);
	default:
		return has_receive(t, w) ? message(qp, t, w, &local, IBV_WC_RECV, local.total) : no_receive(qp);
	}
}
