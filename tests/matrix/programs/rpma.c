/* librpma, the remote memory library over rdma_cm: the server offers a buffer, the client WRITEs MESSAGES of SIZE bytes
 * into it, READs each back and compares.
 *
 *   rpma server ADDRESS | rpma client ADDRESS */
#include <librpma.h>

#include <infiniband/verbs.h>
#include <string.h>

#include "../../programs/check.h"

#define MESSAGES 20
#define SIZE 8192
#define PORT "7204"

static unsigned char memory[2 * SIZE] __attribute__((aligned(4096)));

static struct rpma_peer *open_peer(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *ctx;
	struct rpma_peer *peer;

	CHECK(!rpma_utils_get_ibv_context(address, type, &ctx) && !rpma_peer_new(ctx, &peer));
	return peer;
}

static void await_event(struct rpma_conn *conn, enum rpma_conn_event want)
{
	enum rpma_conn_event event;

	CHECK(!rpma_conn_next_event(conn, &event) && event == want);
}

static void serve(const char *address)
{
	struct rpma_peer *peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_conn_private_data offer;
	struct rpma_conn_req *request;
	struct rpma_mr_local *mr;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	size_t length;
	char descriptor[256];

	CHECK(!rpma_mr_reg(peer, memory, sizeof(memory),
			   RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &mr));
	CHECK(!rpma_mr_get_descriptor_size(mr, &length) && length <= sizeof(descriptor));
	CHECK(!rpma_mr_get_descriptor(mr, descriptor));
	offer.ptr = descriptor;
	offer.len = (uint8_t)length;
	CHECK(!rpma_ep_listen(peer, address, PORT, &ep) && !rpma_ep_next_conn_req(ep, NULL, &request));
	CHECK(!rpma_conn_req_connect(&request, &offer, &conn));
	await_event(conn, RPMA_CONN_ESTABLISHED);
	await_event(conn, RPMA_CONN_CLOSED);
	CHECK(!rpma_conn_disconnect(conn) && !rpma_conn_delete(&conn) && !rpma_ep_shutdown(&ep));
	CHECK(!rpma_mr_dereg(&mr) && !rpma_peer_delete(&peer));
}

static void await_completion(struct rpma_conn *conn, enum ibv_wc_opcode want)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;

	CHECK(!rpma_conn_get_cq(conn, &cq) && !rpma_cq_wait(cq) && !rpma_cq_get_wc(cq, 1, &wc, NULL));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == want);
}

static void visit(const char *address)
{
	struct rpma_peer *peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_private_data offer;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *request;
	struct rpma_mr_local *mr;
	struct rpma_conn *conn;

	CHECK(!rpma_mr_reg(peer, memory, sizeof(memory), RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST, &mr));
	CHECK(!rpma_conn_req_new(peer, address, PORT, NULL, &request) && !rpma_conn_req_connect(&request, NULL, &conn));
	await_event(conn, RPMA_CONN_ESTABLISHED);
	CHECK(!rpma_conn_get_private_data(conn, &offer) && !rpma_mr_remote_from_descriptor(offer.ptr, offer.len, &remote));
	for (unsigned m = 0; m < MESSAGES; m++) {
		for (size_t i = 0; i < SIZE; i++)
			memory[i] = (unsigned char)(m * 31 + i * 7);
		CHECK(!rpma_write(conn, remote, 0, mr, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, NULL));
		await_completion(conn, IBV_WC_RDMA_WRITE);
		CHECK(!rpma_read(conn, mr, SIZE, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, NULL));
		await_completion(conn, IBV_WC_RDMA_READ);
		CHECK(!memcmp(memory, memory + SIZE, SIZE));
	}
	CHECK(!rpma_mr_remote_delete(&remote) && !rpma_conn_disconnect(conn));
	await_event(conn, RPMA_CONN_CLOSED);
	CHECK(!rpma_conn_delete(&conn) && !rpma_mr_dereg(&mr) && !rpma_peer_delete(&peer));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "server"))
		serve(argv[2]);
	else
		visit(argv[2]);
	return 0;
}
