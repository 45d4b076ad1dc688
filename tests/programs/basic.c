/* One RC pair in one process: every kind of WR, several sizes, signaled and unsignaled, one and more SGEs.
 *
 *   basic [--writes N] [--sends N] [--imms N] [--reads N] [--atomics N] [--size BYTES] [--signal-every K] [--null]
 *
 * --null leaves out what needs a receiver, so that it also runs over a device that moves nothing.
 */
#include "common.h"

static struct q *a, *b;
static long every, posted;

/* Every `every`-th WR is signaled; the CQ is drained so that neither queue ever fills. */
static void one(enum ibv_wr_opcode op, uint32_t bytes, int sges)
{
	struct chain c = { .n = 0 };
	bool receives = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	unsigned flags = ++posted % every == 0 ? IBV_SEND_SIGNALED : 0;

	if (receives)
		CHECK(!post_recv(b, RECV_ID | (uint64_t)posted, op == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : bytes));
	if (bytes && bytes <= 64 && posted % 5 == 0 && op != IBV_WR_RDMA_READ && bytes != 8)
		flags |= IBV_SEND_INLINE;
	chain_add(&c, a, op, (uint64_t)posted, bytes, flags, sges);
	CHECK(!chain_post(&c, a, NULL));
	drain(a->send_cq);
	if (receives)
		CHECK(drain(b->recv_cq) == 1);
}

int main(int argc, char **argv)
{
	bool null = arg_flag(argc, argv, "null");
	long size = arg_number(argc, argv, "size", 4096);
	struct dev *d;
	struct ibv_cq *cq_a, *cq_b;

	if (!null)
		want_model();
	every = arg_number(argc, argv, "signal-every", 4);
	CHECK(every >= 1 && every <= 100 && size >= 0 && size <= (long)(BUFFER / 2));
	d = dev_open(0);
	cq_a = cq_make(d, 256);
	cq_b = cq_make(d, 256);
	a = q_make(d, &(struct shape){ .send_cq = cq_a, .recv_cq = cq_a });
	b = q_make(d, &(struct shape){ .send_cq = cq_b, .recv_cq = cq_b });
	q_pair(a, b);

	for (long i = 0; i < arg_number(argc, argv, "writes", 100); i++)
		one(IBV_WR_RDMA_WRITE, (uint32_t)(i % 3 ? size : i % 60), 1 + (int)(i % 4));
	for (long i = 0; i < (null ? 0 : arg_number(argc, argv, "sends", 50)); i++)
		one(i % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, (uint32_t)(i % 4 ? size : 0), 1);
	for (long i = 0; i < (null ? 0 : arg_number(argc, argv, "imms", 40)); i++)
		one(IBV_WR_RDMA_WRITE_WITH_IMM, (uint32_t)(i % 3 ? size : 0), 1);
	for (long i = 0; i < arg_number(argc, argv, "reads", 30); i++)
		one(IBV_WR_RDMA_READ, (uint32_t)size, 2);
	for (long i = 0; i < arg_number(argc, argv, "atomics", 20); i++)
		one(i % 2 ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1);
	/* a last signaled WR covers whatever was not */
	CHECK(!post(a, IBV_WR_RDMA_WRITE, 1ull << 40, 16, IBV_SEND_SIGNALED));
	CHECK(drain(cq_a) == 1);
	CHECK(a->n.send_wr_outstanding == 0);

	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq_a) && !ibv_destroy_cq(cq_b));
	dev_close(d);
	report();
	return 0;
}
