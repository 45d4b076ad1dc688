/* 3: a large WRITE, then a small SEND (by turns with immediate data); every third round a large SEND alone, shorter than
 * the receive's buffer (C1, C2, C3). */
#include "litmus.h"

#define SMALL 48
/* Offsets: the body, then two receive buffers of `size`, by turns. */
#define SLOT(s, r) ((s)->size * (1 + (r) % 2))

static bool is_large(unsigned r) { return r % 3 == 0; }
static uint32_t length(struct side *s, unsigned r) { return is_large(r) ? (uint32_t)s->size - 8 * r - 1 : SMALL; }

static void source(struct side *s)
{
	open_side(s, 3 * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		bool imm = r & 1;

		fill(s->buf, s->size, r);
		fill(s->buf + SLOT(s, r), length(s, r), 1000 + r);
		hear_that(s, r); /* the receive is posted */
		if (!is_large(r))
			POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 10 * r, .len = s->size);
		POST(s, .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .id = 10 * r + 1, .from = SLOT(s, r),
		     .len = length(s, r), .imm = ~r, .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, 10 * r + 1, IBV_WC_SEND);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, 3 * s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		uint8_t *slot = s->buf + SLOT(s, r);
		struct ibv_wc wc;

		memset(slot, 0x5a, s->size);
		post_recv(s, &s->main, RECV_ID + r, SLOT(s, r), s->size);
		say(s, r);
		wc = next_cqe(s, s->rcq);
		expect_recv(s, &wc, &s->main, RECV_ID + r, IBV_WC_RECV, length(s, r), r & 1, ~r);
		if (!is_large(r))
			check(s, "the body when the SEND is there", s->buf, s->size, r);
		check(s, "the SEND", slot, length(s, r), 1000 + r);
		check_still(s, "the receive behind the SEND", slot + length(s, r), s->size - length(s, r), 0x5a);
		say(s, r);
	}
	close_side(s);
}

const struct litmus send_ = { 3, "send", source, target, "early", 12 };
