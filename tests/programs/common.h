/* What the programs share: opening devices, connecting QPs, posting and polling with a truth kept beside them. */
#ifndef PROGRAMS_COMMON_H
#define PROGRAMS_COMMON_H

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER (2u << 20)     /* of a device; its upper half is what peers write to */
#define RECV_ID (1ull << 63)  /* marks the wr_id of a receive where sends and receives share a CQ and may fail */
#define CHAIN_MAX 64
#define QKEY 0x1234u

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(cond) ((cond) ? (void)0 : die("%s:%d: not so: %s", __FILE__, __LINE__, #cond))

/* Asks for the device's model mode unless the environment says otherwise. Call before anything else. */
void want_model(void);
void want_devices(int n);
void want(const char *name, const char *value);

struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *buf;
	const char *name;
	union ibv_gid gid; /* port 1, index 1 */
};

struct dev *dev_open(int index);
void dev_close(struct dev *);	/* everything in it must be gone already */
struct ibv_cq *cq_make(struct dev *, int cqe);
struct ibv_cq *cq_make_on(struct dev *, int cqe, struct ibv_comp_channel *);

/* ---- the truth ---- */

struct counts {
	uint64_t send_wr_posted, send_bytes_posted;
	uint64_t send_wr_completed, send_bytes_completed; /* known to have succeeded, by a CQE that covers them */
	uint64_t send_wr_failed, send_bytes_failed;	  /* completed in error, flushed included */
	uint64_t send_wr_discarded, send_bytes_discarded; /* RESET or destroyed before a CQE was polled */
	uint64_t send_wr_outstanding, send_bytes_outstanding;
	uint64_t send_cqes;
	uint64_t recv_wr_posted;
	uint64_t recv_wr_completed, recv_bytes_completed;
	uint64_t recv_wr_failed, recv_wr_discarded, recv_wr_outstanding;
};

struct sent {
	uint64_t wr_id, bytes;
	bool signaled;
};

struct q {
	struct ibv_qp *qp;
	struct dev *dev;
	struct q *peer; /* the last it was connected to */
	struct ibv_cq *send_cq, *recv_cq;
	uint32_t qpn;
	int index;
	int port;
	bool live, sig_all, srq;
	enum ibv_qp_type type;
	const char *kind;
	struct counts n;
	struct sent *sq;     /* what is outstanding, oldest first */
	uint64_t *rq;
	size_t sq_first, sq_len, sq_cap, rq_first, rq_len, rq_cap;
	struct q *next;
};

struct shape {
	enum ibv_qp_type type; /* 0: RC */
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t sq, rq; /* 0: 128 */
	bool sig_all;
	int port; /* 0: 1 */
};

struct q *q_make(struct dev *, const struct shape *);
struct q *q_adopt(struct dev *, struct ibv_qp *); /* a QP made by other means, port 1 */
void q_init(struct q *);	  /* RESET -> INIT */
void q_to(struct q *, struct q *peer); /* INIT -> RTR -> RTS */
void q_pair(struct q *, struct q *); /* both ways, from RESET */
struct q *q_couple(struct dev *, struct ibv_cq *, struct q **peer); /* two over one CQ, connected */
struct q *q_half_polled(void);	  /* the first device's: of 20 WRITEs of 1000 bytes, every second signaled, 7 CQEs are polled */
struct ibv_cq_ex *cq_make_extended(struct dev *, uint32_t cqe);
struct q *q_make_extended(struct dev *, struct ibv_cq_ex *); /* WRITEs to itself, with ibv_wr_* too */
void q_reset(struct q *);
void q_error(struct q *);
void q_destroy(struct q *);
void q_gone(struct q *);	  /* it went without being destroyed: what was outstanding is discarded */

struct chain {
	struct ibv_send_wr wr[CHAIN_MAX];
	struct ibv_sge sge[CHAIN_MAX][4];
	int n;
};

/* Adds a WR to the peer's buffer; returns it, for changes. `bytes` are spread over `sges` (1 to 4) entries. */
struct ibv_send_wr *chain_add(struct chain *, struct q *, enum ibv_wr_opcode, uint64_t wr_id, uint32_t bytes,
			      unsigned flags, int sges);
int chain_post(struct chain *, struct q *, int *accepted); /* empties the chain */
int post(struct q *, enum ibv_wr_opcode, uint64_t wr_id, uint32_t bytes, unsigned flags);
void post_patiently(struct ibv_qp *, struct ibv_send_wr *); /* waits for room as often as need be; keeps no truth */
int post_recv(struct q *, uint64_t wr_id, uint32_t bytes);
int post_recvs(struct q *, uint64_t first_id, int n, uint32_t bytes);

/* Polls until the CQ is empty, keeping the truth; returns the number of CQEs. */
int drain(struct ibv_cq *);
int drain_n(struct ibv_cq *, int max);
void truth_cqe(struct ibv_cq *, const struct ibv_wc *);
void truth_sent(struct q *, uint64_t wr_id, uint64_t bytes, bool signaled);
void truth_received(struct q *, uint64_t wr_id);

/* One line per QP ever made, one per device and port, one for all. */
void report(void);
void report_qp(const struct q *);
void forget_all(void); /* in a child after fork: begin a truth of its own */

/* For threads that make and destroy without end: a list of the calling thread's own, QPs forgotten but for their sums,
 * and sums that are known otherwise. */
void truth_of_own(void);
void q_forget(struct q *);
void truth_add(const struct dev *, int port, const struct counts *);

/* ---- the script of the software device (ENOSYS over another library) ---- */

int script_fail_next(struct q *, unsigned n, int status, uint32_t vendor_err);
int script_fail_post(struct q *, unsigned n, int err);
int script_hold(struct q *, bool on);
int script_reuse_qpn(uint32_t qpn);

long arg_number(int argc, char **argv, const char *name, long def);
bool arg_flag(int argc, char **argv, const char *name);

#endif
