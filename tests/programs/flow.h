/* A whole life of one QP that writes to itself, for programs and plugins that do not share common.c. How a control call
 * is reached is the includer's: C(name). Posting and polling is inline, through the context, as always. */
#ifndef PROGRAMS_FLOW_H
#define PROGRAMS_FLOW_H

#include <infiniband/verbs.h>

#include <stdint.h>

#include "check.h"

#undef ibv_reg_mr

#define FLOW_WRITES 25
#define FLOW_BYTES 4000

struct flow {
	char *buf;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint32_t qpn;
	char name[64];
#ifdef FLOW_CALLS
	FLOW_CALLS
#endif
};

static inline void flow_open(struct flow *f)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_init_attr init = { .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_device **list;
	int n;

	CHECK((f->buf = calloc(1, 8192)));
	CHECK((list = C(ibv_get_device_list)(&n)) && n > 0 && (f->ctx = C(ibv_open_device)(list[0])));
	snprintf(f->name, sizeof(f->name), "%s", C(ibv_get_device_name)(list[0]));
	C(ibv_free_device_list)(list);
	CHECK((f->pd = C(ibv_alloc_pd)(f->ctx)));
	CHECK((f->mr = C(ibv_reg_mr)(f->pd, f->buf, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK((f->cq = C(ibv_create_cq)(f->ctx, 64, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = f->cq;
	CHECK((f->qp = C(ibv_create_qp)(f->pd, &init)));
	f->qpn = f->qp->qp_num;
	CHECK(!C(ibv_modify_qp)(f->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = f->qpn;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.sgid_index = 1;
	CHECK(!C(ibv_query_gid)(f->ctx, 1, 1, &a.ah_attr.grh.dgid));
	CHECK(!C(ibv_modify_qp)(f->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!C(ibv_modify_qp)(f->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void flow_work(struct flow *f)
{
	struct ibv_sge sge = { .addr = (uintptr_t)f->buf, .length = FLOW_BYTES, .lkey = f->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	int n;

	wr.wr.rdma.remote_addr = (uintptr_t)f->buf + 4096;
	wr.wr.rdma.rkey = f->mr->rkey;
	for (uint64_t i = 0; i < FLOW_WRITES; i++) {
		wr.wr_id = i;
		CHECK(!ibv_post_send(f->qp, &wr, &bad));
		while (!(n = ibv_poll_cq(f->cq, 1, &wc)))
			;
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
}

static inline void flow_close(struct flow *f)
{
	CHECK(!C(ibv_destroy_qp)(f->qp) && !C(ibv_destroy_cq)(f->cq) && !C(ibv_dereg_mr)(f->mr));
	CHECK(!C(ibv_dealloc_pd)(f->pd) && !C(ibv_close_device)(f->ctx));
	free(f->buf);
}

static inline void flow_report_qp(int index, const struct flow *f)
{
	printf("qp %d dev %s port 1 qpn %u kind rc peer_qpn %u send_wr_posted %d send_bytes_posted %d "
	       "send_wr_completed %d send_bytes_completed %d send_wr_outstanding 0 send_cqes %d\n",
	       index, f->name, f->qpn, f->qpn, FLOW_WRITES, FLOW_WRITES * FLOW_BYTES, FLOW_WRITES, FLOW_WRITES * FLOW_BYTES, FLOW_WRITES);
}

/* All of them on port 1 of one device. */
static inline void flow_report_total(int flows, const char *device)
{
	int wrs = flows * FLOW_WRITES;
	char port[100];

	snprintf(port, sizeof(port), "device %s port 1", device);
	for (const char **who = (const char *[]){ port, "total", NULL }; *who; who++)
		printf("%s send_wr_posted %d send_bytes_posted %d send_wr_completed %d send_bytes_completed %d "
		       "send_wr_outstanding 0 send_cqes %d\n", *who, wrs, wrs * FLOW_BYTES, wrs, wrs * FLOW_BYTES, wrs);
}

#endif
