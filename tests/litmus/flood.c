/* Not a litmus program: it measures. The source keeps `depth` messages of `size` bytes in flight, each to a place of its own,
 * and says how fast they complete, and how long one takes from its post to its completion.
 *
 * Before it starts it waits `warm` ms, in which a library between it and the device may prepare. With `every` it posts a
 * message each so many ms instead: its completion times are what counts then. */
#include "litmus.h"

#include <sys/resource.h>
#include <time.h>

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void post(struct side *s, unsigned i)
{
	size_t at = i % s->depth * up8(s->size);

	POST(s, .opcode = s->reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .id = i, .from = at, .to = at,
	     .len = (uint32_t)s->size, .flags = IBV_SEND_SIGNALED);
}

static void source(struct side *s)
{
	unsigned posted = 0, done = 0;
	double *at, *took, start, cpu;

	open_side(s, s->depth * up8(s->size), (struct shape){ .sq = s->depth });
	at = calloc(s->rounds, sizeof(*at));
	took = calloc(s->rounds, sizeof(*took));
	MUST(s, at && took);
	nap_ms(s->warm);
	meet(s);
	start = now_s();
	cpu = cpu_s();
	while (done < s->rounds) {
		struct ibv_wc wc;

		while (posted < s->rounds && posted - done < s->depth && now_s() >= start + 1e-3 * s->every * posted) {
			at[posted] = now_s();
			post(s, posted++);
		}
		if (posted == done) {
			nap_ms(1);
			continue;
		}
		if (!poll_one(s, s->scq, &wc)) {
			/* Soft-RoCE needs the processor more than this loop does. */
			usleep(100);
			continue;
		}
		expect(s, &wc, &s->main, done, s->reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE, ANY);
		took[done] = now_s() - at[done];
		done++;
	}
	start = now_s() - start;
	cpu = cpu_s() - cpu;
	qsort(took, s->rounds, sizeof(*took), by_value);
	printf("flood: %zu bytes x %u, Mb/s %.2f, median_ms %.3f, max_ms %.3f, cpu_ns_per_byte %.4f\n", s->size, s->rounds,
	       8e-6 * (double)s->size * s->rounds / start, 1e3 * took[s->rounds / 2], 1e3 * took[s->rounds - 1],
	       1e9 * cpu / ((double)s->size * s->rounds));
	meet(s);
	close_side(s);
}

static void target(struct side *s)
{
	open_side(s, s->depth * up8(s->size), (struct shape){ 0 });
	meet(s);
	meet(s);
	close_side(s);
}

const struct litmus flood = { -1, "flood", source, target, "", 10 };
