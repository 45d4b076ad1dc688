/* A child that goes on with the extended QP and CQ that it inherited, forked between ibv_wr_start and ibv_wr_complete and
 * between ibv_start_poll and ibv_end_poll; the parent goes on, too. The truth is the parent's. */
#include "common.h"

#include <sys/wait.h>

static struct dev *d;
static struct q *q;
static struct ibv_cq_ex *cq;

static void begin(uint64_t id)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(q->qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, d->mr->rkey, (uintptr_t)d->buf + BUFFER / 2);
	ibv_wr_set_sge(x, d->mr->lkey, (uintptr_t)d->buf, 250);
}

static void complete(uint64_t id)
{
	CHECK(!ibv_wr_complete(ibv_qp_to_qp_ex(q->qp)));
	truth_sent(q, id, 250, true);
}

static void finish(int err)
{
	for (; !err; err = ibv_next_poll(cq)) {
		struct ibv_wc wc = { .wr_id = cq->wr_id, .status = cq->status, .qp_num = ibv_wc_read_qp_num(cq),
				     .opcode = ibv_wc_read_opcode(cq) };

		truth_cqe(ibv_cq_ex_to_cq(cq), &wc);
	}
	CHECK(err == ENOENT);
	ibv_end_poll(cq);
}

static void child_ends(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

int main(void)
{
	struct ibv_poll_cq_attr poll = { 0 };
	pid_t pid;

	want_model();
	d = dev_open(0);
	cq = cq_make_extended(d, 64);
	q = q_make_extended(d, cq);
	for (uint64_t round = 0; round < 3; round++) {
		begin(round);
		CHECK((pid = fork()) >= 0);
		complete(round);
		CHECK(!post(q, IBV_WR_RDMA_WRITE, 100, 40, IBV_SEND_SIGNALED));
		finish(ibv_start_poll(cq, &poll));
		if (!pid)
			_exit(0);
		child_ends(pid);

		for (uint64_t i = 0; i < 3; i++) {
			begin(200 + i);
			complete(200 + i);
		}
		CHECK(!ibv_start_poll(cq, &poll));
		CHECK((pid = fork()) >= 0);
		finish(0);
		begin(300);
		complete(300);
		CHECK(drain(ibv_cq_ex_to_cq(cq)) == 1);
		if (!pid) {
			q_destroy(q);
			CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
			_exit(0);
		}
		child_ends(pid);
	}
	q_destroy(q);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	dev_close(d);
	report();
	return 0;
}
