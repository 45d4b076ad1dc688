/* The extended interface: WRs through ibv_wr_*, CQEs through ibv_cq_ex readers; abort, a chain that does not fit,
 * RESET and RTS in between (where providers set wr_complete anew), an error, a CQ that cannot be destroyed yet.
 *
 *   extended [--plain] [--bare]
 *
 * --plain polls the extended CQs by the plain call. --bare asks for CQs that tell nothing of a completion.
 */
#include "common.h"

static struct dev *d;
static struct ibv_cq_ex *cq[2]; /* of the sending side, of the receiving side */
static struct q *a, *b;
static bool plain, bare;

/* An extended QP in the clothes of the shared helpers. */
static struct q *make_ex(struct ibv_cq_ex *cq, uint32_t sq)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = ibv_cq_ex_to_cq(cq),
		.recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { sq, 64, 4, 4, 64 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
	};
	struct q *q = q_adopt(d, ibv_create_qp_ex(d->ctx, &init));

	CHECK(ibv_qp_to_qp_ex(q->qp));
	return q;
}

static int drain_one(struct ibv_cq_ex *cq, struct q *q)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int n = 0, err;

	if (plain)
		return drain(ibv_cq_ex_to_cq(cq));
	err = ibv_start_poll(cq, &attr);
	if (err == ENOENT)
		return 0;
	CHECK(!err);
	do {
		struct ibv_wc wc = { .wr_id = cq->wr_id, .status = cq->status };

		wc.qp_num = bare ? q->qpn : ibv_wc_read_qp_num(cq);
		if (wc.status == IBV_WC_SUCCESS) {
			wc.opcode = ibv_wc_read_opcode(cq);
			/* only ever 300 bytes are received here */
			wc.byte_len = bare ? 300 : ibv_wc_read_byte_len(cq);
		}
		truth_cqe(ibv_cq_ex_to_cq(cq), &wc);
		n++;
	} while (!(err = ibv_next_poll(cq)));
	CHECK(err == ENOENT);
	ibv_end_poll(cq);
	return n;
}

static int drain_ex(void) { return drain_one(cq[0], a) + drain_one(cq[1], b); }

static struct ibv_qp_ex *begin(struct q *q, uint64_t id, unsigned flags)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(q->qp);

	x->wr_id = id;
	x->wr_flags = flags;
	return x;
}

/* write (2 SGEs), inline write, send with imm, read, fetch-and-add: the last signaled */
static void mix(void)
{
	uint64_t here = (uintptr_t)d->buf, there = here + BUFFER / 2;
	struct ibv_sge two[2] = { { here, 1000, d->mr->lkey }, { here + 5000, 500, d->mr->lkey } };
	struct ibv_qp_ex *x = begin(a, 1, 0);
	char bytes[40] = "inline";

	CHECK(!post_recv(b, RECV_ID, 300));
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, d->mr->rkey, there);
	ibv_wr_set_sge_list(x, 2, two);
	x->wr_id = 2;
	ibv_wr_rdma_write(x, d->mr->rkey, there);
	ibv_wr_set_inline_data(x, bytes, sizeof(bytes));
	x->wr_id = 3;
	ibv_wr_send_imm(x, 99);
	ibv_wr_set_sge(x, d->mr->lkey, here, 300);
	x->wr_id = 4;
	ibv_wr_rdma_read(x, d->mr->rkey, there);
	ibv_wr_set_sge(x, d->mr->lkey, here, 700);
	x->wr_id = 5;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_fetch_add(x, d->mr->rkey, there, 3);
	ibv_wr_set_sge(x, d->mr->lkey, here, 8);
	CHECK(!ibv_wr_complete(x));
	truth_sent(a, 1, 1500, false);
	truth_sent(a, 2, 40, false);
	truth_sent(a, 3, 300, false);
	truth_sent(a, 4, 700, false);
	truth_sent(a, 5, 8, true);
}

static int writes(int n, bool abort)
{
	uint64_t here = (uintptr_t)d->buf, there = here + BUFFER / 2;
	struct ibv_qp_ex *x = begin(a, 0, IBV_SEND_SIGNALED);

	ibv_wr_start(x);
	for (int i = 0; i < n; i++) {
		x->wr_id = 100 + (uint64_t)i;
		ibv_wr_rdma_write(x, d->mr->rkey, there);
		ibv_wr_set_sge(x, d->mr->lkey, here, 64);
	}
	if (abort) {
		ibv_wr_abort(x);
		return 0;
	}
	return ibv_wr_complete(x);
}

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 256, .wc_flags = IBV_WC_STANDARD_FLAGS };

	want_model();
	plain = arg_flag(argc, argv, "plain");
	bare = arg_flag(argc, argv, "bare");
	if (bare)
		attr.wc_flags = 0;
	d = dev_open(0);
	for (int i = 0; i < 2; i++)
		CHECK((cq[i] = ibv_create_cq_ex(d->ctx, &attr)));
	a = make_ex(cq[0], 16);
	b = make_ex(cq[1], 16);
	for (int round = 0; round < 3; round++) {
		q_pair(a, b);
		for (int i = 0; i < 10; i++) {
			mix();
			CHECK(drain_ex() == 2);
		}
		writes(5, true);
		CHECK(drain_ex() == 0);
		CHECK(writes(17, false) == ENOMEM && drain_ex() == 0); /* all or none */
		CHECK(!writes(16, false));
		for (int i = 0; i < 16; i++)
			truth_sent(a, 100 + (uint64_t)i, 64, true);
		CHECK(drain_ex() == 16);
		CHECK(!post(a, IBV_WR_RDMA_WRITE, 55, 32, IBV_SEND_SIGNALED)); /* the plain call on the same QP */
		CHECK(drain_ex() == 1 && a->n.send_wr_outstanding == 0);
		q_reset(a);
		q_reset(b);
	}
	q_pair(a, b);
	CHECK(!script_fail_next(a, 2, IBV_WC_RETRY_EXC_ERR, 5) && !writes(4, false));
	for (int i = 0; i < 4; i++)
		truth_sent(a, 100 + (uint64_t)i, 64, true);
	CHECK(drain_ex() == 4 && a->n.send_wr_failed == 3);
	/* an object that is in use is not destroyed, and goes on working */
	q_reset(a);
	q_reset(b);
	q_pair(a, b);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq[0])) == EBUSY);
	mix();
	CHECK(drain_ex() == 2);
	q_destroy(a);
	q_destroy(b);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq[i])));
	dev_close(d);
	report();
	return 0;
}
