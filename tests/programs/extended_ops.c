/* Every ibv_wr_* call and every way to say how many bytes a WR has, on a device that executes nothing. */
#include "common.h"

#include <stdalign.h>

static struct dev *d;
static struct q *q;
static struct ibv_qp_ex *x;
static uint64_t id;

static void next(bool signaled)
{
	x->wr_id = ++id;
	x->wr_flags = signaled ? IBV_SEND_SIGNALED : 0;
}

static void sent(enum ibv_wr_opcode op, uint64_t bytes)
{
	truth_sent(q, id, bytes, x->wr_flags & IBV_SEND_SIGNALED);
	printf("opcode %d bytes %llu\n", op, (unsigned long long)bytes);
}

int main(void)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { 64, 1, 4, 1, 256 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = 0x7ff | IBV_QP_EX_WITH_ATOMIC_WRITE,
	};
	struct ibv_mw_bind_info bind = { .length = 4096 };
	struct ibv_data_buf bufs[3];
	struct ibv_sge list[4];
	alignas(8) char bytes[256] = "";
	struct ibv_cq *cq;

	want("NULLVERBS_MODE", "null");
	d = dev_open(0);
	cq = cq_make(d, 64);
	init.send_cq = init.recv_cq = cq;
	init.pd = d->pd;
	q = q_adopt(d, ibv_create_qp_ex(d->ctx, &init));
	x = ibv_qp_to_qp_ex(q->qp);
	q_pair(q, q);
	for (int i = 0; i < 4; i++)
		list[i] = (struct ibv_sge){ (uintptr_t)d->buf, 100u * (uint32_t)(i + 1), d->mr->lkey };
	for (int i = 0; i < 3; i++)
		bufs[i] = (struct ibv_data_buf){ bytes, 10u + (unsigned)i };

	for (int round = 0; round < 3; round++) {
		bool all = round > 0;

		ibv_wr_start(x);
		next(all), ibv_wr_rdma_write(x, 1, 2), ibv_wr_set_sge(x, 3, 4, 70000), sent(IBV_WR_RDMA_WRITE, 70000);
		next(all), ibv_wr_rdma_write(x, 1, 2), ibv_wr_set_sge_list(x, 4, list), sent(IBV_WR_RDMA_WRITE, 1000);
		next(all), ibv_wr_rdma_write_imm(x, 1, 2, 5), ibv_wr_set_inline_data(x, bytes, 77),
			sent(IBV_WR_RDMA_WRITE_WITH_IMM, 77);
		next(all), ibv_wr_rdma_write_imm(x, 1, 2, 5), sent(IBV_WR_RDMA_WRITE_WITH_IMM, 0);
		next(all), ibv_wr_send(x), ibv_wr_set_inline_data_list(x, 3, bufs), sent(IBV_WR_SEND, 33);
		next(all), ibv_wr_send(x), ibv_wr_set_sge_list(x, 0, NULL), sent(IBV_WR_SEND, 0);
		next(all), ibv_wr_send_imm(x, 5), ibv_wr_set_sge(x, 3, 4, 12), sent(IBV_WR_SEND_WITH_IMM, 12);
		next(all), ibv_wr_send_inv(x, 5), ibv_wr_set_sge(x, 3, 4, 13), sent(IBV_WR_SEND_WITH_INV, 13);
		next(all), ibv_wr_rdma_read(x, 1, 2), ibv_wr_set_sge(x, 3, 4, 9000), sent(IBV_WR_RDMA_READ, 9000);
		next(all), ibv_wr_atomic_cmp_swp(x, 1, 2, 3, 4), ibv_wr_set_sge(x, 3, 4, 8),
			sent(IBV_WR_ATOMIC_CMP_AND_SWP, 8);
		next(all), ibv_wr_atomic_fetch_add(x, 1, 2, 3), ibv_wr_set_sge(x, 3, 4, 8),
			sent(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
		next(all), ibv_wr_atomic_write(x, 1, 2, bytes), sent(IBV_WR_ATOMIC_WRITE, 8);
		next(all), ibv_wr_local_inv(x, 5), sent(IBV_WR_LOCAL_INV, 0);
		next(all), ibv_wr_bind_mw(x, NULL, 5, &bind), sent(IBV_WR_BIND_MW, 0);
		next(true), ibv_wr_send_tso(x, bytes, 54, 1400), ibv_wr_set_sge_list(x, 2, list), sent(IBV_WR_TSO, 354);
		CHECK(!ibv_wr_complete(x));
		CHECK(drain(cq) == (all ? 15 : 1) && q->n.send_wr_outstanding == 0);
	}
	q_destroy(q);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
