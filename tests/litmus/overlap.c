/* 8: large WRITEs that overlap: the last one wins, at their CQE and at every moment before (C5). The target watches places
 * in the overlap: none may go back to an earlier WR. */
#include "litmus.h"

#define WRS 4
#define PLACES 16

/* Where WR i of a round begins: each overlaps all others, by another part each round. */
static size_t begin(struct side *s, unsigned r, unsigned i)
{
	static const unsigned eighths[][WRS] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 }, { 0, 0, 0, 0 } };

	return eighths[r % 4][i] * s->size / 8;
}

static uint64_t message(unsigned r, unsigned i) { return 100 * r + i; }

static void source(struct side *s)
{
	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		hear_that(s, r);
		for (unsigned i = 0; i < WRS; i++)
			fill(s->buf + i * s->size, s->size, message(r, i));
		for (unsigned i = 0; i < WRS; i++)
			POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 10 * r + i, .from = i * s->size, .to = begin(s, r, i),
			     .len = s->size, .flags = i == WRS - 1 ? IBV_SEND_SIGNALED : 0);
		expect_sent(s, &s->main, 10 * r + WRS - 1, IBV_WC_RDMA_WRITE);
		say(s, r);
	}
	close_side(s);
}

/* Which WR of the round wrote the 8 bytes at `at` (0: none yet). Emulation may store them byte by byte. */
static unsigned writer(struct side *s, unsigned r, size_t at)
{
	uint64_t seen;

	for (unsigned try = 0; try < 100; try++) {
		seen = peek(s->buf + at);
		for (unsigned i = WRS; i--;)
			if (at >= begin(s, r, i) && differs_from(&seen, 8, message(r, i), at - begin(s, r, i)) == 8)
				return i + 1;
		if (!seen)
			return 0;
	}
	violated(s, "offset %zu has %#lx, which nobody wrote there", at, seen);
}

static void target(struct side *s)
{
	uint8_t *want = malloc(2 * s->size);

	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		unsigned latest[PLACES] = { 0 };

		memset(s->buf, 0, 2 * s->size);
		memset(want, 0, 2 * s->size);
		for (unsigned i = 0; i < WRS; i++)
			fill(want + begin(s, r, i), s->size, message(r, i));
		say(s, r);
		while (!heard(s))
			for (unsigned p = 0; p < PLACES; p++) {
				size_t at = (3 * s->size / 8 + p * (5 * s->size / 8 - 8) / (PLACES - 1)) & ~(size_t)7;
				unsigned now = writer(s, r, at);

				if (now < latest[p])
					violated(s, "offset %zu went back from WR %u to WR %u", at, latest[p], now);
				latest[p] = now;
				s->seen.samples++;
			}
		hear_that(s, r);
		for (size_t i = 0; i < 2 * s->size; i++)
			if (s->buf[i] != want[i])
				violated(s, "offset %zu is not that of the last WR there", i);
		s->seen.bytes += 2 * s->size;
	}
	free(want);
	close_side(s);
}

const struct litmus overlap = { 8, "overlap", source, target, "early", 8 };
