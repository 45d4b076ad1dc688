/* The microbenchmark behind `make bench`: what one WR costs from post to poll, over a device that does nothing.
 *
 *   bench_verbs [--case NAME] [--qps N] [--threads T] [--reps R] [--iters I] [--bytes B] [--pair]
 *
 *   single   loop: post one signaled WRITE, poll one CQE                 ns per WR
 *   chain    loop: post a chain of 16, the last signaled, poll one CQE   ns per WR
 *   robin    as single, but each WR goes to the next of all N QPs        ns per WR
 *   empty    loop: poll an empty CQ                                      ns per poll
 *   all      single, chain, robin, empty one after the other
 *
 * With --qps N, N QPs exist (single and chain use only one of them per thread). With --threads T each thread has its
 * own QPs and CQ and is pinned to its own CPU. A repetition is --iters WRs (or polls); min and median are over the
 * --reps repetitions of all threads. `allocs` counts malloc, calloc, realloc and aligned allocations inside the
 * measured loops, whoever makes them. Without --iters the count is chosen so that a repetition takes about 0.2 ms:
 * short enough that among a thousand some are undisturbed, which is what the minimum is for. A round robin goes on
 * from one repetition to the next.
 */
#include "bench_allocs.h"

#include <infiniband/verbs.h>

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHAIN 16
#define MAX_THREADS 16
#define REP_NS 2e5

/* ---- setting up ---- */

struct options {
	const char *name;
	long qps, threads, reps, iters;
	uint32_t bytes;
	bool pair;
};

static struct options opt = { "single", 1, 1, 1001, 0, 8, false };
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char *buffer;

struct worker {
	pthread_t thread;
	int cpu;
	struct ibv_cq *cq;
	struct ibv_qp **qp;
	long qps;
	long next; /* of the round robin */
	double *ns;
	void (*loop)(struct worker *, long);
	long iters, per_iter;
	pthread_barrier_t *barrier;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_verbs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		die("no device");
	ctx = ibv_open_device(list[0]);
	if (!ctx)
		die("ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	buffer = calloc(1, 1 << 20);
	if (!pd || !buffer)
		die("ibv_alloc_pd");
	mr = ibv_reg_mr(pd, buffer, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		die("ibv_reg_mr");
}

static struct ibv_qp *connected_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if (!qp)
		die("ibv_create_qp");
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("modify to INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = qp->qp_num;
	a.ah_attr.port_num = 1;
	a.ah_attr.is_global = 1;
	if (ibv_query_gid(ctx, 1, 1, &a.ah_attr.grh.dgid))
		die("ibv_query_gid");
	a.ah_attr.grh.sgid_index = 1;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("modify to RTR");
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC))
		die("modify to RTS");
	return qp;
}

/* ---- the loops; each iteration is what a program does in one round ---- */

static struct ibv_send_wr wr_of(struct ibv_sge *sge, uint64_t id, unsigned flags)
{
	return (struct ibv_send_wr){
		.wr_id = id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
		.wr.rdma = { (uintptr_t)buffer, mr->rkey },
	};
}

static inline void round_trip(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_send_wr *wr, uint64_t want)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(qp, wr, &bad))
		die("ibv_post_send");
	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (n == 0);
	if (n < 0 || wc.status != IBV_WC_SUCCESS || wc.wr_id != want || wc.qp_num != qp->qp_num) {
		fprintf(stderr, "bench_verbs: a completion that does not belong to its WR\n");
		exit(1);
	}
}

static void loop_single(struct worker *w, long iters)
{
	struct ibv_sge sge = { (uintptr_t)buffer, opt.bytes, mr->lkey };
	struct ibv_send_wr wr = wr_of(&sge, 0, IBV_SEND_SIGNALED);

	for (long i = 0; i < iters; i++) {
		wr.wr_id = (uint64_t)i;
		round_trip(w->qp[0], w->cq, &wr, (uint64_t)i);
	}
}

static void loop_robin(struct worker *w, long iters)
{
	struct ibv_sge sge = { (uintptr_t)buffer, opt.bytes, mr->lkey };
	struct ibv_send_wr wr = wr_of(&sge, 0, IBV_SEND_SIGNALED);

	for (long i = 0; i < iters; i++) {
		wr.wr_id = (uint64_t)i;
		round_trip(w->qp[w->next], w->cq, &wr, (uint64_t)i);
		if (++w->next == w->qps)
			w->next = 0;
	}
}

static void loop_chain(struct worker *w, long iters)
{
	struct ibv_sge sge = { (uintptr_t)buffer, opt.bytes, mr->lkey };
	struct ibv_send_wr wr[CHAIN];

	for (int k = 0; k < CHAIN; k++) {
		wr[k] = wr_of(&sge, (uint64_t)k, k == CHAIN - 1 ? IBV_SEND_SIGNALED : 0);
		wr[k].next = k == CHAIN - 1 ? NULL : &wr[k + 1];
	}
	for (long i = 0; i < iters; i++) {
		wr[CHAIN - 1].wr_id = (uint64_t)i;
		round_trip(w->qp[0], w->cq, wr, (uint64_t)i);
	}
}

static void loop_empty(struct worker *w, long iters)
{
	struct ibv_wc wc;

	for (long i = 0; i < iters; i++)
		if (ibv_poll_cq(w->cq, 1, &wc)) {
			fprintf(stderr, "bench_verbs: an empty CQ is not empty\n");
			exit(1);
		}
}

/* ---- measuring ---- */

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(w->cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	/* warm up: every QP has its memory before it is measured */
	w->loop(w, w->iters > 2 * w->qps ? w->iters : 2 * w->qps);
	for (long r = 0; r < opt.reps; r++) {
		double t;

		if (opt.threads > 1)
			pthread_barrier_wait(w->barrier);
		t = now_ns();
		w->loop(w, w->iters);
		w->ns[r] = (now_ns() - t) / (double)(w->iters * w->per_iter);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(struct worker *all, const char *name, void (*loop)(struct worker *, long), long per_iter)
{
	static pthread_barrier_t barrier;
	static double ns[MAX_THREADS * 100000];
	long n = opt.reps * opt.threads, iters = opt.iters;
	unsigned long allocs;
	double t;

	if (!iters) {
		t = now_ns();
		loop(&all[0], 2000);
		iters = (long)(REP_NS / ((now_ns() - t) / 2000)) + 1;
	}
	pthread_barrier_init(&barrier, NULL, (unsigned)opt.threads);
	for (long i = 0; i < opt.threads; i++) {
		all[i].loop = loop;
		all[i].iters = iters;
		all[i].per_iter = per_iter;
		all[i].barrier = &barrier;
		all[i].ns = ns + i * opt.reps;
	}
	/* thread stacks are allocated before counting starts, and one thread needs none */
	if (opt.threads == 1) {
		count_allocs(true);
		work(&all[0]);
	} else {
		for (long i = 0; i < opt.threads; i++)
			if (pthread_create(&all[i].thread, NULL, work, &all[i]))
				die("pthread_create");
		count_allocs(true);
		for (long i = 0; i < opt.threads; i++)
			pthread_join(all[i].thread, NULL);
	}
	allocs = count_allocs(false);
	qsort(ns, (size_t)n, sizeof(*ns), by_value);
	if (opt.pair) {
		printf("ns_per_wr_min %.3f ns_per_wr_median %.3f allocs %lu\n", ns[0], ns[n / 2], allocs);
		return;
	}
	printf("case %s\nqps %ld\nthreads %ld\nbytes %u\nreps %ld\niters %ld\n", name, opt.qps, opt.threads, opt.bytes,
	       opt.reps, iters);
	printf("ns_per_wr_min %.3f\nns_per_wr_median %.3f\nallocs %lu\n\n", ns[0], ns[n / 2], allocs);
	fflush(stdout);
}

static int nth_cpu(long n)
{
	cpu_set_t set;
	int found = -1;

	sched_getaffinity(0, sizeof(set), &set);
	n %= CPU_COUNT(&set);
	for (int c = 0; c < CPU_SETSIZE && n >= 0; c++)
		if (CPU_ISSET(c, &set))
			found = c, n--;
	return found;
}

static void make_worker(struct worker *w, long i)
{
	memset(w, 0, sizeof(*w));
	w->cpu = nth_cpu(i);
	w->cq = ibv_create_cq(ctx, 1024, NULL, NULL, 0);
	w->qps = opt.qps / opt.threads;
	if (w->qps < 1)
		w->qps = 1;
	w->qp = calloc((size_t)w->qps, sizeof(*w->qp));
	if (!w->cq || !w->qp)
		die("ibv_create_cq");
	for (long q = 0; q < w->qps; q++)
		w->qp[q] = connected_qp(w->cq);
}

static long natural(const char *s)
{
	char *end;
	long v = strtol(s, &end, 0);

	if (*end || v < 1) {
		fprintf(stderr, "bench_verbs: %s is not a positive number\n", s);
		exit(2);
	}
	return v;
}

static void read_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "case", 1, 0, 'c' },	{ "qps", 1, 0, 'q' },	{ "threads", 1, 0, 't' }, { "reps", 1, 0, 'r' },
		{ "iters", 1, 0, 'i' }, { "bytes", 1, 0, 'b' }, { "pair", 0, 0, 'p' },	  { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'c': opt.name = optarg; break;
		case 'q': opt.qps = natural(optarg); break;
		case 't': opt.threads = natural(optarg); break;
		case 'r': opt.reps = natural(optarg); break;
		case 'i': opt.iters = natural(optarg); break;
		case 'b': opt.bytes = (uint32_t)natural(optarg); break;
		case 'p': opt.pair = true; break;
		default: exit(2);
		}
	}
	if (opt.threads > MAX_THREADS || opt.reps > 100000 || opt.bytes > 1 << 20) {
		fprintf(stderr, "bench_verbs: at most %d threads, 100000 repetitions, 1 MiB\n", MAX_THREADS);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_THREADS];
	static const struct {
		const char *name;
		void (*loop)(struct worker *, long);
		long per_iter;
	} cases[] = {
		{ "single", loop_single, 1 },
		{ "chain", loop_chain, CHAIN },
		{ "robin", loop_robin, 1 },
		{ "empty", loop_empty, 1 },
	};
	bool found = false;

	read_options(argc, argv);
	open_device();
	for (long i = 0; i < opt.threads; i++)
		make_worker(&workers[i], i);
	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++)
		if (!strcmp(opt.name, cases[k].name) || !strcmp(opt.name, "all")) {
			found = true;
			measure(workers, cases[k].name, cases[k].loop, cases[k].per_iter);
		}
	if (!found) {
		fprintf(stderr, "bench_verbs: no case %s (single, chain, robin, empty, all)\n", opt.name);
		return 2;
	}
	for (long i = 0; i < opt.threads; i++) {
		for (long q = 0; q < workers[i].qps; q++)
			if (ibv_destroy_qp(workers[i].qp[q]))
				die("ibv_destroy_qp");
		if (ibv_destroy_cq(workers[i].cq))
			die("ibv_destroy_cq");
		free(workers[i].qp);
	}
	if (ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(ctx))
		die("closing");
	free(buffer);
	return 0;
}
