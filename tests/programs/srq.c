/* Several QPs fed by one shared receive queue: SENDs and WRITE_WITH_IMM, a full queue, an empty one, the limit. */
#include "common.h"

#define QPS 3

static struct dev *d;
static uint64_t posted;

static int post_srq(struct ibv_srq *srq, int n, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)d->buf, bytes, d->mr->lkey };
	struct ibv_recv_wr wr[64] = { 0 }, *bad;
	int err, ok = n;

	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){ (uint64_t)i, i < n - 1 ? &wr[i + 1] : NULL, &sge, 1 };
	err = ibv_post_srq_recv(srq, wr, &bad);
	if (err)
		ok = (int)(bad - wr);
	posted += (uint64_t)ok;
	return ok;
}

int main(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 32, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_async_event event;
	struct ibv_srq *srq;
	struct ibv_cq *cq, *cq_r;
	struct q *s[QPS], *r[QPS];
	uint64_t got = 0;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 256);
	cq_r = cq_make(d, 256);
	srq = ibv_create_srq(d->pd, &init);
	CHECK(srq && post_srq(srq, 40, 600) == 32);
	for (int i = 0; i < QPS; i++) {
		s[i] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
		r[i] = q_make(d, &(struct shape){ .send_cq = cq_r, .recv_cq = cq_r, .srq = srq });
		q_pair(s[i], r[i]);
	}
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	for (int i = 0; i < 30; i++) {
		enum ibv_wr_opcode op = i % 4 == 3 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND;

		CHECK(!post(s[i % QPS], op, (uint64_t)i, 20 * (uint32_t)i, IBV_SEND_SIGNALED));
	}
	CHECK(post_srq(srq, 5, 600) == 0); /* slots come back when their CQEs are polled */
	CHECK(drain(cq) == 30 && drain(cq_r) == 30);
	CHECK(!ibv_get_async_event(d->ctx, &event) && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED &&
	      event.element.srq == srq);
	ibv_ack_async_event(&event);
	CHECK(post_srq(srq, 5, 600) == 5);
	for (int i = 0; i < 7; i++)
		CHECK(!post(s[0], IBV_WR_SEND, 1000 + (uint64_t)i, 10, IBV_SEND_SIGNALED));
	CHECK(!post(s[0], IBV_WR_SEND, 2000, 10, IBV_SEND_SIGNALED)); /* none is left */
	CHECK(drain(cq) == 8 && s[0]->n.send_wr_failed == 1 && drain(cq_r) == 7);
	CHECK(post_srq(srq, 6, 600) == 6); /* these stay */
	q_error(r[1]);
	CHECK(!ibv_get_async_event(d->ctx, &event) && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);

	for (int i = 0; i < QPS; i++) {
		got += r[i]->n.recv_wr_completed;
		q_destroy(s[i]);
		CHECK(i || ibv_destroy_srq(srq) == EBUSY);
		q_destroy(r[i]);
	}
	CHECK(!ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(cq_r));
	dev_close(d);
	report();
	printf("srq 0 recv_wr_posted %llu recv_wr_completed %llu recv_wr_discarded %llu\n", (unsigned long long)posted,
	       (unsigned long long)got, (unsigned long long)(posted - got));
	return 0;
}
