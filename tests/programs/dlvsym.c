/* Not linked to libibverbs: loads it, looks the calls up by dlvsym on the handle (as collectives libraries do), and
 * uses post_send and poll_cq inline, through the context.
 *
 *   dlvsym [--dlsym]      plain dlsym instead
 */
#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr

static void *lib;
static bool plain;

static void *find(const char *name, const char *version)
{
	void *p = plain ? dlsym(lib, name) : dlvsym(lib, name, version);

	if (!p) {
		fprintf(stderr, "dlvsym: no %s@%s: %s\n", name, version, dlerror());
		exit(1);
	}
	return p;
}

#define CALL(name) __typeof__(name) *name##_p = find(#name, "IBVERBS_1.1")
#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "dlvsym: not so: %s\n", #cond); \
			exit(1); \
		} \
	} while (0)

int main(int argc, char **argv)
{
	static char buf[8192];
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_init_attr init = { .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_sge sge = { .length = 4000 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int n;

	setenv("NULLVERBS_MODE", "model", 0);
	plain = argc > 1 && !strcmp(argv[1], "--dlsym");
	lib = dlopen("libibverbs.so", RTLD_NOW);
	if (!lib)
		lib = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(lib);
	CHECK(plain || !dlvsym(lib, "ibv_create_qp", "IBVERBS_9.9"));
	CALL(ibv_get_device_list);
	CALL(ibv_free_device_list);
	CALL(ibv_open_device);
	CALL(ibv_close_device);
	CALL(ibv_alloc_pd);
	CALL(ibv_dealloc_pd);
	CALL(ibv_reg_mr);
	CALL(ibv_dereg_mr);
	CALL(ibv_create_cq);
	CALL(ibv_destroy_cq);
	CALL(ibv_create_qp);
	CALL(ibv_modify_qp);
	CALL(ibv_destroy_qp);
	CALL(ibv_query_gid);

	CHECK((list = ibv_get_device_list_p(&n)) && n > 0 && (ctx = ibv_open_device_p(list[0])));
	ibv_free_device_list_p(list);
	CHECK((pd = ibv_alloc_pd_p(ctx)));
	CHECK((mr = ibv_reg_mr_p(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK((cq = ibv_create_cq_p(ctx, 64, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = cq;
	CHECK((qp = ibv_create_qp_p(pd, &init)));
	CHECK(!ibv_modify_qp_p(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = qp->qp_num;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.sgid_index = 1;
	CHECK(!ibv_query_gid_p(ctx, 1, 1, &a.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp_p(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp_p(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
	sge.addr = (uintptr_t)buf;
	sge.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = (uintptr_t)buf + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	for (uint64_t i = 0; i < 25; i++) {
		wr.wr_id = i;
		CHECK(!ibv_post_send(qp, &wr, &bad));
		CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	printf("qp 0 dev null0 port 1 qpn %u kind rc peer_qpn %u ", qp->qp_num, qp->qp_num);
	puts("send_wr_posted 25 send_bytes_posted 100000 send_wr_completed 25 send_bytes_completed 100000 "
	     "send_wr_outstanding 0 send_cqes 25");
	puts("total send_wr_posted 25 send_bytes_posted 100000 send_wr_completed 25 send_bytes_completed 100000 "
	     "send_wr_outstanding 0 send_cqes 25");
	CHECK(!ibv_destroy_qp_p(qp) && !ibv_destroy_cq_p(cq) && !ibv_dereg_mr_p(mr) && !ibv_dealloc_pd_p(pd));
	CHECK(!ibv_close_device_p(ctx));
	return 0;
}
