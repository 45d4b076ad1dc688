/* Errors on every way: in the middle of a queue at an unsignaled WR, wrong keys, no receive, ERR by modify; flushes
 * polled in full, in part, not at all. */
#include "common.h"

static struct dev *d;
static struct ibv_cq *cq;

static void done(struct q *a, struct q *b)
{
	q_destroy(a);
	q_destroy(b);
}

/* WRs 1..10, signaled 3, 6, 10; number 5 fails. CQEs: 3 good, 5 bad, 6..10 flushed, and two flushed receives. */
static void middle(void)
{
	struct q *b, *a = q_couple(d, cq, &b);
	struct chain c = { .n = 0 };

	CHECK(!post_recvs(a, RECV_ID | 1, 2, 64) && !script_hold(a, true) &&
	      !script_fail_next(a, 5, IBV_WC_REM_OP_ERR, 0x77));
	for (uint64_t i = 1; i <= 10; i++)
		chain_add(&c, a, IBV_WR_RDMA_WRITE, i, 1000, i == 3 || i == 6 || i == 10 ? IBV_SEND_SIGNALED : 0, 1);
	CHECK(!chain_post(&c, a, NULL) && drain(cq) == 0 && a->n.send_wr_outstanding == 10);
	CHECK(!script_hold(a, false) && drain(cq) == 9);
	CHECK(a->n.send_wr_completed == 4 && a->n.send_wr_failed == 6 && a->n.recv_wr_failed == 2);
	CHECK(!post(a, IBV_WR_RDMA_WRITE, 11, 1000, 0) && !post_recv(a, RECV_ID | 3, 64)); /* accepted and flushed */
	CHECK(drain(cq) == 2 && a->n.send_wr_failed == 7 && a->n.send_wr_outstanding == 0);
	done(a, b);
}

static void bad_key(bool remote)
{
	struct q *b, *a = q_couple(d, cq, &b);
	struct chain c = { .n = 0 };
	struct ibv_send_wr *wr;

	chain_add(&c, a, IBV_WR_RDMA_WRITE, 1, 500, 0, 1);
	wr = chain_add(&c, a, IBV_WR_RDMA_WRITE, 2, 500, 0, 1);
	if (remote)
		wr->wr.rdma.rkey ^= 0x5500;
	else
		wr->sg_list[0].lkey ^= 0x5500;
	chain_add(&c, a, IBV_WR_RDMA_READ, 3, 500, IBV_SEND_SIGNALED, 1);
	CHECK(!chain_post(&c, a, NULL) && drain(cq) == 2);
	CHECK(a->n.send_wr_completed == 1 && a->n.send_wr_failed == 2);
	done(a, b);
}

static void no_receive(void)
{
	struct q *b, *a = q_couple(d, cq, &b);

	CHECK(!post(a, IBV_WR_SEND, 1, 200, IBV_SEND_SIGNALED) && drain(cq) == 1);
	CHECK(a->n.send_wr_failed == 1);
	done(a, b);
}

/* The receive is too small: both ends fail. */
static void too_long(void)
{
	struct q *b, *a = q_couple(d, cq, &b);

	CHECK(!post_recvs(b, RECV_ID | 1, 2, 100));
	CHECK(!post(a, IBV_WR_SEND, 1, 200, 0) && drain(cq) == 3);
	CHECK(a->n.send_wr_failed == 1 && b->n.recv_wr_failed == 2);
	done(a, b);
}

/* Six held WRs are flushed by modify; two of the flush CQEs are polled, the rest go with the QP. */
static void by_modify(void)
{
	struct q *b, *a = q_couple(d, cq, &b);

	CHECK(!script_hold(a, true));
	for (uint64_t i = 1; i <= 6; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, i, 300, i % 2 ? IBV_SEND_SIGNALED : 0));
	q_error(a);
	CHECK(drain_n(cq, 2) == 2 && a->n.send_wr_failed == 2);
	done(a, b);
	CHECK(a->n.send_wr_discarded == 4 && drain(cq) == 0);
}

/* Unsignaled WRs that succeeded have no CQE; ERR does not flush them, and only destroying ends them. */
static void unseen(void)
{
	struct q *b, *a = q_couple(d, cq, &b);

	for (uint64_t i = 1; i <= 3; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, i, 300, 0));
	q_error(a);
	CHECK(drain(cq) == 0 && a->n.send_wr_outstanding == 3);
	done(a, b);
	CHECK(a->n.send_wr_discarded == 3);
}

int main(void)
{
	want_model();
	d = dev_open(0);
	cq = cq_make(d, 256);
	middle();
	bad_key(true);
	bad_key(false);
	no_receive();
	too_long();
	by_modify();
	unseen();
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
