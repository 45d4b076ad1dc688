/* 12: of seven large WRs the fourth has a key that is wrong, or ends behind the region, or is a READ with a wrong key, or is
 * unsignaled: it alone has REM_ACCESS_ERR, those before it succeed and are placed, those behind it flush in post order
 * and leave no byte, and the QP is in ERR (C7). */
#include "litmus.h"

#define WRS 7
#define BAD 3
#define SLOT(s, i) ((i) * (s)->size)

static struct op nth(struct side *s, unsigned r, unsigned i)
{
	struct op op = { IBV_WR_RDMA_WRITE, .id = 10 * r + i, .from = SLOT(s, i), .to = SLOT(s, i), .len = s->size,
			 .flags = IBV_SEND_SIGNALED };

	if (i == BAD) {
		if (r % 4 == 1)
			op.to = s->len + 4096 - s->size / 2; /* the region ends with the guard */
		else
			op.rkey = s->peer_rkey ^ 0xff;
		if (r % 4 == 2)
			op.opcode = IBV_WR_RDMA_READ;
		if (r % 4 == 3)
			op.flags = 0;
	}
	return op;
}

static void source(struct side *s)
{
	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		struct ibv_wc wc;

		for (unsigned i = 0; i < WRS; i++)
			fill(s->buf + SLOT(s, i), s->size, 10 * r + i);
		hear_that(s, r);
		for (unsigned i = 0; i < WRS; i++) {
			struct op op = nth(s, r, i);

			MUST(s, !try_post(s, &op));
		}
		for (unsigned i = 0; i < BAD; i++)
			expect_sent(s, &s->main, 10 * r + i, IBV_WC_RDMA_WRITE);
		wc = next_cqe(s, s->scq);
		expect_fails(s, &wc, &s->main, 10 * r + BAD, IBV_WC_REM_ACCESS_ERR);
		for (unsigned i = BAD + 1; i < WRS; i++) {
			wc = next_cqe(s, s->scq);
			expect_fails(s, &wc, &s->main, 10 * r + i, IBV_WC_WR_FLUSH_ERR);
		}
		none_left(s, s->scq, 20);
		MUST(s, qp_state(s, &s->main) == IBV_QPS_ERR);
		say(s, r);
		hear_that(s, r);
		qp_reset(s, &s->main);
		qp_connect(s, &s->main);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, WRS * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		memset(s->buf, 0, s->len);
		say(s, r);
		hear_that(s, r);
		for (unsigned i = 0; i < BAD; i++)
			check(s, "a slot before the failure", s->buf + SLOT(s, i), s->size, 10 * r + i);
		for (unsigned i = BAD + 1; i < WRS - 1 && !s->notify; i++)
			check_still(s, "a slot behind the failure", s->buf + SLOT(s, i), s->size, 0);
		/* The WR that fails may leave its first bytes: at the end of the last slot and in the guard. */
		memset(s->buf + s->len, 0xa5, 4096);
		say(s, r);
		qp_reset(s, &s->main);
		qp_connect(s, &s->main);
	}
	close_side(s);
}

const struct litmus rkey = { 12, "rkey", source, target, "early status wr_id", 4 };
