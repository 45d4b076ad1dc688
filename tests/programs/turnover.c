/* Rounds in which every kind of object is made, used and destroyed: what is left of them in memory?
 *
 *   turnover [--rounds N]
 *
 * Ends with the totals, and a line `turnover grown_kb K`: by how much the memory in use grew over the second half.
 */
#include "common.h"

static struct dev *d;
static struct ibv_xrcd *xrcd;

static void end(struct q *q)
{
	q_destroy(q);
	q_forget(q);
}

static void plain(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(d->pd, &init);
	struct ibv_cq *cq = cq_make(d, 64);
	struct shape shape = { .send_cq = cq, .recv_cq = cq, .srq = srq };
	struct q *a, *b;

	CHECK(srq);
	a = q_make(d, &shape);
	b = q_make(d, &shape);
	q_pair(a, b);
	CHECK(!post(a, IBV_WR_RDMA_WRITE, 1, 1000, IBV_SEND_SIGNALED));
	CHECK(drain(cq) == 1);
	end(a);
	end(b);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
}

static void extended(void)
{
	struct ibv_cq_ex *cq = cq_make_extended(d, 64);
	struct q *q = q_make_extended(d, cq);

	CHECK(!post(q, IBV_WR_RDMA_WRITE, 1, 1000, IBV_SEND_SIGNALED));
	CHECK(drain(ibv_cq_ex_to_cq(cq)) == 1);
	end(q);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

static void xrc(void)
{
	struct ibv_cq *cq = cq_make(d, 64);
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 64, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = d->pd,
		.xrcd = xrcd,
		.cq = cq,
	};
	struct ibv_qp_init_attr_ex to = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = xrcd,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(d->ctx, &init);
	struct q *q;

	CHECK(srq);
	q = q_adopt(d, ibv_create_qp_ex(d->ctx, &to));
	end(q);
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
}

static long in_use_kb(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%*u %ld", &pages) == 1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE) / 1024;
}

int main(int argc, char **argv)
{
	struct ibv_xrcd_init_attr open = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	long rounds = arg_number(argc, argv, "rounds", 6000), half = 0;

	want_model();
	d = dev_open(0);
	CHECK((xrcd = ibv_open_xrcd(d->ctx, &open)));
	for (long i = 0; i < rounds; i++) {
		if (i == rounds / 2)
			half = in_use_kb();
		plain();
		extended();
		xrc();
	}
	half = in_use_kb() - half;
	CHECK(!ibv_close_xrcd(xrcd));
	dev_close(d);
	report();
	printf("turnover grown_kb %ld\n", half);
	return 0;
}
