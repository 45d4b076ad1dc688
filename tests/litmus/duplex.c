/* Both sides send to each other at once, over one QP each with one CQ for all, on which every WR is signaled: large WRITEs,
 * WRITE_WITH_IMMs and SENDs. Of the CQEs the sends' are in their order, and the receives' in theirs (C1, C2, C3). */
#include "litmus.h"

#define RUN 6
#define OUT(s, i) ((i) * (s)->size)
#define IN(s, i) ((RUN + (i)) * (s)->size)

static const struct { enum ibv_wr_opcode opcode; enum ibv_wc_opcode done, received; } kind[] = {
	{ IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0 },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM },
	{ IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV },
};

static uint64_t message(bool of_source, unsigned r, unsigned i) { return 1000 * of_source + 10 * r + i; }
static uint32_t length(struct side *s, unsigned i) { return (uint32_t)s->size - 17 * i; }

static void received(struct side *s, const struct ibv_wc *wc, unsigned r, unsigned i)
{
	expect_recv(s, wc, &s->main, RECV_ID + i, kind[i % 3].received, length(s, i), true, i);
	check(s, "what was received", s->buf + IN(s, i), length(s, i), message(!s->is_source, r, i));
	if (i % 3 == 1)
		check(s, "what was written before", s->buf + IN(s, i - 1), length(s, i - 1), message(!s->is_source, r, i - 1));
}

static void both(struct side *s)
{
	open_side(s, 2 * RUN * s->size, (struct shape){ .one_cq = true, .all_signaled = true });
	for (unsigned r = 1; r <= s->rounds; r++) {
		unsigned sent = 0, got = 0;

		memset(s->buf + IN(s, 0), 0, RUN * s->size);
		for (unsigned i = 0; i < RUN; i++) {
			fill(s->buf + OUT(s, i), s->size, message(s->is_source, r, i));
			if (i % 3)
				post_recv(s, &s->main, RECV_ID + i, IN(s, i), i % 3 == 2 ? (uint32_t)s->size : 0);
		}
		meet(s);
		for (unsigned i = 0; i < RUN; i++)
			POST(s, .opcode = kind[i % 3].opcode, .id = i, .from = OUT(s, i), .to = IN(s, i), .len = length(s, i), .imm = i);
		while (sent < RUN || got < RUN) {
			struct ibv_wc wc = next_cqe(s, s->scq);

			if (wc.wr_id >= RECV_ID) {
				got += got % 3 == 0; /* a WRITE takes no receive */
				received(s, &wc, r, got++);
			} else {
				expect(s, &wc, &s->main, sent, kind[sent % 3].done, ANY);
				sent++;
			}
		}
		meet(s);
	}
	close_side(s);
}

const struct litmus duplex = { 0, "duplex", both, both, "early length wr_id", 3 };
