/* A thread that is being cancelled makes its last calls: it ends at its own cancellation point, after them. */
#include "common.h"

#include <unistd.h>

static bool all_done;

static void *work(void *unused)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	(void)unused;
	CHECK(!pthread_cancel(pthread_self()));
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	for (int i = 0; i < 10; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 4096, IBV_SEND_SIGNALED));
	CHECK(drain(cq) == 10);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	all_done = true;
	pthread_testcancel();
	dev_close(d);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	void *result;

	want_model();
	CHECK(!pthread_create(&thread, NULL, work, NULL) && !pthread_join(thread, &result));
	CHECK(all_done && result == PTHREAD_CANCELED);
	report();
	return 0;
}
