/* The truth that a test compares with: every WR of every QP is remembered from its post to its end.
 *
 * It is kept with the knowledge that a program has (it posted the WRs) and in the dullest way: a list per queue.
 * A send CQE retires every WR before it; on an error the WR is found by its wr_id. Not for two threads on one QP.
 * A thread whose CQs and QPs are its own may keep a list of its own, and forget QPs that are gone but for their sums.
 */
#include "common.h"

#include <pthread.h>

struct list {
	struct q *first, **last;
};

static struct list everybodys = { NULL, &everybodys.first };
static _Thread_local struct list *mine = &everybodys;
static _Thread_local struct list own;
static int made;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

/* What QPs that are forgotten had, by device and port. */
static struct gone {
	const char *device;
	int port;
	struct counts n;
} gone[16];
static int gone_len;

static const char *kind_of(enum ibv_qp_type t)
{
	return t == IBV_QPT_RC ? "rc" : t == IBV_QPT_UC ? "uc" : t == IBV_QPT_UD ? "ud" : t == IBV_QPT_XRC_SEND ? "xrc_send" :
	       t == IBV_QPT_XRC_RECV ? "xrc_recv" : "other";
}

struct q *q_adopt(struct dev *d, struct ibv_qp *qp)
{
	struct q *q = calloc(1, sizeof(*q));

	if (!qp)
		die("no QP: %s", strerror(errno));
	CHECK(q);
	q->qp = qp;
	q->dev = d;
	q->send_cq = qp->send_cq;
	q->recv_cq = qp->recv_cq;
	q->srq = qp->srq != NULL;
	q->qpn = qp->qp_num;
	q->port = 1;
	q->type = qp->qp_type;
	q->kind = kind_of(qp->qp_type);
	q->live = true;
	pthread_mutex_lock(&list_lock);
	q->index = made++;
	*mine->last = q;
	mine->last = &q->next;
	pthread_mutex_unlock(&list_lock);
	return q;
}

struct q *q_make(struct dev *d, const struct shape *s)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.srq = s->srq,
		.cap = { s->sq ? s->sq : 128, s->rq ? s->rq : 128, 4, 4, 64 },
		.qp_type = s->type ? s->type : IBV_QPT_RC,
		.sq_sig_all = s->sig_all,
	};
	struct q *q = q_adopt(d, ibv_create_qp(d->pd, &init));

	q->port = s->port ? s->port : 1;
	q->sig_all = s->sig_all;
	return q;
}

static void *room(void *at, size_t *cap, size_t *from, size_t len, size_t item)
{
	if (*from + len < *cap)
		return at;
	if (*from > *cap / 2) { /* slide down what is left */
		memmove(at, (char *)at + *from * item, len * item);
		*from = 0;
		return at;
	}
	*cap = *cap ? *cap * 2 : 256;
	at = realloc(at, *cap * item);
	CHECK(at);
	return at;
}

void truth_sent(struct q *q, uint64_t wr_id, uint64_t bytes, bool signaled)
{
	q->sq = room(q->sq, &q->sq_cap, &q->sq_first, q->sq_len, sizeof(*q->sq));
	q->sq[q->sq_first + q->sq_len++] = (struct sent){ wr_id, bytes, signaled };
	q->n.send_wr_posted++;
	q->n.send_bytes_posted += bytes;
	q->n.send_wr_outstanding++;
	q->n.send_bytes_outstanding += bytes;
}

void truth_received(struct q *q, uint64_t wr_id)
{
	q->rq = room(q->rq, &q->rq_cap, &q->rq_first, q->rq_len, sizeof(*q->rq));
	q->rq[q->rq_first + q->rq_len++] = wr_id;
	q->n.recv_wr_posted++;
	q->n.recv_wr_outstanding++;
}

static struct sent *oldest(struct q *q) { return q->sq_len ? &q->sq[q->sq_first] : NULL; }

static void retire(struct q *q, uint64_t *wrs, uint64_t *bytes)
{
	struct sent *s = oldest(q);

	CHECK(s);
	++*wrs;
	*bytes += s->bytes;
	q->n.send_wr_outstanding--;
	q->n.send_bytes_outstanding -= s->bytes;
	q->sq_first++;
	q->sq_len--;
}

static void send_cqe(struct q *q, const struct ibv_wc *wc)
{
	struct counts *n = &q->n;

	n->send_cqes++;
	if (wc->status == IBV_WC_SUCCESS) {
		while (oldest(q) && !oldest(q)->signaled)
			retire(q, &n->send_wr_completed, &n->send_bytes_completed);
		CHECK(oldest(q) && oldest(q)->wr_id == wc->wr_id);
		retire(q, &n->send_wr_completed, &n->send_bytes_completed);
		return;
	}
	while (oldest(q) && oldest(q)->wr_id != wc->wr_id)
		retire(q, &n->send_wr_completed, &n->send_bytes_completed);
	retire(q, &n->send_wr_failed, &n->send_bytes_failed);
}

static void recv_cqe(struct q *q, const struct ibv_wc *wc)
{
	if (!q->srq) {
		CHECK(q->rq_len && q->rq[q->rq_first] == wc->wr_id);
		q->rq_first++;
		q->rq_len--;
		q->n.recv_wr_outstanding--;
	}
	if (wc->status == IBV_WC_SUCCESS) {
		q->n.recv_wr_completed++;
		q->n.recv_bytes_completed += wc->byte_len;
	} else {
		q->n.recv_wr_failed++;
	}
}

static bool is_recv(struct q *q, struct ibv_cq *cq, const struct ibv_wc *wc)
{
	if (q->send_cq != q->recv_cq)
		return cq == q->recv_cq;
	if (wc->status == IBV_WC_SUCCESS)
		return wc->opcode & IBV_WC_RECV;
	if (wc->wr_id & RECV_ID)
		return true;
	for (size_t i = 0; i < q->sq_len; i++)
		if (q->sq[q->sq_first + i].wr_id == wc->wr_id)
			return false;
	return true;
}

void truth_cqe(struct ibv_cq *cq, const struct ibv_wc *wc)
{
	for (struct q *q = mine->first; q; q = q->next)
		if (q->live && q->qpn == wc->qp_num && (q->send_cq == cq || q->recv_cq == cq)) {
			if (is_recv(q, cq, wc))
				recv_cqe(q, wc);
			else
				send_cqe(q, wc);
			return;
		}
	die("a CQE of QP %u, which does not exist", wc->qp_num);
}

int drain_n(struct ibv_cq *cq, int max)
{
	struct ibv_wc wc[16];
	int total = 0, n;

	while (total < max) {
		int ask = max - total < 16 ? max - total : 16;

		n = ibv_poll_cq(cq, ask, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			truth_cqe(cq, &wc[i]);
		total += n;
		if (n < ask)
			break;
	}
	return total;
}

int drain(struct ibv_cq *cq) { return drain_n(cq, 1 << 30); }

void q_gone(struct q *q)
{
	while (oldest(q))
		retire(q, &q->n.send_wr_discarded, &q->n.send_bytes_discarded);
	q->n.recv_wr_discarded += q->n.recv_wr_outstanding;
	q->n.recv_wr_outstanding = 0;
	q->rq_first = q->rq_len = 0;
	q->live = false;
}

void forget_all(void)
{
	mine->first = NULL;
	mine->last = &mine->first;
	made = 0;
}

void truth_of_own(void)
{
	mine = &own;
	own.last = &own.first;
}

static void add(struct counts *to, const struct counts *n)
{
	uint64_t *a = (uint64_t *)to;
	const uint64_t *b = (const uint64_t *)n;

	for (size_t i = 0; i < sizeof(*n) / sizeof(*a); i++)
		a[i] += b[i];
}

void truth_add(const struct dev *d, int port, const struct counts *n)
{
	int i = 0;

	pthread_mutex_lock(&list_lock);
	while (i < gone_len && (gone[i].port != port || strcmp(gone[i].device, d->name)))
		i++;
	CHECK(i < 16);
	if (i == gone_len)
		gone[gone_len++] = (struct gone){ .device = d->name, .port = port };
	add(&gone[i].n, n);
	pthread_mutex_unlock(&list_lock);
}

void q_forget(struct q *q)
{
	struct q **at = &mine->first;

	CHECK(!q->live);
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	if (!q->next)
		mine->last = at;
	truth_add(q->dev, q->port, &q->n);
	free(q->sq);
	free(q->rq);
	free(q);
}

/* ---- the report ---- */

static void print_counts(const struct counts *n)
{
#define P(name) printf(" " #name " %llu", (unsigned long long)n->name)
	P(send_wr_posted); P(send_bytes_posted);
	P(send_wr_completed); P(send_bytes_completed);
	P(send_wr_failed); P(send_bytes_failed);
	P(send_wr_discarded); P(send_bytes_discarded);
	P(send_wr_outstanding); P(send_bytes_outstanding);
	P(send_cqes);
	P(recv_wr_posted);
	P(recv_wr_completed); P(recv_bytes_completed);
	P(recv_wr_failed); P(recv_wr_discarded); P(recv_wr_outstanding);
#undef P
	putchar('\n');
}

void report_qp(const struct q *q)
{
	printf("qp %d dev %s port %d qpn %u kind %s peer_qpn %u", q->index, q->dev->name, q->port, q->qpn, q->kind,
	       q->peer ? q->peer->qpn : 0);
	print_counts(&q->n);
}

void report(void)
{
	struct counts total = { 0 };

	for (struct q *q = mine->first; q; q = q->next) {
		report_qp(q);
		truth_add(q->dev, q->port, &q->n);
	}
	for (int i = 0; i < gone_len; i++) {
		printf("device %s port %d", gone[i].device, gone[i].port);
		print_counts(&gone[i].n);
		add(&total, &gone[i].n);
	}
	printf("total");
	print_counts(&total);
	fflush(stdout);
	gone_len = 0;
}
