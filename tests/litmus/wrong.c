/* What a wrong engine would do, so that each program shows that it sees it (`--broken KIND`):
 *
 *   early       the first half of a large WR goes over the slow path, and nothing waits for it
 *   ahead       small WRITEs go over the slow path, so that large ones run ahead of them
 *   length      a large WRITE_WITH_IMM ends in a shorter one
 *   offset      the second half of a large WRITE is taken from a byte too early
 *   extra       unsignaled WRs have CQEs
 *   order       two CQEs change places
 *   wr_id       a CQE has the wr_id of a piece
 *   qp_num      a CQE has the number of another QP
 *   status      the first error is called a flush
 *   full        the SQ takes one WR less
 *   fence       IBV_SEND_FENCE is forgotten
 *   unsolicited IBV_SEND_SOLICITED is forgotten
 *
 * Kinds that belong to one program alone stand there. */
#include "litmus.h"

#include <pthread.h>

bool is_broken(const struct side *s, const char *kind) { return s->broken && !strcmp(s->broken, kind); }

static uint32_t bytes_of(const struct ibv_send_wr *wr)
{
	uint32_t n = 0;

	for (int i = 0; i < wr->num_sge; i++)
		n += wr->sg_list[i].length;
	return n;
}

/* The part [from, from + len) of a list of SGEs; returns how many there are. */
static int slice(const struct ibv_sge *in, uint32_t from, uint32_t len, struct ibv_sge *out)
{
	int n = 0;

	for (; len; in++) {
		uint32_t part = in->length > from ? in->length - from : 0;

		part = part < len ? part : len;
		if (part)
			out[n++] = (struct ibv_sge){ in->addr + from, part, in->lkey };
		len -= part;
		from -= from < in->length ? from : in->length;
	}
	return n;
}

static void over_slow(struct side *s, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	while (ibv_poll_cq(s->slow_cq, 1, &wc) > 0)
		;
	wr.next = NULL;
	wr.send_flags |= IBV_SEND_SIGNALED;
	MUST(s, !ibv_post_send(s->slow.qp, &wr, &bad));
}

static void await_slow(struct side *s)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(s->slow_cq, 1, &wc)))
		usleep(100);
	if (n != 1 || wc.status != IBV_WC_SUCCESS)
		broke(s, "the slow path");
}

/* The first half goes over the slow path. What signals keeps its length: its own first half is that of an old message. */
static int split(struct side *s, struct qp *q, struct ibv_send_wr wr, struct ibv_send_wr **bad)
{
	static uint8_t *stale;
	static struct ibv_mr *mr;
	struct ibv_sge body[32], rest[33];
	struct ibv_send_wr first = wr;
	uint32_t half = bytes_of(&wr) / 2;

	first.sg_list = body;
	first.num_sge = slice(wr.sg_list, 0, half, body);
	first.opcode = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WR_RDMA_WRITE : wr.opcode;
	over_slow(s, first);
	if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && is_broken(s, "early")) {
		if (!stale)
			MUST(s, (stale = calloc(1, half)) && (mr = ibv_reg_mr(s->pd, stale, half, 0)));
		rest[0] = (struct ibv_sge){ (uintptr_t)stale, half, mr->lkey };
		wr.num_sge = 1 + slice(wr.sg_list, half, bytes_of(&wr) - half, rest + 1);
	} else {
		bool offset = is_broken(s, "offset");

		if (offset || is_broken(s, "length"))
			await_slow(s);
		wr.num_sge = slice(wr.sg_list, half - offset, bytes_of(&wr) - half, rest);
		wr.wr.rdma.remote_addr += half;
	}
	wr.sg_list = rest;
	return ibv_post_send(q->qp, &wr, bad);
}

static bool splits(struct side *s, const struct ibv_send_wr *wr)
{
	bool early = is_broken(s, "early");

	if (bytes_of(wr) < LARGE)
		return false;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE: return early || is_broken(s, "offset");
	case IBV_WR_RDMA_READ: return early;
	case IBV_WR_RDMA_WRITE_WITH_IMM: return early || is_broken(s, "length");
	default: return false;
	}
}

static int post_wrongly(struct side *s, struct qp *q, struct ibv_send_wr wr, struct ibv_send_wr **bad)
{
	static uint32_t posted;

	wr.next = NULL;
	if (is_broken(s, "full") && ++posted >= s->shape.sq)
		return ENOMEM;
	if (is_broken(s, "extra"))
		wr.send_flags |= IBV_SEND_SIGNALED;
	if (is_broken(s, "unsolicited"))
		wr.send_flags &= ~(unsigned)IBV_SEND_SOLICITED;
	if (is_broken(s, "ahead") && wr.opcode == IBV_WR_RDMA_WRITE && bytes_of(&wr) < LARGE) {
		over_slow(s, wr);
		wr.num_sge = 0; /* its CQE comes at once */
	}
	return splits(s, &wr) ? split(s, q, wr, bad) : ibv_post_send(q->qp, &wr, bad);
}

int wrong_post(struct side *s, struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;
	int err = 0;

	if (is_broken(s, "fence")) {
		for (struct ibv_send_wr *w = wr; w; w = w->next)
			w->send_flags &= ~(unsigned)IBV_SEND_FENCE;
		return ibv_post_send(q->qp, wr, bad);
	}
	pthread_mutex_lock(&one_by_one);
	for (; wr && !err; wr = wr->next) {
		err = post_wrongly(s, q, *wr, bad);
		*bad = wr;
	}
	pthread_mutex_unlock(&one_by_one);
	return err;
}

/* Keeps a CQE back until another one has gone ahead of it, or until none comes. */
static int out_of_order(struct side *s, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n;

	if (s->holding && s->held_for > 10000) {
		*wc = s->held;
		s->holding = false;
		return 1;
	}
	n = ibv_poll_cq(cq, 1, wc);
	if (s->holding)
		s->held_for = n ? UINT32_MAX : s->held_for + 1;
	if (n != 1 || s->holding)
		return n;
	s->held = *wc;
	s->holding = true;
	s->held_for = 0;
	return 0;
}

int wrong_poll(struct side *s, struct ibv_cq *cq, struct ibv_wc *wc)
{
	static bool failed;
	bool meddles = cq == (s->is_source ? s->scq : s->rcq);
	int n = meddles && is_broken(s, "order") ? out_of_order(s, cq, wc) : ibv_poll_cq(cq, 1, wc);

	if (n != 1 || !meddles)
		return n;
	if (is_broken(s, "wr_id"))
		wc->wr_id ^= 1;
	if (is_broken(s, "qp_num"))
		wc->qp_num = s->slow.qp->qp_num;
	if (is_broken(s, "status") && wc->status != IBV_WC_SUCCESS && !failed) {
		wc->status = IBV_WC_WR_FLUSH_ERR;
		failed = true;
	}
	return n;
}
