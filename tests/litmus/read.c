/* 7: a READ after a WRITE returns what was written; a WRITE after a READ of the same range does not change what the READ
 * returns; what follows with IBV_SEND_FENCE has all that the READ brought (C6). */
#include "litmus.h"

/* Source: what it WRITEs next, and two places to READ into. Target: the range, and a copy of what was READ. */
#define RANGE 0
#define COPY(s) ((s)->size)
#define LAST(s) ((s)->size / 4 * 3) /* where the last quarter begins */
#define INTO(s, i) ((s)->size * (2 + (i)))

static void await_second(struct side *s, unsigned r)
{
	struct ibv_wc wc = next_cqe(s, s->scq);

	expect(s, &wc, &s->main, 4, IBV_WC_RDMA_READ, s->size);
	check(s, "the second READ", s->buf + INTO(s, 1), s->size, 2 * r + 1);
}

/* WRITEs to the range, READs it again and WRITEs back what was READ, its last quarter first: one chain. A READ whose
 * answer is lost is made again, and has what was WRITten since; and soft-RoCE's fenced WRs then wait for ever. So with
 * loss nothing follows a READ before its CQE. */
static void post_second(struct side *s, unsigned r)
{
	uint32_t n = s->size;
	const uint64_t into = (uintptr_t)s->buf + INTO(s, 1);
	const struct ibv_sge back[] = { { into + LAST(s), n - LAST(s), s->mr->lkey }, { into, LAST(s), s->mr->lkey } };
	const struct op ops[] = {
		{ IBV_WR_RDMA_WRITE, .id = 3, .from = n, .to = RANGE, .len = n },
		{ IBV_WR_RDMA_READ, .id = 4, .from = INTO(s, 1), .to = RANGE, .len = n, .flags = IBV_SEND_SIGNALED },
		{ IBV_WR_RDMA_WRITE, .id = 5, .sges = back, .n_sges = 2, .to = COPY(s),
		  .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE },
	};
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];

	for (unsigned i = 0; i < 3; i++) {
		fill_wr(s, &ops[i], &wr[i], &sge[i]);
		wr[i].next = i < 2 && !(i == 1 && s->lossy) ? &wr[i + 1] : NULL;
	}
	MUST(s, !post_chain(s, &s->main, wr, &bad));
	if (!s->lossy)
		return;
	await_second(s, r);
	MUST(s, !post_chain(s, &s->main, &wr[2], &bad));
}

static void source(struct side *s)
{
	uint32_t n = s->size;

	open_side(s, 4 * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		bool waits = r % 2 || s->lossy;
		struct ibv_wc wc;

		fill(s->buf, n, 2 * r);
		fill(s->buf + n, n, 2 * r + 1);
		memset(s->buf + INTO(s, 0), 0, 2 * s->size);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 1, .from = 0, .to = RANGE, .len = n);
		POST(s, .opcode = IBV_WR_RDMA_READ, .id = 2, .from = INTO(s, 0), .to = RANGE, .len = n,
		     .flags = IBV_SEND_SIGNALED);
		if (waits) { /* with a wait between READ and WRITE, and without one */
			wc = next_cqe(s, s->scq);
			expect(s, &wc, &s->main, 2, IBV_WC_RDMA_READ, n);
			check(s, "the READ after the WRITE", s->buf + INTO(s, 0), n, 2 * r);
		}
		post_second(s, r);
		if (!waits) {
			wc = next_cqe(s, s->scq);
			expect(s, &wc, &s->main, 2, IBV_WC_RDMA_READ, n);
			check(s, "the READ before the WRITE", s->buf + INTO(s, 0), n, 2 * r);
		}
		if (!s->lossy)
			await_second(s, r);
		expect_sent(s, &s->main, 5, IBV_WC_RDMA_WRITE);
		say(s, r);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	uint8_t *want = malloc(s->size);

	open_side(s, 4 * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		hear_that(s, r);
		fill_from(want, s->size - LAST(s), 2 * r + 1, LAST(s));
		fill(want + s->size - LAST(s), LAST(s), 2 * r + 1);
		for (size_t i = 0; i < s->size; i++)
			if (s->buf[COPY(s) + i] != want[i])
				violated(s, "byte %zu of what was READ and, fenced, written back is wrong", i);
		check(s, "the range", s->buf + RANGE, s->size, 2 * r + 1);
		say(s, r);
	}
	free(want);
	close_side(s);
}

const struct litmus read_ = { 7, "read", source, target, "early fence", 6 };
