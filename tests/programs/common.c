/* Devices, connections, posting; the script by dlsym, so that a program also starts over another library. */
#include "common.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>

void die(const char *format, ...)
{
	va_list ap;

	fflush(stdout);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void want(const char *name, const char *value) { setenv(name, value, 0); }
void want_model(void) { want("NULLVERBS_MODE", "model"); }

void want_devices(int n)
{
	char s[16];

	snprintf(s, sizeof(s), "%d", n);
	want("NULLVERBS_DEVICES", s);
}

struct dev *dev_open(int index)
{
	struct dev *d = calloc(1, sizeof(*d));
	struct ibv_device **list;
	int n;

	CHECK(d && (list = ibv_get_device_list(&n)) && index < n);
	d->ctx = ibv_open_device(list[index]);
	CHECK(d->ctx);
	d->name = strdup(ibv_get_device_name(list[index]));
	ibv_free_device_list(list);
	CHECK((d->pd = ibv_alloc_pd(d->ctx)) && (d->buf = calloc(1, BUFFER)));
	d->mr = ibv_reg_mr(d->pd, d->buf, BUFFER,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(d->mr && !ibv_query_gid(d->ctx, 1, 1, &d->gid));
	return d;
}

void dev_close(struct dev *d)
{
	CHECK(!ibv_dereg_mr(d->mr) && !ibv_dealloc_pd(d->pd) && !ibv_close_device(d->ctx));
	free(d->buf);
	d->ctx = NULL;
}

struct ibv_cq *cq_make_on(struct dev *d, int cqe, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(d->ctx, cqe, NULL, channel, 0);

	CHECK(cq);
	return cq;
}

struct ibv_cq *cq_make(struct dev *d, int cqe) { return cq_make_on(d, cqe, NULL); }

void q_init(struct q *q)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = (uint8_t)q->port,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int last = q->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	if (q->type == IBV_QPT_UC)
		a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	CHECK(!ibv_modify_qp(q->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last));
}

void q_to(struct q *q, struct q *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096 };
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (q->type != IBV_QPT_UD) {
		q->peer = peer;
		a.dest_qp_num = peer->qpn;
		a.ah_attr.is_global = 1;
		a.ah_attr.port_num = (uint8_t)q->port;
		a.ah_attr.grh.dgid = peer->dev->gid;
		a.ah_attr.grh.sgid_index = 1;
		a.ah_attr.grh.hop_limit = 64;
		a.min_rnr_timer = 12;
		a.max_dest_rd_atomic = 1;
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (q->type == IBV_QPT_RC)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(q->qp, &a, rtr));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 0;
	a.max_rd_atomic = 1;
	if (q->type == IBV_QPT_RC)
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(q->qp, &a, rts));
}

void q_pair(struct q *a, struct q *b)
{
	q_init(a);
	if (b != a)
		q_init(b);
	q_to(a, b);
	if (b != a)
		q_to(b, a);
}

struct q *q_couple(struct dev *d, struct ibv_cq *cq, struct q **peer)
{
	struct q *q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });

	*peer = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(q, *peer);
	return q;
}

struct q *q_half_polled(void)
{
	struct dev *d = dev_open(0);
	struct ibv_cq *cq = cq_make(d, 64);
	struct q *peer, *q = q_couple(d, cq, &peer);

	for (int i = 0; i < 20; i++)
		CHECK(!post(q, IBV_WR_RDMA_WRITE, (uint64_t)i, 1000, i % 2 ? IBV_SEND_SIGNALED : 0));
	CHECK(drain_n(cq, 7) == 7);
	return q;
}

struct ibv_cq_ex *cq_make_extended(struct dev *d, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = cqe, .wc_flags = IBV_WC_EX_WITH_QP_NUM };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(d->ctx, &attr);

	CHECK(cq);
	return cq;
}

struct q *q_make_extended(struct dev *d, struct ibv_cq_ex *cq)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { 64, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.pd = d->pd,
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
	};
	struct q *q = q_adopt(d, ibv_create_qp_ex(d->ctx, &init));

	q_pair(q, q);
	return q;
}

static void move_to(struct q *q, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	CHECK(!ibv_modify_qp(q->qp, &a, IBV_QP_STATE));
}

void q_error(struct q *q) { move_to(q, IBV_QPS_ERR); }

void q_reset(struct q *q)
{
	move_to(q, IBV_QPS_RESET);
	q_gone(q);
	q->live = true;
}

void q_destroy(struct q *q)
{
	CHECK(!ibv_destroy_qp(q->qp));
	q_gone(q);
}

/* ---- posting ---- */

struct ibv_send_wr *chain_add(struct chain *c, struct q *q, enum ibv_wr_opcode op, uint64_t wr_id, uint32_t bytes,
			      unsigned flags, int sges)
{
	struct ibv_send_wr *wr = &c->wr[c->n];
	struct dev *to = q->peer ? q->peer->dev : q->dev;
	uint64_t at = (uintptr_t)q->dev->buf, remote = (uintptr_t)to->buf + BUFFER / 2;
	uint32_t left = bytes;

	CHECK(c->n < CHAIN_MAX && sges >= 1 && sges <= 4 && bytes <= BUFFER / 2);
	memset(wr, 0, sizeof(*wr));
	for (int i = 0; i < sges; i++) {
		uint32_t part = i == sges - 1 ? left : bytes / (uint32_t)sges;

		c->sge[c->n][i] = (struct ibv_sge){ at, part, q->dev->mr->lkey };
		at += part;
		left -= part;
	}
	wr->wr_id = wr_id;
	wr->opcode = op;
	wr->send_flags = flags;
	wr->sg_list = c->sge[c->n];
	wr->num_sge = bytes ? sges : 0;
	wr->imm_data = (uint32_t)wr_id;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = remote;
		wr->wr.atomic.rkey = to->mr->rkey;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.swap = 2;
	} else {
		wr->wr.rdma.remote_addr = remote;
		wr->wr.rdma.rkey = to->mr->rkey;
	}
	if (c->n)
		c->wr[c->n - 1].next = wr;
	c->n++;
	return wr;
}

int chain_post(struct chain *c, struct q *q, int *accepted)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(q->qp, c->wr, &bad), ok = err ? (int)(bad - c->wr) : c->n;

	for (int i = 0; i < ok; i++) {
		uint64_t bytes = 0;

		for (int s = 0; s < c->wr[i].num_sge; s++)
			bytes += c->sge[i][s].length;
		truth_sent(q, c->wr[i].wr_id, bytes, q->sig_all || c->wr[i].send_flags & IBV_SEND_SIGNALED);
	}
	if (accepted)
		*accepted = ok;
	c->n = 0;
	return err;
}

int post(struct q *q, enum ibv_wr_opcode op, uint64_t wr_id, uint32_t bytes, unsigned flags)
{
	struct chain c = { .n = 0 };

	chain_add(&c, q, op, wr_id, bytes, flags, 1);
	return chain_post(&c, q, NULL);
}

void post_patiently(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	while (wr) {
		int err = ibv_post_send(qp, wr, &bad);

		CHECK(!err || err == ENOMEM);
		wr = err ? bad : NULL;
		if (err)
			sched_yield();
	}
}

int post_recv(struct q *q, uint64_t wr_id, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)q->dev->buf + BUFFER / 2, bytes, q->dev->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = bytes ? 1 : 0 }, *bad;
	int err = ibv_post_recv(q->qp, &wr, &bad);

	if (!err)
		truth_received(q, wr_id);
	return err;
}

int post_recvs(struct q *q, uint64_t first_id, int n, uint32_t bytes)
{
	int err = 0;

	for (int i = 0; i < n && !err; i++)
		err = post_recv(q, first_id + (uint64_t)i, bytes);
	return err;
}

/* ---- the script ---- */

static void *script(const char *name) { return dlsym(RTLD_DEFAULT, name); }

int script_fail_next(struct q *q, unsigned n, int status, uint32_t vendor_err)
{
	int (*f)(uint32_t, unsigned, int, uint32_t) = script("nullverbs_fail_next");

	return f ? f(q->qpn, n, status, vendor_err) : ENOSYS;
}

int script_fail_post(struct q *q, unsigned n, int err)
{
	int (*f)(uint32_t, unsigned, int) = script("nullverbs_fail_post");

	return f ? f(q->qpn, n, err) : ENOSYS;
}

int script_hold(struct q *q, bool on)
{
	int (*f)(uint32_t, int) = script("nullverbs_hold");

	return f ? f(q->qpn, on) : ENOSYS;
}

int script_reuse_qpn(uint32_t qpn)
{
	int (*f)(uint32_t) = script("nullverbs_reuse_qpn");

	return f ? f(qpn) : ENOSYS;
}

/* ---- arguments: `--name N` and `--name` ---- */

long arg_number(int argc, char **argv, const char *name, long def)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return strtol(argv[i + 1], NULL, 0);
	return def;
}

bool arg_flag(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
			return true;
	return false;
}
