/* Receives that no QP posts: the operations of tag matching, and work queues behind an RSS QP. Their completions come to
 * CQs that a QP uses as well. Prints how many there are. */
#include "common.h"

int main(void)
{
	struct ibv_srq_init_attr_ex tm = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.tm_cap = { 16, 16 },
	};
	struct ibv_wq_init_attr wq_init = { .wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1 };
	struct ibv_rwq_ind_table_init_attr table_init = { .log_ind_tbl_size = 0 };
	struct ibv_qp_init_attr_ex rss = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE,
	};
	struct ibv_ops_wr op = { .wr_id = 5, .opcode = IBV_WR_TAG_ADD, .flags = IBV_OPS_SIGNALED }, *bad_op;
	struct ibv_recv_wr wr = { .wr_id = 6 }, *bad_wr;
	struct ibv_wc wc[16];
	struct ibv_rwq_ind_table *table;
	struct ibv_wq *wq;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct dev *d;
	struct q *q;
	int n = 0, got;

	want_model();
	d = dev_open(0);
	cq = cq_make(d, 64);
	q = q_make(d, &(struct shape){ .send_cq = cq, .recv_cq = cq });
	q_pair(q, q);
	tm.pd = wq_init.pd = rss.pd = d->pd;
	tm.cq = wq_init.cq = cq;
	CHECK((srq = ibv_create_srq_ex(d->ctx, &tm)) && (wq = ibv_create_wq(d->ctx, &wq_init)));
	table_init.ind_tbl = &wq;
	CHECK((table = ibv_create_rwq_ind_table(d->ctx, &table_init)));
	rss.rwq_ind_tbl = table;
	struct ibv_qp *rss_qp = ibv_create_qp_ex(d->ctx, &rss);
	CHECK(rss_qp);

	for (int i = 0; i < 4; i++)
		CHECK(!ibv_post_srq_ops(srq, &op, &bad_op) && !ibv_post_wq_recv(wq, &wr, &bad_wr));
	op.opcode = IBV_WR_TAG_DEL;
	CHECK(!ibv_post_srq_ops(srq, &op, &bad_op));
	while ((got = ibv_poll_cq(cq, 16, wc)) > 0)
		n += got;
	for (uint64_t i = 0; i < 10; i++) /* the QP beside them is counted as ever */
		CHECK(!post(q, IBV_WR_RDMA_WRITE, i, 300, IBV_SEND_SIGNALED) && drain(cq) == 1);
	printf("elsewhere %d\n", n);
	q_destroy(q);
	CHECK(!ibv_destroy_qp(rss_qp) && !ibv_destroy_rwq_ind_table(table) && !ibv_destroy_wq(wq));
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
