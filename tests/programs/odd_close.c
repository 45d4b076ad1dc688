/* Closing in strange ways: a device under living QPs, objects in the wrong order, two contexts of one device, and
 * the same device opened again. */
#include "common.h"

static void traffic(struct q *a, int n)
{
	for (int i = 0; i < n; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, 64, IBV_SEND_SIGNALED));
	CHECK(drain(a->send_cq) == n);
}

int main(void)
{
	struct dev *d, *e;
	struct ibv_cq *cq, *cq_e;
	struct q *a, *b, *x, *y;

	want_model();

	/* closed with everything alive and a WR outstanding */
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	traffic(a, 10);
	CHECK(!post(a, IBV_WR_RDMA_WRITE, 1, 64, 0));
	CHECK(!ibv_close_device(d->ctx));
	q_gone(a);
	q_gone(b);

	/* refused in the wrong order, and possible after that */
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	CHECK(ibv_destroy_cq(cq) == EBUSY && ibv_dealloc_pd(d->pd) == EBUSY);
	traffic(a, 20);
	q_destroy(b);
	CHECK(ibv_destroy_cq(cq) == EBUSY);
	q_destroy(a);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);

	/* two contexts of one device, a pair in each and one across; the first closes while the second goes on */
	d = dev_open(0);
	e = dev_open(0);
	cq = cq_make(d, 64);
	cq_e = cq_make(e, 64);
	a = q_couple(d, cq, &b);
	x = q_couple(e, cq_e, &y);
	CHECK(d->ctx != e->ctx && a->qpn != x->qpn);
	traffic(a, 5);
	traffic(x, 6);
	q_reset(b);
	q_reset(y);
	q_init(b);
	q_init(y);
	q_to(b, y);
	q_to(y, b);
	traffic(b, 3);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	q_destroy(y);
	y = q_make(e, &(struct shape){ .send_cq = cq_e, .recv_cq = cq_e });
	q_reset(x);
	q_pair(x, y);
	traffic(x, 7);
	CHECK(!ibv_close_device(e->ctx));
	q_gone(x);
	q_gone(y);
	report();
	return 0;
}
