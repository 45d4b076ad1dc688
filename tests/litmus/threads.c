/* 17: four threads post large WRITE_WITH_IMMs, by turns on one QP and on a QP each of one CQ, to an SQ that is often full.
 * Each thread's CQEs, and at the target its receives, come in its order, with its data (C1, C3, C8). */
#include "litmus.h"

#include <pthread.h>

#define THREADS 4
#define EACH 8
#define LENGTH(s) ((s)->size / 4)
#define SLOT(s, t, k) (((t) * EACH + (k)) * LENGTH(s))
#define ID(t, k) ((t) << 8 | (k))

struct poster {
	struct side *s;
	struct qp *q;
	unsigned thread, round;
};

static void *post_all(void *arg)
{
	struct poster *p = arg;

	for (unsigned k = 0; k < EACH; k++) {
		struct op op = { IBV_WR_RDMA_WRITE_WITH_IMM, .id = ID(p->thread, k), .from = SLOT(p->s, p->thread, k),
				 .to = SLOT(p->s, p->thread, k), .len = LENGTH(p->s), .imm = ID(p->thread, k),
				 .flags = k % 2 ? IBV_SEND_SIGNALED : 0, .qp = p->q };

		while (try_post(p->s, &op))
			usleep(500);
	}
	return NULL;
}

static struct qp *qp_of(struct side *s, struct qp *own, unsigned round, unsigned t) { return round % 2 ? &s->main : &own[t]; }

static void post_round(struct side *s, struct qp *own, unsigned r)
{
	struct poster p[THREADS];
	pthread_t id[THREADS];
	unsigned next[THREADS];

	for (unsigned t = 0; t < THREADS; t++) {
		p[t] = (struct poster){ s, qp_of(s, own, r, t), t, r };
		next[t] = 1;
		MUST(s, !pthread_create(&id[t], NULL, post_all, &p[t]));
	}
	for (unsigned i = 0; i < THREADS * EACH / 2; i++) {
		struct ibv_wc wc = next_cqe(s, s->scq);
		unsigned t = wc.wr_id >> 8 & 3;

		expect(s, &wc, qp_of(s, own, r, t), ID(t, next[t]), IBV_WC_RDMA_WRITE, ANY);
		next[t] += 2;
	}
	for (unsigned t = 0; t < THREADS; t++)
		MUST(s, !pthread_join(id[t], NULL));
}

static void take_round(struct side *s, struct qp *own, unsigned r)
{
	unsigned next[THREADS] = { 0 };
	uint64_t used = 0;

	for (unsigned i = 0; i < THREADS * EACH; i++) {
		struct ibv_wc wc = next_cqe(s, s->rcq);
		unsigned t = be32toh(wc.imm_data) >> 8 & 3, n = wc.wr_id & 63;

		if (wc.status == IBV_WC_SUCCESS && (wc.wr_id < RECV_ID || used >> n & 1))
			violated(s, "receive %#lx again", wc.wr_id);
		used |= 1ull << n;
		expect_recv(s, &wc, qp_of(s, own, r, t), RECV_ID + n, IBV_WC_RECV_RDMA_WITH_IMM, LENGTH(s), true,
			    ID(t, next[t]));
		/* Receives of one QP come in the order in which they were posted. */
		MUST(s, n == (r % 2 ? i : t * EACH + next[t]));
		check(s, "a thread's message", s->buf + SLOT(s, t, next[t]), LENGTH(s), 1000 * r + ID(t, next[t]));
		next[t]++;
	}
}

static void both(struct side *s)
{
	struct qp own[THREADS] = { 0 };

	open_side(s, THREADS * EACH * LENGTH(s), (struct shape){ .sq = 8 });
	for (unsigned t = 0; t < THREADS; t++) {
		qp_make(s, &own[t], s->ip);
		qp_connect(s, &own[t]);
	}
	for (unsigned r = 1; r <= s->rounds; r++) {
		for (unsigned t = 0; t < THREADS; t++)
			for (unsigned k = 0; k < EACH; k++)
				if (s->is_source)
					fill(s->buf + SLOT(s, t, k), LENGTH(s), 1000 * r + ID(t, k));
				else
					post_recv(s, qp_of(s, own, r, t), RECV_ID + t * EACH + k, 0, 0);
		meet(s);
		if (s->is_source)
			post_round(s, own, r);
		else
			take_round(s, own, r);
		meet(s);
	}
	for (unsigned t = 0; t < THREADS; t++)
		qp_drop(s, &own[t]);
	close_side(s);
}

const struct litmus threads = { 17, "threads", both, both, "early order qp_num", 4 };
