/* The environment, read once at first use, and the one mutex. */
#include "nullverbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct nv_config config;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;

void nv_lock(void) { pthread_mutex_lock(&big_lock); }
void nv_unlock(void) { pthread_mutex_unlock(&big_lock); }

/* A fork waits until no thread is inside, so the child finds the objects whole. */
static void child_unlock(void) { pthread_mutex_init(&big_lock, NULL); }

static long number(const char *name, long low, long high, long def)
{
	const char *s = getenv(name);
	char *end;
	long v;

	if (!s || !*s)
		return def;
	v = strtol(s, &end, 0);
	if (*end || v < low || v > high) {
		fprintf(stderr, "nullverbs: %s=%s is not a number from %ld to %ld; using %ld\n", name, s, low, high, def);
		return def;
	}
	return v;
}

static const char *word(const char *name, const char *def)
{
	const char *s = getenv(name);

	return s && *s ? s : def;
}

/* The first three bytes of the GIDs' addresses, as "127.0.0". */
static bool network(uint8_t net[3])
{
	const char *s = word("NULLVERBS_NET", "");
	char more;

	if (!*s)
		return false;
	if (sscanf(s, "%hhu.%hhu.%hhu%c", &net[0], &net[1], &net[2], &more) == 3)
		return true;
	fprintf(stderr, "nullverbs: NULLVERBS_NET=%s is not three numbers with dots between; using the default\n", s);
	return false;
}

static void complain(const char *name, const char *value, const char *choices)
{
	fprintf(stderr, "nullverbs: %s=%s is unknown (%s); using the first\n", name, value, choices);
}

static void load(void)
{
	const char *mode = word("NULLVERBS_MODE", "null");
	const char *abi = word("NULLVERBS_ABI", "now");

	config.model = !strcmp(mode, "model");
	if (!config.model && strcmp(mode, "null"))
		complain("NULLVERBS_MODE", mode, "null, model");
	if (!strcmp(abi, "old"))
		config.abi = NV_ABI_OLD;
	else if (!strcmp(abi, "short"))
		config.abi = NV_ABI_SHORT;
	else if (!strcmp(abi, "future"))
		config.abi = NV_ABI_FUTURE;
	else if (strcmp(abi, "now"))
		complain("NULLVERBS_ABI", abi, "now, old, short, future");
	config.devices = (int)number("NULLVERBS_DEVICES", 0, NV_MAX_DEVICES, 1);
	config.gids = (int)number("NULLVERBS_GIDS", 1, 255, 2);
	config.has_net = network(config.net);
	config.wc_flags = (uint64_t)number("NULLVERBS_WC_FLAGS", 0, 0x7fff, IBV_WC_STANDARD_FLAGS);
	config.qpn_base = (uint32_t)number("NULLVERBS_QPN_BASE", 2, 0xfffffe, 0x012340);
	config.keep_cqes = number("NULLVERBS_KEEP_CQES", 0, 1, 0) != 0;
	pthread_atfork(nv_lock, nv_unlock, child_unlock);
}

const struct nv_config *nv_config(void)
{
	pthread_once(&once, load);
	return &config;
}
