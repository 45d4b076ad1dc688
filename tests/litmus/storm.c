/* Not a litmus program: the soak. Eight threads, each with a QP and CQs of its own, send batches of random messages of random
 * lengths and alignments for `seconds`: WRITEs, WRITE_WITH_IMMs, READs and SENDs, signaled or not. Of each batch every byte is
 * checked, and the bytes around it. QPs are made anew now and then, and where soft-RoCE broke a connection: what its batch left
 * behind must not reach the next one's. Both sides draw a batch from the same random numbers. */
#include "litmus.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

#define THREADS 8
#define MOST 6	/* messages of a batch */
#define EDGE 64 /* bytes around each that stay as they are */
#define BYTES(s) (MOST * SLOT(s))
#define SLOT(s) (up8((s)->size) + 2 * EDGE)
#define LAST 0xffff

struct thread {
	struct side s; /* of its own: connection, QP, CQs, random numbers */
	size_t at;     /* of its part of the buffer */
	pthread_t id;
	uint64_t batches, bytes, broken, last_broken;
	bool told, fine; /* target: the source has said how its batch ended, and that it ended well */
};

struct message {
	enum ibv_wr_opcode opcode;
	size_t slot, at;
	uint32_t len;
	bool signaled;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static unsigned resident_kb(void)
{
	unsigned long all = 0, kb = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%lu %lu", &all, &kb) == 2)
		kb *= 4;
	if (f)
		fclose(f);
	return (unsigned)kb;
}

static unsigned draw_batch(struct thread *t, struct message *m)
{
	static const enum ibv_wr_opcode kinds[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						    IBV_WR_RDMA_READ, IBV_WR_SEND };
	uint64_t *r = &t->s.seed;
	unsigned n = 1 + next_random(r) % MOST;

	for (unsigned i = 0; i < n; i++) {
		bool small = next_random(r) % 3 == 0;

		m[i].opcode = kinds[next_random(r) % 5];
		m[i].slot = t->at + i * SLOT(&t->s);
		m[i].len = (uint32_t)(1 + next_random(r) % (small ? 512 : t->s.size));
		m[i].at = m[i].slot + EDGE + next_random(r) % (t->s.size - m[i].len + 1);
		m[i].signaled = next_random(r) % 2;
	}
	return n;
}

static uint64_t number(struct thread *t, unsigned i) { return t->batches * MOST + i; }

/* Receives of a batch: what its messages take, and one for its end. */
static void expect_batch(struct thread *t, const struct message *m, unsigned n)
{
	struct side *s = &t->s;

	for (unsigned i = 0; i < n; i++) {
		memset(s->buf + m[i].slot, 0x5a, SLOT(s));
		if (m[i].opcode == IBV_WR_RDMA_READ)
			fill(s->buf + m[i].at, m[i].len, number(t, i));
		else if (m[i].opcode == IBV_WR_SEND)
			post_recv(s, &s->main, RECV_ID + i, m[i].at, m[i].len);
		else if (m[i].opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			post_recv(s, &s->main, RECV_ID + i, 0, 0);
	}
	post_recv(s, &s->main, RECV_ID + LAST, 0, 0);
}

static void check_message(struct thread *t, const struct message *m, unsigned i)
{
	struct side *s = &t->s;
	size_t before = m->at - m->slot;

	check_still(s, "before a message", s->buf + m->slot, before, 0x5a);
	check(s, "a message", s->buf + m->at, m->len, number(t, i));
	check_still(s, "behind a message", s->buf + m->at + m->len, SLOT(s) - before - m->len, 0x5a);
	t->bytes += SLOT(s);
}

/* The target's next CQE; false: the connection broke. */
static bool arrived(struct thread *t, struct ibv_wc *wc)
{
	struct side *s = &t->s;

	for (unsigned empty = 0; !poll_one(s, s->rcq, wc); empty++) {
		if (!t->told && heard(s)) {
			t->told = true;
			t->fine = hear(s);
		}
		if (t->told && !t->fine)
			return false;
		if (empty < 1000)
			sched_yield();
		else
			usleep(100);
	}
	/* The source knows more. */
	return wc->status != IBV_WC_WR_FLUSH_ERR && !transport_error(wc->status);
}

static bool take_batch(struct thread *t, const struct message *m, unsigned n)
{
	struct side *s = &t->s;
	struct ibv_wc wc;

	t->told = false;
	for (unsigned i = 0; i < n; i++) {
		if (m[i].opcode != IBV_WR_SEND && m[i].opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
			continue;
		if (!arrived(t, &wc))
			return false;
		if (m[i].opcode == IBV_WR_SEND)
			expect_recv(s, &wc, &s->main, RECV_ID + i, IBV_WC_RECV, m[i].len, false, 0);
		else
			expect_recv(s, &wc, &s->main, RECV_ID + i, IBV_WC_RECV_RDMA_WITH_IMM, m[i].len, true, i);
	}
	if (!arrived(t, &wc))
		return false;
	expect_recv(s, &wc, &s->main, RECV_ID + LAST, IBV_WC_RECV, 0, true, LAST);
	for (unsigned i = 0; i < n; i++)
		check_message(t, &m[i], i);
	return true;
}

/* The source's next CQE is that of a send; false: the connection broke. */
static bool sent(struct thread *t, uint64_t id, enum ibv_wc_opcode opcode, uint32_t len)
{
	struct ibv_wc wc = next_cqe(&t->s, t->s.scq);

	if (transport_error(wc.status))
		return false;
	if (wc.status != IBV_WC_SUCCESS)
		printf("storm source: batch %lu, %lu connections broken so far, the last %lu batches ago\n", t->batches, t->broken,
		       t->batches - t->last_broken);
	expect(&t->s, &wc, &t->s.main, id, opcode, len);
	return true;
}

static bool send_batch(struct thread *t, const struct message *m, unsigned n)
{
	struct side *s = &t->s;

	for (unsigned i = 0; i < n; i++) {
		memset(s->buf + m[i].slot, 0x5a, SLOT(s));
		if (m[i].opcode != IBV_WR_RDMA_READ)
			fill(s->buf + m[i].at, m[i].len, number(t, i));
	}
	meet(s);
	for (unsigned i = 0; i < n; i++)
		POST(s, .opcode = m[i].opcode, .id = i, .from = m[i].at, .to = m[i].at, .len = m[i].len, .imm = i,
		     .flags = m[i].signaled ? IBV_SEND_SIGNALED : 0);
	POST(s, .opcode = IBV_WR_SEND_WITH_IMM, .id = LAST, .imm = LAST, .flags = IBV_SEND_SIGNALED);
	for (unsigned i = 0; i < n; i++)
		if (m[i].signaled &&
		    !sent(t, i,
			  m[i].opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ :
			  m[i].opcode == IBV_WR_SEND	  ? IBV_WC_SEND :
							    IBV_WC_RDMA_WRITE,
			  ANY))
			return false;
	if (!sent(t, LAST, IBV_WC_SEND, ANY))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (m[i].opcode == IBV_WR_RDMA_READ)
			check_message(t, &m[i], i);
	return true;
}

/* A new QP; the old one's CQEs are nobody's. */
static void renew(struct side *s)
{
	struct ibv_wc wc;

	qp_drop(s, &s->main);
	while (poll_one(s, s->scq, &wc) || poll_one(s, s->rcq, &wc))
		;
	qp_make(s, &s->main, s->ip);
	qp_connect(s, &s->main);
}

static void *weather(void *arg)
{
	struct thread *t = arg;
	struct side *s = &t->s;
	double end = now_s() + s->seconds;
	struct message m[MOST];

	for (;;) {
		bool goes_on = now_s() < end, fine, taken;
		unsigned n;

		if (s->is_source)
			say(s, goes_on);
		else
			goes_on = hear(s);
		if (!goes_on)
			break;
		n = draw_batch(t, m);
		if (s->is_source) {
			fine = send_batch(t, m, n);
			say(s, fine);
		} else {
			expect_batch(t, m, n);
			meet(s);
			taken = take_batch(t, m, n);
			fine = t->told ? t->fine : hear(s);
			if (fine && !taken)
				violated(s, "the target's connection broke, the source's did not");
		}
		meet(s);
		t->broken += !fine;
		if (!fine)
			t->last_broken = t->batches;
		if (++t->batches % 200 == 0 || !fine)
			renew(s);
	}
	return NULL;
}

static void both(struct side *s)
{
	static struct thread all[THREADS];
	unsigned fds = 0, kb = 0, after = s->seconds < 120 ? s->seconds / 2 : 60;
	uint64_t batches = 0, bytes = 0, broken = 0;

	open_side(s, THREADS * BYTES(s), (struct shape){ 0 });
	for (unsigned i = 0; i < THREADS; i++) {
		struct thread *t = &all[i];

		t->s = *s;
		t->at = i * BYTES(s);
		t->s.seed = s->seed * THREADS + i;
		join(&t->s);
		MUST(s, t->s.scq = ibv_create_cq(s->ctx, 256, NULL, NULL, 0));
		MUST(s, t->s.rcq = ibv_create_cq(s->ctx, 256, NULL, NULL, 0));
		qp_make(&t->s, &t->s.main, s->ip);
		qp_connect(&t->s, &t->s.main);
	}
	for (unsigned i = 0; i < THREADS; i++)
		MUST(s, !pthread_create(&all[i].id, NULL, weather, &all[i]));
	/* What is there after a while stays as it is. */
	for (unsigned i = 0; i < after; i++)
		sleep(1);
	fds = descriptors();
	kb = resident_kb();
	for (unsigned i = 0; i < THREADS; i++) {
		struct thread *t = &all[i];

		MUST(s, !pthread_join(t->id, NULL));
		batches += t->batches;
		bytes += t->bytes;
		broken += t->broken;
	}
	printf("storm %s: %u s, %lu batches, %lu bytes checked, %lu connections broken, descriptors %u then %u, resident KB %u then %u\n",
	       s->is_source ? "source" : "target", s->seconds, batches, bytes, broken, fds, descriptors(), kb, resident_kb());
	meet(s);
	for (unsigned i = 0; i < THREADS; i++) {
		struct side *o = &all[i].s;

		qp_drop(o, &o->main);
		MUST(s, !ibv_destroy_cq(o->scq) && !ibv_destroy_cq(o->rcq));
		close(o->tcp);
	}
	close_side(s);
}

const struct litmus storm = { -1, "storm", both, both, "", 1 };
