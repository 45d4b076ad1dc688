/* 20: random sequences of all operations, random in length, place, SGEs, flags and chains, from a seed. Both sides compute
 * what RC makes of them, one WR after the other: the target's memory, its receives, what READs and atomics bring back,
 * and the CQEs of both sides are exactly that (C1-C6, C10). */
#include "litmus.h"

#define OPS 24 /* of a round */
#define COUNTERS 16
#define INLINE 64
/* Both: an image of 4 x size. The source's first half is what it WRITEs from, its second half what it READs into.
 * Behind it the target's counters, or the source's results of atomics, then the target's receives. */
#define IMAGE(s) (4 * (s)->size)
#define INTO(s) (2 * (s)->size)
#define COUNTER(s, i) (IMAGE(s) + 64 * (i))
#define RECEIVE(s, i) (IMAGE(s) + 64 * OPS + (i) * (s)->size)

struct step {
	enum ibv_wr_opcode opcode;
	size_t from, to; /* for a READ: the own offset, the peer's */
	uint32_t len, imm;
	unsigned flags, cuts[3], n_cuts;
	uint64_t add, swap, old;
	int receive; /* which, or -1 */
};

struct model {
	uint8_t *target, *into; /* the images */
	uint64_t counter[COUNTERS];
	struct step step[OPS];
	unsigned receives;
	uint64_t state;
};

static const enum ibv_wc_opcode done[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,		 [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,	 [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

static uint64_t dice(struct model *m, uint64_t n) { return next_random(&m->state) % n; }

static bool is_atomic(const struct step *p) { return p->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP; }
static bool is_write(const struct step *p)
{
	return p->opcode == IBV_WR_RDMA_WRITE || p->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static bool is_send(const struct step *p) { return p->opcode == IBV_WR_SEND || p->opcode == IBV_WR_SEND_WITH_IMM; }
static bool has_imm(const struct step *p)
{
	return p->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || p->opcode == IBV_WR_SEND_WITH_IMM;
}

static uint32_t draw_length(struct side *s, struct model *m)
{
	switch (dice(m, 8)) {
	case 0: return (uint32_t)dice(m, 2);
	case 1: return (uint32_t)dice(m, INLINE + 1);
	case 2: return LARGE - 32 + (uint32_t)dice(m, 64);
	case 3: return (uint32_t)s->size;
	default: return (uint32_t)dice(m, s->size);
	}
}

static enum ibv_wr_opcode draw_opcode(struct model *m)
{
	static const enum ibv_wr_opcode of[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_SEND,
						 IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD };

	return of[dice(m, 10)];
}

static void draw_atomic(struct side *s, struct model *m, struct step *p, unsigned i)
{
	unsigned c = (unsigned)dice(m, COUNTERS);

	p->from = COUNTER(s, i);
	p->to = COUNTER(s, c);
	p->len = 8;
	p->old = m->counter[c];
	p->add = dice(m, 2) ? p->old : next_random(&m->state); /* half of the comparisons fail */
	p->swap = next_random(&m->state);
	if (p->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		m->counter[c] += p->add;
	else if (p->add == p->old)
		m->counter[c] = p->swap;
}

/* Memory that a WR under way reads or lands in is nobody else's: READs of a round land in places of their own, and a
 * WRITE of what a READ brought is fenced. */
static void draw_place(struct side *s, struct model *m, struct step *p, size_t *landed, unsigned r)
{
	p->len = draw_length(s, m);
	if (p->opcode == IBV_WR_RDMA_READ && *landed + p->len > INTO(s))
		p->opcode = IBV_WR_RDMA_WRITE;
	if (s->lossy) /* READs take one half and WRITEs the other: a READ that is made again finds what it did at first */
		p->to = (r % 2 == (p->opcode == IBV_WR_RDMA_READ)) * IMAGE(s) / 2 + dice(m, IMAGE(s) / 2 - p->len + 1);
	else
		p->to = dice(m, IMAGE(s) - p->len + 1);
	if (p->opcode == IBV_WR_RDMA_READ) {
		p->from = INTO(s) + *landed;
		*landed += p->len;
		memcpy(m->into + p->from - INTO(s), m->target + p->to, p->len);
		return;
	}
	p->from = dice(m, INTO(s) - p->len + 1);
	if (p->opcode == IBV_WR_RDMA_WRITE && p->flags & IBV_SEND_FENCE && *landed >= p->len)
		p->from = INTO(s) + dice(m, *landed - p->len + 1);
}

static void draw_flags(struct side *s, struct model *m, struct step *p, bool last)
{
	if (last || dice(m, 10) < 6)
		p->flags |= IBV_SEND_SIGNALED;
	if (dice(m, 6) == 0 && !s->lossy)
		p->flags |= IBV_SEND_FENCE;
	if (dice(m, 4) == 0)
		p->flags |= IBV_SEND_SOLICITED;
}

/* Draws a round and does it to the model; `own` is what the source WRITEs from. */
static void draw_round(struct side *s, struct model *m, const uint8_t *own, unsigned r)
{
	size_t landed = 0;

	m->receives = 0;
	for (unsigned i = 0; i < OPS; i++) {
		struct step *p = &m->step[i];

		*p = (struct step){ .opcode = draw_opcode(m), .imm = r * OPS + i, .receive = -1 };
		draw_flags(s, m, p, i == OPS - 1);
		if (is_atomic(p)) {
			draw_atomic(s, m, p, i);
			continue;
		}
		draw_place(s, m, p, &landed, r);
		for (p->n_cuts = (unsigned)dice(m, 4); p->len < 4 && p->n_cuts;)
			p->n_cuts = 0;
		if (p->len <= INLINE && p->opcode != IBV_WR_RDMA_READ && p->from < INTO(s) && dice(m, 2))
			p->flags |= IBV_SEND_INLINE;
		if (is_send(p) || has_imm(p))
			p->receive = (int)m->receives++;
		if (is_write(p))
			memcpy(m->target + p->to, p->from < INTO(s) ? own + p->from : m->into + p->from - INTO(s), p->len);
	}
}

/* ---- the source ---- */

static void step_wr(struct side *s, const struct step *p, unsigned i, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct op op = { p->opcode, .id = i, .from = p->from, .to = p->to, .len = p->len, .flags = p->flags, .imm = p->imm,
			 .add = p->add, .swap = p->swap };
	unsigned n = p->n_cuts + 1;

	fill_wr(s, &op, wr, sge);
	if (n == 1 || is_atomic(p))
		return;
	for (unsigned k = 0; k < n; k++) {
		uint32_t at = p->len / n * k;

		sge[k] = (struct ibv_sge){ (uintptr_t)s->buf + p->from + at, k == n - 1 ? p->len - at : p->len / n, s->mr->lkey };
	}
	wr->num_sge = (int)n;
}

static void look_at(struct side *s, const struct model *m, unsigned i)
{
	const struct step *p = &m->step[i];

	if (p->opcode == IBV_WR_RDMA_READ && memcmp(s->buf + p->from, m->into + p->from - INTO(s), p->len))
		for (uint32_t b = 0; b < p->len; b++)
			if (s->buf[p->from + b] != m->into[p->from - INTO(s) + b])
				violated(s, "step %u: byte %u of %u of the READ is wrong", i, b, p->len);
	if (is_atomic(p) && peek(s->buf + p->from) != p->old)
		violated(s, "step %u: the atomic found %#lx, not %#lx", i, peek(s->buf + p->from), p->old);
}

/* Takes a CQE that is there, or waits for it; false if none is there. */
static bool take(struct side *s, const struct model *m, unsigned *next, bool wait)
{
	struct ibv_wc wc;

	if (wait)
		wc = next_cqe(s, s->scq);
	else if (!poll_one(s, s->scq, &wc))
		return false;
	while (!(m->step[*next].flags & IBV_SEND_SIGNALED))
		++*next;
	expect(s, &wc, &s->main, *next, done[m->step[*next].opcode],
	       m->step[*next].opcode == IBV_WR_RDMA_READ || is_atomic(&m->step[*next]) ? m->step[*next].len : ANY);
	look_at(s, m, (*next)++);
	return true;
}

static void post_round(struct side *s, struct model *m)
{
	struct ibv_send_wr wr[OPS], *bad;
	struct ibv_sge sge[OPS][4];
	unsigned next = 0;

	for (unsigned i = 0; i < OPS; i++)
		step_wr(s, &m->step[i], i, &wr[i], sge[i]);
	for (unsigned i = 0, n; i < OPS; i += n) {
		n = 1 + (unsigned)dice(m, 4);
		n = n < OPS - i ? n : OPS - i;
		for (unsigned k = i; k < i + n - 1; k++)
			wr[k].next = &wr[k + 1];
		MUST(s, !post_chain(s, &s->main, &wr[i], &bad));
		while (dice(m, 3) == 0 && next < i + n && take(s, m, &next, false))
			;
	}
	while (next < OPS)
		take(s, m, &next, true);
	for (unsigned i = 0; i < OPS; i++)
		look_at(s, m, i);
	none_left(s, s->scq, 2);
}

/* ---- the target ---- */

static bool meets(const struct step *a, const struct step *b)
{
	return is_write(b) && a->to < b->to + b->len && b->to < a->to + a->len;
}

/* When a receive completes, what was WRITten before it, and is not written again, is there. */
static void look_before(struct side *s, const struct model *m, unsigned last)
{
	for (unsigned i = 0; i <= last; i++) {
		const struct step *p = &m->step[i];
		bool again = !is_write(p);

		for (unsigned k = i + 1; k < OPS; k++)
			again = again || meets(p, &m->step[k]);
		if (!again && memcmp(s->buf + p->to, m->target + p->to, p->len))
			violated(s, "step %u is not all there when the receive of step %u completes", i, last);
	}
}

static void take_round(struct side *s, struct model *m, const uint8_t *own)
{
	for (unsigned i = 0; i < OPS; i++) {
		const struct step *p = &m->step[i];
		uint8_t *slot = s->buf + RECEIVE(s, p->receive);
		uint32_t len = is_send(p) ? p->len : 0;
		struct ibv_wc wc;

		if (p->receive < 0)
			continue;
		wc = next_cqe(s, s->rcq);
		expect_recv(s, &wc, &s->main, RECV_ID + (unsigned)p->receive,
			    is_send(p) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, p->len, has_imm(p), p->imm);
		look_before(s, m, i);
		if (memcmp(slot, own + p->from, len))
			violated(s, "step %u: the SEND of %u bytes is wrong", i, len);
		check_still(s, "behind a SEND", slot + len, s->size - len, 0);
	}
	hear_that(s, 1);
	for (size_t b = 0; b < IMAGE(s); b++)
		if (s->buf[b] != m->target[b])
			violated(s, "at the end of the round byte %zu is %#x, not %#x", b, s->buf[b], m->target[b]);
	for (unsigned c = 0; c < COUNTERS; c++)
		if (peek(s->buf + COUNTER(s, c)) != m->counter[c])
			violated(s, "counter %u is wrong", c);
	s->seen.bytes += IMAGE(s);
	none_left(s, s->rcq, 2);
}

static void both(struct side *s)
{
	struct model m = { .state = s->seed };
	uint8_t *own = malloc(INTO(s));
	size_t most = RECEIVE(s, s->is_source ? 0 : OPS);

	m.target = calloc(1, IMAGE(s));
	m.into = calloc(1, INTO(s));
	MUST(s, own && m.target && m.into);
	open_side(s, most, (struct shape){ 0 });
	for (unsigned r = 0; r < s->rounds; r++) {
		uint64_t from = m.state;

		fill(own, INTO(s), r);
		draw_round(s, &m, own, r);
		if (s->is_source) {
			memcpy(s->buf, own, INTO(s));
		} else {
			memset(s->buf + RECEIVE(s, 0), 0, OPS * s->size);
			for (unsigned i = 0; i < m.receives; i++)
				post_recv(s, &s->main, RECV_ID + i, RECEIVE(s, i), s->size);
		}
		meet(s);
		if (s->is_source) {
			post_round(s, &m);
			say(s, 1);
		} else {
			take_round(s, &m, own);
		}
		m.state = from + 1; /* the source has drawn more */
		meet(s);
	}
	free(own);
	free(m.target);
	free(m.into);
	close_side(s);
}

const struct litmus random_ = { 20, "random", both, both, "early order extra wr_id", 6 };
