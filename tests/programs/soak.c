/* Threads that make, use and destroy CQs, QPs and SRQs as fast as they can, and now and then two threads on one QP.
 *
 *   soak [--seconds S | --millis MS] [--threads N] [--seed N] [--wild]
 *
 * Private work (soak_private.c) has objects of the thread alone, and an exact truth for each QP. Shared work
 * (soak_shared.c) is that of two threads on one CQ and its QPs. --wild: there, one polls while the other destroys a QP;
 * whether a CQE still counts is then undecided, and so is the truth. Ends with everything destroyed, the totals, and a
 * line `soak ...` with what was made, and the memory in use.
 */
#include "soak.h"

#include <pthread.h>
#include <time.h>

#define MAX 32

struct made made;

static struct dev *devs[2];
static struct couple *couples[MAX / 2];
static long long until_ms;
static long seed;

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

uint32_t below(struct worker *w, uint32_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 16) % n);
}

/* Most QPs take the number of one that is gone: else the numbers, and tables of them, would grow all the time. A number that
 * another thread has asked for meanwhile is refused: again. */
struct ibv_qp *make_qp(struct worker *w, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp = NULL;

	for (int tries = 0; !qp && tries < 1000; tries++) {
		if (w->numbers && below(w, 16))
			CHECK(!script_reuse_qpn(w->number[--w->numbers]));
		qp = ibv_create_qp(w->dev->pd, init);
		CHECK(qp || errno == EBUSY);
	}
	CHECK(qp);
	__atomic_add_fetch(&made.qps, 1, __ATOMIC_RELAXED);
	return qp;
}

void number_free(struct worker *w, uint32_t qpn)
{
	if (w->numbers < sizeof(w->number) / sizeof(*w->number))
		w->number[w->numbers++] = qpn;
}

struct ibv_cq *make_cq(struct worker *w, int cqe)
{
	__atomic_add_fetch(&made.cqs, 1, __ATOMIC_RELAXED);
	return cq_make(w->dev, cqe);
}

static void *work(void *arg)
{
	long me = (long)(intptr_t)arg;
	struct worker w = {
		.dev = devs[me / 2 % 2],
		.random = 88172645463325252ull + (uint64_t)(seed * 1000 + me) * 0x9e3779b97f4a7c15ull,
	};

	truth_of_own();
	while (now_ms() < until_ms) {
		private_life(&w);
		shared_work(&w, couples[me / 2]);
	}
	return NULL;
}

static unsigned long rss_kb(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%*u %lu", &pages) == 1);
	fclose(f);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

int main(int argc, char **argv)
{
	long threads = arg_number(argc, argv, "threads", 8);
	long ms = arg_number(argc, argv, "millis", arg_number(argc, argv, "seconds", 2) * 1000);
	bool wild = arg_flag(argc, argv, "wild");
	pthread_t t[MAX];

	seed = arg_number(argc, argv, "seed", 1);
	CHECK(threads >= 2 && threads <= MAX && threads % 2 == 0 && ms > 0);
	want_model();
	want_devices(2);
	for (int i = 0; i < 2; i++)
		devs[i] = dev_open(i);
	for (long i = 0; i < threads / 2; i++)
		couples[i] = couple_make(devs[i % 2], wild);
	until_ms = now_ms() + ms;
	for (long i = 0; i < threads; i++)
		CHECK(!pthread_create(&t[i], NULL, work, (void *)(intptr_t)i));
	for (long i = 0; i < threads; i++)
		CHECK(!pthread_join(t[i], NULL));
	made.rss_kb = rss_kb();
	for (long i = 0; i < threads / 2; i++)
		couple_end(couples[i]);
	for (int i = 0; i < 2; i++)
		dev_close(devs[i]);
	report();
	printf("soak qps %lu cqs %lu srqs %lu resets %lu errors %lu rss_kb %lu\n", made.qps, made.cqs, made.srqs,
	       made.resets, made.errors, made.rss_kb);
	return 0;
}
