/* The objects of the software device and what the files of this folder offer one another.
 *
 * Every object begins with the public struct that the application holds, so a cast leads from one to the other.
 * One process-wide mutex (nv_lock) guards everything but the null mode's data path, which takes no lock at all.
 */
#ifndef NULLVERBS_H
#define NULLVERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NV_MAX_DEVICES 64
#define NV_PORTS 2
#define NV_QPN_PAGE 4096u
#define NV_QPN_PAGES 4096u
#define NV_MAX_WR 32768u
#define NV_MAX_SGE 32u
#define NV_MAX_INLINE 1024u
#define NV_MAX_CQE (1 << 22)
#define NV_FUTURE_BYTES 64
#define NV_MAX_MSG (1u << 30)

enum nv_abi { NV_ABI_NOW, NV_ABI_OLD, NV_ABI_SHORT, NV_ABI_FUTURE };

struct nv_config {
	bool model;
	bool keep_cqes;	   /* destroying a QP leaves its CQEs in the CQ */
	int devices;
	int gids;
	uint8_t net[3];
	bool has_net;
	uint64_t wc_flags;	   /* what ibv_create_cq_ex grants */
	uint32_t qpn_base;
	enum nv_abi abi;
};

const struct nv_config *nv_config(void);

void nv_lock(void);
void nv_unlock(void);

struct nv_qp;
struct nv_cq;
struct nv_srq;

struct nv_mr {
	struct ibv_mr base;
	uint64_t iova;
	unsigned access;
};

struct nv_pd {
	struct ibv_pd base;
	unsigned users;
	struct nv_pd *parent; /* of a parent domain: the PD that it stands for */
};

struct nv_ah {
	struct ibv_ah base;
	struct ibv_ah_attr attr;
	struct nv_device *dev; /* whose GID it names */
};

struct nv_device {
	struct ibv_device base;
	int index;
	struct nv_qp **qpn_page[NV_QPN_PAGES];
	uint32_t next_qpn;
	struct nv_mr **mr;	/* indexed by key >> 8 */
	size_t mr_len, mr_cap;
};

/* The control calls of a context. As in libibverbs, the exported functions go through this private table, and the
 * unused `_compat_` slots of the public one hold the same pointers. */
struct nv_control {
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, struct ibv_comp_channel *, int);
	int (*resize_cq)(struct ibv_cq *, int);
	int (*destroy_cq)(struct ibv_cq *);
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	int (*modify_srq)(struct ibv_srq *, struct ibv_srq_attr *, int);
	int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *);
	int (*destroy_srq)(struct ibv_srq *);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
	int (*destroy_ah)(struct ibv_ah *);
};

struct nv_event {
	struct nv_event *next;
	struct ibv_async_event ev;
};

struct nv_context {
	uint8_t future[NV_FUTURE_BYTES]; /* what a later library would have put in front */
	struct verbs_context v;
	struct nv_control control;
	struct nv_device *dev;
	struct nv_event *events;
	const void *owner; /* the copy of the library that opened it */
};

static inline struct nv_context *nv_ctx(struct ibv_context *ctx)
{
	return (struct nv_context *)((char *)ctx - offsetof(struct nv_context, v.context));
}

/* ---- completion queues ---- */

/* Null mode: all that a completion needs, in 16 bytes. */
struct nv_tiny_cqe {
	uint64_t wr_id;
	uint32_t qpn_op; /* qp_num << 8 | wc opcode */
};

struct nv_cqe {
	struct ibv_wc wc;
	struct nv_qp *qp;	/* NULL once the QP is gone */
	struct nv_srq *srq;	/* whose slot this CQE gives back */
	uint64_t sq_upto;	/* send side: polling frees the slots below this count */
	bool recv;
};

struct nv_channel {
	struct ibv_comp_channel base;
	struct nv_cq *first, **last; /* CQs with an unread event */
};

struct nv_cq {
	union {
		struct ibv_cq base;
		struct ibv_cq_ex ex;
	};
	/* null mode; head is written by the poster, tail by the poller */
	_Alignas(64) _Atomic uint32_t head;
	uint32_t mask;
	struct nv_tiny_cqe *tiny;
	_Atomic uint32_t tail;
	/* model mode */
	struct nv_cqe *ring;
	uint32_t cap, first, count;
	unsigned users;
	int armed;		/* 0, 1 solicited only, 2 any */
	bool overrun;
	bool queued;		/* on the channel's list */
	uint32_t pending;	/* events raised, not yet read */
	uint32_t events_reported;
	uint32_t async_reported;
	struct nv_cq *next;	/* on the channel's list */
	struct nv_cqe cur;	/* what the cq_ex readers look at */
	pthread_mutex_t poll_lock; /* held from start_poll to end_poll, as in any provider */
};

/* ---- work queues (model mode) ---- */

struct nv_swr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned flags;
	bool signaled;
	int num_sge;
	uint32_t imm;
	uint64_t remote_addr, compare_add, swap;
	uint32_t rkey;
	uint32_t ud_qpn, ud_qkey;
	uint32_t xrc_srqn;
	struct ibv_ah_attr ud_av;
	struct nv_device *ud_dev;
	struct ibv_sge *sge;
	uint8_t *inline_data;
	uint32_t inline_len;
};

struct nv_rwr {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge *sge;
};

struct nv_rq {
	struct nv_rwr *wr;
	struct ibv_sge *sges;
	uint32_t cap, max_sge;
	uint64_t head;	/* posted */
	uint64_t next;	/* consumed by a message */
	uint64_t tail;	/* given back: its CQE was polled */
};

struct nv_srq {
	struct ibv_srq base;
	struct nv_rq rq;
	uint32_t limit;
	unsigned users;
	uint32_t events_reported;
	struct nv_cq *cq;	/* XRC and tag matching: where its completions go */
	uint32_t number;	/* XRC */
	struct nv_srq *next;	/* of the XRC ones */
};

struct nv_builder; /* the WRs between wr_start and wr_complete */

struct nv_qp {
	union {
		struct ibv_qp base;
		struct ibv_qp_ex ex;
	};
	struct nv_device *dev;
	struct nv_device *peer_dev; /* the device that the address vector names */
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_ece ece;
	enum ibv_qp_state st; /* the true one; base.state only follows modify and query */
	bool sig_all;
	/* send queue; counts, not indexes */
	struct nv_swr *sq;
	struct ibv_sge *sq_sges;
	uint8_t *sq_inline;
	uint64_t sq_head, sq_next, sq_tail;
	struct nv_rq rq;
	/* script */
	bool held, stalled, fail_armed, refuse_armed;
	uint64_t fail_at, refuse_at;
	int fail_status, refuse_err;
	uint32_t fail_vendor;
	uint32_t events_reported;
	struct nv_qp *stall_next;
	struct nv_builder *builder;
};

static inline struct nv_qp *nv_qp(struct ibv_qp *qp) { return (struct nv_qp *)qp; }
static inline struct nv_cq *nv_cq(struct ibv_cq *cq) { return (struct nv_cq *)cq; }
static inline struct nv_srq *nv_srq(struct ibv_srq *srq) { return (struct nv_srq *)srq; }
static inline struct nv_pd *nv_pd(struct ibv_pd *pd) { return (struct nv_pd *)pd; }
static inline struct nv_pd *nv_root(struct ibv_pd *pd) { return pd && nv_pd(pd)->parent ? nv_pd(pd)->parent : nv_pd(pd); }

/* device.c, query.c */
struct nv_device *nv_device_at(int index);
/* As nv_ctx, of a call that reached this copy of the library; ends the program if another copy opened the context. */
struct nv_context *nv_own(struct ibv_context *);
/* The device that an address vector leads to; the sender's own when it names no known GID. */
struct nv_device *nv_device_by_av(struct nv_device *self, const struct ibv_ah_attr *av);
bool nv_gid(const struct nv_device *dev, int port, int index, union ibv_gid *gid);
int nv_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t len);
int nv_query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *,
		       struct ibv_device_attr_ex *, size_t len);

/* memory.c */
struct ibv_pd *nv_alloc_pd(struct ibv_context *);
int nv_dealloc_pd(struct ibv_pd *);
struct ibv_mr *nv_reg_mr(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
int nv_dereg_mr(struct ibv_mr *);
struct ibv_ah *nv_create_ah(struct ibv_pd *, struct ibv_ah_attr *);
int nv_destroy_ah(struct ibv_ah *);
/* The process address behind [addr, addr+len) of a key, or NULL when the key does not allow it. */
void *nv_translate(struct nv_device *, struct ibv_pd *, uint32_t key, uint64_t addr, uint64_t len, unsigned access);

/* number.c */
int nv_qpn_take(struct nv_device *, struct nv_qp *);
void nv_qpn_give(struct nv_device *, uint32_t qpn);
struct nv_qp *nv_qpn_find(struct nv_device *, uint32_t qpn);
struct nv_qp *nv_qpn_find_any(uint32_t qpn);
void nv_qpn_each(struct nv_device *, void (*)(struct nv_qp *, void *), void *);

/* cq.c, channel.c, event.c */
struct ibv_cq *nv_create_cq(struct ibv_context *, int, struct ibv_comp_channel *, int);
struct ibv_cq_ex *nv_create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
int nv_resize_cq(struct ibv_cq *, int);
int nv_destroy_cq(struct ibv_cq *);
int nv_model_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
int nv_req_notify_cq(struct ibv_cq *, int);
void nv_cq_push(struct nv_cq *, const struct nv_cqe *, bool solicited);
bool nv_cq_pop(struct nv_cq *, struct nv_cqe *);
void nv_cq_purge(struct nv_cq *, struct nv_qp *, bool keep);
void nv_channel_raise(struct nv_cq *);
void nv_channel_forget(struct nv_cq *);
void nv_raise_async(struct ibv_context *, enum ibv_event_type, void *element);
void nv_forget_async(struct ibv_context *, void *element);

/* qp.c, modify.c, srq.c, extended.c */
struct ibv_qp *nv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
struct ibv_qp *nv_create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
int nv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int nv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
int nv_destroy_qp(struct ibv_qp *);
void nv_qp_abandon(struct nv_qp *);	/* the context closed under it */
int nv_builder_attach(struct nv_qp *);
void nv_builder_rearm(struct nv_qp *);	/* wr_complete is set anew on RESET and RTS, as mlx5 does */
void nv_builder_free(struct nv_qp *);
void nv_builder_lock(struct nv_qp *);	/* held from wr_start to wr_complete or wr_abort, as in any provider */
void nv_builder_unlock(struct nv_qp *);
struct ibv_srq *nv_create_srq(struct ibv_pd *, struct ibv_srq_init_attr *);
struct ibv_srq *nv_create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
int nv_modify_srq(struct ibv_srq *, struct ibv_srq_attr *, int);
int nv_query_srq(struct ibv_srq *, struct ibv_srq_attr *);
int nv_destroy_srq(struct ibv_srq *);
int nv_rq_init(struct nv_rq *, uint32_t cap, uint32_t max_sge);
void nv_rq_free(struct nv_rq *);

struct nv_srq *nv_xrc_srq(uint32_t number);
int nv_get_srq_num(struct ibv_srq *, uint32_t *);

/* domain.c, match.c */
struct ibv_td *nv_alloc_td(struct ibv_context *, struct ibv_td_init_attr *);
int nv_dealloc_td(struct ibv_td *);
struct ibv_pd *nv_alloc_parent_domain(struct ibv_context *, struct ibv_parent_domain_init_attr *);
struct ibv_xrcd *nv_open_xrcd(struct ibv_context *, struct ibv_xrcd_init_attr *);
int nv_close_xrcd(struct ibv_xrcd *);
struct ibv_mw *nv_alloc_mw(struct ibv_pd *, enum ibv_mw_type);
int nv_dealloc_mw(struct ibv_mw *);
int nv_bind_mw(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
int nv_post_srq_ops(struct ibv_srq *, struct ibv_ops_wr *, struct ibv_ops_wr **);
struct ibv_wq *nv_create_wq(struct ibv_context *, struct ibv_wq_init_attr *);
int nv_modify_wq(struct ibv_wq *, struct ibv_wq_attr *);
int nv_destroy_wq(struct ibv_wq *);
struct ibv_rwq_ind_table *nv_create_rwq_ind_table(struct ibv_context *, struct ibv_rwq_ind_table_init_attr *);
int nv_destroy_rwq_ind_table(struct ibv_rwq_ind_table *);

/* null.c */
int nv_null_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
int nv_null_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int nv_null_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int nv_null_poll_cq(struct ibv_cq *, int, struct ibv_wc *);
enum ibv_wc_opcode nv_wc_opcode(enum ibv_wr_opcode);

/* send.c, receive.c, execute.c */
int nv_model_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
int nv_model_send(struct nv_qp *, struct ibv_send_wr *, struct ibv_send_wr **); /* the builder's lock is held */
int nv_model_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int nv_model_post_srq_recv(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
void nv_run(struct nv_qp *);		/* executes what is due on the send queue */
void nv_run_stalled(void);		/* tries again what waited for a receive */
void nv_unstall(struct nv_qp *);
void nv_enter_error(struct nv_qp *);	/* to ERR, flushing both queues */
void nv_flush(struct nv_qp *);
void nv_push_send_cqe(struct nv_qp *, uint64_t at, int status, uint32_t vendor_err, uint32_t byte_len);

/* What one WR comes to: a status, or NV_WAIT when it has to wait for a receive. */
#define NV_WAIT (-1)
struct nv_result {
	int status;
	uint32_t byte_len;
};
struct nv_result nv_execute(struct nv_qp *, struct nv_swr *);

#endif
