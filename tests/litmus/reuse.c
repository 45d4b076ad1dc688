/* 13: the QP is reset and connected again, or destroyed and made anew, `--rounds` times. Every tenth time a large WRITE is
 * in flight: of it nothing may arrive once both calls have returned (C11). At the end there are no more file
 * descriptors, threads, kernel QPs or memory than at the first tenth. */
#include "litmus.h"

#include <dirent.h>

#define OLD 0xee
#define NEW 0x77

static size_t length(const struct side *s) { return s->size / 16 < 2 * LARGE ? 2 * LARGE : s->size / 16; }
static bool in_flight(unsigned r) { return r % 10 == 5; }

struct use {
	unsigned fds, threads, qps, kib;
};

static unsigned entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned n = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

/* The QPs of this side's device: the laboratory's other side may be at another step. */
static unsigned kernel_qps(struct side *s)
{
	char command[128], line[256];
	unsigned n = 0;
	FILE *f;

	snprintf(command, sizeof(command), "rdma resource show qp link %s 2>/dev/null", ibv_get_device_name(s->ctx->device));
	f = popen(command, "r");
	while (f && fgets(line, sizeof(line), f))
		n++;
	if (f)
		pclose(f);
	return n;
}

static struct use use_now(struct side *s)
{
	struct use u = { entries("/proc/self/fd"), entries("/proc/self/task"), 0, 0 };
	unsigned long resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%*u %lu", &resident) == 1)
		u.kib = (unsigned)(resident * 4);
	if (f)
		fclose(f);
	u.qps = kernel_qps(s);
	return u;
}

/* Fewer is none: at first, connections that lead nowhere may still be open. */
static bool more_use(const struct use *a, const struct use *b)
{
	return b->fds > a->fds || b->threads > a->threads || b->qps > a->qps || b->kib > a->kib + 2048;
}

/* What leaks stays; a connection that is being closed at this moment does not. */
static void same_use(struct side *s, const struct use *a)
{
	struct use b = use_now(s);

	for (unsigned tenths = 0; more_use(a, &b) && tenths < 50; tenths++) {
		nap_ms(100);
		b = use_now(s);
	}
	if (more_use(a, &b))
		violated(s, "at first %u fds, %u threads, %u QPs, %u KiB, at last %u, %u, %u, %u", a->fds, a->threads, a->qps,
			 a->kib, b.fds, b.threads, b.qps, b.kib);
}

static void again(struct side *s, unsigned r)
{
	if (r % 2) {
		qp_reset(s, &s->main);
	} else {
		qp_drop(s, &s->main);
		qp_make(s, &s->main, s->ip);
	}
	if (is_broken(s, "leak"))
		MUST(s, dup(s->tcp) > 0);
}

static void each(struct side *s, unsigned r, struct use *first)
{
	qp_connect(s, &s->main);
	if (r == (s->rounds + 9) / 10)
		*first = use_now(s);
	meet(s);
	if (r == s->rounds) {
		same_use(s, first);
		meet(s);
	}
}

static void source(struct side *s)
{
	struct use first = { 0 };

	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		fill(s->buf, length(s), r);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = r, .len = length(s), .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, r, IBV_WC_RDMA_WRITE);
		say(s, r);
		hear_that(s, r);
		if (in_flight(r)) {
			memset(s->buf, OLD, s->size);
			POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = r, .len = s->size, .qp = is_broken(s, "late") ? &s->slow : NULL);
		}
		again(s, r);
		none_left(s, s->scq, 0);
		say(s, r);
		each(s, r, &first);
	}
	close_side(s);
}

static void target(struct side *s)
{
	struct use first = { 0 };

	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		hear_that(s, r);
		check(s, "the message", s->buf, length(s), r);
		say(s, r);
		hear_that(s, r);
		again(s, r);
		if (in_flight(r)) {
			memset(s->buf, NEW, s->size);
			nap_ms(150);
			check_still(s, "memory that a reset QP wrote to", s->buf, s->size, NEW);
		}
		each(s, r, &first);
	}
	close_side(s);
}

const struct litmus reuse = { 13, "reuse", source, target, "late leak", 100 };
