/* 19: WRs of many SGEs, odd lengths, unaligned addresses, no byte at all, and the largest message (of the device, up to
 * 8 MiB); with `--total` a stream of that many bytes, too. Nothing beside the message changes, at neither side. */
#include "litmus.h"

#define SGES 16
#define MOST (8u << 20)
#define ROOM (MOST + 8192)
#define WINDOW 16

static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_SEND,
					      IBV_WR_SEND_WITH_IMM };
static const enum ibv_wc_opcode done[] = { [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
					   [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
					   [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
					   [IBV_WR_SEND] = IBV_WC_SEND,
					   [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND };
#define OPCODES 5

struct message {
	enum ibv_wr_opcode opcode;
	uint32_t len;
	size_t at; /* the target's offset */
	bool imm, receives;
};

static struct message draw(struct side *s, uint64_t *state, unsigned r)
{
	const uint32_t lens[] = { 0, 1, 4095, 4096, 4097, s->size - 1, s->size, s->size + 1, s->size * 3 / 2 + 13,
				  (uint32_t)(next_random(state) % s->size) };
	struct message m = { opcodes[r % OPCODES], lens[r / OPCODES % 10], 64 + next_random(state) % 4096, 0, 0 };

	m.receives = m.opcode != IBV_WR_RDMA_WRITE && m.opcode != IBV_WR_RDMA_READ;
	m.imm = m.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || m.opcode == IBV_WR_SEND_WITH_IMM;
	return m;
}

/* Cuts a message into up to `most` pieces, with gaps of odd lengths between them, in the own buffer. */
static int cut(struct side *s, uint64_t *state, uint32_t len, unsigned most, struct ibv_sge *sge)
{
	unsigned n = 1 + next_random(state) % most;
	uint64_t at = (uintptr_t)s->buf;
	unsigned used = 0;

	for (unsigned i = 0; i < n && len; i++) {
		uint32_t part = i == n - 1 ? len : 1 + (uint32_t)(next_random(state) % (2 * len / (n - i) + 1));

		part = part < len ? part : len;
		at += 1 + next_random(state) % 67;
		sge[used++] = (struct ibv_sge){ at, part, s->mr->lkey };
		at += part;
		len -= part;
	}
	return (int)used;
}

static void fill_pieces(const struct ibv_sge *sge, int n, uint64_t p)
{
	for (size_t done = 0; n--; done += sge++->length)
		fill_from((void *)(uintptr_t)sge->addr, sge->length, p, done);
}

/* The pieces hold the pattern, and what is between and around them is zero. */
static void check_pieces(struct side *s, const char *what, const struct ibv_sge *sge, int n, uint64_t p)
{
	uint8_t *end = s->buf;

	for (size_t done = 0; n--; done += sge++->length) {
		uint8_t *at = (void *)(uintptr_t)sge->addr;
		size_t wrong = differs_from(at, sge->length, p, done);

		check_still(s, "between the pieces", end, (size_t)(at - end), 0);
		if (wrong != sge->length)
			violated(s, "%s: byte %zu of the message, %zu of a piece of %u, is wrong", what, done + wrong, wrong,
				 sge->length);
		s->seen.bytes += sge->length;
		end = at + sge->length;
	}
	check_still(s, "behind the pieces", end, 4096, 0);
}

static void post_one(struct side *s, uint64_t *state, unsigned r)
{
	struct message m = draw(s, state, r);
	struct ibv_sge sge[SGES];
	struct ibv_wc wc;
	int n = cut(s, state, m.len, SGES, sge);

	memset(s->buf, 0, m.len + 8192);
	if (m.opcode != IBV_WR_RDMA_READ)
		fill_pieces(sge, n, r);
	POST(s, .opcode = m.opcode, .id = r, .sges = sge, .n_sges = n, .to = m.at, .imm = r, .flags = IBV_SEND_SIGNALED);
	wc = next_cqe(s, s->scq);
	expect(s, &wc, &s->main, r, done[m.opcode], m.opcode == IBV_WR_RDMA_READ ? m.len : ANY);
	if (m.opcode == IBV_WR_RDMA_READ)
		check_pieces(s, "a READ", sge, n, r);
}

static void await_one(struct side *s, const struct message *m, const struct ibv_sge *sge, int n, unsigned r)
{
	bool sends = m->receives && m->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;

	if (m->receives) {
		struct ibv_wc wc = next_cqe(s, s->rcq);

		expect_recv(s, &wc, &s->main, RECV_ID + r, sends ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, m->len, m->imm, r);
	}
	if (sends)
		check_pieces(s, "a SEND", sge, n, r);
	if (!m->receives)
		hear_that(s, r);
	if (sends)
		return;
	check(s, "the message", s->buf + m->at, m->len, r);
	check_still(s, "before the message", s->buf, m->at, 0);
	check_still(s, "behind the message", s->buf + m->at + m->len, 64, 0);
}

static void take_one(struct side *s, uint64_t *state, unsigned r)
{
	struct message m = draw(s, state, r);
	struct ibv_sge sge[SGES];
	int n = cut(s, state, m.len, 4, sge);

	memset(s->buf, 0, m.len + 8192);
	if (m.receives) {
		struct ibv_recv_wr wr = { .wr_id = RECV_ID + r, .sg_list = sge, .num_sge = n }, *bad;

		MUST(s, !ibv_post_recv(s->main.qp, &wr, &bad));
	}
	if (m.opcode == IBV_WR_RDMA_READ)
		fill(s->buf + m.at, m.len, r);
	meet(s);
	await_one(s, &m, sge, n, r);
}

static uint32_t largest(struct side *s)
{
	struct ibv_port_attr pa;

	MUST(s, !ibv_query_port(s->ctx, (uint8_t)s->port, &pa));
	return pa.max_msg_sz < MOST ? pa.max_msg_sz : MOST;
}

/* The largest message there and, READ, back. */
static void largest_one(struct side *s)
{
	uint32_t n = largest(s);
	struct ibv_wc wc;

	if (!s->is_source) {
		memset(s->buf, 0, s->len);
		meet(s);
		hear_that(s, n);
		check(s, "the largest message", s->buf + 1, n, 77);
		check_still(s, "behind the largest message", s->buf + 1 + n, 64, 0);
		meet(s);
		return;
	}
	fill(s->buf, n, 77);
	meet(s);
	POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 1, .to = 1, .len = n, .flags = IBV_SEND_SIGNALED);
	expect_sent(s, &s->main, 1, IBV_WC_RDMA_WRITE);
	say(s, n);
	memset(s->buf, 0, s->len);
	POST(s, .opcode = IBV_WR_RDMA_READ, .id = 2, .from = 3, .to = 1, .len = n, .flags = IBV_SEND_SIGNALED);
	wc = next_cqe(s, s->scq);
	expect(s, &wc, &s->main, 2, IBV_WC_RDMA_READ, n);
	check(s, "the largest READ", s->buf + 3, n, 77);
	check_still(s, "behind the largest READ", s->buf + 3 + n, 64, 0);
	meet(s);
}

/* `total` bytes in WRITEs of `size`, of which the last eight are looked at. */
static void stream(struct side *s)
{
	uint64_t n = (s->total + s->size - 1) / s->size, taken = 0;
	unsigned slots = MOST / s->size < 8 ? MOST / s->size : 8;

	if (!s->is_source) {
		meet(s);
		hear_that(s, n);
		for (uint64_t i = n - slots; i < n; i++)
			check(s, "the stream's end", s->buf + i % slots * s->size, s->size, i % slots);
		return;
	}
	for (unsigned i = 0; i < slots; i++)
		fill(s->buf + i * s->size, s->size, i);
	meet(s);
	for (uint64_t i = 0; i < n; i++) {
		size_t at = i % slots * s->size;

		if (i >= WINDOW)
			expect_sent(s, &s->main, taken++, IBV_WC_RDMA_WRITE);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = i, .from = at, .to = at, .len = s->size, .flags = IBV_SEND_SIGNALED);
	}
	while (taken < n)
		expect_sent(s, &s->main, taken++, IBV_WC_RDMA_WRITE);
	say(s, n);
}

static void both(struct side *s)
{
	/* Of the message, which both draw alike, and of the cuts. */
	uint64_t state;

	MUST(s, s->size * 3 / 2 + 8192 < ROOM);
	open_side(s, ROOM, (struct shape){ .sges = SGES });
	for (unsigned r = 0; r < s->rounds; r++) {
		state = s->seed * 1000 + r;
		if (s->is_source) {
			struct message m;
			uint64_t same = state;

			m = draw(s, &same, r);
			meet(s);
			post_one(s, &state, r);
			if (!m.receives)
				say(s, r);
		} else {
			take_one(s, &state, r);
		}
		meet(s);
	}
	largest_one(s);
	if (s->total)
		stream(s);
	close_side(s);
}

const struct litmus shapes = { 19, "shapes", both, both, "early length offset", 50 };
