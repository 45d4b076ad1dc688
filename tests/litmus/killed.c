/* 15: SIGKILL in mid-transfer. The target dies: the source's first unfinished WR has a real error, all behind it flush in
 * post order, and the source goes on with another peer. The source dies: once the target has destroyed its QP, nothing
 * comes into its memory (C7, C11). */
#include "litmus.h"

#include <signal.h>
#include <sys/wait.h>

#define WRS 32

/* Runs `dies` in a child, which must have ended by SIGKILL. */
static void in_child(struct side *s, void (*dies)(struct side *))
{
	pid_t pid = fork();
	int status;

	MUST(s, pid >= 0);
	if (!pid) {
		alarm(60);
		dies(s);
		_exit(VIOLATED);
	}
	doing("the death of the child");
	MUST(s, waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status)); /* it has said why */
	MUST(s, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void one_message(struct side *s, uint64_t p)
{
	open_side(s, s->size, (struct shape){ 0 });
	if (s->is_source) {
		fill(s->buf, s->size, p);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = p, .len = s->size, .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, p, IBV_WC_RDMA_WRITE);
		say(s, p);
	} else {
		hear_that(s, p);
		check(s, "the message after the death", s->buf, s->size, p);
	}
	close_side(s);
}

static void post_many(struct side *s)
{
	for (unsigned i = 0; i < WRS; i++)
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = i, .len = s->size, .flags = i % 2 ? IBV_SEND_SIGNALED : 0);
}

static void target_dies(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	doing("the first message");
	while (!*(volatile uint8_t *)(s->buf + s->size - 1))
		;
	raise(SIGKILL);
}

static void outlive_target(struct side *s)
{
	unsigned next = 0;
	bool failed = false;

	open_side(s, s->size, (struct shape){ 0 });
	memset(s->buf, 1, s->size);
	post_many(s);
	while (next < WRS) {
		struct ibv_wc wc = next_cqe(s, s->scq);

		if (wc.status == IBV_WC_SUCCESS) {
			MUST(s, !failed);
			next |= 1; /* the even ones are unsignaled */
			expect(s, &wc, &s->main, next, IBV_WC_RDMA_WRITE, ANY);
		} else if (!failed) {
			if (wc.status == IBV_WC_WR_FLUSH_ERR)
				violated(s, "the first error, of wr_id %lu, is a flush", wc.wr_id);
			if (wc.wr_id != next && (wc.wr_id != next + 1 || next % 2))
				violated(s, "the first error is that of wr_id %lu; %u was next", wc.wr_id, next);
			next = wc.wr_id;
			failed = true;
		} else {
			expect_fails(s, &wc, &s->main, next, IBV_WC_WR_FLUSH_ERR);
		}
		next++;
	}
	MUST(s, failed && qp_state(s, &s->main) == IBV_QPS_ERR);
	none_left(s, s->scq, 20);
	abandon_side(s);
}

static void source_dies(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	memset(s->buf, 1, s->size);
	post_many(s);
	expect_sent(s, &s->main, 1, IBV_WC_RDMA_WRITE);
	if (is_broken(s, "late")) /* over a QP that nobody destroys at the target */
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .len = s->size, .qp = &s->slow);
	raise(SIGKILL);
}

static void outlive_source(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	hear_that(s, 2);
	qp_drop(s, &s->main);
	memset(s->buf, 0x77, s->size);
	nap_ms(200);
	check_still(s, "memory whose QP is destroyed", s->buf, s->size, 0x77);
	abandon_side(s);
}

static void source(struct side *s)
{
	for (unsigned r = 1; r <= s->rounds; r++) {
		outlive_target(s);
		one_message(s, 10 * r + 1);
		in_child(s, source_dies);
		say(s, 2);
		one_message(s, 10 * r + 2);
	}
}

static void target(struct side *s)
{
	for (unsigned r = 1; r <= s->rounds; r++) {
		in_child(s, target_dies);
		one_message(s, 10 * r + 1);
		outlive_source(s);
		one_message(s, 10 * r + 2);
	}
}

const struct litmus killed = { 15, "killed", source, target, "late status", 2 };
