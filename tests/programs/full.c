/* A queue that is often full: small and large WRs, alone and in chains, are accepted exactly while there is room, whatever was
 * posted and polled before. */
#include "common.h"

#define ROOM 8
#define LARGE 300000

static struct q *a, *b;
static struct chain c;
static uint64_t id;
static uint32_t state = 1;

static uint32_t below(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

static uint64_t outstanding(void)
{
	return a->n.send_wr_outstanding;
}

/* Posts n WRs at once, each one large in `large`, the last one that fits signaled. */
static void post_some(int n, uint32_t large)
{
	uint64_t room = ROOM - outstanding();
	int fit = (uint64_t)n < room ? n : (int)room, got, err;

	for (int i = 1; i <= n; i++)
		chain_add(&c, a, IBV_WR_RDMA_WRITE, ++id, below(large) ? 8 : LARGE, i == fit ? IBV_SEND_SIGNALED : 0, 1);
	err = chain_post(&c, a, &got);
	CHECK(got == fit && err == (fit < n ? ENOMEM : 0));
}

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq, *cq_b;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	cq_b = cq_make(d, 64);
	a = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = ROOM });
	b = q_make(d, &(struct shape){ .send_cq = cq_b, .recv_cq = cq_b, .rq = 4 });
	q_pair(a, b);

	/* Small ones only, one by one: after the first completion, and again and again. */
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < ROOM; i++)
			CHECK(!post(a, IBV_WR_RDMA_WRITE, ++id, 8, IBV_SEND_SIGNALED));
		CHECK(post(a, IBV_WR_RDMA_WRITE, ++id, 8, IBV_SEND_SIGNALED) == ENOMEM);
		CHECK(post(a, IBV_WR_RDMA_WRITE, ++id, LARGE, IBV_SEND_SIGNALED) == ENOMEM);
		CHECK(drain(cq) == ROOM);
	}
	/* Of both kinds, polled now and then. */
	for (int round = 0; round < 3000; round++) {
		post_some(1 + (int)below(round % 2 ? 1 : ROOM + 4), 1 + below(20));
		if (!below(3))
			drain(cq);
	}
	drain(cq);
	/* One that fails, and those behind it. */
	CHECK(!post(a, IBV_WR_RDMA_WRITE, ++id, 8, IBV_SEND_SIGNALED) && drain(cq) == 1);
	CHECK(!script_fail_next(a, 1, IBV_WC_REM_ACCESS_ERR, 0x77));
	CHECK(!post(a, IBV_WR_RDMA_WRITE, ++id, 8, 0) && drain(cq) == 1);
	CHECK(!post(a, IBV_WR_RDMA_WRITE, ++id, 8, 0) && !post(a, IBV_WR_RDMA_WRITE, ++id, LARGE, 0));
	CHECK(drain(cq) == 2 && a->n.send_wr_failed == 3 && outstanding() == 0);

	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(cq_b));
	dev_close(d);
	report();
	return 0;
}
