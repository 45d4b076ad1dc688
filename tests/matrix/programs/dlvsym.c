/* As collectives libraries reach verbs: not linked to libibverbs, but loads it and looks every call up on the handle by
 * name and version; posts and polls inline, through the context. Writes MESSAGES of SIZE bytes from rxeA to rxeB, each
 * followed by a WRITE with immediate data without bytes, and checks what arrived. */
#include "states.h"

#include <dlfcn.h>
#include <string.h>

#undef ibv_reg_mr

#define MESSAGES 50
#define SIZE 16384

static void *lib;

static void *find(const char *name)
{
	void *p = dlvsym(lib, name, "IBVERBS_1.1");

	if (!p) {
		fprintf(stderr, "dlvsym: no %s@IBVERBS_1.1: %s\n", name, dlerror());
		exit(1);
	}
	return p;
}

/* CALL(name)(arguments) */
#define CALL(name) ((__typeof__(&name))find(#name))

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	unsigned char *buf;
};

static void open_side(struct side *s, const char *device)
{
	struct ibv_qp_init_attr init = { .cap = { 2 * MESSAGES, 2 * MESSAGES, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_device **list = CALL(ibv_get_device_list)(NULL);

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(CALL(ibv_get_device_name)(list[i]), device))
			s->ctx = CALL(ibv_open_device)(list[i]);
	CALL(ibv_free_device_list)(list);
	CHECK(s->ctx && (s->pd = CALL(ibv_alloc_pd)(s->ctx)) && (s->buf = calloc(1, SIZE)));
	s->mr = ((struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, int)) find("ibv_reg_mr"))(
		s->pd, s->buf, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(s->mr && (s->cq = CALL(ibv_create_cq)(s->ctx, 4 * MESSAGES, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = s->cq;
	CHECK((s->qp = CALL(ibv_create_qp)(s->pd, &init)));
	CHECK(!CALL(ibv_query_gid)(s->ctx, 1, GID_INDEX, &s->gid));
}

static void connect_side(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr a;
	int mask = to_init(&a);

	CHECK(!CALL(ibv_modify_qp)(s->qp, &a, mask));
	mask = to_rtr(&a, peer->qp->qp_num, peer->gid);
	CHECK(!CALL(ibv_modify_qp)(s->qp, &a, mask));
	mask = to_rts(&a);
	CHECK(!CALL(ibv_modify_qp)(s->qp, &a, mask));
}

static void close_side(struct side *s)
{
	CHECK(!CALL(ibv_destroy_qp)(s->qp) && !CALL(ibv_destroy_cq)(s->cq) && !CALL(ibv_dereg_mr)(s->mr));
	CHECK(!CALL(ibv_dealloc_pd)(s->pd) && !CALL(ibv_close_device)(s->ctx));
	free(s->buf);
}

static struct ibv_wc await(struct side *s)
{
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(s->cq, 1, &wc);
	} while (n == 0);
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	return wc;
}

/* A chain as collectives post it: the data unsignaled, then immediate data that tells of it. */
static void write_message(struct side *a, struct side *b, unsigned m)
{
	struct ibv_sge sge = { (uintptr_t)a->buf, SIZE, a->mr->lkey };
	struct ibv_send_wr tell = { .wr_id = m, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
				    .imm_data = htobe32(m) };
	struct ibv_send_wr data = { .wr_id = m, .next = &tell, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_recv_wr recv = { .wr_id = m }, *bad_recv;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	for (size_t i = 0; i < SIZE; i++)
		a->buf[i] = pattern(m, i);
	data.wr.rdma.remote_addr = tell.wr.rdma.remote_addr = (uintptr_t)b->buf;
	data.wr.rdma.rkey = tell.wr.rdma.rkey = b->mr->rkey;
	CHECK(!ibv_post_recv(b->qp, &recv, &bad_recv));
	CHECK(!ibv_post_send(a->qp, &data, &bad));
	wc = await(b);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && be32toh(wc.imm_data) == m);
	for (size_t i = 0; i < SIZE; i++)
		CHECK(b->buf[i] == pattern(m, i));
	CHECK(await(a).wr_id == m);
}

int main(void)
{
	struct side a = { 0 }, b = { 0 };

	lib = dlopen("libibverbs.so", RTLD_NOW);
	if (!lib)
		lib = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(lib);
	open_side(&a, "rxeA");
	open_side(&b, "rxeB");
	connect_side(&a, &b);
	connect_side(&b, &a);
	for (unsigned m = 0; m < MESSAGES; m++)
		write_message(&a, &b, m);
	close_side(&a);
	close_side(&b);
	return 0;
}
