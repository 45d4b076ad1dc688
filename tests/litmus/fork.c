/* 16: the app forks while large WRITEs are in flight. The child ends at once, exits with all its handlers, execs, writes to
 * all memory it inherited, or uses verbs of its own with a connection of its own; the parent's transfers go on (C11). */
#include "litmus.h"

#include <pthread.h>
#include <sys/wait.h>

enum { ENDS, EXITS, EXECS, SCRIBBLES, USES_VERBS, VARIANTS };

static void a_message(struct side *s, uint64_t p)
{
	if (s->is_source) {
		fill(s->buf, s->size, p);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = p, .len = s->size, .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, p, IBV_WC_RDMA_WRITE);
		say(s, p);
		hear_that(s, p);
	} else {
		hear_that(s, p);
		check(s, "the message", s->buf, s->size, p);
		say(s, p);
	}
}

/* A life of one's own: what a child does with verbs, and its peer. */
static void *own_life(void *parent)
{
	const struct side *p = parent;
	struct side s = { .prog = p->prog, .is_source = p->is_source, .ip = p->ip, .peer_ip = p->peer_ip,
			  .size = p->size, .tcp_port = p->tcp_port };

	join(&s);
	open_side(&s, s.size, (struct shape){ 0 });
	for (unsigned i = 0; i < 3; i++)
		a_message(&s, 500 + i);
	close_side(&s);
	return NULL;
}

/* By the seed, since it is for the process's life: the kernel keeps what is registered from being copied, or libibverbs
 * does, which takes those pages away from children. */
static bool protects(const struct side *s) { return s->seed % 2 == 0; }

static _Noreturn void child(struct side *s, unsigned variant)
{
	alarm(60);
	switch (variant) {
	case EXITS:
		if (is_broken(s, "closes")) /* as a handler at exit might */
			qp_move(s, &s->main, IBV_QPS_ERR);
		exit(0);
	case EXECS:
		execl("/bin/true", "true", NULL);
		_exit(1);
	case SCRIBBLES:
		if (!protects(s))
			memset(s->buf, 0xee, s->len);
		break;
	case USES_VERBS: own_life(s); break;
	}
	_exit(0);
}

static void source(struct side *s)
{
	if (protects(s))
		MUST(s, !ibv_fork_init());
	open_side(s, 3 * s->size, (struct shape){ 0 });
	for (unsigned r = 0; r < s->rounds; r++) {
		unsigned variant = r % VARIANTS;
		int status;
		pid_t pid;

		for (unsigned i = 0; i < 3; i++)
			fill(s->buf + i * s->size, s->size, 10 * r + i);
		say(s, variant);
		for (unsigned i = 0; i < 2; i++)
			POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = i, .from = i * s->size, .to = i * s->size, .len = s->size,
			     .flags = i ? IBV_SEND_SIGNALED : 0);
		fflush(NULL);
		pid = fork();
		MUST(s, pid >= 0);
		if (!pid)
			child(s, variant);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 2, .from = 2 * s->size, .to = 2 * s->size, .len = s->size,
		     .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, 1, IBV_WC_RDMA_WRITE);
		expect_sent(s, &s->main, 2, IBV_WC_RDMA_WRITE);
		say(s, r);
		hear_that(s, r);
		doing("the child's end");
		MUST(s, waitpid(pid, &status, 0) == pid);
		if (status)
			violated(s, "child %u ended with status %#x", variant, status);
		a_message(s, 400 + r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, 3 * s->size, (struct shape){ 0 });
	for (unsigned r = 0; r < s->rounds; r++) {
		bool second = hear(s) == USES_VERBS;
		pthread_t peer;

		if (second)
			MUST(s, !pthread_create(&peer, NULL, own_life, s));
		hear_that(s, r);
		for (unsigned i = 0; i < 3; i++)
			check(s, "a message over the fork", s->buf + i * s->size, s->size, 10 * r + i);
		say(s, r);
		a_message(s, 400 + r);
		if (second)
			MUST(s, !pthread_join(peer, NULL));
	}
	close_side(s);
}

const struct litmus fork_ = { 16, "fork", source, target, "early closes", 10 };
