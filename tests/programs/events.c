/* Driven by a completion channel: arm, sleep, wake, acknowledge, arm again, drain; two CQs on one channel; solicited
 * only; a thread that sleeps in ibv_get_async_event for good. */
#include "common.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

static struct dev *d;
static struct ibv_comp_channel *channel;
static uint64_t events;

static void *async(void *arg)
{
	struct ibv_async_event e;

	(void)arg;
	while (!ibv_get_async_event(d->ctx, &e))
		ibv_ack_async_event(&e);
	return NULL;
}

/* The canonical way: an event, its ack, the next arming, and only then the CQEs. */
static int sleep_and_drain(struct ibv_cq *expect, bool solicited)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == expect);
	events++;
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_req_notify_cq(cq, solicited));
	return drain(cq);
}

static bool quiet(void)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

int main(void)
{
	struct ibv_cq *cq_a, *cq_b, *cq;
	struct q *a, *b;
	pthread_t t;
	void *context;

	want_model();
	d = dev_open(0);
	CHECK(!pthread_create(&t, NULL, async, NULL) && !pthread_detach(t));
	channel = ibv_create_comp_channel(d->ctx);
	CHECK(channel);
	cq_a = cq_make_on(d, 256, channel);
	cq_b = cq_make_on(d, 256, channel);
	a = q_make(d, &(struct shape){ .send_cq = cq_a, .recv_cq = cq_a });
	b = q_make(d, &(struct shape){ .send_cq = cq_b, .recv_cq = cq_b });
	q_pair(a, b);
	CHECK(!ibv_req_notify_cq(cq_a, 0) && !ibv_req_notify_cq(cq_b, 0));
	for (int i = 0; i < 20; i++) {
		CHECK(!post_recv(b, RECV_ID, 100) && !post(a, IBV_WR_SEND, (uint64_t)i, 100, IBV_SEND_SIGNALED));
		CHECK(sleep_and_drain(cq_b, false) == 1); /* the receiver has its CQE first */
		CHECK(sleep_and_drain(cq_a, false) == 1);
		CHECK(quiet());
	}

	/* solicited only: the first two SENDs wake nobody */
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY && !post_recvs(b, RECV_ID, 3, 100));
	CHECK(!post(a, IBV_WR_RDMA_WRITE, 0, 8, IBV_SEND_SIGNALED) && sleep_and_drain(cq_a, true) == 1);
	CHECK(!post(a, IBV_WR_SEND_WITH_IMM, 1, 9, 0) && !quiet());
	CHECK(sleep_and_drain(cq_b, true) == 1 && quiet());
	CHECK(!post(a, IBV_WR_SEND, 2, 9, 0) && quiet());
	CHECK(!post(a, IBV_WR_SEND, 3, 9, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED) && !quiet());
	CHECK(sleep_and_drain(cq_b, false) == 2 && drain(cq_a) == 1);

	/* a channel that does not block says EAGAIN when there is nothing */
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	CHECK(ibv_get_cq_event(channel, &cq, &context) == -1 && errno == EAGAIN);

	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq_a) && !ibv_destroy_cq(cq_b) && !ibv_destroy_comp_channel(channel));
	report();
	printf("cq_events %llu\n", (unsigned long long)events);
	return 0; /* the sleeping thread still holds the device */
}
