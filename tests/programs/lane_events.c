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

static struct member m;
static long others;

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

	CHECK(!ibv_get_async_event(m.ctx, &e));
	CHECK((int)e.event_type == type && (const void *)e.element.qp == element);
	ibv_ack_async_event(&e);
}

static void *sleeper(void *unused)
{
	struct ibv_async_event e;

	(void)unused;
	ibv_get_async_event(m.ctx, &e);
	die("an event that is nobody's");
}

static void set_blocking(bool on)
{
	int flags = fcntl(m.ctx->async_fd, F_GETFL);

	CHECK(!fcntl(m.ctx->async_fd, F_SETFL, on ? flags & ~O_NONBLOCK : flags | O_NONBLOCK));
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
		member_open(&m, 1);
		member_connect(&m);
		CHECK(read(hold[0], &sink, 1) == 0);
		member_close(&m);
		return 0;
	}
	close(hold[0]);
	member_open(&m, 0);
	member_connect(&m);
	CHECK(raise_event(m.qp->qp_num, IBV_EVENT_COMM_EST) == 0);
	next_is(IBV_EVENT_COMM_EST, m.qp);
	for (long i = 1; i <= others; i++)
		while (raise_event(first_number(0) + (uint32_t)i, IBV_EVENT_COMM_EST))
			usleep(1000);
	of_others(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(!raise_event(m.qp->qp_num, IBV_EVENT_SQ_DRAINED));
	next_is(IBV_EVENT_SQ_DRAINED, m.qp);
	of_others(IBV_EVENT_CQ_ERR);
	CHECK(!raise_event(m.qp->qp_num, IBV_EVENT_CQ_ERR));
	next_is(IBV_EVENT_CQ_ERR, m.cq);

	set_blocking(false);
	of_others(IBV_EVENT_PATH_MIG);
	errno = 0;
	CHECK(ibv_get_async_event(m.ctx, &e) == -1 && errno == EAGAIN);
	set_blocking(true);

	of_others(IBV_EVENT_SQ_DRAINED);
	CHECK(!pthread_create(&thread, NULL, sleeper, NULL));
	usleep(20000);
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);

	of_others(IBV_EVENT_QP_FATAL);
	CHECK(!raise_event(m.qp->qp_num, IBV_EVENT_COMM_EST));
	next_is(IBV_EVENT_COMM_EST, m.qp);
	printf("ready\n");
	fflush(stdout);
	until_closed(0);
	member_close(&m);
	close(hold[1]);
	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}
