/* Verdicts, the TCP connection, and bytes that say where they belong. */
#include "litmus.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <time.h>

#define PERIOD 65521 /* prime, so that no multiple of a chunk's size is one */
#define GUARD_BYTE 0xa5

/* ---- verdicts ---- */

static _Noreturn void verdict(struct side *s, int code, const char *what, const char *format, va_list ap)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "%s %s: %s", s->prog->name, s->is_source ? "source" : "target", what);

	vsnprintf(text + n, sizeof(text) - (size_t)n, format, ap);
	fprintf(stderr, "%s\n", text);
	fflush(stderr);
	_exit(code); /* no destructor may wait for a peer that is as wrong */
}

void violated(struct side *s, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	verdict(s, VIOLATED, "violated: ", format, ap);
}

void broke(struct side *s, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	verdict(s, BROKE, "the transport broke: ", format, ap);
}

static _Noreturn void alone(struct side *s, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	verdict(s, ALONE, "the peer went away: ", format, ap);
}

/* ---- the TCP connection ---- */

static struct sockaddr_in address(struct side *s, const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	MUST(s, inet_pton(AF_INET, ip, &a.sin_addr) == 1);
	return a;
}

static int listener(struct side *s)
{
	struct sockaddr_in here = address(s, s->ip, (int)s->tcp_port);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	MUST(s, l >= 0 && !setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	MUST(s, !bind(l, (struct sockaddr *)&here, sizeof(here)) && !listen(l, 4));
	return l;
}

static int connected(struct side *s)
{
	struct sockaddr_in here = address(s, s->ip, 0), there = address(s, s->peer_ip, (int)s->tcp_port);

	for (;;) {
		int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		MUST(s, c >= 0 && !bind(c, (struct sockaddr *)&here, sizeof(here)));
		if (!connect(c, (struct sockaddr *)&there, sizeof(there)))
			return c;
		MUST(s, errno == ECONNREFUSED || errno == ETIMEDOUT);
		close(c);
		nap_ms(20);
	}
}

/* The first connection, or, of a process that makes one of its own, another. */
void join(struct side *s)
{
	static int l = -1;
	int on = 1;

	doing("the TCP connection");
	if (s->is_source) {
		s->tcp = connected(s);
	} else {
		if (l < 0)
			l = listener(s);
		s->tcp = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		MUST(s, s->tcp >= 0);
	}
	setsockopt(s->tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void put(struct side *s, const void *from, size_t n)
{
	if (send(s->tcp, from, n, MSG_NOSIGNAL) != (ssize_t)n)
		alone(s, "nothing can be said");
}

static void get(struct side *s, void *to, size_t n)
{
	if (recv(s->tcp, to, n, MSG_WAITALL) != (ssize_t)n)
		alone(s, "nothing can be heard");
}

void say(struct side *s, uint64_t v) { put(s, &v, sizeof(v)); }

uint64_t hear(struct side *s)
{
	uint64_t v;

	doing("the peer's word");
	get(s, &v, sizeof(v));
	return v;
}

bool heard(struct side *s)
{
	struct pollfd p = { .fd = s->tcp, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

void hear_that(struct side *s, uint64_t want)
{
	uint64_t got = hear(s);

	if (got != want)
		violated(s, "the peer said %#lx, not %#lx", got, want);
}

void meet(struct side *s)
{
	say(s, 0x6d656574);
	hear_that(s, 0x6d656574);
}

void swap(struct side *s, const void *mine, void *theirs, size_t n)
{
	put(s, mine, n);
	doing("the peer's addresses");
	get(s, theirs, n);
}

void nap_ms(unsigned ms) { nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL); }

/* ---- bytes ---- */

uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static const uint8_t *table(void)
{
	static uint8_t t[PERIOD];
	static bool made;
	uint64_t state = 1;

	for (size_t i = 0; !made && i < PERIOD; i++)
		t[i] = (uint8_t)next_random(&state);
	made = true;
	return t;
}

static size_t start(uint64_t p, size_t i) { return (p * 7919 + i) % PERIOD; }

uint8_t pattern(uint64_t p, size_t i) { return table()[start(p, i)]; }

void fill_from(void *to, size_t len, uint64_t p, size_t first)
{
	for (size_t i = 0, n; i < len; i += n) {
		size_t at = start(p, first + i);

		n = PERIOD - at < len - i ? PERIOD - at : len - i;
		memcpy((uint8_t *)to + i, table() + at, n);
	}
}

size_t differs_from(const void *at_, size_t len, uint64_t p, size_t first)
{
	const uint8_t *at = at_;

	for (size_t i = 0, n; i < len; i += n) {
		size_t from = start(p, first + i);

		n = PERIOD - from < len - i ? PERIOD - from : len - i;
		if (memcmp(at + i, table() + from, n))
			for (;; i++)
				if (at[i] != pattern(p, first + i))
					return i;
	}
	return len;
}

void fill(void *to, size_t len, uint64_t p) { fill_from(to, len, p, 0); }
size_t differs(const void *at, size_t len, uint64_t p) { return differs_from(at, len, p, 0); }

void check(struct side *s, const char *what, const void *at, size_t len, uint64_t p)
{
	const uint8_t *b = at;
	size_t first = differs(at, len, p), last = first, wrong = 0;

	s->seen.bytes += len;
	if (first == len)
		return;
	for (size_t i = first; i < len; i++)
		if (b[i] != pattern(p, i)) {
			wrong++;
			last = i;
		}
	/* What comes too late may have come in the meantime. */
	violated(s, "%s: from byte %zu of %zu it was not pattern %lu (now %zu bytes are not, up to %zu)", what, first, len, p,
		 wrong, last);
}

void check_still(struct side *s, const char *what, const void *at, size_t len, uint8_t byte)
{
	const uint8_t *b = at;

	s->seen.bytes += len;
	if (len && (b[0] != byte || memcmp(b, b + 1, len - 1)))
		for (size_t i = 0; i < len; i++)
			if (b[i] != byte)
				violated(s, "%s: byte %zu of %zu was written: %#x, not %#x", what, i, len, b[i], byte);
}

void check_guards(struct side *s)
{
	check_still(s, "the guard before the buffer", s->buf - 4096, 4096, GUARD_BYTE);
	check_still(s, "the guard behind the buffer", s->buf + s->len, 4096, GUARD_BYTE);
}
