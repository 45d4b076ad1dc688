/* 11: the QP goes to ERR with large WRs in flight. What is left flushes in post order, unsignaled WRs too; what succeeded
 * is placed; and once both sides' calls have returned, nobody touches the app's memory, at either end: what the source
 * writes into its buffers then never shows, and the target's stay as they are (C7, C11). By turns WRITEs and READs. */
#include "litmus.h"

#define WRS 8
#define SLOT(s, i) ((i) * (s)->size)
#define OLD(r) (1000 + (r))
#define NEW(r, i) (100 * (r) + (i))

static bool signaled(unsigned i) { return i % 3 == 0 || i == WRS - 1; }

/* Takes all CQEs there are to come; returns the first WR that was flushed, WRS if none. */
static unsigned drain(struct side *s, unsigned next, enum ibv_wc_opcode opcode)
{
	unsigned first = WRS;

	while (next < WRS) {
		struct ibv_wc wc = next_cqe(s, s->scq);

		if (wc.status == IBV_WC_SUCCESS) {
			if (first < WRS)
				violated(s, "wr_id %#lx succeeded after wr_id %u was flushed", wc.wr_id, first);
			while (next < WRS && !signaled(next))
				next++;
			expect(s, &wc, &s->main, next, opcode, ANY);
		} else {
			if (first == WRS) {
				while (next < wc.wr_id && !signaled(next))
					next++; /* done, and nothing to say of it */
				first = next;
			}
			expect_fails(s, &wc, &s->main, next, IBV_WC_WR_FLUSH_ERR);
		}
		next++;
	}
	none_left(s, s->scq, 10);
	return first;
}

/* A QP of soft-RoCE that was reset in the midst of answering a READ goes on with that in its next life, and what it then
 * sends completes WRs that were never done. So after READs both sides make another one. */
static void again(struct side *s, bool reads)
{
	if (reads) {
		qp_drop(s, &s->main);
		qp_make(s, &s->main, s->ip);
	} else {
		qp_reset(s, &s->main);
	}
	qp_connect(s, &s->main);
}

static void source(struct side *s)
{
	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		bool reads = r % 2 == 0, waits = r % 4 >= 2;
		unsigned first;

		for (unsigned i = 0; i < WRS; i++)
			fill(s->buf + SLOT(s, i), s->size, NEW(r, i));
		hear_that(s, r);
		for (unsigned i = 0; i < WRS; i++)
			POST(s, .opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .id = i, .from = SLOT(s, i),
			     .to = SLOT(s, i), .len = s->size, .flags = signaled(i) ? IBV_SEND_SIGNALED : 0);
		if (waits)
			expect_sent(s, &s->main, 0, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
		qp_move(s, &s->main, IBV_QPS_ERR);
		first = drain(s, waits, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
		for (unsigned i = waits; reads && i < first; i++)
			check(s, "a READ that succeeded", s->buf + SLOT(s, i), s->size, OLD(r));
		memset(s->buf, 0xee, s->len);
		say(s, reads ? 0 : first);
		nap_ms(200);
		check_still(s, "the app's own memory after its QP is in ERR", s->buf, s->len, 0xee);
		hear_that(s, r);
		again(s, reads);
	}
	close_side(s);
}

/* Of a slot that was not finished: every byte is old or new. Returns how many of the new ones are there. */
static size_t partly(struct side *s, unsigned r, unsigned i, const uint8_t *old, const uint8_t *new)
{
	const uint8_t *at = s->buf + SLOT(s, i);
	size_t n = 0;

	for (size_t b = 0; b < s->size; b++) {
		if (at[b] != old[b] && at[b] != new[b])
			violated(s, "round %u: byte %zu of slot %u is %#x, neither old nor new", r, b, i, at[b]);
		n += at[b] == new[b] && old[b] != new[b];
	}
	return n;
}

static void look(struct side *s, unsigned r, unsigned first, uint8_t *old, uint8_t *new)
{
	bool whole = true;

	for (unsigned i = 0; i < first; i++)
		check(s, "a slot whose WR succeeded", s->buf + SLOT(s, i), s->size, NEW(r, i));
	for (unsigned i = first; i < WRS; i++) {
		size_t n, all = 0;

		fill(old, s->size, OLD(r));
		fill(new, s->size, NEW(r, i));
		for (size_t b = 0; b < s->size; b++)
			all += old[b] != new[b];
		n = partly(s, r, i, old, new);
		if (n && !whole && !s->notify)
			violated(s, "round %u: slot %u has begun before those before it were whole", r, i);
		whole = whole && n == all;
	}
}

static void target(struct side *s)
{
	uint8_t *before = malloc(WRS * s->size), *room = malloc(2 * s->size);

	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		bool reads = r % 2 == 0;
		unsigned first;

		for (unsigned i = 0; i < WRS; i++)
			fill(s->buf + SLOT(s, i), s->size, OLD(r));
		say(s, r);
		first = hear(s);
		qp_move(s, &s->main, IBV_QPS_ERR);
		memcpy(before, s->buf, s->len);
		if (!reads)
			look(s, r, first, room, room + s->size);
		nap_ms(200);
		if (memcmp(before, s->buf, s->len))
			violated(s, "round %u: memory changed after the QP was in ERR", r);
		say(s, r);
		again(s, reads);
	}
	free(before);
	free(room);
	close_side(s);
}

const struct litmus error_ = { 11, "error", source, target, "early order", 4 };
