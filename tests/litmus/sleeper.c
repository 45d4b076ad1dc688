/* 10: neither side polls unless an event woke it; every other round the target is woken by solicited messages only. Then,
 * while nothing moves, neither uses the processor (C9). */
#include "litmus.h"

#include <poll.h>
#include <sys/resource.h>

#define RUN 4
#define WAKE_MS 10000

static struct ibv_wc woken(struct side *s, struct ibv_cq *cq, bool *awake, bool solicited_only)
{
	struct ibv_wc wc;
	void *context;

	for (;;) {
		struct pollfd p = { .fd = s->channel->fd, .events = POLLIN };

		if (*awake && poll_one(s, cq, &wc)) {
			s->seen.cqes++;
			return wc;
		}
		*awake = true;
		doing("an event");
		if (poll(&p, 1, WAKE_MS) != 1)
			violated(s, "nobody woke it in %d ms", WAKE_MS);
		MUST(s, !ibv_get_cq_event(s->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		MUST(s, !ibv_req_notify_cq(cq, solicited_only));
	}
}

static double busy_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static void stay_idle(struct side *s)
{
	double before;

	meet(s);
	nap_ms(200);
	before = busy_ms();
	nap_ms(1000);
	if (busy_ms() - before > 100)
		violated(s, "idle for 1000 ms, it used %.0f ms of the processor", busy_ms() - before);
	meet(s);
}

static void source(struct side *s)
{
	bool awake = false;

	open_side(s, RUN * s->size, (struct shape){ .events = true });
	for (unsigned r = 1; r <= s->rounds; r++) {
		for (unsigned m = 0; m < RUN; m++)
			fill(s->buf + m * s->size, s->size, RUN * r + m);
		if (!awake)
			MUST(s, !ibv_req_notify_cq(s->scq, 0));
		hear_that(s, r);
		for (unsigned m = 0; m < RUN; m++)
			POST(s, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .id = RUN * r + m, .from = m * s->size, .to = m * s->size,
			     .len = s->size, .imm = m, .flags = IBV_SEND_SIGNALED | (m == RUN - 1 ? IBV_SEND_SOLICITED : 0));
		for (unsigned m = 0; m < RUN; m++) {
			struct ibv_wc wc = woken(s, s->scq, &awake, false);

			expect(s, &wc, &s->main, RUN * r + m, IBV_WC_RDMA_WRITE, ANY);
		}
		hear_that(s, r);
	}
	stay_idle(s);
	close_side(s);
}

static void target(struct side *s)
{
	bool awake = false;

	open_side(s, RUN * s->size, (struct shape){ .events = true });
	for (unsigned r = 1; r <= s->rounds; r++) {
		for (unsigned m = 0; m < RUN; m++)
			post_recv(s, &s->main, RECV_ID + m, 0, 0);
		/* What stays armed from the last round may be armed for more, never for less. */
		MUST(s, !ibv_req_notify_cq(s->rcq, r % 2));
		awake = false;
		say(s, r);
		for (unsigned m = 0; m < RUN; m++) {
			struct ibv_wc wc = woken(s, s->rcq, &awake, r % 2);

			check(s, "the message that woke it", s->buf + m * s->size, s->size, RUN * r + m);
			expect_recv(s, &wc, &s->main, RECV_ID + m, IBV_WC_RECV_RDMA_WITH_IMM, s->size, true, m);
		}
		say(s, r);
	}
	stay_idle(s);
	close_side(s);
}

const struct litmus sleeper = { 10, "sleeper", source, target, "early unsolicited", 4 };
