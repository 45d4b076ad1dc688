/* Names of states, events and statuses, for people. */
#include "nullverbs.h"

#define NAME(table, i) ((unsigned)(i) < sizeof(table) / sizeof(*(table)) && (table)[i] ? (table)[i] : "unknown")

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const name[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_GENERAL_ERR] = "general error",
	};

	return NAME(name, status);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const name[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
		[IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_SQ_DRAINED] = "send queue drained",
		[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
		[IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
		[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
		[IBV_EVENT_GID_CHANGE] = "GID table change",
	};

	return NAME(name, event);
}

const char *ibv_node_type_str(enum ibv_node_type type) { return type == IBV_NODE_CA ? "channel adapter" : "unknown"; }

const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const name[] = {
		[IBV_PORT_NOP] = "no state change",
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "init",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
	};

	return NAME(name, state);
}

static const struct {
	enum ibv_rate rate;
	int mbps;
} rates[] = {
	{ IBV_RATE_2_5_GBPS, 2500 },	{ IBV_RATE_5_GBPS, 5000 },     { IBV_RATE_10_GBPS, 10000 },
	{ IBV_RATE_25_GBPS, 25781 },	{ IBV_RATE_40_GBPS, 40000 },   { IBV_RATE_100_GBPS, 103125 },
	{ IBV_RATE_200_GBPS, 206250 },	{ IBV_RATE_400_GBPS, 425000 },
};

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (unsigned i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (unsigned i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

int ibv_rate_to_mult(enum ibv_rate rate) { return ibv_rate_to_mbps(rate) < 0 ? -1 : ibv_rate_to_mbps(rate) / 2500; }
enum ibv_rate mult_to_ibv_rate(int mult) { return mbps_to_ibv_rate(mult * 2500); }
