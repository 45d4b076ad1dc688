/* 18: two QPs take their receives from one SRQ: large WRITE_WITH_IMMs and SENDs, in a random order over both. Each
 * receive is used once, a SEND is in the buffer that its CQE names, a WRITE_WITH_IMM leaves the buffer alone, and each
 * QP's messages come in its order (C1, C3). */
#include "litmus.h"

#define RUN 8
#define SLOT(s, m) ((m) * (s)->size)
#define BUFFER(s, b) ((RUN + (b)) * (s)->size)

struct message {
	unsigned qp;
	bool is_send;
	uint32_t len;
};

/* Both sides draw the same messages. */
static void draw(struct side *s, uint64_t *state, struct message *m)
{
	for (unsigned i = 0; i < RUN; i++) {
		uint64_t x = next_random(state);

		m[i] = (struct message){ x & 1, x >> 1 & 1, (uint32_t)(s->size - (x >> 8) % (s->size / 2)) };
	}
}

static void post_round(struct side *s, struct qp **q, const struct message *m, unsigned r)
{
	for (unsigned i = 0; i < RUN; i++)
		POST(s, .opcode = m[i].is_send ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM, .id = i, .from = SLOT(s, i),
		     .to = SLOT(s, i), .len = m[i].len, .imm = RUN * r + i, .flags = IBV_SEND_SIGNALED, .qp = q[m[i].qp]);
	for (unsigned i = 0, next[2] = { 0, 0 }; i < RUN; i++) {
		struct ibv_wc wc = next_cqe(s, s->scq);
		unsigned of = wc.qp_num == q[1]->qp->qp_num, *n = &next[of];

		while (*n < RUN && m[*n].qp != of)
			++*n;
		MUST(s, *n < RUN);
		expect(s, &wc, q[of], *n, m[*n].is_send ? IBV_WC_SEND : IBV_WC_RDMA_WRITE, ANY);
		++*n;
	}
}

static void take_round(struct side *s, struct qp **q, const struct message *m, unsigned r)
{
	unsigned used = 0;

	for (unsigned i = 0, next[2] = { 0, 0 }; i < RUN; i++) {
		struct ibv_wc wc = next_cqe(s, s->rcq);
		unsigned of = wc.qp_num == q[1]->qp->qp_num, *n = &next[of], b = wc.wr_id & 15;

		while (*n < RUN && m[*n].qp != of)
			++*n;
		MUST(s, *n < RUN);
		expect_recv(s, &wc, q[of], RECV_ID + b, m[*n].is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, m[*n].len,
			    true, RUN * r + *n);
		if (b >= RUN || used >> b & 1)
			violated(s, "receive %u again", b);
		used |= 1u << b;
		if (m[*n].is_send) {
			check(s, "a SEND", s->buf + BUFFER(s, b), m[*n].len, RUN * r + *n);
			check_still(s, "behind the SEND", s->buf + BUFFER(s, b) + m[*n].len, s->size - m[*n].len, 0);
		} else {
			check(s, "a message", s->buf + SLOT(s, *n), m[*n].len, RUN * r + *n);
			check_still(s, "the receive of a message", s->buf + BUFFER(s, b), s->size, 0);
		}
		++*n;
	}
}

static void both(struct side *s)
{
	struct qp second = { 0 }, *q[] = { &s->main, &second };
	struct message m[RUN];
	uint64_t state = s->seed;

	open_side(s, 2 * RUN * s->size, (struct shape){ .shared = !s->is_source });
	qp_make(s, &second, s->ip);
	qp_connect(s, &second);
	for (unsigned r = 1; r <= s->rounds; r++) {
		draw(s, &state, m);
		if (!s->is_source)
			memset(s->buf, 0, s->len);
		for (unsigned i = 0; i < RUN; i++)
			if (s->is_source)
				fill(s->buf + SLOT(s, i), s->size, RUN * r + i);
			else
				post_recv(s, NULL, RECV_ID + i, BUFFER(s, i), s->size);
		meet(s);
		if (s->is_source)
			post_round(s, q, m, r);
		else
			take_round(s, q, m, r);
		meet(s);
	}
	qp_drop(s, &second);
	close_side(s);
}

const struct litmus srq = { 18, "srq", both, both, "early length qp_num", 3 };
