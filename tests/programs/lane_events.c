/* Asynchronous events of two connected QPs' device, in one of two processes: its own QP's and CQ's come, whatever the device
 * says of other QPs, which are the library's. A thread that waits for events can be cancelled.
 *
 *   lane_events [--others N]    waits until the device has N QPs beside the program's own
 *
 * Prints `ready` when all others are broken; stays until stdin closes. */
#include "pair.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static long others;

static void until_stdin_closes(void)
{
	char sink[64];

	while (read(0, sink, sizeof(sink)) > 0)
		;
}

static int raise_event(uint32_t qp_num, int type)
{
	static int (*f)(uint32_t, int);

	f = f ? f : (int (*)(uint32_t, int))dlsym(RTLD_DEFAULT, "nullverbs_raise");
	return f ? f(qp_num, type) : ENOSYS;
}

static void of_others(int type)
{
	for (long i = 1; i <= others; i++)
		CHECK(!raise_event(first_number(0) + (uint32_t)i, type));
}

/* The next event is the program's own. */
static void next_is(int type, const void *element)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(ctx, &e));
	CHECK((int)e.event_type == type && (const void *)e.element.qp == element);
	ibv_ack_async_event(&e);
}

static void *sleeper(void *unused)
{
	struct ibv_async_event e;

	(void)unused;
	ibv_get_async_event(ctx, &e);
	die("an event that is nobody's");
}

static void set_blocking(bool on)
{
	int flags = fcntl(ctx->async_fd, F_GETFL);

	CHECK(!fcntl(ctx->async_fd, F_SETFL, on ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
}

static void member(long i)
{
	struct ibv_device **list;

	number_from(i);
	list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 256, NULL, NULL, 0)));
	qp = pair_create(pd, cq);
	CHECK(qp->qp_num == first_number(i));
	connect_to(qp, ctx, 1 + (int)i, 2 - (int)i, first_number(1 - i));
}

static void close_all(void)
{
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
}

int main(int argc, char **argv)
{
	struct ibv_async_event e;
	pthread_t thread;
	void *result;
	int status, hold[2];
	pid_t child;
	char sink;

	others = arg_number(argc, argv, "others", 0);
	CHECK(!pipe(hold) && (child = fork()) >= 0);
	if (!child) {
		close(hold[1]);
		member(1);
		CHECK(read(hold[0], &sink, 1) == 0);
		close_all();
		return 0;
	}
	close(hold[0]);
	member(0);
	CHECK(raise_event(qp->qp_num, IBV_EVENT_COMM_EST) == 0);
	next_is(IBV_EVENT_COMM_EST, qp);
	for (long i = 1; i <= others; i++)
		while (raise_event(first_number(0) + (uint32_t)i, IBV_EVENT_COMM_EST))
			usleep(1000);
	of_others(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(!raise_event(qp->qp_num, IBV_EVENT_SQ_DRAINED));
	next_is(IBV_EVENT_SQ_DRAINED, qp);
	of_others(IBV_EVENT_CQ_ERR);
	CHECK(!raise_event(qp->qp_num, IBV_EVENT_CQ_ERR));
	next_is(IBV_EVENT_CQ_ERR, cq);

	set_blocking(false);
	of_others(IBV_EVENT_PATH_MIG);
	errno = 0;
	CHECK(ibv_get_async_event(ctx, &e) == -1 && errno == EAGAIN);
	set_blocking(true);

	of_others(IBV_EVENT_SQ_DRAINED);
	CHECK(!pthread_create(&thread, NULL, sleeper, NULL));
	usleep(20000);
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);

	of_others(IBV_EVENT_QP_FATAL);
	CHECK(!raise_event(qp->qp_num, IBV_EVENT_COMM_EST));
	next_is(IBV_EVENT_COMM_EST, qp);
	printf("ready\n");
	fflush(stdout);
	until_stdin_closes();
	close_all();
	close(hold[1]);
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
