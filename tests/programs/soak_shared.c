/* The soak's shared work: two threads post to the same two QPs and poll the same CQ, and either resets or replaces them.
 *
 * All sends are signaled, and a wr_id says how many bytes its WR has: so the truth needs no order, only sums. What was
 * posted and not polled is discarded. Who resets or destroys has the couple for itself, unless it is wild.
 */
#include "soak.h"

#include <pthread.h>

#define DEPTH 64
#define BYTES 0xffffull /* of a wr_id */

struct couple {
	pthread_rwlock_t use, poll;
	struct dev *dev;
	struct ibv_cq *cq;
	struct q *q[2];
	bool wild;
	long credit[2];
	struct counts n;
};

static void add(void *to, uint64_t n) { __atomic_add_fetch((uint64_t *)to, n, __ATOMIC_RELAXED); }

#define ADD(to, n) add(&(to), (uint64_t)(n))

/* QPs are in no thread's list: the truth is the couple's. */
static struct q *end_make(struct couple *c, struct ibv_qp *qp)
{
	struct q *q = calloc(1, sizeof(*q));

	CHECK(q && qp);
	*q = (struct q){ .qp = qp, .dev = c->dev, .qpn = qp->qp_num, .port = 1, .type = IBV_QPT_RC };
	return q;
}

static void ends_make(struct couple *c, struct worker *w)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = c->cq,
			.recv_cq = c->cq,
			.cap = { DEPTH, DEPTH, 1, 1, 0 },
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = 1,
		};

		c->q[i] = end_make(c, w ? make_qp(w, &init) : ibv_create_qp(c->dev->pd, &init));
	}
	q_pair(c->q[0], c->q[1]);
}

static void ends_gone(struct couple *c, struct worker *w)
{
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_destroy_qp(c->q[i]->qp));
		if (w)
			number_free(w, c->q[i]->qpn);
		free(c->q[i]);
		c->credit[i] = 0;
	}
}

static void send_some(struct worker *w, struct couple *c, int i)
{
	struct ibv_send_wr wr[4] = { 0 }, *bad = NULL;
	struct ibv_sge sge[4];
	int n = 1 + (int)below(w, 4);

	for (int k = 0; k < n; k++) {
		uint32_t bytes = below(w, 500);

		sge[k] = (struct ibv_sge){ (uintptr_t)c->dev->buf, bytes, c->dev->mr->lkey };
		wr[k] = (struct ibv_send_wr){ .wr_id = ++w->id << 16 | bytes, .next = k < n - 1 ? &wr[k + 1] : NULL,
					      .sg_list = &sge[k], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wr[k].wr.rdma.remote_addr = (uintptr_t)c->dev->buf + BUFFER / 2;
		wr[k].wr.rdma.rkey = c->dev->mr->rkey;
		if (!below(w, 2) && (__atomic_sub_fetch(&c->credit[i], 1, __ATOMIC_RELAXED) >= 0 || !below(w, 300)))
			wr[k].opcode = IBV_WR_SEND;
	}
	if (ibv_post_send(c->q[i]->qp, wr, &bad))
		n = (int)(bad - wr);
	for (int k = 0; k < n; k++) {
		ADD(c->n.send_wr_posted, 1);
		ADD(c->n.send_bytes_posted, sge[k].length);
	}
}

static void receive_some(struct worker *w, struct couple *c, int i)
{
	struct ibv_sge sge = { (uintptr_t)c->dev->buf + BUFFER / 2, 500, c->dev->mr->lkey };
	struct ibv_recv_wr wr[4], *bad = NULL;
	int n = 1 + (int)below(w, 4);

	for (int k = 0; k < n; k++)
		wr[k] = (struct ibv_recv_wr){ RECV_ID | ++w->id, k < n - 1 ? &wr[k + 1] : NULL, &sge, 1 };
	if (ibv_post_recv(c->q[i]->qp, wr, &bad))
		n = (int)(bad - wr);
	ADD(c->n.recv_wr_posted, (uint64_t)n);
	ADD(c->credit[!i], n);
}

static void polled(struct couple *c, const struct ibv_wc *wc)
{
	bool ok = wc->status == IBV_WC_SUCCESS;

	if (wc->wr_id & RECV_ID) {
		add(ok ? &c->n.recv_wr_completed : &c->n.recv_wr_failed, 1);
		ADD(c->n.recv_bytes_completed, ok ? wc->byte_len : 0);
		return;
	}
	ADD(c->n.send_cqes, 1);
	add(ok ? &c->n.send_wr_completed : &c->n.send_wr_failed, 1);
	add(ok ? &c->n.send_bytes_completed : &c->n.send_bytes_failed, wc->wr_id & BYTES);
}

static void poll_some(struct worker *w, struct couple *c)
{
	struct ibv_wc wc[16];
	int n;

	pthread_rwlock_rdlock(&c->poll);
	n = ibv_poll_cq(c->cq, 1 + (int)below(w, 16), wc);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		polled(c, &wc[i]);
	pthread_rwlock_unlock(&c->poll);
}

static void control(struct worker *w, struct couple *c)
{
	int how = (int)below(w, 8);

	if (how < 2) {
		ends_gone(c, w);
		if (!how && !c->wild) {
			CHECK(!ibv_destroy_cq(c->cq));
			c->cq = make_cq(w, 1024);
		}
		return ends_make(c, w);
	}
	if (how < 4) {
		ADD(made.errors, 1);
		return q_error(c->q[how & 1]);
	}
	for (int i = 0; i < 2; i++) {
		q_reset(c->q[i]);
		c->credit[i] = 0;
	}
	q_pair(c->q[0], c->q[1]);
	ADD(made.resets, 1);
}

void shared_work(struct worker *w, struct couple *c)
{
	for (int i = 0; i < 200; i++) {
		uint32_t how = below(w, 100);

		if (how < 60) {
			pthread_rwlock_rdlock(&c->use);
			how < 35 ? send_some(w, c, how & 1) : receive_some(w, c, how & 1);
			pthread_rwlock_unlock(&c->use);
		} else if (how < 98) {
			poll_some(w, c);
		} else {
			pthread_rwlock_wrlock(&c->use);
			if (!c->wild)
				pthread_rwlock_wrlock(&c->poll);
			control(w, c);
			if (!c->wild)
				pthread_rwlock_unlock(&c->poll);
			pthread_rwlock_unlock(&c->use);
		}
	}
}

struct couple *couple_make(struct dev *d, bool wild)
{
	struct couple *c = calloc(1, sizeof(*c));

	CHECK(c && !pthread_rwlock_init(&c->use, NULL) && !pthread_rwlock_init(&c->poll, NULL));
	c->dev = d;
	c->wild = wild;
	c->cq = cq_make(d, 1024);
	ends_make(c, NULL);
	return c;
}

void couple_end(struct couple *c)
{
	struct counts *n = &c->n;

	ends_gone(c, NULL);
	CHECK(!ibv_destroy_cq(c->cq));
	n->send_wr_discarded = n->send_wr_posted - n->send_wr_completed - n->send_wr_failed;
	n->send_bytes_discarded = n->send_bytes_posted - n->send_bytes_completed - n->send_bytes_failed;
	n->recv_wr_discarded = n->recv_wr_posted - n->recv_wr_completed - n->recv_wr_failed;
	truth_add(c->dev, 1, n);
	free(c);
}
