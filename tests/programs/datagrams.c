/* Datagrams to many peers: chains whose WRs go anywhere, few of them signaled, on one QP or on one per thread, by
 * ibv_post_send or ibv_wr_*. What each peer got is kept beside, in the dullest way, and printed: a line per peer.
 *
 *   datagrams [--threads N] [--rounds N] [--extended] [--signal-every N] [--answer] [--calm]
 *
 * Chains are refused in the middle, WRs fail and others are flushed, QPs are RESET with work outstanding, address handles
 * are destroyed with work outstanding and their memory is another peer's handle then; --calm: nothing of that. --answer:
 * the last handle is made from a completion.
 */
#include "common.h"

#include <arpa/inet.h>
#include <pthread.h>

#define PEERS 7
#define SELF 6 /* this device, in --answer alone */
#define HANDLES 8
#define NOBODY PEERS /* a handle of another port: it leads to nobody that a QP of this one knows */
#define DEPTH 64
#define MAX 8

struct peer_counts {
	uint64_t posted, bytes_posted, completed, bytes_completed, failed, bytes_failed, dropped, bytes_dropped, outstanding, cqes;
};

struct one {
	uint64_t wr_id;
	uint32_t bytes;
	int peer;
	bool signaled;
};

struct sender {
	struct q *q;
	struct ibv_cq *cq;
	struct ibv_qp_ex *ex;
	struct one fifo[2 * DEPTH];
	unsigned head, tail;
	uint64_t seed, next_id;
	struct peer_counts n[PEERS + 1];
	struct ibv_ah *own; /* a handle that comes and goes */
	int own_peer;
	unsigned same; /* it had the address of the one before so often */
};

static struct dev *d;
static long threads, rounds, every;
static bool extended, calm;
static struct ibv_ah *handles[HANDLES];
static int peer_of[HANDLES];
static char names[PEERS + 1][64];

static unsigned below(struct sender *s, unsigned n)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return (unsigned)(s->seed >> 11) % n;
}

/* The last peer has no GID, but a LID. */
static struct ibv_ah *handle_to(int peer, int port)
{
	struct ibv_ah_attr attr = { .port_num = (uint8_t)port };
	struct ibv_ah *ah;

	if (peer == SELF - 1) {
		attr.dlid = 77;
	} else {
		attr.is_global = 1;
		attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
		memcpy(&attr.grh.dgid.raw[12], (uint8_t[]){ 198, 51, 100, (uint8_t)(10 + peer) }, 4);
		attr.grh.sgid_index = 1;
	}
	ah = ibv_create_ah(d->pd, &attr);
	CHECK(ah);
	return ah;
}

static struct one *oldest(struct sender *s) { return s->head == s->tail ? NULL : &s->fifo[s->head % (2 * DEPTH)]; }

static void gone(struct sender *s, uint64_t *wr, uint64_t *bytes)
{
	*bytes += oldest(s)->bytes;
	++*wr;
	s->n[oldest(s)->peer].outstanding--;
	s->head++;
}

#define GONE(how) gone(s, &s->n[oldest(s)->peer].how, &s->n[oldest(s)->peer].bytes_##how)

static void cqe(struct sender *s, const struct ibv_wc *wc)
{
	truth_cqe(s->cq, wc);
	while (oldest(s)->wr_id != wc->wr_id)
		GONE(completed);
	s->n[oldest(s)->peer].cqes++;
	if (wc->status == IBV_WC_SUCCESS)
		GONE(completed);
	else
		GONE(failed);
}

static void take(struct sender *s, int most)
{
	struct ibv_wc wc[3];
	int n;

	while (most > 0 && (n = ibv_poll_cq(s->cq, most < 3 ? most : 3, wc)) > 0) {
		for (int i = 0; i < n; i++)
			cqe(s, &wc[i]);
		most -= n;
	}
}

static void all_dropped(struct sender *s)
{
	while (oldest(s))
		GONE(dropped);
}

static void taken(struct sender *s, const struct one *o, bool tell)
{
	s->fifo[s->tail++ % (2 * DEPTH)] = *o;
	s->n[o->peer].posted++;
	s->n[o->peer].bytes_posted += o->bytes;
	s->n[o->peer].outstanding++;
	if (tell)
		truth_sent(s->q, o->wr_id, o->bytes, o->signaled);
}

static struct ibv_ah *choose(struct sender *s, int *peer)
{
	unsigned h = below(s, HANDLES + 2);

	if (h >= HANDLES) {
		*peer = s->own_peer;
		return s->own;
	}
	*peer = peer_of[h];
	return handles[h];
}

static void post_some(struct sender *s)
{
	struct chain c = { .n = 0 };
	struct one all[8];
	int n = 1 + (int)below(s, 8), ok = n;
	bool refuse = !calm && below(s, 6) == 0;

	if (s->tail - s->head + (unsigned)n > DEPTH)
		return;
	for (int i = 0; i < n; i++) {
		struct one *o = &all[i];
		struct ibv_ah *ah = choose(s, &o->peer);

		o->wr_id = ++s->next_id;
		o->bytes = below(s, 2000);
		o->signaled = s->next_id % (uint64_t)every == 0 || s->tail - s->head + (unsigned)i > DEPTH - 16;
		if (!extended) {
			struct ibv_send_wr *wr = chain_add(&c, s->q, IBV_WR_SEND, o->wr_id, o->bytes,
							   o->signaled ? IBV_SEND_SIGNALED : 0, 1);

			wr->wr.ud.ah = ah;
			wr->wr.ud.remote_qpn = 0xfffff;
			wr->wr.ud.remote_qkey = QKEY;
			continue;
		}
		if (!i)
			ibv_wr_start(s->ex);
		s->ex->wr_id = o->wr_id;
		s->ex->wr_flags = o->signaled ? IBV_SEND_SIGNALED : 0;
		if (below(s, 2))
			ibv_wr_send(s->ex);
		else
			ibv_wr_send_imm(s->ex, 5);
		if (below(s, 2)) {
			ibv_wr_set_ud_addr(s->ex, ah, 0xfffff, QKEY);
			ibv_wr_set_sge(s->ex, d->mr->lkey, (uintptr_t)d->buf, o->bytes);
		} else {
			ibv_wr_set_sge(s->ex, d->mr->lkey, (uintptr_t)d->buf, o->bytes);
			ibv_wr_set_ud_addr(s->ex, ah, 0xfffff, QKEY);
		}
	}
	if (extended) {
		if (refuse && below(s, 2)) {
			ibv_wr_abort(s->ex);
			return;
		}
		CHECK(!ibv_wr_complete(s->ex));
	} else {
		if (refuse)
			CHECK(!script_fail_post(s->q, 1 + below(s, (unsigned)n), ENOMEM));
		CHECK(!chain_post(&c, s->q, &ok) == !refuse);
	}
	for (int i = 0; i < ok; i++)
		taken(s, &all[i], extended);
}

/* The next handle has the same address, unless the allocator is in a mood. */
static void move_own(struct sender *s)
{
	struct ibv_ah *before = s->own;

	CHECK(!ibv_destroy_ah(s->own));
	s->own_peer = (s->own_peer + 1) % SELF;
	s->own = handle_to(s->own_peer, 1);
	s->same += s->own == before;
}

static void again(struct sender *s)
{
	q_reset(s->q);
	all_dropped(s);
	q_init(s->q);
	q_to(s->q, NULL);
}

/* What waits in a QP that fails is flushed. */
static void fail(struct sender *s)
{
	script_hold(s->q, true);
	for (int i = 0; i < 3; i++)
		post_some(s);
	if (below(s, 2))
		q_error(s->q);
	else if (s->tail != s->head)
		CHECK(!script_fail_next(s->q, 1, IBV_WC_LOC_PROT_ERR, 9));
	script_hold(s->q, false);
	post_some(s);
	take(s, below(s, 2) ? 1 << 20 : 5);
	again(s);
}

static void *run(void *arg)
{
	struct sender *s = arg;

	for (long r = 0; r < rounds; r++) {
		switch (below(s, 40)) {
		case 0:
			if (!calm)
				again(s);
			break;
		case 1:
			if (!calm)
				fail(s);
			break;
		case 2:
		case 3:
			if (!calm)
				move_own(s);
			break;
		case 4 ... 15:
			take(s, 1 + (int)below(s, 6));
			break;
		default:
			post_some(s);
		}
		if (s->tail - s->head > DEPTH - 8)
			take(s, 1 << 20);
	}
	if (calm)
		take(s, 1 << 20);
	return NULL;
}

static struct q *make(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { DEPTH, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		.pd = d->pd,
		.send_cq = cq,
		.recv_cq = cq,
	};
	struct shape shape = { .type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq, .sq = DEPTH };
	struct q *q = extended ? q_adopt(d, ibv_create_qp_ex(d->ctx, &init)) : q_make(d, &shape);

	q_init(q);
	q_to(q, NULL);
	return q;
}

/* A QP that sends to itself: the message says whence it came. */
static struct ibv_ah *answer(struct peer_counts *n)
{
	struct ibv_cq *cq = cq_make(d, 16);
	struct q *q = make(cq);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = d->gid, .sgid_index = 1 } };
	struct ibv_ah *there = ibv_create_ah(d->pd, &attr), *back = NULL;
	struct chain c = { .n = 0 };
	struct ibv_send_wr *wr = chain_add(&c, q, IBV_WR_SEND, 1, 100, IBV_SEND_SIGNALED, 1);
	struct ibv_wc wc;

	CHECK(there && !post_recv(q, RECV_ID, 4096));
	wr->wr.ud.ah = there;
	wr->wr.ud.remote_qpn = q->qpn;
	wr->wr.ud.remote_qkey = QKEY;
	CHECK(!chain_post(&c, q, NULL));
	while (ibv_poll_cq(cq, 1, &wc) == 1) {
		truth_cqe(cq, &wc);
		if (wc.opcode & IBV_WC_RECV) {
			struct ibv_grh grh = { .sgid = d->gid, .dgid = d->gid };

			errno = 77;
			back = ibv_create_ah_from_wc(d->pd, &wc, &grh, 1);
			CHECK(back && errno == 77);
			grh.dgid.raw[0]++;
			CHECK(!ibv_create_ah_from_wc(d->pd, &wc, &grh, 1));
		}
	}
	CHECK(back && !ibv_destroy_ah(there));
	wr = chain_add(&c, q, IBV_WR_SEND, 2, 300, IBV_SEND_SIGNALED, 1);
	wr->wr.ud.ah = back;
	wr->wr.ud.remote_qpn = q->qpn;
	wr->wr.ud.remote_qkey = QKEY;
	CHECK(!chain_post(&c, q, NULL));
	CHECK(drain(cq) == 1);
	*n = (struct peer_counts){ .posted = 2, .completed = 2, .bytes_posted = 400, .bytes_completed = 400, .cqes = 2 };
	q_destroy(q);
	CHECK(!ibv_destroy_cq(cq));
	return back;
}

static void say(struct sender *all)
{
	for (int p = 0; p <= PEERS; p++) {
		struct peer_counts sum = { 0 };

		for (long t = 0; t < threads; t++)
			for (size_t i = 0; i < sizeof(sum) / 8; i++)
				((uint64_t *)&sum)[i] += ((uint64_t *)&all[t].n[p])[i];
#define P(name, field) printf(" " #name " %llu", (unsigned long long)sum.field)
		printf("peer %s", names[p]);
		P(send_wr_posted, posted); P(send_bytes_posted, bytes_posted);
		P(send_wr_completed, completed); P(send_bytes_completed, bytes_completed);
		P(send_wr_failed, failed); P(send_bytes_failed, bytes_failed);
		P(send_wr_discarded, dropped); P(send_bytes_discarded, bytes_dropped);
		P(send_wr_outstanding, outstanding); P(send_cqes, cqes);
#undef P
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	static struct sender all[MAX];
	pthread_t id[MAX];
	struct ibv_ah *back = NULL;

	threads = arg_number(argc, argv, "threads", 1);
	rounds = arg_number(argc, argv, "rounds", 2000);
	every = arg_number(argc, argv, "signal-every", 5);
	extended = arg_flag(argc, argv, "extended");
	calm = arg_flag(argc, argv, "calm");
	CHECK(threads <= MAX);
	want_model();
	d = dev_open(0);
	for (int p = 0; p < PEERS; p++)
		snprintf(names[p], sizeof(names[p]), p < SELF - 1 ? "198.51.100.%d" : "lid_77", 10 + p);
	strcpy(names[SELF], "192.0.2.1");
	strcpy(names[NOBODY], "nobody");
	for (int h = 0; h < HANDLES; h++) {
		peer_of[h] = h < SELF ? h : h == SELF ? 0 : NOBODY;
		handles[h] = handle_to(peer_of[h] % PEERS, peer_of[h] == NOBODY ? 2 : 1);
	}
	if (arg_flag(argc, argv, "answer"))
		back = answer(&all[0].n[SELF]);
	for (long t = 0; t < threads; t++) {
		struct sender *s = &all[t];

		s->cq = cq_make(d, 2 * DEPTH);
		s->q = make(s->cq);
		s->ex = extended ? ibv_qp_to_qp_ex(s->q->qp) : NULL;
		s->seed = 88172645463325252ull + (uint64_t)t * 977;
		s->own = handle_to(0, 1);
	}
	for (long t = 0; t < threads; t++)
		CHECK(!pthread_create(&id[t], NULL, run, &all[t]));
	for (long t = 0; t < threads; t++)
		CHECK(!pthread_join(id[t], NULL));
	/* One QP's work is left; the others' is discarded with them. */
	for (long t = calm ? 0 : 1; t < threads; t++) {
		q_destroy(all[t].q);
		all_dropped(&all[t]);
	}
	CHECK(calm || rounds < 1000 || all[0].same > 10);
	if (back)
		CHECK(!ibv_destroy_ah(back));
	report();
	say(all);
	return 0;
}
