/* 2: a large unsignaled WRITE, then a FETCH_ADD (or, by turns, a CMP_SWAP) of a counter that the peer polls (C3, C10). */
#include "litmus.h"

#define COUNTER(s) ((s)->size + 64)

static void source(struct side *s)
{
	open_side(s, s->size + 128, (struct shape){ 0 });
	for (uint64_t r = 1; r <= s->rounds; r++) {
		struct ibv_wc wc;
		bool adds = r & 1;

		fill(s->buf, s->size, r);
		memset(s->buf + COUNTER(s), 0xee, 8);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 10 * r, .len = s->size);
		POST(s, .opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP, .id = 10 * r + 1,
		     .from = COUNTER(s), .to = COUNTER(s), .len = 8, .add = adds ? 1 : r - 1, .swap = r,
		     .flags = IBV_SEND_SIGNALED);
		wc = next_cqe(s, s->scq);
		expect(s, &wc, &s->main, 10 * r + 1, adds ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP, 8);
		if (peek(s->buf + COUNTER(s)) != r - 1)
			violated(s, "the atomic found %#lx, not %#lx", peek(s->buf + COUNTER(s)), r - 1);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, s->size + 128, (struct shape){ 0 });
	for (uint64_t r = 1, seen; r <= s->rounds; r++) {
		doing("the counter");
		while ((seen = peek(s->buf + COUNTER(s))) == r - 1)
			s->seen.samples++;
		check(s, "the body when the counter moved", s->buf, s->size, r);
		if (seen != r)
			violated(s, "the counter is %#lx, not %#lx", seen, r);
		say(s, r);
	}
	close_side(s);
}

const struct litmus atomic_ = { 2, "atomic", source, target, "early extra", 10 };
