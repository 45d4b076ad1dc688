/* The soak's private work: every way of using and ending a queue, in a random order, and a truth for each QP. */
#include "soak.h"

#define PAIRS 3
#define DEPTH 32
#define SRQ_DEPTH 64

struct end {
	struct q *q;
	long credit; /* receives at its peer that no send was made for */
};

struct life {
	struct worker *w;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	long srq_credit;
	uint64_t srq_posted, srq_taken;
	struct end e[PAIRS][2];
	int pairs;
};

/* The SRQ feeds the second end of each pair. */
static bool fed(const struct life *l, int side) { return l->srq && side; }

static void pair_make(struct life *l, int p)
{
	int port = l->srq ? 1 : 1 + (int)below(l->w, 2);

	for (int side = 0; side < 2; side++) {
		struct ibv_qp_init_attr init = {
			.send_cq = l->send_cq,
			.recv_cq = l->recv_cq,
			.srq = fed(l, side) ? l->srq : NULL,
			.cap = { DEPTH, DEPTH, 4, 1, 64 },
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = !below(l->w, 4),
		};
		struct q *q = q_adopt(l->w->dev, make_qp(l->w, &init));

		q->port = port;
		q->sig_all = init.sq_sig_all;
		l->e[p][side] = (struct end){ q, 0 };
	}
	q_pair(l->e[p][0].q, l->e[p][1].q);
}

static void pair_end(struct life *l, int p)
{
	for (int side = 0; side < 2; side++) {
		struct q *q = l->e[p][side].q;

		q_destroy(q);
		if (q->srq)
			l->srq_taken += q->n.recv_wr_completed + q->n.recv_wr_failed;
		number_free(l->w, q->qpn);
		q_forget(q);
	}
}

static void pair_again(struct life *l, int p)
{
	for (int side = 0; side < 2; side++) {
		CHECK(!script_hold(l->e[p][side].q, false));
		q_reset(l->e[p][side].q);
		l->e[p][side].credit = 0;
	}
	q_pair(l->e[p][0].q, l->e[p][1].q);
	__atomic_add_fetch(&made.resets, 1, __ATOMIC_RELAXED);
}

static void send_some(struct life *l, int p, int side)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
	};
	struct end *e = &l->e[p][side];
	long *credit = fed(l, !side) ? &l->srq_credit : &e->credit;
	struct chain c = { .n = 0 };
	int n = 1 + (int)below(l->w, 8), err;

	for (int i = 0; i < n; i++) {
		enum ibv_wr_opcode op = ops[below(l->w, 8)];
		uint32_t bytes = below(l->w, 1000);
		unsigned flags = below(l->w, 3) ? 0 : IBV_SEND_SIGNALED;

		if (op >= IBV_WR_SEND || op == IBV_WR_RDMA_WRITE_WITH_IMM) {
			if (*credit <= 0 && below(l->w, 500)) /* seldom without a receive: the QP fails */
				op = IBV_WR_RDMA_WRITE;
			else
				--*credit;
		}
		if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
			bytes = 8;
		else if (op != IBV_WR_RDMA_READ && bytes <= 64)
			flags |= IBV_SEND_INLINE;
		chain_add(&c, e->q, op, ++l->w->id, bytes, flags, bytes >= 4 && !below(l->w, 4) ? 3 : 1);
		if (!below(l->w, 3000))
			c.wr[c.n - 1].wr.rdma.rkey ^= 0x5500;
	}
	err = chain_post(&c, e->q, NULL);
	CHECK(!err || err == ENOMEM || err == EIO);
}

static void receive_some(struct life *l, int p, int side)
{
	int n = 1 + (int)below(l->w, 6);

	if (fed(l, side)) {
		struct ibv_sge sge = { (uintptr_t)l->w->dev->buf + BUFFER / 2, 1000, l->w->dev->mr->lkey };
		struct ibv_recv_wr wr[8], *bad;
		int err;

		for (int i = 0; i < n; i++)
			wr[i] = (struct ibv_recv_wr){ RECV_ID | ++l->w->id, i < n - 1 ? &wr[i + 1] : NULL, &sge, 1 };
		err = ibv_post_srq_recv(l->srq, wr, &bad);
		CHECK(!err || err == ENOMEM);
		n = err ? (int)(bad - wr) : n;
		l->srq_posted += (uint64_t)n;
		l->srq_credit += n;
		return;
	}
	for (int i = 0; i < n; i++) {
		int err = post_recv(l->e[p][side].q, RECV_ID | ++l->w->id, 1000);

		CHECK(!err || err == ENOMEM);
		if (err)
			break;
		l->e[p][!side].credit++;
	}
}

static void drain_some(struct life *l, int max)
{
	drain_n(l->send_cq, max);
	if (l->recv_cq != l->send_cq)
		drain_n(l->recv_cq, max);
}

static void step(struct life *l)
{
	int p = (int)below(l->w, (uint32_t)l->pairs), side = (int)below(l->w, 2), how = (int)below(l->w, 200);
	struct q *q = l->e[p][side].q;

	if (how < 90)
		return send_some(l, p, side);
	if (how < 130)
		return receive_some(l, p, side);
	if (how < 185)
		return drain_some(l, 1 + (int)below(l->w, 40));
	if (how < 189)
		return CHECK(!script_hold(q, how & 1));
	if (how < 194)
		return pair_again(l, p);
	if (how < 197)
		__atomic_add_fetch(&made.errors, 1, __ATOMIC_RELAXED);
	switch (how) {
	case 194:
		return q_error(q);
	case 195:
		return CHECK(!script_fail_next(q, 1 + below(l->w, 5), IBV_WC_REM_OP_ERR, 7));
	case 196:
		return CHECK(!script_fail_post(q, 1 + below(l->w, 5), EIO));
	default: /* in the midst of it all, another pair in its place */
		pair_end(l, p);
		pair_make(l, p);
	}
}

void private_life(struct worker *w)
{
	struct life l = { .w = w, .pairs = 1 + (int)below(w, PAIRS) };
	int steps = 20 + (int)below(w, 400);

	l.send_cq = make_cq(w, 1024);
	l.recv_cq = below(w, 2) ? make_cq(w, 1024) : l.send_cq;
	if (!below(w, 3)) {
		l.srq = ibv_create_srq(w->dev->pd, &(struct ibv_srq_init_attr){ .attr = { SRQ_DEPTH, 1, 0 } });
		CHECK(l.srq);
		__atomic_add_fetch(&made.srqs, 1, __ATOMIC_RELAXED);
	}
	for (int p = 0; p < l.pairs; p++)
		pair_make(&l, p);
	while (steps--)
		step(&l);
	if (below(w, 2))
		drain_some(&l, 1 + (int)below(w, 1000));
	for (int p = 0; p < l.pairs; p++)
		pair_end(&l, p);
	CHECK(!ibv_destroy_cq(l.send_cq));
	CHECK(l.recv_cq == l.send_cq || !ibv_destroy_cq(l.recv_cq));
	if (l.srq) {
		CHECK(!ibv_destroy_srq(l.srq));
		/* QPs know what they took; the rest of what was posted went with the SRQ, all of it on the first port */
		truth_add(w->dev, 1, &(struct counts){ .recv_wr_posted = l.srq_posted,
						      .recv_wr_discarded = l.srq_posted - l.srq_taken });
	}
}
