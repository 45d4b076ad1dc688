/* The command line, the clock that ends what hangs, and the list of programs.
 *
 *   litmus NAME --ip OWN [--slow OWN2]              the target: listens
 *   litmus NAME --ip OWN [--slow OWN2] --peer IP    the source: connects
 *
 * --slow is the address over which the wrong engine sends too, for `--broken KIND`. Exit codes: 0 the contract was kept,
 * 1 it was violated (or the program hung), 2 the transport broke, 3 the peer went away. */
#include "litmus.h"

#include <getopt.h>
#include <signal.h>

static const struct litmus *const all[] = {
	&placed, &duplex, &flag, &atomic_, &send_, &imm, &last_byte, &seqlock, &read_, &overlap, &unsignaled, &sleeper, &error_,
	&rkey, &reuse, &killed, &fork_, &threads, &srq, &shapes, &random_, &flood, &storm,
};
#define PROGRAMS (sizeof(all) / sizeof(*all))

static const char *name, *waits_for = "nothing yet";

void doing(const char *what) { waits_for = what; }

static void hung(int sig)
{
	const char *parts[] = { name, ": violated: hung, waiting for ", waits_for, "\n" };

	(void)sig;
	for (size_t i = 0; i < 4; i++)
		if (write(2, parts[i], strlen(parts[i])) < 0)
			break;
	_exit(VIOLATED);
}

static int list(void)
{
	for (size_t i = 0; i < PROGRAMS; i++)
		if (all[i]->number >= 0)
			printf("%d %s %s\n", all[i]->number, all[i]->name, all[i]->broken);
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: litmus NAME --ip IP [--slow IP] [--peer IP] [--size BYTES] [--rounds N] [--seed N] [--full WRS] [--cap WRS]\n"
			"              [--total BYTES] [--notify] [--extended] [--lossy] [--port TCP] [--limit SECONDS] [--broken KIND]\n"
			"       litmus flood --ip IP [--peer IP] [--size BYTES] [--rounds N] [--depth N] [--read] [--warm MS] [--every MS]\n"
			"       litmus storm --ip IP [--peer IP] [--size BYTES] [--seconds N] [--seed N]\n"
			"       litmus list\n");
	return 64;
}

static void options(struct side *s, int argc, char **argv)
{
	static const struct option known[] = {
		{ "ip", 1, 0, 'i' },	 { "slow", 1, 0, 'w' },	  { "peer", 1, 0, 'p' },   { "size", 1, 0, 's' },
		{ "rounds", 1, 0, 'r' }, { "seed", 1, 0, 'e' },	  { "full", 1, 0, 'f' },   { "limit", 1, 0, 'l' },
		{ "total", 1, 0, 't' },	 { "broken", 1, 0, 'b' }, { "notify", 0, 0, 'n' }, { "extended", 0, 0, 'x' },
		{ "cap", 1, 0, 'c' },	 { "lossy", 0, 0, 'y' },  { "depth", 1, 0, 'd' },
		{ "warm", 1, 0, 'm' },	 { "every", 1, 0, 'v' },  { "read", 0, 0, 'R' },
		{ "port", 1, 0, 'P' },	 { "seconds", 1, 0, 'S' }, { 0 },
	};
	unsigned limit = 90;

	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
		switch (c) {
		case 'i': s->ip = optarg; break;
		case 'w': s->slow_ip = optarg; break;
		case 'p': s->peer_ip = optarg; break;
		case 's': s->size = strtoul(optarg, NULL, 0); break;
		case 'r': s->rounds = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'e': s->seed = strtoul(optarg, NULL, 0); break;
		case 'f': s->full = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'c': s->cap = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 't': s->total = strtoul(optarg, NULL, 0); break;
		case 'l': limit = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'b': s->broken = optarg; break;
		case 'n': s->notify = true; break;
		case 'x': s->extended = true; break;
		case 'y': s->lossy = true; break;
		case 'd': s->depth = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'm': s->warm = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'v': s->every = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'R': s->reads = true; break;
		case 'S': s->seconds = (unsigned)strtoul(optarg, NULL, 0); break;
		case 'P': s->tcp_port = (unsigned)strtoul(optarg, NULL, 0); break;
		default: exit(usage());
		}
	s->is_source = s->peer_ip;
	if (!s->rounds)
		s->rounds = s->prog->rounds;
	if (!s->ip || s->size < 2 * LARGE || s->size % 64 || !s->rounds || !s->depth || (s->broken && !s->slow_ip))
		exit(usage());
	signal(SIGALRM, hung);
	alarm(limit);
}

int main(int argc, char **argv)
{
	struct side s = { .size = 1 << 20, .seed = 1, .depth = 1, .tcp_port = 18600, .seconds = 60 };

	if (argc == 2 && !strcmp(argv[1], "list"))
		return list();
	for (size_t i = 0; argc > 1 && i < PROGRAMS; i++)
		if (!strcmp(argv[1], all[i]->name))
			s.prog = all[i];
	if (!s.prog)
		return usage();
	name = s.prog->name;
	options(&s, argc - 1, argv + 1);
	join(&s);
	(s.is_source ? s.prog->source : s.prog->target)(&s);
	printf("ok %s %s: %u rounds of %zu bytes, %lu bytes and %u CQEs checked, %u samples\n", name,
	       s.is_source ? "source" : "target", s.rounds, s.size, s.seen.bytes, s.seen.cqes, s.seen.samples);
	return KEPT;
}
