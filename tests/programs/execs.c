/* A program that uses a device, replaces itself, and uses it again; the truth is the second one's. */
#include "common.h"

int main(int argc, char **argv)
{
	bool again = arg_flag(argc, argv, "again");
	struct ibv_cq *cq;
	struct dev *d;
	struct q *q;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(q, q);
	for (uint64_t i = 0; i < (again ? 30 : 20); i++)
		CHECK(!post(q, IBV_WR_RDMA_WRITE, i, 500, IBV_SEND_SIGNALED) && drain(cq) == 1);
	if (!again) {
		execl("/proc/self/exe", argv[0], "--again", NULL);
		die("exec: %s", strerror(errno));
	}
	q_destroy(q);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
