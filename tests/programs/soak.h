/* What the files of the soak share. */
#ifndef PROGRAMS_SOAK_H
#define PROGRAMS_SOAK_H

#include "common.h"

struct worker {
	struct dev *dev;
	uint64_t random;
	uint64_t id; /* of the last WR */
	uint32_t number[64]; /* of QPs that are gone */
	uint32_t numbers;
};

extern struct made {
	unsigned long qps, cqs, srqs, resets, errors, rss_kb;
} made;

uint32_t below(struct worker *, uint32_t n);
struct ibv_qp *make_qp(struct worker *, struct ibv_qp_init_attr *);
struct ibv_cq *make_cq(struct worker *, int cqe);
void number_free(struct worker *, uint32_t qpn);

/* CQs, SRQ and QPs of one thread, from their creation to their end. */
void private_life(struct worker *);

/* A CQ and two QPs of two threads. */
struct couple;
struct couple *couple_make(struct dev *, bool wild);
void shared_work(struct worker *, struct couple *);
void couple_end(struct couple *);

#endif
