/* Datagrams: one sender, two receivers, one QP each; some datagrams find no receive and are lost. */
#include "common.h"

static struct ibv_ah *ah;
static struct dev *d;

static void datagram(struct q *from, struct q *to, uint64_t id, uint32_t bytes, unsigned flags, bool imm)
{
	struct chain c = { .n = 0 };
	struct ibv_send_wr *wr = chain_add(&c, from, imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, id, bytes, flags, 1);

	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = to->qpn;
	wr->wr.ud.remote_qkey = QKEY;
	CHECK(!chain_post(&c, from, NULL));
}

int main(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_cq *cq[3];
	struct q *q[3];

	want_model();
	d = dev_open(0);
	attr.grh.dgid = d->gid;
	attr.grh.sgid_index = 1;
	ah = ibv_create_ah(d->pd, &attr);
	CHECK(ah);
	for (int i = 0; i < 3; i++) {
		cq[i] = cq_make(d, 128);
		q[i] = q_make(d, &(struct shape){ .type = IBV_QPT_UD, .send_cq = cq[i], .recv_cq = cq[i] });
		q_init(q[i]);
		q_to(q[i], NULL);
	}
	CHECK(!post_recvs(q[1], RECV_ID, 20, 4096 + 40) && !post_recvs(q[2], RECV_ID, 5, 4096 + 40));
	for (int i = 0; i < 30; i++)
		datagram(q[0], q[1 + i % 2], (uint64_t)i, 100u + (uint32_t)i, i % 3 == 2 ? IBV_SEND_SIGNALED : 0, i % 5 == 0);
	CHECK(drain(cq[0]) == 10 && drain(cq[1]) == 15 && drain(cq[2]) == 5);
	datagram(q[1], q[0], 1, 0, IBV_SEND_SIGNALED, false); /* nobody listens */
	CHECK(drain(cq[1]) == 1 && drain(cq[0]) == 0);
	for (int i = 0; i < 3; i++) {
		q_destroy(q[i]);
		CHECK(!ibv_destroy_cq(cq[i]));
	}
	CHECK(!ibv_destroy_ah(ah));
	dev_close(d);
	report();
	return 0;
}
