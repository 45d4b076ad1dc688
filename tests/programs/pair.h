/* RC QPs of processes that say nothing to each other: member i has its QP numbers from NUMBERS * (i + 1) on. */
#ifndef PROGRAMS_PAIR_H
#define PROGRAMS_PAIR_H

#include "common.h"

#define NUMBERS 4096

static inline uint32_t first_number(long member) { return (uint32_t)(NUMBERS * (member + 1)); }

static inline struct ibv_qp *pair_create(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static inline void connect_to(struct ibv_qp *qp, struct ibv_context *ctx, int port, int peer_port, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 1, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = (uint8_t)port, .grh = { .sgid_index = 1, .hop_limit = 64 } },
	};
	CHECK(!ibv_query_gid(ctx, (uint8_t)peer_port, 1, &a.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					     IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void number_from(long member)
{
	char name[32];

	snprintf(name, sizeof(name), "%u", first_number(member));
	setenv("NULLVERBS_QPN_BASE", name, 1);
}

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static inline void until_closed(int fd)
{
	char sink[64];

	while (read(fd, sink, sizeof(sink)) > 0)
		;
}

/* One of two processes with a QP each: member 0 is at port 1, member 1 at port 2. */
struct member {
	long number;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static inline void member_open(struct member *m, long number)
{
	m->number = number;
	number_from(number);
	m->ctx = open_first();
	CHECK((m->pd = ibv_alloc_pd(m->ctx)) && (m->cq = ibv_create_cq(m->ctx, 256, NULL, NULL, 0)));
	m->qp = pair_create(m->pd, m->cq);
	CHECK(m->qp->qp_num == first_number(number));
}

static inline void member_connect(struct member *m)
{
	connect_to(m->qp, m->ctx, 1 + (int)m->number, 2 - (int)m->number, first_number(1 - m->number));
}

static inline void member_close(struct member *m)
{
	CHECK(!ibv_destroy_qp(m->qp) && !ibv_destroy_cq(m->cq) && !ibv_dealloc_pd(m->pd) && !ibv_close_device(m->ctx));
}

#endif
