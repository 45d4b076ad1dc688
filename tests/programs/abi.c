/* Contexts of another library version: nothing in front (old), fewer slots (short), more slots (future).
 *
 *   abi [old|short|future|now]
 */
#include "common.h"

int main(int argc, char **argv)
{
	const char *abi = argc > 1 ? argv[1] : "old";
	struct ibv_cq_init_attr_ex ex = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct verbs_context *v;
	struct ibv_port_attr port;
	struct ibv_cq_ex *cq_ex;
	struct dev *d;
	struct ibv_cq *cq;
	struct q *a, *b;

	want("NULLVERBS_ABI", abi);
	want_model();
	d = dev_open(0);
	v = verbs_get_ctx(d->ctx);
	printf("abi %s extended %d sz %zu known_sz %zu\n", abi, v != NULL, v ? v->sz : 0, sizeof(*v));
	CHECK(!ibv_query_port(d->ctx, 1, &port) && port.state == IBV_PORT_ACTIVE &&
	      port.link_layer == IBV_LINK_LAYER_ETHERNET);
	cq_ex = ibv_create_cq_ex(d->ctx, &ex);
	printf("create_cq_ex %d\n", cq_ex != NULL);
	CHECK(cq_ex ? !ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)) : errno == EOPNOTSUPP);
	cq = cq_make(d, 64);
	a = q_couple(d, cq, &b);
	CHECK(!post_recvs(b, RECV_ID, 5, 100));
	for (int i = 0; i < 5; i++)
		CHECK(!post(a, IBV_WR_SEND, (uint64_t)i, 100, IBV_SEND_SIGNALED));
	CHECK(drain(cq) == 10);
	q_destroy(a);
	q_destroy(b);
	CHECK(!ibv_destroy_cq(cq));
	dev_close(d);
	report();
	return 0;
}
