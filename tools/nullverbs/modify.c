/* The states of a QP: which changes are allowed, what each one remembers, what RESET and ERR do. */
#include "nullverbs.h"

#include <errno.h>
#include <string.h>

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
	case IBV_QPS_ERR:
		return true;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT;
	case IBV_QPS_RTS:
		return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	default:
		return false;
	}
}

/* What the hardware would insist on; the rest is optional here. */
static int needed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && type != IBV_QPT_UD)
		return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return IBV_QP_SQ_PSN;
	return 0;
}

static void remember(struct nv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *m = &qp->attr;

#define KEEP(bit, field) \
	if (mask & (bit)) \
	m->field = a->field
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_QKEY, qkey);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
#undef KEEP
	if (mask & IBV_QP_AV)
		qp->peer_dev = nv_device_by_av(qp->dev, &a->ah_attr);
}

/* RESET forgets all: what was posted, what was completed and not polled, what the script had planned. */
static void reset(struct nv_qp *qp)
{
	nv_unstall(qp);
	nv_cq_purge(nv_cq(qp->base.send_cq), qp, false);
	nv_cq_purge(nv_cq(qp->base.recv_cq), qp, false);
	qp->sq_head = qp->sq_next = qp->sq_tail = 0;
	qp->rq.head = qp->rq.next = qp->rq.tail = 0;
	qp->fail_armed = qp->refuse_armed = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

static int change(struct nv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->st, to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int need = needed(qp->base.qp_type, from, to);

	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		return EINVAL;
	if (mask & IBV_QP_STATE && (!allowed(from, to) || (mask & need) != need))
		return EINVAL;
	if (mask & IBV_QP_PORT && (attr->port_num < 1 || attr->port_num > NV_PORTS))
		return EINVAL;
	if (mask & IBV_QP_AV && attr->ah_attr.is_global && attr->ah_attr.grh.sgid_index >= nv_config()->gids)
		return EINVAL;
	remember(qp, attr, mask);
	if (!(mask & IBV_QP_STATE))
		return 0;
	if (to == IBV_QPS_RESET)
		reset(qp);
	if (to == IBV_QPS_ERR)
		nv_enter_error(qp);
	qp->st = qp->base.state = to;
	if (qp->builder && (to == IBV_QPS_RESET || to == IBV_QPS_RTS))
		nv_builder_rearm(qp);
	if (nv_config()->model && to == IBV_QPS_RTS)
		nv_run(qp);
	return 0;
}

int nv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	int err;

	nv_lock();
	err = change(nv_qp(base), attr, mask);
	nv_unlock();
	return err;
}
