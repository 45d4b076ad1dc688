/* Completion queues: creating and destroying them, and the model mode's ring of CQEs. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static int make_ring(struct nv_cq *cq, uint32_t cqe)
{
	if (nv_config()->model) {
		struct nv_cqe *ring = calloc(cqe, sizeof(*ring));

		if (!ring)
			return ENOMEM;
		for (uint32_t i = 0; i < cq->count; i++)
			ring[i] = cq->ring[(cq->first + i) % cq->cap];
		free(cq->ring);
		cq->ring = ring;
		cq->cap = cqe;
		cq->first = 0;
		return 0;
	}
	cq->mask = power_of_two(cqe) - 1;
	cq->tiny = calloc((size_t)cq->mask + 1, sizeof(*cq->tiny));
	return cq->tiny ? 0 : ENOMEM;
}

struct ibv_cq *nv_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel, int vector)
{
	struct nv_cq *cq;

	if (cqe < 1 || cqe > NV_MAX_CQE || vector < 0 || vector >= ctx->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	if (posix_memalign((void **)&cq, 64, sizeof(*cq))) {
		errno = ENOMEM;
		return NULL;
	}
	memset(cq, 0, sizeof(*cq));
	if (make_ring(cq, (uint32_t)cqe)) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->base.context = ctx;
	cq->base.channel = channel;
	cq->base.cqe = cqe;
	pthread_mutex_init(&cq->base.mutex, NULL);
	pthread_cond_init(&cq->base.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	if (channel) {
		nv_lock();
		channel->refcnt++;
		nv_unlock();
	}
	return &cq->base;
}

/* Null mode keeps its ring: a resize there would race with the lock-free poster. */
int nv_resize_cq(struct ibv_cq *base, int cqe)
{
	struct nv_cq *cq = nv_cq(base);
	int err = 0;

	if (cqe < 1 || cqe > NV_MAX_CQE)
		return EINVAL;
	if (!nv_config()->model)
		return (uint32_t)cqe <= cq->mask + 1 ? 0 : ENOSYS;
	nv_lock();
	err = (uint32_t)cqe < cq->count ? EINVAL : make_ring(cq, (uint32_t)cqe);
	if (!err)
		base->cqe = cqe;
	nv_unlock();
	return err;
}

/* As everywhere: waits until all events that were read have been acknowledged. */
int nv_destroy_cq(struct ibv_cq *base)
{
	struct nv_cq *cq = nv_cq(base);

	nv_lock();
	if (cq->users) {
		nv_unlock();
		return EBUSY;
	}
	if (base->channel) {
		nv_channel_forget(cq);
		base->channel->refcnt--;
	}
	nv_unlock();
	nv_forget_async(base->context, cq);
	pthread_mutex_lock(&base->mutex);
	while (base->comp_events_completed != cq->events_reported ||
	       base->async_events_completed != cq->async_reported)
		pthread_cond_wait(&base->cond, &base->mutex);
	pthread_mutex_unlock(&base->mutex);
	free(cq->tiny);
	free(cq->ring);
	free(cq);
	return 0;
}

/* ---- the model's ring; the lock is held ---- */

void nv_cq_push(struct nv_cq *cq, const struct nv_cqe *e, bool solicited)
{
	if (cq->count == cq->cap) { /* overrun: the CQE is lost, once with a word of warning */
		if (!cq->overrun)
			nv_raise_async(cq->base.context, IBV_EVENT_CQ_ERR, cq);
		cq->overrun = true;
		return;
	}
	cq->ring[(cq->first + cq->count++) % cq->cap] = *e;
	if (cq->armed == 2 || (cq->armed == 1 && (solicited || e->wc.status != IBV_WC_SUCCESS))) {
		cq->armed = 0;
		nv_channel_raise(cq);
	}
}

/* A CQE gives its slot back when it is polled, and so do the unsignaled WRs in front of it. */
static void give_back(const struct nv_cqe *e)
{
	if (e->srq)
		e->srq->rq.tail++;
	else if (e->qp && e->recv)
		e->qp->rq.tail++;
	else if (e->qp && e->qp->sq_tail < e->sq_upto)
		e->qp->sq_tail = e->sq_upto;
}

bool nv_cq_pop(struct nv_cq *cq, struct nv_cqe *out)
{
	if (!cq->count)
		return false;
	*out = cq->ring[cq->first];
	cq->first = (cq->first + 1) % cq->cap;
	cq->count--;
	give_back(out);
	return true;
}

/* Takes a QP's CQEs out, or (keep) leaves them there without an owner, as some devices do. */
void nv_cq_purge(struct nv_cq *cq, struct nv_qp *qp, bool keep)
{
	uint32_t kept = 0;

	if (!cq)
		return;
	for (uint32_t i = 0; i < cq->count; i++) {
		struct nv_cqe e = cq->ring[(cq->first + i) % cq->cap];

		if (e.qp == qp) {
			if (!keep) {
				give_back(&e);
				continue;
			}
			e.qp = NULL;
		}
		cq->ring[(cq->first + kept++) % cq->cap] = e;
	}
	cq->count = kept;
}

int nv_model_poll_cq(struct ibv_cq *base, int num, struct ibv_wc *wc)
{
	struct nv_cqe e;
	int n = 0;

	pthread_mutex_lock(&nv_cq(base)->poll_lock);
	nv_lock();
	while (n < num && nv_cq_pop(nv_cq(base), &e))
		wc[n++] = e.wc;
	nv_unlock();
	pthread_mutex_unlock(&nv_cq(base)->poll_lock);
	return n;
}

/* Null mode raises no events. */
int nv_req_notify_cq(struct ibv_cq *base, int solicited_only)
{
	if (!nv_config()->model)
		return 0;
	nv_lock();
	if (!solicited_only)
		nv_cq(base)->armed = 2;
	else if (!nv_cq(base)->armed)
		nv_cq(base)->armed = 1;
	nv_unlock();
	return 0;
}
