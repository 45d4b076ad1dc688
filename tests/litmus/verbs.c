/* Devices found by address, QPs, posts, and CQEs of which every field is looked at. */
#include "litmus.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/mman.h>

#undef ibv_reg_mr

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* ---- devices ---- */

/* The index of the RoCE v2 GID that is this IPv4 address, or -1. */
static int gid_of(struct side *s, struct ibv_context *ctx, const char *ip, unsigned *port, union ibv_gid *gid)
{
	struct ibv_device_attr attr;
	struct ibv_gid_entry e;
	uint8_t want[16] = { [10] = 0xff, [11] = 0xff };

	MUST(s, inet_pton(AF_INET, ip, want + 12) == 1 && !ibv_query_device(ctx, &attr));
	for (*port = 1; *port <= attr.phys_port_cnt; ++*port) {
		struct ibv_port_attr pa;

		MUST(s, !ibv_query_port(ctx, (uint8_t)*port, &pa));
		for (uint32_t i = 0; i < (uint32_t)pa.gid_tbl_len; i++)
			if (!ibv_query_gid_ex(ctx, *port, i, &e, 0) && e.gid_type == IBV_GID_TYPE_ROCE_V2 &&
			    !memcmp(e.gid.raw, want, 16)) {
				*gid = e.gid;
				return (int)i;
			}
	}
	return -1;
}

static void open_device(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	union ibv_gid gid;

	MUST(s, list);
	for (int i = 0; list[i] && !s->ctx; i++) {
		s->ctx = ibv_open_device(list[i]);
		MUST(s, s->ctx);
		if (gid_of(s, s->ctx, s->ip, &s->port, &gid) < 0) {
			MUST(s, !ibv_close_device(s->ctx));
			s->ctx = NULL;
		}
	}
	ibv_free_device_list(list);
	if (!s->ctx)
		violated(s, "no device has the address %s", s->ip);
}

static void make_buffer(struct side *s, size_t len)
{
	uint8_t *all = mmap(NULL, len + 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(s, all != MAP_FAILED);
	memset(all, 0xa5, 4096);
	memset(all + 4096 + len, 0xa5, 4096);
	s->buf = all + 4096;
	s->len = len;
	s->mr = ibv_reg_mr(s->pd, all, len + 2 * 4096, ACCESS);
	MUST(s, s->mr);
}

static struct ibv_cq *cq_make(struct side *s)
{
	return s->extended ? extended_cq(s, s->shape.cqe) : ibv_create_cq(s->ctx, (int)s->shape.cqe, NULL, s->channel, 0);
}

void open_side(struct side *s, size_t len, struct shape shape)
{
	struct { uint64_t at; uint64_t rkey; } mine, theirs;

	s->shape = shape;
	s->shape.sq = shape.sq ? shape.sq : 64;
	s->shape.rq = shape.rq ? shape.rq : 64;
	s->shape.sges = shape.sges ? shape.sges : 4;
	s->shape.cqe = shape.cqe ? shape.cqe : 1024;
	open_device(s);
	MUST(s, s->pd = ibv_alloc_pd(s->ctx));
	make_buffer(s, len);
	if (shape.events)
		MUST(s, s->channel = ibv_create_comp_channel(s->ctx));
	MUST(s, s->scq = cq_make(s));
	MUST(s, s->rcq = shape.one_cq ? s->scq : cq_make(s));
	if (shape.shared) {
		struct ibv_srq_init_attr a = { .attr = { .max_wr = s->shape.rq, .max_sge = 4 } };

		MUST(s, s->srq = ibv_create_srq(s->pd, &a));
	}
	qp_make(s, &s->main, s->ip);
	mine.at = (uintptr_t)s->buf;
	mine.rkey = s->mr->rkey;
	swap(s, &mine, &theirs, sizeof(mine));
	s->peer_buf = theirs.at;
	s->peer_rkey = (uint32_t)theirs.rkey;
	qp_connect(s, &s->main);
	if (s->broken) {
		struct ibv_srq *srq = s->srq;

		MUST(s, s->slow_cq = ibv_create_cq(s->ctx, 4096, NULL, NULL, 0));
		s->srq = NULL;
		qp_make(s, &s->slow, s->slow_ip);
		s->srq = srq;
		qp_connect(s, &s->slow);
	}
	meet(s);
}

void abandon_side(struct side *s)
{
	if (s->broken) { /* the wrong engine leaves things behind, which is not what it is to be caught for */
		check_guards(s);
		s->ctx = NULL;
		return;
	}
	if (s->main.qp)
		qp_drop(s, &s->main);
	if (s->srq)
		MUST(s, !ibv_destroy_srq(s->srq));
	MUST(s, !ibv_destroy_cq(s->scq) && (s->rcq == s->scq || !ibv_destroy_cq(s->rcq)));
	if (s->channel)
		MUST(s, !ibv_destroy_comp_channel(s->channel));
	check_guards(s);
	MUST(s, !ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx));
	munmap(s->buf - 4096, s->len + 2 * 4096);
	s->ctx = NULL;
}

void close_side(struct side *s)
{
	none_left(s, s->scq, 0);
	none_left(s, s->rcq, 0);
	meet(s);
	abandon_side(s);
}

/* ---- QPs ---- */

void qp_make(struct side *s, struct qp *q, const char *ip)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ip == s->slow_ip ? s->slow_cq : s->scq,
		.recv_cq = ip == s->slow_ip ? s->slow_cq : s->rcq,
		.srq = s->srq,
		.cap = { s->shape.sq, s->srq ? 0 : s->shape.rq, s->shape.sges + (s->broken ? 1 : 0), 4, 64 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = s->shape.all_signaled,
	};

	q->ip = ip;
	q->qp = s->extended ? extended_qp(s, &init) : ibv_create_qp(s->pd, &init);
	if (!q->qp)
		violated(s, "ibv_create_qp: %s", strerror(errno));
	MUST(s, init.cap.max_send_wr >= s->shape.sq && init.cap.max_inline_data >= 64);
	s->shape.sq = init.cap.max_send_wr;
}

static void to_ready(struct side *s, struct qp *q, int gid_index)
{
	struct ibv_port_attr pa;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)s->port, .qp_access_flags = ACCESS };

	MUST(s, !ibv_query_port(s->ctx, (uint8_t)s->port, &pa));
	MUST(s, !ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = pa.active_mtu, .dest_qp_num = q->peer_qpn,
				  .rq_psn = q->peer_psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = (uint8_t)s->port,
					  .grh = { .dgid = q->peer_gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } };
	MUST(s, !ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	/* 0.5 s: more than the slow path's way there and back. Seven retries are no limit to soft-RoCE, six are. */
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = q->psn, .timeout = 17, .retry_cnt = 6, .rnr_retry = 7,
				  .max_rd_atomic = 4 };
	MUST(s, !ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* A query shows what the app asked for, nothing of anybody else. */
static void looks_native(struct side *s, struct qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	MUST(s, !ibv_query_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN | IBV_QP_AV, &init));
	MUST(s, a.qp_state == IBV_QPS_RTS && a.dest_qp_num == q->peer_qpn);
	MUST(s, !memcmp(&a.ah_attr.grh.dgid, &q->peer_gid, sizeof(q->peer_gid)));
	MUST(s, a.rq_psn == q->peer_psn && a.qp_access_flags == ACCESS);
	MUST(s, init.qp_type == IBV_QPT_RC && init.send_cq == q->qp->send_cq && init.recv_cq == q->qp->recv_cq);
	s->queried_sq = init.cap.max_send_wr;
}

void qp_connect(struct side *s, struct qp *q)
{
	static uint64_t state = 7;
	struct { union ibv_gid gid; uint32_t qpn, psn; } mine, theirs;
	unsigned port;
	int index = gid_of(s, s->ctx, q->ip, &port, &mine.gid);

	if (index < 0 || port != s->port)
		violated(s, "the device's port has no address %s", q->ip);
	mine.qpn = q->qp->qp_num;
	mine.psn = q->psn = next_random(&state) & 0xffffff;
	swap(s, &mine, &theirs, sizeof(mine));
	q->peer_gid = theirs.gid;
	q->peer_qpn = theirs.qpn;
	q->peer_psn = theirs.psn;
	to_ready(s, q, index);
	looks_native(s, q);
	meet(s);
}

void qp_move(struct side *s, struct qp *q, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	MUST(s, !ibv_modify_qp(q->qp, &a, IBV_QP_STATE));
}

void qp_reset(struct side *s, struct qp *q) { qp_move(s, q, IBV_QPS_RESET); }

void qp_drop(struct side *s, struct qp *q)
{
	MUST(s, !ibv_destroy_qp(q->qp));
	q->qp = NULL;
}

enum ibv_qp_state qp_state(struct side *s, struct qp *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	MUST(s, !ibv_query_qp(q->qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

/* ---- posts ---- */

void fill_wr(struct side *s, const struct op *op, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	uint64_t remote = s->peer_buf + op->to;
	uint32_t key = op->rkey ? op->rkey : s->peer_rkey;

	*sge = (struct ibv_sge){ (uintptr_t)s->buf + op->from, op->len, s->mr->lkey };
	*wr = (struct ibv_send_wr){ .wr_id = op->id, .opcode = op->opcode, .send_flags = op->flags,
				    .sg_list = sge, .num_sge = op->len ? 1 : 0, .imm_data = htobe32(op->imm) };
	if (op->sges) {
		wr->sg_list = (struct ibv_sge *)op->sges;
		wr->num_sge = op->n_sges;
	}
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.atomic.remote_addr = remote;
		wr->wr.atomic.rkey = key;
		wr->wr.atomic.compare_add = op->add;
		wr->wr.atomic.swap = op->swap;
	} else {
		wr->wr.rdma.remote_addr = remote;
		wr->wr.rdma.rkey = key;
	}
}

int post_chain(struct side *s, struct qp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (s->broken)
		return wrong_post(s, q, wr, bad);
	return s->extended ? extended_post(q->qp, wr, bad) : ibv_post_send(q->qp, wr, bad);
}

int try_post(struct side *s, const struct op *op)
{
	struct ibv_send_wr wr, *bad = NULL;
	struct ibv_sge sge;
	int err;

	fill_wr(s, op, &wr, &sge);
	err = post_chain(s, op->qp ? op->qp : &s->main, &wr, &bad);
	if (err)
		MUST(s, bad == &wr);
	return err;
}

void post_recv(struct side *s, struct qp *q, uint64_t id, size_t at, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + at, len, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0 }, *bad;

	MUST(s, !(s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(q->qp, &wr, &bad)));
}

/* ---- CQEs ---- */

int poll_one(struct side *s, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = s->broken ? wrong_poll(s, cq, wc) : s->extended ? extended_poll(cq, wc, s->prog == &random_) : ibv_poll_cq(cq, 1, wc);

	MUST(s, n >= 0);
	return n;
}

struct ibv_wc next_cqe(struct side *s, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	doing(cq == s->scq ? "a CQE of a send" : "a CQE of a receive");
	for (unsigned empty = 0; !poll_one(s, cq, &wc); empty++) {
		if (empty < 1000)
			sched_yield();
		else
			usleep(100);
	}
	s->seen.cqes++;
	return wc;
}

/* REM_INV_REQ and retries exceeded are what soft-RoCE does under load. A target sees its own QP flushed then. */
bool transport_error(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_RETRY_EXC_ERR;
}

static void expect_status(struct side *s, const struct ibv_wc *wc, struct qp *q, uint64_t id)
{
	bool is_recv = wc->wr_id >= RECV_ID;

	if (wc->status == IBV_WC_SUCCESS)
		return;
	if (transport_error(wc->status) || (!s->is_source && is_recv && wc->status == IBV_WC_WR_FLUSH_ERR))
		broke(s, "wr_id %#lx: %s", wc->wr_id, ibv_wc_status_str(wc->status));
	violated(s, "wr_id %#lx of QP %u has status %s (%#x); wr_id %#lx of QP %u was to succeed", wc->wr_id, wc->qp_num,
		 ibv_wc_status_str(wc->status), wc->vendor_err, id, q->qp->qp_num);
}

void expect(struct side *s, const struct ibv_wc *wc, struct qp *q, uint64_t id, enum ibv_wc_opcode opcode, uint32_t len)
{
	expect_status(s, wc, q, id);
	if (wc->wr_id != id)
		violated(s, "a CQE has wr_id %#lx, not %#lx", wc->wr_id, id);
	if (wc->opcode != opcode)
		violated(s, "wr_id %#lx has opcode %d, not %d", id, wc->opcode, opcode);
	if (wc->qp_num != q->qp->qp_num)
		violated(s, "wr_id %#lx has qp_num %u, not %u", id, wc->qp_num, q->qp->qp_num);
	if (len != ANY && wc->byte_len != len)
		violated(s, "wr_id %#lx has byte_len %u, not %u", id, wc->byte_len, len);
}

void expect_recv(struct side *s, const struct ibv_wc *wc, struct qp *q, uint64_t id, enum ibv_wc_opcode opcode,
		 uint32_t len, bool with_imm, uint32_t imm)
{
	expect(s, wc, q, id, opcode, len);
	if (with_imm != !!(wc->wc_flags & IBV_WC_WITH_IMM))
		violated(s, "wr_id %#lx has wc_flags %#x, %s immediate data", id, wc->wc_flags, with_imm ? "without" : "with");
	if (with_imm && be32toh(wc->imm_data) != imm)
		violated(s, "wr_id %#lx has immediate %#x, not %#x", id, be32toh(wc->imm_data), imm);
}

void expect_sent(struct side *s, struct qp *q, uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_cqe(s, s->scq);

	expect(s, &wc, q, id, opcode, ANY);
}

void expect_fails(struct side *s, const struct ibv_wc *wc, struct qp *q, uint64_t id, enum ibv_wc_status status)
{
	if (status != wc->status && transport_error(wc->status))
		broke(s, "wr_id %#lx: %s", wc->wr_id, ibv_wc_status_str(wc->status));
	if (wc->wr_id != id || wc->status != status)
		violated(s, "wr_id %#lx has status %s; the next was to be wr_id %#lx with %s", wc->wr_id,
			 ibv_wc_status_str(wc->status), id, ibv_wc_status_str(status));
	if (wc->qp_num != q->qp->qp_num)
		violated(s, "wr_id %#lx has qp_num %u, not %u", id, wc->qp_num, q->qp->qp_num);
}

void none_left(struct side *s, struct ibv_cq *cq, unsigned ms)
{
	struct ibv_wc wc;

	for (unsigned t = 0; t <= ms; t++) {
		if (poll_one(s, cq, &wc))
			violated(s, "a CQE too many: wr_id %#lx, status %s, opcode %d", wc.wr_id, ibv_wc_status_str(wc.status),
				 wc.opcode);
		if (t < ms)
			nap_ms(1);
	}
}
