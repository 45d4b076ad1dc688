/* 5: the peer polls the last byte of a message; when it is there, so are all others (C4). */
#include "litmus.h"

static uint32_t length(struct side *s, unsigned r) { return (uint32_t)s->size - (r % 5 ? r % 11 : 0); }

static void source(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		fill(s->buf, s->size, r);
		s->buf[length(s, r) - 1] = 0xc3;
		hear_that(s, r); /* the target's buffer is all zeroes */
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = r, .len = length(s, r), .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, r, IBV_WC_RDMA_WRITE);
		hear_that(s, r);
	}
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, s->size, (struct shape){ 0 });
	for (unsigned r = 1; r <= s->rounds; r++) {
		uint32_t len = length(s, r);
		volatile uint8_t *last = s->buf + len - 1;

		memset(s->buf, 0, s->size);
		say(s, r);
		doing("the last byte");
		while (!*last)
			s->seen.samples++;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		check(s, "the message when its last byte is there", s->buf, len - 1, r);
		MUST(s, *last == 0xc3);
		check_still(s, "behind the message", s->buf + len, s->size - len, 0);
		say(s, r);
	}
	close_side(s);
}

const struct litmus last_byte = { 5, "last_byte", source, target, "early", 12 };
