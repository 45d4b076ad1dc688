/* Threads: each with its own QPs and CQ, then all of them posting on one QP while another thread polls.
 *
 *   threads [--threads N] [--count WRS_PER_THREAD]
 */
#include "common.h"

#include <pthread.h>
#include <sched.h>

#define MAX 16

static struct dev *d;
static long threads, count;
static struct q *shared;

static void *own(void *arg)
{
	long me = (long)(intptr_t)arg;
	struct ibv_cq *cq = cq_make(d, 256);
	struct q *b, *a = q_couple(d, cq, &b);

	for (long i = 0; i < count; i++) {
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 10 + (uint32_t)me, i % 8 == 7 ? IBV_SEND_SIGNALED : 0));
		if (i % 16 == 15)
			drain(cq);
	}
	drain(cq);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	return NULL;
}

/* The truth keeps no list here: the counts are known beforehand. A full queue is tried again. */
static void *together(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)d->buf, 100, d->mr->lkey };
	struct ibv_send_wr wr[2] = { 0 };
	uint64_t remote = (uintptr_t)d->buf + BUFFER / 2;

	for (int k = 0; k < 2; k++) {
		wr[k].wr_id = (uintptr_t)arg;
		wr[k].sg_list = &sge;
		wr[k].num_sge = 1;
		wr[k].opcode = IBV_WR_RDMA_WRITE;
		wr[k].wr.rdma.remote_addr = remote;
		wr[k].wr.rdma.rkey = d->mr->rkey;
	}
	wr[0].next = &wr[1];
	wr[1].send_flags = IBV_SEND_SIGNALED;
	for (long i = 0; i < count; i++)
		post_patiently(shared->qp, wr);
	return NULL;
}

static void *poller(void *arg)
{
	long want = threads * count;
	struct ibv_wc wc[8];

	(void)arg;
	while (want > 0) {
		int n = ibv_poll_cq(shared->send_cq, 8, wc);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == shared->qpn);
		want -= n;
		if (!n)
			sched_yield();
	}
	return NULL;
}

static void run(void *(*f)(void *), bool with_poller)
{
	pthread_t t[MAX], p;

	if (with_poller)
		CHECK(!pthread_create(&p, NULL, poller, NULL));
	for (long i = 0; i < threads; i++)
		CHECK(!pthread_create(&t[i], NULL, f, (void *)(intptr_t)i));
	for (long i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	if (with_poller)
		pthread_join(p, NULL);
}

int main(int argc, char **argv)
{
	struct ibv_cq *cq;
	struct q *peer;
	uint64_t wrs;

	want_model();
	threads = arg_number(argc, argv, "threads", 4);
	count = arg_number(argc, argv, "count", 2000);
	CHECK(threads >= 1 && threads <= MAX);
	d = dev_open(0);
	run(own, false);

	cq = cq_make(d, 1024);
	shared = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 64 });
	peer = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(shared, peer);
	run(together, true);
	/* a last signaled WR: every WR before it is over now, whatever the order in which the threads posted */
	CHECK(!post(shared, IBV_WR_RDMA_WRITE, 1, 100, IBV_SEND_SIGNALED) && drain(cq) == 1);
	wrs = (uint64_t)(threads * count) * 2;
	shared->n.send_wr_posted += wrs;
	shared->n.send_wr_completed += wrs;
	shared->n.send_bytes_posted += wrs * 100;
	shared->n.send_bytes_completed += wrs * 100;
	shared->n.send_cqes += wrs / 2;
	q_destroy(shared);
	q_destroy(peer);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
