/* Shared receive queues, and the ring of receive WRs that every receive queue is. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>

int nv_rq_init(struct nv_rq *rq, uint32_t cap, uint32_t max_sge)
{
	rq->cap = cap;
	rq->max_sge = max_sge;
	if (!cap || !nv_config()->model)
		return 0;
	rq->wr = calloc(cap, sizeof(*rq->wr));
	rq->sges = calloc((size_t)cap * (max_sge ? max_sge : 1), sizeof(*rq->sges));
	if (!rq->wr || !rq->sges) {
		nv_rq_free(rq);
		return ENOMEM;
	}
	for (uint32_t i = 0; i < cap; i++)
		rq->wr[i].sge = rq->sges + (size_t)i * max_sge;
	return 0;
}

void nv_rq_free(struct nv_rq *rq)
{
	free(rq->wr);
	free(rq->sges);
	rq->wr = NULL;
	rq->sges = NULL;
}

struct ibv_srq *nv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct nv_srq *srq;

	if (!init->attr.max_wr || init->attr.max_wr > NV_MAX_WR || init->attr.max_sge > NV_MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq || nv_rq_init(&srq->rq, init->attr.max_wr, init->attr.max_sge)) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	srq->base.context = pd->context;
	srq->base.pd = pd;
	srq->base.srq_context = init->srq_context;
	pthread_mutex_init(&srq->base.mutex, NULL);
	pthread_cond_init(&srq->base.cond, NULL);
	nv_lock();
	nv_root(pd)->users++;
	nv_unlock();
	return &srq->base;
}

static struct nv_srq *xrc; /* all of them */

struct nv_srq *nv_xrc_srq(uint32_t number)
{
	struct nv_srq *s = xrc;

	while (s && s->number != number)
		s = s->next;
	return s;
}

int nv_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	*number = nv_srq(srq)->number;
	return *number ? 0 : EINVAL;
}

/* The plain kind is already sent to ibv_create_srq by the library's inline function. */
struct ibv_srq *nv_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *init)
{
	static uint32_t next = 0x500;
	bool special = init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && init->srq_type != IBV_SRQT_BASIC;
	struct ibv_srq *srq;

	(void)ctx;
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || (special && !(init->comp_mask & IBV_SRQ_INIT_ATTR_CQ))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = nv_create_srq(init->pd, (struct ibv_srq_init_attr *)init);
	if (!srq || !special)
		return srq;
	nv_lock();
	nv_srq(srq)->cq = nv_cq(init->cq);
	nv_srq(srq)->cq->users++;
	if (init->srq_type == IBV_SRQT_XRC) {
		nv_srq(srq)->number = ++next;
		nv_srq(srq)->next = xrc;
		xrc = nv_srq(srq);
	}
	nv_unlock();
	return srq;
}

static void forget_xrc(struct nv_srq *srq)
{
	struct nv_srq **p = &xrc;

	while (*p && *p != srq)
		p = &(*p)->next;
	if (*p)
		*p = srq->next;
}

int nv_modify_srq(struct ibv_srq *base, struct ibv_srq_attr *attr, int mask)
{
	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	if (mask & IBV_SRQ_LIMIT) {
		nv_lock();
		nv_srq(base)->limit = attr->srq_limit;
		nv_unlock();
	}
	return 0;
}

int nv_query_srq(struct ibv_srq *base, struct ibv_srq_attr *attr)
{
	struct nv_srq *srq = nv_srq(base);

	nv_lock();
	attr->max_wr = srq->rq.cap;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	nv_unlock();
	return 0;
}

int nv_destroy_srq(struct ibv_srq *base)
{
	struct nv_srq *srq = nv_srq(base);

	nv_lock();
	if (srq->users) {
		nv_unlock();
		return EBUSY;
	}
	nv_root(base->pd)->users--;
	if (srq->cq)
		srq->cq->users--;
	forget_xrc(srq);
	nv_unlock();
	nv_forget_async(base->context, srq);
	pthread_mutex_lock(&base->mutex);
	while (base->events_completed != srq->events_reported)
		pthread_cond_wait(&base->cond, &base->mutex);
	pthread_mutex_unlock(&base->mutex);
	nv_rq_free(&srq->rq);
	free(srq);
	return 0;
}
