/* Queue pairs: creating, querying, destroying. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool sane(const struct ibv_qp_init_attr *i)
{
	const struct ibv_qp_cap *c = &i->cap;

	switch (i->qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_UC:
	case IBV_QPT_UD:
		if (!i->send_cq || !i->recv_cq)
			return false;
		break;
	case IBV_QPT_XRC_SEND:
		if (!i->send_cq)
			return false;
		break;
	case IBV_QPT_RAW_PACKET: /* with an indirection table only: it receives nothing itself */
	case IBV_QPT_XRC_RECV:
		return true;
	default:
		return false;
	}
	return c->max_send_wr <= NV_MAX_WR && c->max_recv_wr <= NV_MAX_WR && c->max_send_sge <= NV_MAX_SGE &&
	       c->max_recv_sge <= NV_MAX_SGE && c->max_inline_data <= NV_MAX_INLINE;
}

static int make_sq(struct nv_qp *qp)
{
	size_t n = qp->init.cap.max_send_wr, sge = qp->init.cap.max_send_sge, inl = qp->init.cap.max_inline_data;

	if (!n)
		return 0;
	qp->sq = calloc(n, sizeof(*qp->sq));
	qp->sq_sges = calloc(n * (sge ? sge : 1), sizeof(*qp->sq_sges));
	qp->sq_inline = calloc(n, inl ? inl : 1);
	if (!qp->sq || !qp->sq_sges || !qp->sq_inline)
		return ENOMEM;
	for (size_t i = 0; i < n; i++) {
		qp->sq[i].sge = qp->sq_sges + i * sge;
		qp->sq[i].inline_data = qp->sq_inline + i * inl;
	}
	return 0;
}

static void release(struct nv_qp *qp)
{
	free(qp->sq);
	free(qp->sq_sges);
	free(qp->sq_inline);
	nv_rq_free(&qp->rq);
	nv_builder_free(qp);
	free(qp);
}

static void count_users(struct nv_qp *qp, int by)
{
	if (qp->base.pd)
		nv_root(qp->base.pd)->users += (unsigned)by;
	if (qp->base.send_cq)
		nv_cq(qp->base.send_cq)->users += (unsigned)by;
	if (qp->base.recv_cq)
		nv_cq(qp->base.recv_cq)->users += (unsigned)by;
	if (qp->base.srq)
		nv_srq(qp->base.srq)->users += (unsigned)by;
}

/* What a kind of QP has no use for is not looked at: programs leave it unset. */
static struct ibv_qp_init_attr used(const struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr i = *init;

	if (i.qp_type == IBV_QPT_XRC_SEND || i.qp_type == IBV_QPT_XRC_RECV || i.qp_type == IBV_QPT_RAW_PACKET) {
		i.recv_cq = NULL;
		i.srq = NULL;
		i.cap.max_recv_wr = i.cap.max_recv_sge = 0;
	}
	if (i.qp_type == IBV_QPT_XRC_RECV || i.qp_type == IBV_QPT_RAW_PACKET) {
		i.send_cq = NULL;
		i.cap = (struct ibv_qp_cap){ 0 };
	}
	return i;
}

static struct nv_qp *make(struct ibv_context *ctx, struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
	struct nv_qp *qp;

	/* on a line of its own: null mode touches nothing but the first 64 bytes */
	if (posix_memalign((void **)&qp, 64, sizeof(*qp)))
		return NULL;
	memset(qp, 0, sizeof(*qp));
	qp->dev = qp->peer_dev = nv_ctx(ctx)->dev;
	qp->init = *init;
	qp->sig_all = init->sq_sig_all != 0;
	qp->base.context = ctx;
	qp->base.qp_context = init->qp_context;
	qp->base.pd = pd;
	qp->base.send_cq = init->send_cq;
	qp->base.recv_cq = init->recv_cq;
	qp->base.srq = init->srq;
	qp->base.qp_type = init->qp_type;
	qp->base.state = qp->st = IBV_QPS_RESET;
	pthread_mutex_init(&qp->base.mutex, NULL);
	pthread_cond_init(&qp->base.cond, NULL);
	if (nv_config()->model &&
	    (make_sq(qp) || nv_rq_init(&qp->rq, init->srq ? 0 : init->cap.max_recv_wr, init->cap.max_recv_sge))) {
		release(qp);
		return NULL;
	}
	return qp;
}

static struct ibv_qp *create(struct ibv_context *ctx, struct ibv_pd *pd, const struct ibv_qp_init_attr *given)
{
	struct ibv_qp_init_attr of_kind = used(given), *init = &of_kind;
	struct nv_qp *qp;
	int err;

	if (!sane(init)) {
		errno = EINVAL;
		return NULL;
	}
	qp = make(ctx, pd, init);
	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	nv_lock();
	err = nv_qpn_take(qp->dev, qp);
	if (!err)
		count_users(qp, 1);
	nv_unlock();
	if (err) {
		release(qp);
		errno = err;
		return NULL;
	}
	qp->base.handle = qp->base.qp_num << 1 | qp->sig_all; /* bit 0 is read by nv_null_post_send */
	return &qp->base;
}

struct ibv_qp *nv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) { return create(pd->context, pd, init); }

struct ibv_qp *nv_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *init)
{
	uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			 IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct ibv_qp *qp;

	if (init->comp_mask & ~known ||
	    !(init->comp_mask & (init->qp_type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD)) ||
	    (init->qp_type == IBV_QPT_RAW_PACKET && !(init->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE)) ||
	    (init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && init->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = create(ctx, init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL, (struct ibv_qp_init_attr *)init);
	if (qp && init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS && nv_builder_attach(nv_qp(qp))) {
		nv_destroy_qp(qp);
		errno = ENOMEM;
		return NULL;
	}
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) { return nv_qp(qp)->builder ? &nv_qp(qp)->ex : NULL; }

int nv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct nv_qp *qp = nv_qp(base);

	(void)mask;
	nv_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = base->state = qp->st;
	attr->cap = qp->init.cap;
	*init = qp->init;
	nv_unlock();
	return 0;
}

/* The lock is held. */
static void leave(struct nv_qp *qp, bool keep_cqes)
{
	nv_unstall(qp);
	nv_qpn_give(qp->dev, qp->base.qp_num);
	nv_cq_purge(nv_cq(qp->base.send_cq), qp, keep_cqes);
	nv_cq_purge(nv_cq(qp->base.recv_cq), qp, keep_cqes);
	count_users(qp, -1);
}

void nv_qp_abandon(struct nv_qp *qp)
{
	leave(qp, false);
	qp->st = IBV_QPS_RESET;
}

int nv_destroy_qp(struct ibv_qp *base)
{
	struct nv_qp *qp = nv_qp(base);

	nv_lock();
	leave(qp, nv_config()->keep_cqes);
	nv_unlock();
	nv_forget_async(base->context, qp);
	pthread_mutex_lock(&base->mutex);
	while (base->events_completed != qp->events_reported)
		pthread_cond_wait(&base->cond, &base->mutex);
	pthread_mutex_unlock(&base->mutex);
	release(qp);
	return 0;
}
