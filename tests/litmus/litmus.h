/* What the litmus programs share: two processes, the *source* (which connects) and the *target* (which listens), joined by
 * one TCP connection and by RC QPs. What the source writes, the target watches while it arrives. */
#ifndef LITMUS_H
#define LITMUS_H

#include <infiniband/verbs.h>

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGE 4096     /* bytes from which the wrong engine meddles */
#define ANY UINT32_MAX /* a byte_len that nobody may rely on */
#define RECV_ID (1ull << 48) /* the least wr_id of a receive */

/* Exit codes. The runner makes a run of BROKE again. */
enum { KEPT = 0, VIOLATED = 1, BROKE = 2, ALONE = 3 };

struct side;

struct litmus {
	int number; /* 0: one that has none of its own; -1: it measures, and is in no list */
	const char *name;
	void (*source)(struct side *), (*target)(struct side *);
	const char *broken; /* the kinds of `--broken`, by spaces */
	unsigned rounds;    /* if none are asked for */
};

/* What the program needs of its QPs and CQs; zeroes mean 64 WRs, 4 SGEs, 1024 CQEs, no event, no SRQ. */
struct shape {
	uint32_t sq, rq, sges, cqe;
	bool events, shared, one_cq, all_signaled;
};

struct qp {
	struct ibv_qp *qp;
	const char *ip; /* of this side */
	uint32_t peer_qpn, psn, peer_psn;
	union ibv_gid peer_gid;
};

struct side {
	const struct litmus *prog;
	bool is_source, notify, extended;
	bool lossy; /* packets are lost: nothing that RC, or soft-RoCE, does not hold then (read, random) */
	const char *ip, *slow_ip, *peer_ip, *broken;
	size_t size; /* of a large message, bytes */
	unsigned rounds, port;
	uint64_t seed, total;
	/* of flood: messages in flight; ms before it starts, and between posts; READs */
	unsigned depth, warm, every;
	bool reads;
	unsigned tcp_port, seconds; /* seconds: of storm */
	/* In WRs: what the SQ took elsewhere, and what its size was said to be there (0: not known); what a query says here. */
	uint32_t full, cap, queried_sq;
	int tcp;

	struct shape shape;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq; /* of sends and of receives */
	struct ibv_srq *srq;
	struct qp main, slow; /* slow: over the other addresses, only for the wrong engine */
	struct ibv_cq *slow_cq;
	uint8_t *buf; /* `len` bytes between two guards */
	size_t len;
	uint64_t peer_buf;
	uint32_t peer_rkey;

	struct ibv_wc held; /* the wrong engine's */
	bool holding;
	unsigned held_for;
	struct { uint64_t bytes; unsigned cqes, samples; } seen;
};

extern const struct litmus placed, duplex, flag, atomic_, send_, imm, last_byte, seqlock, read_, overlap, unsignaled, sleeper,
	error_, rkey, reuse, killed, fork_, threads, srq, shapes, random_,
	flood, storm;

/* ---- verdicts, each of which ends the process ---- */

_Noreturn void violated(struct side *, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void broke(struct side *, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define MUST(s, cond) ((cond) ? (void)0 : violated(s, "%s:%d: not so: %s", __FILE__, __LINE__, #cond))

/* What an alarm says the process was waiting for. */
void doing(const char *what);

/* ---- the TCP connection ---- */

void join(struct side *);
void say(struct side *, uint64_t);
uint64_t hear(struct side *);
bool heard(struct side *);		  /* something can be heard at once */
void hear_that(struct side *, uint64_t); /* and nothing else */
void meet(struct side *);		  /* both sides are here */
void swap(struct side *, const void *mine, void *theirs, size_t);

/* ---- bytes ---- */

/* Byte i of pattern p. Patterns repeat after a prime number of bytes, so that no shifted piece looks right. */
void fill(void *to, size_t len, uint64_t p);
void fill_from(void *to, size_t len, uint64_t p, size_t first);
uint8_t pattern(uint64_t p, size_t i);
/* The first byte that is not the pattern's, or len. */
size_t differs(const void *at, size_t len, uint64_t p);
size_t differs_from(const void *at, size_t len, uint64_t p, size_t first);
void check(struct side *, const char *what, const void *at, size_t len, uint64_t p);
void check_still(struct side *, const char *what, const void *at, size_t len, uint8_t byte); /* all are this byte */
void check_guards(struct side *);
uint64_t next_random(uint64_t *state);
static inline uint64_t peek(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE); }
static inline size_t up8(size_t n) { return (n + 7) & ~(size_t)7; }
void nap_ms(unsigned);

/* ---- verbs ---- */

/* Device, MR of `len` bytes, CQs and the main QP, connected. */
void open_side(struct side *, size_t len, struct shape);
void close_side(struct side *);
void abandon_side(struct side *); /* the same for a side whose peer is gone */
void qp_make(struct side *, struct qp *, const char *ip);
void qp_connect(struct side *, struct qp *); /* both sides, from RESET */
void qp_move(struct side *, struct qp *, enum ibv_qp_state);
void qp_reset(struct side *, struct qp *);
void qp_drop(struct side *, struct qp *);
enum ibv_qp_state qp_state(struct side *, struct qp *);

/* A send of `len` bytes from offset `from` of the own buffer to offset `to` of the peer's. */
struct op {
	enum ibv_wr_opcode opcode;
	uint64_t id;
	size_t from, to;
	uint32_t len;
	unsigned flags;
	uint32_t imm;
	uint64_t add, swap; /* of atomics: add or compare, swap */
	uint32_t rkey;	    /* 0: the peer's */
	struct qp *qp;	    /* NULL: main */
	const struct ibv_sge *sges; /* NULL: one at `from` */
	int n_sges;
};
void fill_wr(struct side *, const struct op *, struct ibv_send_wr *, struct ibv_sge *);
int try_post(struct side *, const struct op *);
#define POST(s, ...) MUST(s, !try_post(s, &(struct op){ __VA_ARGS__ }))
int post_chain(struct side *, struct qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
void post_recv(struct side *, struct qp *, uint64_t id, size_t at, uint32_t len); /* len 0: no SGE */

int poll_one(struct side *, struct ibv_cq *, struct ibv_wc *);
struct ibv_wc next_cqe(struct side *, struct ibv_cq *); /* waits */
/* The CQE is a success with these fields; a transport that broke ends the process with BROKE. */
void expect(struct side *, const struct ibv_wc *, struct qp *, uint64_t id, enum ibv_wc_opcode, uint32_t len);
void expect_recv(struct side *, const struct ibv_wc *, struct qp *, uint64_t id, enum ibv_wc_opcode, uint32_t len,
		 bool with_imm, uint32_t imm);
void expect_sent(struct side *, struct qp *, uint64_t id, enum ibv_wc_opcode); /* waits for it */
void expect_fails(struct side *, const struct ibv_wc *, struct qp *, uint64_t id, enum ibv_wc_status);
void none_left(struct side *, struct ibv_cq *, unsigned ms);
/* The error is one that soft-RoCE makes by itself. */
bool transport_error(enum ibv_wc_status);

/* ---- the extended interface: `--extended` ---- */

struct ibv_qp *extended_qp(struct side *, struct ibv_qp_init_attr *);
struct ibv_cq *extended_cq(struct side *, uint32_t cqe);
int extended_post(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int extended_poll(struct ibv_cq *, struct ibv_wc *, bool two); /* like ibv_poll_cq of one */

/* ---- the wrong engine: `--broken KIND` ---- */

bool is_broken(const struct side *, const char *kind);
int wrong_post(struct side *, struct qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int wrong_poll(struct side *, struct ibv_cq *, struct ibv_wc *);

#endif
