/* Returns from main with everything open and nothing outstanding. */
#include "common.h"

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	for (int i = 0; i < 40; i++) {
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 4096, i % 4 == 3 ? IBV_SEND_SIGNALED : 0));
		drain(cq);
	}
	report();
	return 0;
}
