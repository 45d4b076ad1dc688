/* The model's send queue: accepting WRs, running them in order, flushing them, and the script's levers. */
#include "nullverbs.h"
#include "script.h"

#include <errno.h>
#include <string.h>

static struct nv_qp *stalled; /* QPs whose next message waits for a receive */

static bool supported(enum ibv_qp_type type, enum ibv_wr_opcode op)
{
	if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV)
		return type == IBV_QPT_XRC_SEND && (op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM);
	switch (op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_WRITE:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return type == IBV_QPT_RC;
	default:
		return false;
	}
}

static int accept_inline(struct nv_qp *qp, struct nv_swr *w, const struct ibv_send_wr *wr)
{
	w->inline_len = 0;
	if (wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (s->length > qp->init.cap.max_inline_data - w->inline_len)
			return EINVAL;
		if (s->length)
			memcpy(w->inline_data + w->inline_len, (void *)(uintptr_t)s->addr, s->length);
		w->inline_len += s->length;
	}
	return 0;
}

static int accept_wr(struct nv_qp *qp, const struct ibv_send_wr *wr)
{
	struct nv_swr *w;

	if (qp->refuse_armed && qp->sq_head == qp->refuse_at) {
		qp->refuse_armed = false;
		return qp->refuse_err;
	}
	if (qp->st != IBV_QPS_RTS && qp->st != IBV_QPS_ERR && qp->st != IBV_QPS_SQD)
		return EINVAL;
	if (!supported(qp->base.qp_type, wr->opcode) || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->init.cap.max_send_sge)
		return EINVAL;
	if (qp->sq_head - qp->sq_tail >= qp->init.cap.max_send_wr)
		return ENOMEM;
	w = &qp->sq[qp->sq_head % qp->init.cap.max_send_wr];
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->signaled = qp->sig_all || wr->send_flags & IBV_SEND_SIGNALED;
	w->imm = wr->imm_data;
	w->num_sge = wr->num_sge;
	w->xrc_srqn = wr->qp_type.xrc.remote_srqn;
	if (wr->num_sge)
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*w->sge));
	if (wr->send_flags & IBV_SEND_INLINE && accept_inline(qp, w, wr))
		return EINVAL;
	if (qp->base.qp_type == IBV_QPT_UD) {
		const struct nv_ah *ah = (const struct nv_ah *)wr->wr.ud.ah;

		w->ud_qpn = wr->wr.ud.remote_qpn;
		w->ud_qkey = wr->wr.ud.remote_qkey;
		w->ud_av = ah->attr;
		w->ud_dev = ah->dev;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	qp->sq_head++;
	return 0;
}

int nv_model_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct nv_qp *qp = nv_qp(base);
	int err;

	nv_builder_lock(qp);
	err = nv_model_send(qp, wr, bad_wr);
	nv_builder_unlock(qp);
	return err;
}

int nv_model_send(struct nv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	int err = 0;

	nv_lock();
	for (; wr; wr = wr->next) {
		err = accept_wr(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	if (qp->st == IBV_QPS_ERR)
		nv_flush(qp);
	else
		nv_run(qp);
	nv_unlock();
	return err;
}

/* On an error only four fields mean anything; the others are filled so that whoever reads them notices. */
void nv_push_send_cqe(struct nv_qp *qp, uint64_t at, int status, uint32_t vendor_err, uint32_t byte_len)
{
	const struct nv_swr *w = &qp->sq[at % qp->init.cap.max_send_wr];
	struct nv_cqe e = { .qp = qp, .sq_upto = at + 1 };

	if (status != IBV_WC_SUCCESS) {
		memset(&e.wc, 0xA5, sizeof(e.wc));
	} else {
		e.wc.opcode = nv_wc_opcode(w->opcode);
		e.wc.byte_len = byte_len;
	}
	e.wc.wr_id = w->wr_id;
	e.wc.status = (enum ibv_wc_status)status;
	e.wc.vendor_err = vendor_err;
	e.wc.qp_num = qp->base.qp_num;
	nv_cq_push(nv_cq(qp->base.send_cq), &e, false);
}

static void stall(struct nv_qp *qp)
{
	if (qp->stalled)
		return;
	qp->stalled = true;
	qp->stall_next = stalled;
	stalled = qp;
}

void nv_unstall(struct nv_qp *qp)
{
	for (struct nv_qp **p = &stalled; *p; p = &(*p)->stall_next)
		if (*p == qp) {
			*p = qp->stall_next;
			break;
		}
	qp->stalled = false;
}

void nv_run_stalled(void)
{
	struct nv_qp *list = stalled;

	stalled = NULL;
	while (list) {
		struct nv_qp *qp = list;

		list = qp->stall_next;
		qp->stalled = false;
		nv_run(qp);
	}
}

void nv_run(struct nv_qp *qp)
{
	while (!qp->held && qp->st == IBV_QPS_RTS && qp->sq_next < qp->sq_head) {
		uint64_t at = qp->sq_next;
		struct nv_swr *w = &qp->sq[at % qp->init.cap.max_send_wr];
		struct nv_result r = { .status = qp->fail_status };
		uint32_t vendor_err = 0;

		if (qp->fail_armed && qp->fail_at == at) {
			qp->fail_armed = false;
			vendor_err = qp->fail_vendor;
		} else {
			r = nv_execute(qp, w);
		}
		if (r.status == NV_WAIT) {
			stall(qp);
			return;
		}
		if (qp->st != IBV_QPS_RTS)
			return; /* a message to itself has put it into ERR, and everything is flushed */
		qp->sq_next++;
		if (r.status != IBV_WC_SUCCESS || w->signaled)
			nv_push_send_cqe(qp, at, r.status, vendor_err, r.byte_len);
		if (r.status != IBV_WC_SUCCESS)
			nv_enter_error(qp);
	}
}

/* ---- the script ---- */

static int with_qp(uint32_t qpn, int (*f)(struct nv_qp *, const uint64_t *), const uint64_t *arg)
{
	struct nv_qp *qp;
	int err = ENOENT;

	if (!nv_config()->model)
		return ENOTSUP;
	nv_lock();
	qp = nv_qpn_find_any(qpn);
	if (qp)
		err = f(qp, arg);
	nv_unlock();
	return err;
}

static int set_fail(struct nv_qp *qp, const uint64_t *arg)
{
	qp->fail_armed = true;
	qp->fail_at = qp->sq_head + (arg[0] ? arg[0] - 1 : 0);
	qp->fail_status = (int)arg[1];
	qp->fail_vendor = (uint32_t)arg[2];
	return 0;
}

int nullverbs_fail_next(uint32_t qpn, unsigned n, int status, uint32_t vendor_err)
{
	if (status <= IBV_WC_SUCCESS)
		return EINVAL;
	return with_qp(qpn, set_fail, (uint64_t[]){ n, (uint64_t)status, vendor_err });
}

static int set_refuse(struct nv_qp *qp, const uint64_t *arg)
{
	qp->refuse_armed = true;
	qp->refuse_at = qp->sq_head + (arg[0] ? arg[0] - 1 : 0);
	qp->refuse_err = (int)arg[1];
	return 0;
}

int nullverbs_fail_post(uint32_t qpn, unsigned n, int err)
{
	if (err <= 0)
		return EINVAL;
	return with_qp(qpn, set_refuse, (uint64_t[]){ n, (uint64_t)err });
}

static int set_held(struct nv_qp *qp, const uint64_t *arg)
{
	qp->held = arg[0] != 0;
	nv_run(qp);
	return 0;
}

int nullverbs_hold(uint32_t qpn, int on)
{
	return with_qp(qpn, set_held, (uint64_t[]){ on != 0 });
}
