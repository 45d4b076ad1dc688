/* 1: a large WRITE, then an 8-byte WRITE of a flag that the peer polls in memory (C3). By turns the large one is signaled
 * or not, the flag is inline or not, and both go in one chain or in two. */
#include "litmus.h"

static size_t flag_at(const struct side *s) { return s->size + 64; }

static void post_round(struct side *s, unsigned r)
{
	struct op body = { IBV_WR_RDMA_WRITE, .id = 10 * r, .len = s->size, .flags = r & 1 ? IBV_SEND_SIGNALED : 0 };
	struct op flag = { IBV_WR_RDMA_WRITE, .id = 10 * r + 1, .from = flag_at(s), .to = flag_at(s), .len = 8,
			   .flags = IBV_SEND_SIGNALED | (r & 2 ? IBV_SEND_INLINE : 0) };
	struct ibv_send_wr wr[2], *bad;
	struct ibv_sge sge[2];

	fill_wr(s, &body, &wr[0], &sge[0]);
	fill_wr(s, &flag, &wr[1], &sge[1]);
	if (r & 4) {
		wr[0].next = &wr[1];
		MUST(s, !post_chain(s, &s->main, wr, &bad));
	} else {
		MUST(s, !post_chain(s, &s->main, &wr[0], &bad) && !post_chain(s, &s->main, &wr[1], &bad));
	}
	if (r & 2)
		memset(s->buf + flag_at(s), 0xee, 8); /* inline data is the app's again */
}

static void source(struct side *s)
{
	open_side(s, s->size + 128, (struct shape){ 0 });
	for (uint64_t r = 1; r <= s->rounds; r++) {
		fill(s->buf, s->size, r);
		memcpy(s->buf + flag_at(s), &r, 8);
		post_round(s, r);
		if (r & 1)
			expect_sent(s, &s->main, 10 * r, IBV_WC_RDMA_WRITE);
		expect_sent(s, &s->main, 10 * r + 1, IBV_WC_RDMA_WRITE);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	MUST(s, s->rounds < 256); /* of the flag only the low byte changes: emulation may store it byte by byte */
	open_side(s, s->size + 128, (struct shape){ 0 });
	for (uint64_t r = 1, seen; r <= s->rounds; r++) {
		doing("the flag");
		while ((seen = peek(s->buf + flag_at(s))) == r - 1)
			s->seen.samples++;
		check(s, "the body when the flag is there", s->buf, s->size, r);
		if (seen != r)
			violated(s, "the flag is %#lx, not %#lx", seen, r);
		say(s, r);
	}
	close_side(s);
}

const struct litmus flag = { 1, "flag", source, target, "early", 16 };
