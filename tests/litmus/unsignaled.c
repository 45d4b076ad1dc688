/* 9: runs of unsignaled WRs, until the SQ is full: it takes as many WRs as it does without the shim (`--full N`, and `--cap N` by query), says
 * ENOMEM (soft-RoCE's ibv_wr_complete: ENOSPC) and names the right bad_wr then, and each signaled WR, no other, has a CQE (C1, C8). The first WR is a SEND that
 * waits for its receive, so that none is done before. */
#include "litmus.h"


#define SQ 16
#define MOST 64
#define SLOTS 16

static uint32_t length(struct side *s, unsigned k) { return k % 3 ? (uint32_t)(s->size / 4) : 32; }
static bool signaled(unsigned k) { return k % 4 == 3; }

static struct op nth(struct side *s, unsigned r, unsigned k)
{
	struct op op = { IBV_WR_RDMA_WRITE, .id = 100 * r + k, .from = k % SLOTS * s->size / 4, .len = length(s, k),
			 .flags = signaled(k) ? IBV_SEND_SIGNALED : 0 };

	op.to = op.from;
	if (!k)
		op.opcode = IBV_WR_SEND;
	return op;
}

/* Posts until the SQ is full, by one chain or one by one; returns how many it took. */
static unsigned fill_queue(struct side *s, unsigned r)
{
	struct ibv_send_wr wr[MOST], *bad = NULL;
	struct ibv_sge sge[MOST];
	unsigned k;

	for (k = 0; k < MOST; k++) {
		struct op op = nth(s, r, k);

		fill_wr(s, &op, &wr[k], &sge[k]);
		wr[k].next = k + 1 < MOST ? &wr[k + 1] : NULL;
	}
	if (r % 2 && !s->extended) {
		int err = post_chain(s, &s->main, wr, &bad);

		if (err != ENOMEM)
			violated(s, "a chain of %u WRs on an SQ of %u: %s", MOST, s->shape.sq, strerror(err));
		MUST(s, bad >= wr && bad < wr + MOST);
		return (unsigned)(bad - wr);
	}
	for (k = 0; k < MOST; k++) {
		int err;

		wr[k].next = NULL;
		err = post_chain(s, &s->main, &wr[k], &bad);
		if (err) {
			if (err != (s->extended ? ENOSPC : ENOMEM) || bad != &wr[k])
				violated(s, "WR %u: %s, and bad_wr is %s", k, strerror(err), bad == &wr[k] ? "right" : "wrong");
			break;
		}
	}
	return k;
}

static void source(struct side *s)
{
	open_side(s, SLOTS * s->size / 4, (struct shape){ .sq = SQ, .cqe = SQ });
	for (unsigned r = 1; r <= s->rounds; r++) {
		struct op last = { IBV_WR_RDMA_WRITE, .id = 100 * r + 99, .flags = IBV_SEND_SIGNALED };
		unsigned n;

		for (unsigned k = 0; k < SLOTS; k++)
			fill(s->buf + k * s->size / 4, s->size / 4, 100 * r + k);
		hear_that(s, r);
		n = fill_queue(s, r);
		if (n < s->shape.sq || (s->full && n != s->full))
			violated(s, "the SQ took %u WRs; its capacity is said to be %u, and it took %u elsewhere", n,
				 s->shape.sq, s->full);
		if (s->cap && s->queried_sq != s->cap)
			violated(s, "ibv_query_qp says that the SQ takes %u WRs, elsewhere %u", s->queried_sq, s->cap);
		none_left(s, s->scq, 10);
		say(s, n);
		for (unsigned k = 0; k < n; k++)
			if (signaled(k))
				expect_sent(s, &s->main, 100 * r + k, IBV_WC_RDMA_WRITE);
		doing("room in the SQ");
		while (try_post(s, &last))
			nap_ms(1);
		expect_sent(s, &s->main, 100 * r + 99, IBV_WC_RDMA_WRITE);
		none_left(s, s->scq, 20);
		say(s, r);
		if (r == 1)
			printf("full %u %u\n", n, s->queried_sq);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, SLOTS * s->size / 4, (struct shape){ .sq = SQ, .cqe = SQ });
	for (unsigned r = 1; r <= s->rounds; r++) {
		struct ibv_wc wc;
		unsigned n;

		memset(s->buf, 0, s->len);
		say(s, r);
		n = hear(s);
		post_recv(s, &s->main, RECV_ID + r, 0, length(s, 0));
		wc = next_cqe(s, s->rcq);
		expect_recv(s, &wc, &s->main, RECV_ID + r, IBV_WC_RECV, length(s, 0), false, 0);
		hear_that(s, r);
		for (unsigned k = n > SLOTS ? n - SLOTS : 0; k < n; k++)
			check(s, "a slot", s->buf + k % SLOTS * s->size / 4, length(s, k), 100 * r + k % SLOTS);
	}
	close_side(s);
}

const struct litmus unsignaled = { 9, "unsignaled", source, target, "early extra order full", 4 };
