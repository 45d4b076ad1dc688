/* Threads on one extended QP and CQ: some build WRs with ibv_wr_*, some post them; one reads completions one by one, one
 * polls them, and one does both. The device holds its locks from start to end, so whoever waits in the wrong order hangs.
 *
 *   extended_threads [--threads N] [--count BATCHES_PER_THREAD]
 */
#include "common.h"

#include <pthread.h>
#include <sched.h>

#define MAX 16
#define BATCH 3
#define BYTES 100

static struct dev *d;
static struct q *q;
static struct ibv_cq_ex *cq;
static long threads, count;
static long left; /* completions to come, atomically */

static void one_batch(uint64_t id)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(q->qp);

	for (int err = ENOMEM; err;) {
		ibv_wr_start(x);
		for (int i = 0; i < BATCH; i++) {
			x->wr_id = id;
			x->wr_flags = i == BATCH - 1 ? IBV_SEND_SIGNALED : 0;
			ibv_wr_rdma_write(x, d->mr->rkey, (uintptr_t)d->buf + BUFFER / 2);
			ibv_wr_set_sge(x, d->mr->lkey, (uintptr_t)d->buf, BYTES);
			if (i == 1)
				sched_yield(); /* let others come to wait */
		}
		if (id % 5 == 4) { /* another time */
			ibv_wr_abort(x);
			id++;
			continue;
		}
		err = ibv_wr_complete(x);
		CHECK(!err || err == ENOMEM);
		if (err)
			sched_yield();
	}
}

static void one_chain(uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)d->buf, BYTES, d->mr->lkey };
	struct ibv_send_wr wr[BATCH] = { 0 };

	for (int i = 0; i < BATCH; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wr[i].next = i == BATCH - 1 ? NULL : &wr[i + 1];
		wr[i].send_flags = i == BATCH - 1 ? IBV_SEND_SIGNALED : 0;
		wr[i].wr.rdma.remote_addr = (uintptr_t)d->buf + BUFFER / 2;
		wr[i].wr.rdma.rkey = d->mr->rkey;
	}
	post_patiently(q->qp, wr);
}

static void *sender(void *arg)
{
	long me = (long)(intptr_t)arg;

	for (long i = 0; i < count; i++)
		if ((me + (me % 3 ? 0 : i)) % 2)
			one_batch((uint64_t)i);
		else
			one_chain((uint64_t)i);
	return NULL;
}

static long poll(void)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 4, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == q->qpn);
	return n;
}

static long read_some(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int n = 0, err = ibv_start_poll(cq, &attr);

	if (err == ENOENT)
		return 0;
	CHECK(!err);
	do {
		CHECK(cq->status == IBV_WC_SUCCESS && ibv_wc_read_qp_num(cq) == q->qpn);
		sched_yield();
		n++;
	} while (n < 6 && !(err = ibv_next_poll(cq)));
	ibv_end_poll(cq);
	return n;
}

static void *poller(void *arg)
{
	long me = (long)(intptr_t)arg;

	for (long i = 0; __atomic_load_n(&left, __ATOMIC_RELAXED) > 0; i++) {
		long n = me == 0 || (me == 2 && i % 2) ? poll() : read_some();

		__atomic_sub_fetch(&left, n, __ATOMIC_RELAXED);
		if (!n)
			sched_yield();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[MAX], p[3];
	uint64_t wrs;

	want_model();
	threads = arg_number(argc, argv, "threads", 4);
	count = arg_number(argc, argv, "count", 2000);
	CHECK(threads >= 1 && threads <= MAX);
	d = dev_open(0);
	cq = cq_make_extended(d, 256);
	q = q_make_extended(d, cq);
	left = threads * count;
	for (long i = 0; i < 3; i++)
		CHECK(!pthread_create(&p[i], NULL, poller, (void *)(intptr_t)i));
	for (long i = 0; i < threads; i++)
		CHECK(!pthread_create(&t[i], NULL, sender, (void *)(intptr_t)i));
	for (long i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	for (long i = 0; i < 3; i++)
		pthread_join(p[i], NULL);
	CHECK(left == 0);
	wrs = (uint64_t)(threads * count) * BATCH;
	q->n.send_wr_posted = q->n.send_wr_completed = wrs;
	q->n.send_bytes_posted = q->n.send_bytes_completed = wrs * BYTES;
	q->n.send_cqes = wrs / BATCH;
	q_destroy(q);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	dev_close(d);
	report();
	return 0;
}
