/* The main thread ends by pthread_exit with verbs in use; another one works on for a moment, and returns: then the process ends. */
#include "common.h"

#include <pthread.h>

static struct q *q;
static struct ibv_cq *cq;

static void *works_on(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		usleep(10000);
		CHECK(!post(q, IBV_WR_RDMA_WRITE, 0, 4096, IBV_SEND_SIGNALED) && drain(cq) == 1);
	}
	report();
	return NULL;
}

int main(void)
{
	struct dev *d;
	pthread_t t;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 16 });
	q_pair(q, q);
	CHECK(!pthread_create(&t, NULL, works_on, NULL));
	pthread_exit(NULL);
}
