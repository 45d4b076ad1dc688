/* Connected, says its GID, to QPs of another host: large WRITEs on an RC QP, and QPs of other kinds beside it. Goes on until
 * stdin closes, so that one can look at it.
 *
 *   far [--host N] [--writes N] [--size BYTES]
 *
 * The far GID is that of 127.0.0.N (default 77), which need not be there: the device finds no such GID and looks at home.
 */
#include "common.h"

int main(int argc, char **argv)
{
	long host = arg_number(argc, argv, "host", 77), writes = arg_number(argc, argv, "writes", 10);
	long size = arg_number(argc, argv, "size", BUFFER / 2);
	struct dev *d;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex;
	struct q *a, *b, *datagrams, *extended;
	char sink[256];

	want_model();
	CHECK(host > 0 && host < 255 && size > 0 && size <= (long)(BUFFER / 2));
	d = dev_open(0);
	cq = cq_make(d, 64);
	ex = cq_make_extended(d, 64);
	memcpy(&d->gid.raw[12], (uint8_t[]){ 127, 0, 0, (uint8_t)host }, 4);
	a = q_couple(d, cq, &b);
	datagrams = q_make(d, &(struct shape){ .type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq });
	q_init(datagrams);
	extended = q_make_extended(d, ex);
	for (long i = 0; i < writes; i++) {
		CHECK(!post(a, IBV_WR_RDMA_WRITE, (uint64_t)i, (uint32_t)size, IBV_SEND_SIGNALED));
		drain(cq);
	}
	printf("qps %u %u %u %u\nready\n", a->qpn, b->qpn, datagrams->qpn, extended->qpn);
	fflush(stdout);
	while (read(0, sink, sizeof(sink)) > 0)
		;
	q_destroy(a);
	q_destroy(b);
	q_destroy(datagrams);
	q_destroy(extended);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
