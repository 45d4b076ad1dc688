/* What the log of transfers can take: one thread completes a signaled WRITE at a time, at a steady rate, over a device that does
 * nothing.
 *
 *   bench_log [--rate PER_SECOND] [--seconds S] [--bytes B]
 *
 * Prints, in one line: records; their real rate; the time of processor that the library's log thread took, ns per record and
 * percent of a processor; and the longest time, ms, that this thread itself was held up. What was dropped the library's
 * snapshot says. */
#include "common.h"

#include <dirent.h>
#include <time.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Time on a processor of the thread of this name, ns; 0: there is none. */
static uint64_t thread_ns(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned long long ns = 0, found = 0;
	struct dirent *task;

	CHECK(tasks);
	while ((task = readdir(tasks))) {
		char path[300], comm[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		if (!(f = fopen(path, "r")))
			continue;
		CHECK(fgets(comm, sizeof(comm), f));
		fclose(f);
		if (strncmp(comm, name, strlen(name)))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task->d_name);
		if ((f = fopen(path, "r"))) {
			if (fscanf(f, "%llu", &ns) == 1)
				found = ns;
			fclose(f);
		}
	}
	closedir(tasks);
	return found;
}

int main(int argc, char **argv)
{
	uint64_t rate = (uint64_t)arg_number(argc, argv, "rate", 1000000);
	uint64_t seconds = (uint64_t)arg_number(argc, argv, "seconds", 10);
	uint32_t bytes = (uint32_t)arg_number(argc, argv, "bytes", 65536);
	uint64_t records = rate * seconds, start, last, cpu, longest = 0;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct dev *d;
	struct ibv_cq *cq;
	struct q *q, *peer;

	CHECK(rate > 0 && seconds > 0 && bytes <= BUFFER / 2);
	d = dev_open(0);
	cq = cq_make(d, 64);
	q = q_couple(d, cq, &peer);
	sge = (struct ibv_sge){ (uintptr_t)d->buf, bytes, d->mr->lkey };
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)d->buf + BUFFER / 2;
	wr.wr.rdma.rkey = d->mr->rkey;
	cpu = thread_ns("telereduce-log");
	start = last = now_ns();
	for (uint64_t i = 0; i < records; i++) {
		uint64_t due = start + (uint64_t)((__uint128_t)i * 1000000000u / rate), now;

		while ((now = now_ns()) < due)
			;
		longest = now - last > longest ? now - last : longest;
		last = now;
		wr.wr_id = i;
		CHECK(!ibv_post_send(q->qp, &wr, &bad));
		while (!ibv_poll_cq(cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	last = now_ns() - start;
	/* The writer ends its work. */
	usleep(200000);
	cpu = thread_ns("telereduce-log") - cpu;
	printf("records %llu rate %llu writer_ns %llu writer_percent %.1f held_up_ms %.1f\n", (unsigned long long)records,
	       (unsigned long long)((__uint128_t)records * 1000000000u / last), (unsigned long long)(cpu / records),
	       100.0 * (double)cpu / (double)last, (double)longest / 1e6);
	q_destroy(q);
	q_destroy(peer);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	return 0;
}
