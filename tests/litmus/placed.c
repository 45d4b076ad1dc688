/* A large WRITE alone: when its CQE is delivered, all of it is at the target (C2), and the CQE is the app's (C1). */
#include "litmus.h"

static void source(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		fill(s->buf, s->size, r);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 2 * r, .len = s->size, .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, 2 * r, IBV_WC_RDMA_WRITE);
		say(s, r);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		hear_that(s, r);
		check(s, "the message after its CQE", s->buf, s->size, r);
		say(s, r);
	}
	close_side(s);
}

const struct litmus placed = { 0, "placed", source, target, "early wr_id qp_num", 10 };
