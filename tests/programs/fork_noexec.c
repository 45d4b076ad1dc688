/* Children of a process with open verbs: one leaves by _exit, one by exit, one by exec, one opens a device of its
 * own and has traffic; the parent goes on before, between and after. Lines of the last child stand between
 * `child PID begin` and `child PID end`. */
#include "common.h"

#include <sys/wait.h>

static void traffic(struct q *a, int n, uint32_t bytes)
{
	for (int i = 0; i < n; i++)
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, bytes, i == n - 1 ? IBV_SEND_SIGNALED : 0));
	CHECK(drain(a->send_cq) == 1);
}

static void own_device(void)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	forget_all();
	printf("child %d begin\n", (int)getpid());
	d = dev_open(0);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	traffic(a, 11, 333);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	printf("child %d end\n", (int)getpid());
	fflush(stdout);
}

static void child(int how)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		switch (how) {
		case 0:
			_exit(0);
		case 1:
			exit(0);
		case 2:
			execlp("true", "true", (char *)NULL);
			_exit(127);
		default:
			own_device();
			exit(0);
		}
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	want_model();
	CHECK(!ibv_fork_init());
	d = dev_open(0);
	cq = cq_make(d, 256);
	a = q_couple(d, cq, &b);
	traffic(a, 5, 100);
	for (int how = 0; how < 4; how++) {
		CHECK(!post(a, IBV_WR_RDMA_WRITE, 50, 1, 0)); /* outstanding while forking */
		child(how);
		traffic(a, 5, 100);
	}
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
