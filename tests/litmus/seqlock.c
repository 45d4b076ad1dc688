/* 6: a writer makes a sequence number odd, WRITEs a large message and makes the number even; a reader that finds the same
 * even number before and after reading has a whole message (C5, strict only). It samples from beginning to end. */
#include "litmus.h"

#define NUMBER(s) ((s)->size + 64)

static void source(struct side *s)
{
	open_side(s, s->size + 192, (struct shape){ 0 });
	for (uint64_t r = 1; r <= s->rounds; r++) {
		uint64_t odd = 2 * r - 1, even = 2 * r;

		fill(s->buf, s->size, even);
		nap_ms(5); /* in which the last message is read */
		memcpy(s->buf + NUMBER(s), &odd, 8);
		memcpy(s->buf + NUMBER(s) + 64, &even, 8);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 3 * r, .from = NUMBER(s), .to = NUMBER(s), .len = 8);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 3 * r + 1, .len = s->size);
		POST(s, .opcode = IBV_WR_RDMA_WRITE, .id = 3 * r + 2, .from = NUMBER(s) + 64, .to = NUMBER(s), .len = 8,
		     .flags = IBV_SEND_SIGNALED);
		expect_sent(s, &s->main, 3 * r + 2, IBV_WC_RDMA_WRITE);
		hear_that(s, even); /* it has been read */
	}
	close_side(s);
}

/* One reading: the whole message, or, seven times of eight, a few places of it, which is quick enough to fall between two
 * packets. False if the number was another one before or after. */
static bool reading(struct side *s, uint8_t *copy, const uint8_t *message, uint64_t number, uint64_t turn)
{
	size_t part = 256, parts = turn % 8 ? 16 : s->size / part;

	if (peek(s->buf + NUMBER(s)) != number)
		return false;
	for (size_t i = 0; i < parts; i++) {
		size_t at = i * (s->size - part) / (parts - 1) & ~(size_t)7;

		memcpy(copy, s->buf + at, part);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (memcmp(copy, message + at, part) && peek(s->buf + NUMBER(s)) == number) {
			size_t wrong = 0;

			while (copy[wrong] == message[at + wrong])
				wrong++;
			violated(s, "number %lu before and after, but byte %zu of %zu is not that message's", number,
				 at + wrong, s->size);
		}
	}
	return peek(s->buf + NUMBER(s)) == number;
}

static void target(struct side *s)
{
	uint64_t last = 0, turn = 0;
	uint8_t *copy = malloc(256), *message = calloc(1, s->size);

	MUST(s, s->rounds < 128); /* of the number only the low byte changes: emulation may store it byte by byte */
	open_side(s, s->size + 192, (struct shape){ 0 });
	doing("an even number");
	while (last < 2ull * s->rounds) {
		uint64_t now = peek(s->buf + NUMBER(s));

		if (!(now & 1) && now != last) {
			if (now != last + 2)
				violated(s, "number %lu follows %lu", now, last);
			fill(message, s->size, now);
			for (unsigned i = 0; i < 2; i++) /* whole, and places */
				MUST(s, reading(s, copy, message, now, 8 + i));
			last = now;
			say(s, now);
		}
		s->seen.samples += reading(s, copy, message, last, turn++);
	}
	free(copy);
	free(message);
	close_side(s);
}

const struct litmus seqlock = { 6, "seqlock", source, target, "early ahead", 12 };
