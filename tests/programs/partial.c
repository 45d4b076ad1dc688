/* Chains of which only a part is accepted: the queue fills, a WR in the middle is wrong, the first one is refused. */
#include "common.h"

static struct q *a, *b;
static struct chain c;
static uint64_t id;

static void fill(int n, int signaled)
{
	for (int i = 1; i <= n; i++)
		chain_add(&c, a, IBV_WR_RDMA_WRITE, ++id, 100, i == signaled ? IBV_SEND_SIGNALED : 0, 1);
}

static void expect(int err, int accepted)
{
	int got, e = chain_post(&c, a, &got);

	CHECK(e == err && got == accepted);
}

static void recv_chain(void)
{
	struct ibv_recv_wr wr[6] = { 0 }, *bad = NULL;

	for (int i = 0; i < 6; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = RECV_ID | (uint64_t)i, .next = i < 5 ? &wr[i + 1] : NULL };
	CHECK(ibv_post_recv(b->qp, wr, &bad) == ENOMEM && bad == &wr[4]);
	for (int i = 0; i < 4; i++)
		truth_received(b, wr[i].wr_id);
}

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq, *cq_b;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	cq_b = cq_make(d, 64);
	a = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 8 });
	b = q_make(d, &(struct shape){ .send_cq = cq_b, .recv_cq = cq_b, .rq = 4 });
	q_pair(a, b);

	fill(12, 8); /* 8 fit; the 8th is the signaled one */
	expect(ENOMEM, 8);
	fill(1, 0); /* still full: no slot is free before the CQE is polled */
	expect(ENOMEM, 0);
	CHECK(drain(cq) == 1 && a->n.send_wr_completed == 8);

	CHECK(!script_fail_post(a, 3, EIO));
	fill(5, 2);
	expect(EIO, 2);
	CHECK(drain(cq) == 1);
	CHECK(!script_fail_post(a, 1, EAGAIN));
	fill(3, 3);
	expect(EAGAIN, 0);

	fill(4, 4); /* the third has more SGEs than the QP allows */
	c.wr[2].num_sge = 5;
	expect(EINVAL, 2);
	fill(3, 1); /* the second asks for what the device has not got */
	c.wr[1].opcode = IBV_WR_TSO;
	expect(EINVAL, 1);
	CHECK(drain(cq) == 1 && a->n.send_wr_outstanding == 0);

	recv_chain();
	CHECK(post_recv(b, RECV_ID | 9, 0) == ENOMEM);
	CHECK(!post(a, IBV_WR_RDMA_WRITE_WITH_IMM, ++id, 100, IBV_SEND_SIGNALED));
	CHECK(drain(cq) == 1 && drain(cq_b) == 1 && !post_recv(b, RECV_ID | 9, 0));
	CHECK(a->n.send_wr_posted == 14 && a->n.send_wr_completed == 14 && b->n.recv_wr_outstanding == 4);

	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(cq_b));
	dev_close(d);
	report();
	return 0;
}
