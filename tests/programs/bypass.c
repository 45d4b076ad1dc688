/* Linked to libibverbs, but destroys with functions that it looked up: whoever leaves look-ups alone sees objects made, and
 * not their end. Addresses and QP numbers are used again. */
#include "common.h"

#include <dlfcn.h>

int main(void)
{
	int (*destroy_qp)(struct ibv_qp *), (*destroy_cq)(struct ibv_cq *);
	void *lib;
	struct dev *d;

	want_model();
	lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	CHECK(lib && (destroy_qp = (int (*)(struct ibv_qp *))dlvsym(lib, "ibv_destroy_qp", "IBVERBS_1.1")));
	CHECK((destroy_cq = (int (*)(struct ibv_cq *))dlvsym(lib, "ibv_destroy_cq", "IBVERBS_1.1")));
	d = dev_open(0);
	for (int i = 0; i < 20; i++) {
		struct ibv_cq *cq = cq_make(d, 64);
		struct q *q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });

		q_pair(q, q);
		for (uint64_t k = 0; k < 10; k++)
			CHECK(!post(q, IBV_WR_RDMA_WRITE, k, 1000, k % 2 ? IBV_SEND_SIGNALED : 0));
		CHECK(drain(cq) == 5);
		if (i % 3 == 0)
			script_reuse_qpn(q->qpn);
		CHECK(!destroy_qp(q->qp));
		q_gone(q);
		CHECK(!destroy_cq(cq));
	}
	dev_close(d);
	report();
	return 0;
}
