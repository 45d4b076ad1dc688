/* Completion channels: an eventfd that counts, and a list of the CQs with unread events. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct nv_channel *ch = calloc(1, sizeof(*ch));

	if (!ch) {
		errno = ENOMEM;
		return NULL;
	}
	ch->base.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (ch->base.fd < 0) {
		free(ch);
		return NULL;
	}
	ch->base.context = ctx;
	ch->last = &ch->first;
	return &ch->base;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
	int busy;

	nv_lock();
	busy = base->refcnt;
	nv_unlock();
	if (busy)
		return EBUSY;
	close(base->fd);
	free(base);
	return 0;
}

/* The lock is held. */
void nv_channel_raise(struct nv_cq *cq)
{
	struct nv_channel *ch = (struct nv_channel *)cq->base.channel;
	uint64_t one = 1;

	if (!ch)
		return;
	cq->pending++;
	if (!cq->queued) {
		cq->queued = true;
		cq->next = NULL;
		*ch->last = cq;
		ch->last = &cq->next;
	}
	if (write(ch->base.fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* The lock is held. The eventfd keeps its count: a reader that finds the list empty reads on. */
void nv_channel_forget(struct nv_cq *cq)
{
	struct nv_channel *ch = (struct nv_channel *)cq->base.channel;

	for (struct nv_cq **p = &ch->first; *p; p = &(*p)->next) {
		if (*p != cq)
			continue;
		*p = cq->next;
		if (!*p)
			ch->last = p;
		break;
	}
	cq->queued = false;
	cq->pending = 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **out, void **out_context)
{
	struct nv_channel *ch = (struct nv_channel *)base;
	struct nv_cq *cq = NULL;
	uint64_t one;

	while (!cq) {
		if (read(base->fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		nv_lock();
		cq = ch->first;
		if (cq) {
			cq->events_reported++;
			*out = &cq->base;
			*out_context = cq->base.cq_context;
			if (!--cq->pending)
				nv_channel_forget(cq);
		}
		nv_unlock();
	}
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
