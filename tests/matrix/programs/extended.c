/* The extended interface on both sides: WRs by ibv_wr_*, completions by ibv_start_poll and its readers. Each of MESSAGES
 * rounds WRITEs SIZE bytes from rxeA to rxeB (unsignaled), SENDs SIZE bytes with immediate data, READs SIZE bytes back
 * and compares all of it. */
#include "states.h"

#include <errno.h>
#include <string.h>

#define MESSAGES 50
#define SIZE 4096

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	unsigned char *buf; /* SIZE written, SIZE sent or received, SIZE read back */
};

static void open_side(struct side *s, const char *device)
{
	struct ibv_cq_init_attr_ex cq = { .cqe = 256, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM };
	struct ibv_qp_init_attr_ex init = {
		.cap = { 64, 64, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			s->ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(s->ctx && (s->pd = ibv_alloc_pd(s->ctx)) && (s->buf = calloc(3, SIZE)));
	CHECK((s->mr = ibv_reg_mr(s->pd, s->buf, 3 * SIZE,
				  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
	CHECK((s->cq = ibv_create_cq_ex(s->ctx, &cq)));
	init.pd = s->pd;
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(s->cq);
	CHECK((s->qp = ibv_create_qp_ex(s->ctx, &init)) && !ibv_query_gid(s->ctx, 1, GID_INDEX, &s->gid));
}

static void connect_side(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr a;
	int mask = to_init(&a);

	CHECK(!ibv_modify_qp(s->qp, &a, mask));
	mask = to_rtr(&a, peer->qp->qp_num, peer->gid);
	CHECK(!ibv_modify_qp(s->qp, &a, mask));
	mask = to_rts(&a);
	CHECK(!ibv_modify_qp(s->qp, &a, mask));
}

static void close_side(struct side *s)
{
	CHECK(!ibv_destroy_qp(s->qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)) && !ibv_dereg_mr(s->mr));
	CHECK(!ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx));
	free(s->buf);
}

static void await(struct side *s, uint64_t wr_id, enum ibv_wc_opcode opcode, unsigned imm)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int err;

	do {
		err = ibv_start_poll(s->cq, &attr);
	} while (err == ENOENT);
	CHECK(!err && s->cq->status == IBV_WC_SUCCESS && s->cq->wr_id == wr_id);
	CHECK(ibv_wc_read_opcode(s->cq) == opcode);
	if (opcode == IBV_WC_RECV)
		CHECK(ibv_wc_read_byte_len(s->cq) == SIZE && be32toh(ibv_wc_read_imm_data(s->cq)) == imm);
	ibv_end_poll(s->cq);
}

static void round_trip(struct side *a, struct side *b, unsigned m)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(a->qp);
	struct ibv_sge into = { (uintptr_t)b->buf + SIZE, SIZE, b->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = m, .sg_list = &into, .num_sge = 1 }, *bad;
	uint64_t here = (uintptr_t)a->buf, there = (uintptr_t)b->buf;

	for (size_t i = 0; i < 2 * SIZE; i++)
		a->buf[i] = pattern(m, i);
	CHECK(x && !ibv_post_recv(b->qp, &recv, &bad));
	ibv_wr_start(x);
	x->wr_id = 3 * m;
	x->wr_flags = 0;
	ibv_wr_rdma_write(x, b->mr->rkey, there);
	ibv_wr_set_sge(x, a->mr->lkey, here, SIZE);
	x->wr_id = 3 * m + 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(x, htobe32(m));
	ibv_wr_set_sge(x, a->mr->lkey, here + SIZE, SIZE);
	x->wr_id = 3 * m + 2;
	ibv_wr_rdma_read(x, b->mr->rkey, there);
	ibv_wr_set_sge(x, a->mr->lkey, here + 2 * SIZE, SIZE);
	CHECK(!ibv_wr_complete(x));
	await(b, m, IBV_WC_RECV, m);
	await(a, 3 * m + 1, IBV_WC_SEND, 0);
	await(a, 3 * m + 2, IBV_WC_RDMA_READ, 0);
	CHECK(!memcmp(a->buf, b->buf, 2 * SIZE) && !memcmp(a->buf, a->buf + 2 * SIZE, SIZE));
}

int main(void)
{
	struct side a = { 0 }, b = { 0 };

	open_side(&a, "rxeA");
	open_side(&b, "rxeB");
	connect_side(&a, &b);
	connect_side(&b, &a);
	for (unsigned m = 0; m < MESSAGES; m++)
		round_trip(&a, &b, m);
	close_side(&a);
	close_side(&b);
	return 0;
}
