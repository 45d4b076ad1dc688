/* Asynchronous events: a list per context, counted by the eventfd that async_fd is. */
#include "nullverbs.h"
#include "script.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* The lock is held. An event that finds no memory is lost. */
void nv_raise_async(struct ibv_context *ctx, enum ibv_event_type type, void *element)
{
	struct nv_event *e = calloc(1, sizeof(*e)), **p = &nv_ctx(ctx)->events;
	uint64_t one = 1;

	if (!e)
		return;
	e->ev.event_type = type;
	e->ev.element.qp = element;
	while (*p)
		p = &(*p)->next;
	*p = e;
	if (write(ctx->async_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* Unread events of an object that goes, or of all (NULL). */
void nv_forget_async(struct ibv_context *ctx, void *element)
{
	nv_lock();
	for (struct nv_event **p = &nv_ctx(ctx)->events; *p;) {
		struct nv_event *e = *p;

		if (element && (void *)e->ev.element.qp != element) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		free(e);
	}
	nv_unlock();
}

static uint32_t *reported(struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &nv_cq(ev->element.cq)->async_reported;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &nv_srq(ev->element.srq)->events_reported;
	default:
		return &nv_qp(ev->element.qp)->events_reported;
	}
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *out)
{
	struct nv_event *e = NULL;
	uint64_t one;

	while (!e) {
		if (read(ctx->async_fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		nv_lock();
		e = nv_ctx(ctx)->events;
		if (e) {
			nv_ctx(ctx)->events = e->next;
			*out = e->ev;
			++*reported(out);
		}
		nv_unlock();
	}
	free(e);
	return 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack(&ev->element.cq->mutex, &ev->element.cq->cond, &ev->element.cq->async_events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack(&ev->element.srq->mutex, &ev->element.srq->cond, &ev->element.srq->events_completed);
		break;
	default:
		ack(&ev->element.qp->mutex, &ev->element.qp->cond, &ev->element.qp->events_completed);
	}
}

int nullverbs_raise(uint32_t qpn, int event_type)
{
	struct nv_qp *qp;

	nv_lock();
	qp = nv_qpn_find_any(qpn);
	if (qp)
		nv_raise_async(qp->base.context, (enum ibv_event_type)event_type,
			       event_type == IBV_EVENT_CQ_ERR ? (void *)qp->base.send_cq : (void *)qp);
	nv_unlock();
	return qp ? 0 : ENOENT;
}
