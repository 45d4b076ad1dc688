/* 4: large WRITE_WITH_IMMs, four outstanding: data, byte_len, immediate data, qp_num, wr_id and order of the receives'
 * CQEs (C1, C2, C3). Every other receive has a buffer, which a WRITE_WITH_IMM leaves alone. */
#include "litmus.h"

#define DEPTH 4
#define SLOT(s, m) ((m) % DEPTH * (s)->size)
#define UNUSED(s) (DEPTH * (s)->size)

static uint32_t length(struct side *s, unsigned m) { return (uint32_t)s->size - m % 7 * 13; }

static void source(struct side *s)
{
	open_side(s, DEPTH * s->size + 64, (struct shape){ 0 });
	for (unsigned r = 0; r < s->rounds; r++) {
		unsigned first = r * DEPTH;

		for (unsigned m = first; m < first + DEPTH; m++)
			fill(s->buf + SLOT(s, m), s->size, m);
		hear_that(s, r);
		for (unsigned m = first; m < first + DEPTH; m++)
			POST(s, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = m, .from = SLOT(s, m), .to = SLOT(s, m),
			     .len = length(s, m), .imm = m * 0x01010101, .flags = IBV_SEND_SIGNALED);
		for (unsigned m = first; m < first + DEPTH; m++)
			expect_sent(s, &s->main, m, IBV_WC_RDMA_WRITE);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, DEPTH * s->size + 64, (struct shape){ 0 });
	memset(s->buf + UNUSED(s), 0x5a, 64);
	for (unsigned r = 0; r < s->rounds; r++) {
		unsigned first = r * DEPTH;

		memset(s->buf, 0, DEPTH * s->size);
		for (unsigned m = first; m < first + DEPTH; m++)
			post_recv(s, &s->main, RECV_ID + m, UNUSED(s), m & 1 ? 64 : 0);
		say(s, r);
		for (unsigned m = first; m < first + DEPTH; m++) {
			struct ibv_wc wc = next_cqe(s, s->rcq);

			expect_recv(s, &wc, &s->main, RECV_ID + m, IBV_WC_RECV_RDMA_WITH_IMM, length(s, m), true,
				    m * 0x01010101);
			check(s, "the message of the CQE", s->buf + SLOT(s, m), length(s, m), m);
			check_still(s, "behind the message", s->buf + SLOT(s, m) + length(s, m),
				    s->size - length(s, m), 0);
		}
		check_still(s, "the receives' own buffer", s->buf + UNUSED(s), 64, 0x5a);
		say(s, r);
	}
	close_side(s);
}

const struct litmus imm = { 4, "imm", source, target, "early length order", 3 };
