/* Drives the profiler plugin that is found in the process as NCCL does, and posts between the calls as NCCL's IB transport
 * does: two communicators, two channels, both directions, a QP for each; a thread that makes progress posts and polls.
 *
 *   nccl_driver [--version 4] [--rounds N] [--plain] [--wrong] [--exhaust] [--again] [--late]
 *
 *   --plain    without the plugin        --wrong    first, calls with null and with nonsense
 *   --exhaust  first, more labels than there is room for (those of the QPs are known before)
 *   --again    the first communicator is finalized and made anew half-way
 *   --late     QPs are made and used before the plugin is
 *
 * Prints a line per signaled WR, in the order of posting: what its line in the log must say. */
#include "common.h"
#include "nccl_profiler.h"

#include <dlfcn.h>
#include <pthread.h>

#define LINKS 8
#define MOST_ROUNDS 200

static const char *const NAMES[] = { "AllGather", "AllReduce" };
static const int NUMBERS[] = { 2, 4 };

static struct comm {
	uint64_t id;
	int rank, ranks;
	void *context;
	void *tasks[MOST_ROUNDS][2]; /* the collective, or the receive and the send */
} comms[2] = { { .id = 0x1111222233334444, .rank = 1, .ranks = 4 }, { .id = 0xfedcba9876543210, .rank = 0, .ranks = 2 } };

static struct link {
	struct comm *comm;
	int channel, sends, peer;
	struct q *q;
} links[LINKS];

static struct plugin *plugin;
static struct ibv_cq *cq;
static int version;
static long rounds;
static bool again;

static void *start_in(void *context, int kind, void *parent, const void *of, size_t bytes)
{
	struct event_v4 v4;
	struct event_v5 v5;
	void *handle = &v4; /* NCCL does not clear it */

	memset(&v4, 0x5a, sizeof(v4));
	memset(&v5, 0, sizeof(v5));
	v4.kind = (uint8_t)kind;
	v5.kind = (uint64_t)kind;
	v4.parent = v5.parent = parent;
	v4.rank = v5.rank = 0;
	memcpy(&v4.coll, of, bytes);
	memcpy(&v5.coll, of, bytes);
	CHECK(!plugin->start(context, &handle, version == 4 ? (void *)&v4 : (void *)&v5));
	return handle;
}

#define START(comm, kind, parent, of) start_in((comm)->context, kind, parent, &(of), sizeof(of))

static void *start_op(struct link *l, void *task, int pid)
{
	struct proxy_op op = { .pid = pid, .channel = (uint8_t)l->channel, .peer = l->peer, .steps = 2, .is_send = l->sends };

	return START(l->comm, KIND_PROXY_OP, task, op);
}

static void record(void *handle, int state)
{
	size_t bytes = 4096;

	if (handle)
		CHECK(!plugin->record(handle, state, &bytes));
}

static void stop(void *handle)
{
	if (handle)
		CHECK(!plugin->stop(handle));
}

static void init(struct comm *c)
{
	int mask = -1;

	if (version == 4)
		CHECK(!plugin->init.v4(&c->context, &mask, "name", c->id, 2, c->ranks, c->rank, NULL));
	else
		CHECK(!plugin->init.v5(&c->context, c->id, &mask, "name", 2, c->ranks, c->rank, NULL));
	CHECK((mask & KIND_PROXY_STEP) && (mask & KIND_PROXY_OP) && (mask & KIND_COLL) && c->context);
}

/* What the application's thread does: groups, collectives on the first communicator, sends and receives on the second. */
static void start_tasks(struct comm *c, long round)
{
	int nothing = 0;
	void *group = START(c, KIND_GROUP, NULL, nothing);

	if (c == &comms[0]) {
		struct coll coll = { .sequence_number = (uint64_t)round / 2, .func = NAMES[round % 2], .channels = 2 };

		c->tasks[round][0] = c->tasks[round][1] = START(c, KIND_COLL, group, coll);
	} else {
		for (int send = 0; send < 2; send++) {
			struct p2p p2p = { .func = send ? "Send" : "Recv", .peer = 1 };

			c->tasks[round][send] = START(c, KIND_P2P, group, p2p);
		}
	}
	stop(group);
}

static void expect(struct link *l, long round)
{
	int coll = l->comm == &comms[0];

	printf("wr qp %u group %llu rank %d peer %d channel %d func %d times %ld\n", l->q->qpn,
	       (unsigned long long)l->comm->id, l->comm->rank, l->peer, l->channel,
	       coll ? NUMBERS[round % 2] : 6 + !l->sends, coll ? round / 2 + 1 : round + 1);
}

/* One message of a step: two WRITEs and one completion, or what tells the sender that there is room. */
static void post_step(struct link *l, long round)
{
	struct chain chain = { .n = 0 };

	if (l->sends) {
		chain_add(&chain, l->q, IBV_WR_RDMA_WRITE, 1, 4096, 0, 1);
		chain_add(&chain, l->q, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 64, IBV_SEND_SIGNALED, 1);
		CHECK(!chain_post(&chain, l->q, NULL));
	} else {
		CHECK(!post(l->q, IBV_WR_RDMA_WRITE, 3, 64, IBV_SEND_SIGNALED));
	}
	expect(l, round);
}

static void transfer(struct link *l, void *op, int step, long round)
{
	void *handle = START(l->comm, KIND_PROXY_STEP, op, step);

	if (l->sends) {
		record(handle, STEP_SEND_GPU_WAIT);
		record(handle, STEP_SEND_PEER_WAIT); /* the peer is not ready: nothing is posted */
		record(handle, STEP_SEND_PEER_WAIT);
		post_step(l, round);
		record(handle, STEP_SEND_WAIT);
	} else {
		CHECK(!post_recv(l->q, RECV_ID, 0));
		post_step(l, round);
		record(handle, STEP_RECV_WAIT);
		drain(cq);
		record(handle, STEP_RECV_FLUSH_WAIT);
		CHECK(!post(l->q, IBV_WR_RDMA_READ, 4, 32, IBV_SEND_SIGNALED));
		expect(l, round);
		record(handle, STEP_RECV_GPU_WAIT);
	}
	drain(cq);
	stop(handle);
}

static void play(long round)
{
	void *ops[LINKS];

	for (int i = 0; i < LINKS; i++)
		ops[i] = start_op(&links[i], links[i].comm->tasks[round][links[i].sends], getpid());
	for (int i = 0; i < LINKS; i++)
		record(ops[i], OP_IN_PROGRESS);
	for (int step = 0; step < 2; step++)
		for (int i = 0; i < LINKS; i++)
			transfer(&links[i], ops[i], step, round);
	for (int i = 0; i < LINKS; i++)
		stop(ops[i]);
}

static void *progress(void *half)
{
	long from = half ? rounds / 2 : 0, to = half ? rounds : rounds / 2;

	for (long round = from; round < to; round++)
		play(round);
	return NULL;
}

static void on_its_thread(void *half)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, progress, half) && !pthread_join(thread, NULL));
}

static void call_wrongly(void)
{
	static const uintptr_t nonsense[] = { 0, 1, 8, 0x1000, UINTPTR_MAX, 1ull << 60, 2ull << 60, (3ull << 60) + 77, (4ull << 60) + 99999 };
	struct event_v5 event = { .kind = KIND_COLL };
	void *handle = &event;
	int mask;

	CHECK(!plugin->start(NULL, NULL, NULL) && !plugin->start(NULL, &handle, NULL) && !handle);
	CHECK(!plugin->start(NULL, NULL, &event)); /* a collective without a name */
	if (version == 4)
		CHECK(!plugin->init.v4(NULL, NULL, NULL, 0, 0, 0, -1, NULL) && !plugin->init.v4(NULL, &mask, NULL, 0, 0, 0, 0, NULL));
	else
		CHECK(!plugin->init.v5(NULL, 0, NULL, NULL, 0, 0, -1, NULL) && !plugin->init.v5(NULL, 0, &mask, NULL, 0, 0, 0, NULL));
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		void *any = (void *)nonsense[i];

		for (int state = -1; state < 30; state++)
			CHECK(!plugin->record(any, state, NULL));
		for (int kind = 0; kind < 1 << 13; kind++) {
			event = (struct event_v5){ .kind = (uint64_t)kind, .parent = any, .rank = -7 };
			CHECK(!plugin->start(any, &handle, &event) && !plugin->record(handle, STEP_SEND_PEER_WAIT, any));
		}
		CHECK(!plugin->stop(any) && !plugin->finalize(any));
	}
	for (int state = STEP_SEND_GPU_WAIT; state < 30; state++) /* what nonsense made current is left again */
		for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
			CHECK(!plugin->stop((void *)nonsense[i]));
}

/* Every link's labels first, then others until there is no room. */
static void exhaust(void)
{
	struct comm *c = &comms[0];
	long refused = 0;

	for (long round = 0; round < 2; round++)
		for (int i = 0; i < LINKS; i++)
			CHECK(start_op(&links[i], links[i].comm->tasks[round][links[i].sends], getpid()));
	for (int peer = 10; peer < 600000; peer++) {
		struct link other = { .comm = c, .peer = peer };

		refused += !start_op(&other, NULL, getpid());
	}
	CHECK(refused > 300000);
}

int main(int argc, char **argv)
{
	bool late = arg_flag(argc, argv, "late"), plain = arg_flag(argc, argv, "plain");
	struct q *peers[LINKS];
	struct dev *d;

	rounds = arg_number(argc, argv, "rounds", 10);
	again = arg_flag(argc, argv, "again");
	version = (int)arg_number(argc, argv, "version", 5);
	CHECK(rounds >= 2 && rounds <= MOST_ROUNDS);
	if (!plain) {
		void *self = dlopen(NULL, RTLD_NOW | RTLD_LOCAL);

		CHECK(self && (plugin = dlsym(self, version == 4 ? "ncclProfiler_v4" : "ncclProfiler_v5")));
		CHECK(plugin->name && *plugin->name);
	}
	for (int i = 0; !late && !plain && i < 2; i++)
		init(&comms[i]);
	d = dev_open(0);
	cq = cq_make(d, 1024);
	for (int i = 0; i < LINKS; i++) {
		struct comm *c = &comms[i & 1];

		links[i] = (struct link){ .comm = c, .channel = i >> 1 & 1, .sends = i >> 2 & 1 };
		links[i].peer = (c->rank + (links[i].sends ? 1 : c->ranks - 1)) % c->ranks;
		links[i].q = q_couple(d, cq, &peers[i]);
	}
	if (late || plain)
		for (int i = 0; i < LINKS; i++) {
			for (int k = 0; k < 100; k++)
				CHECK(!post(links[i].q, IBV_WR_RDMA_WRITE, 9, 100, IBV_SEND_SIGNALED) && drain(cq) == 1);
			printf("plain qp %u\n", links[i].q->qpn);
		}
	if (!plain) {
		for (int i = 0; late && i < 2; i++)
			init(&comms[i]);
		if (arg_flag(argc, argv, "wrong"))
			call_wrongly();
		for (long round = 0; round < rounds; round++)
			for (int i = 0; i < 2; i++)
				start_tasks(&comms[i], round);
		if (arg_flag(argc, argv, "exhaust"))
			exhaust();
		on_its_thread(NULL);
		if (again) {
			CHECK(!plugin->finalize(comms[0].context));
			CHECK(!start_op(&links[0], comms[0].tasks[0][0], getpid())); /* it is gone */
			comms[0].id++;
			init(&comms[0]);
		}
		on_its_thread(&rounds);
		for (int i = 0; i < 2; i++)
			CHECK(!plugin->finalize(comms[i].context));
	}
	for (int i = 0; i < LINKS; i++)
		printf("link qp %u direction %s posted %llu\n", links[i].q->qpn, links[i].sends ? "send" : "recv",
		       (unsigned long long)links[i].q->n.send_wr_posted);
	for (int i = 0; i < LINKS; i++) {
		q_destroy(links[i].q);
		q_destroy(peers[i]);
	}
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	return 0;
}
