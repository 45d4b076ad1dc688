/* The attributes that take an RC QP from RESET to RTS; no verbs calls, so that programs that link libibverbs and programs
 * that load it share them. */
#include <infiniband/verbs.h>

#include "../../programs/check.h"

#define GID_INDEX 1 /* the first IPv4 alias of a laboratory device */

static inline int to_init(struct ibv_qp_attr *a)
{
	*a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static inline int to_rtr(struct ibv_qp_attr *a, uint32_t peer, union ibv_gid gid)
{
	*a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer,
				   .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				   .ah_attr = { .is_global = 1, .port_num = 1,
						.grh = { .dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64 } } };
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static inline int to_rts(struct ibv_qp_attr *a)
{
	*a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 7, .rnr_retry = 7,
				   .max_rd_atomic = 1 };
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_MAX_QP_RD_ATOMIC;
}

/* Byte i of message m. */
static inline unsigned char pattern(unsigned m, size_t i)
{
	return (unsigned char)(m * 31 + i * 7 + (i >> 8));
}
