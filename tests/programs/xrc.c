/* XRC: two sending QPs, two receiving ones that share two SRQs, whose completions come to the SRQs' CQs. */
#include "common.h"

#define PAIRS 2

static struct dev *d;
static struct ibv_srq *srq[2];
static uint32_t srqn[2];
static struct ibv_cq *cq_s, *cq_r[2];
static struct q *s[PAIRS], *r[PAIRS];

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_xrcd *xrcd)
{
	/* what a kind of QP has no use for is left as it comes */
	struct ibv_qp_init_attr_ex init;

	memset(&init, 0xa5, sizeof(init));
	init.qp_context = NULL;
	init.qp_type = type;
	init.sq_sig_all = 0;
	if (type == IBV_QPT_XRC_SEND) {
		init.send_cq = cq_s;
		init.cap = (struct ibv_qp_cap){ .max_send_wr = 64, .max_send_sge = 4 };
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
		init.pd = d->pd;
	} else {
		init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		init.xrcd = xrcd;
	}
	return ibv_create_qp_ex(d->ctx, &init);
}

static void receive(int which, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)d->buf + BUFFER / 2, 700, d->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_srq_recv(srq[which], &wr, &bad));
}

static void send(int pair, int which, uint64_t id, uint32_t bytes)
{
	struct chain c = { .n = 0 };

	chain_add(&c, s[pair], IBV_WR_SEND, id, bytes, IBV_SEND_SIGNALED, 1)->qp_type.xrc.remote_srqn = srqn[which];
	CHECK(!chain_post(&c, s[pair], NULL));
}

/* The truth of a receiving QP: its CQEs come to the CQ of the SRQ that the sender named. */
static void drain_receives(int which)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq_r[which], 16, wc);

	for (int i = 0; i < n; i++) {
		struct q *q = wc[i].qp_num == r[0]->qpn ? r[0] : r[1];

		CHECK(wc[i].qp_num == q->qpn);
		q->n.recv_wr_posted++;
		if (wc[i].status == IBV_WC_SUCCESS) {
			q->n.recv_wr_completed++;
			q->n.recv_bytes_completed += wc[i].byte_len;
		} else {
			q->n.recv_wr_failed++;
		}
	}
}

int main(void)
{
	struct ibv_xrcd_init_attr open = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_xrcd *xrcd;

	want_model();
	d = dev_open(0);
	CHECK((xrcd = ibv_open_xrcd(d->ctx, &open)));
	cq_s = cq_make(d, 64);
	init.pd = d->pd;
	init.xrcd = xrcd;
	for (int i = 0; i < 2; i++) {
		init.cq = cq_r[i] = cq_make(d, 64);
		CHECK((srq[i] = ibv_create_srq_ex(d->ctx, &init)) && !ibv_get_srq_num(srq[i], &srqn[i]));
	}
	for (int i = 0; i < PAIRS; i++) {
		s[i] = q_adopt(d, create(IBV_QPT_XRC_SEND, NULL));
		r[i] = q_adopt(d, create(IBV_QPT_XRC_RECV, xrcd));
		q_pair(s[i], r[i]);
	}
	for (uint64_t i = 0; i < 20; i++)
		receive((int)i % 2, 1000 + i);
	for (uint64_t i = 0; i < 16; i++) {
		send((int)(i / 2) % PAIRS, (int)i % 2, i, 10 * (uint32_t)i);
		CHECK(drain(cq_s) == 1);
		drain_receives((int)i % 2);
	}
	send(1, 0, 100, 701); /* longer than its receive */
	CHECK(drain(cq_s) == 1 && s[1]->n.send_wr_failed == 1);
	drain_receives(0);
	for (int i = 0; i < PAIRS; i++) {
		q_destroy(s[i]);
		q_destroy(r[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_srq(srq[i]) && !ibv_destroy_cq(cq_r[i]));
	CHECK(!ibv_destroy_cq(cq_s) && !ibv_close_xrcd(xrcd));
	dev_close(d);
	report();
	return 0;
}
