/* What the device says of itself: attributes, ports, GIDs, P_Keys. */
#include "nullverbs.h"

#include <errno.h>
#include <string.h>

#undef ibv_query_port

static uint64_t guid(const struct nv_device *dev)
{
	return 0x0200000000000000ull | (uint64_t)(dev->index + 1) << 8;
}

/* Index 0 is link-local; the others are IPv4 addresses of the three documentation ranges, one after the other, so
 * every GID belongs to one device and one port; or of another range, of which that holds for the first 254. */
bool nv_gid(const struct nv_device *dev, int port, int index, union ibv_gid *gid)
{
	static const uint8_t net[3][3] = { { 192, 0, 2 }, { 198, 51, 100 }, { 203, 0, 113 } };
	int k = nv_config()->gids;

	memset(gid, 0, sizeof(*gid));
	if (port < 1 || port > NV_PORTS || index < 0 || index >= k)
		return false;
	if (index == 0) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		gid->raw[8] = 2;
		gid->raw[14] = (uint8_t)(dev->index + 1);
		gid->raw[15] = (uint8_t)port;
		return true;
	}
	int n = (dev->index * NV_PORTS + port - 1) * (k - 1) + index - 1;

	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(&gid->raw[12], nv_config()->has_net ? nv_config()->net : net[n / 254 % 3], 3);
	gid->raw[15] = (uint8_t)(n % 254 + 1);
	return true;
}

struct nv_device *nv_device_by_av(struct nv_device *self, const struct ibv_ah_attr *av)
{
	union ibv_gid g;

	if (!av->is_global)
		return self;
	for (int d = 0; d < nv_config()->devices; d++)
		for (int p = 1; p <= NV_PORTS; p++)
			for (int i = 0; nv_gid(nv_device_at(d), p, i, &g); i++)
				if (!memcmp(&g, &av->grh.dgid, sizeof(g)))
					return nv_device_at(d);
	return self;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	uint64_t id = guid(nv_ctx(ctx)->dev);

	memset(a, 0, sizeof(*a));
	strcpy(a->fw_ver, "0.0.1");
	a->node_guid = a->sys_image_guid = __builtin_bswap64(id);
	a->max_mr_size = UINT64_MAX;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = 0xffffff;
	a->vendor_part_id = 1;
	a->max_qp = 1 << 20;
	a->max_qp_wr = NV_MAX_WR;
	a->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE;
	a->max_sge = a->max_sge_rd = a->max_srq_sge = NV_MAX_SGE;
	a->max_cq = a->max_mr = a->max_pd = a->max_ah = 1 << 20;
	a->max_cqe = NV_MAX_CQE;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = 128;
	a->max_res_rd_atom = 1 << 20;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_srq = 1 << 16;
	a->max_srq_wr = NV_MAX_WR;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = NV_PORTS;
	return 0;
}

int nv_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t len)
{
	if ((input && input->comp_mask) || len < sizeof(attr->orig_attr))
		return EINVAL;
	memset(attr, 0, len);
	ibv_query_device(ctx, &attr->orig_attr);
	if (len >= sizeof(*attr))
		attr->phys_port_cnt_ex = NV_PORTS;
	return 0;
}

/* `len` may be shorter or longer than the struct known here: callers are built against other versions. */
int nv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *out, size_t len)
{
	struct ibv_port_attr a = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = nv_config()->gids,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = NV_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,   /* 4x */
		.active_speed = 128, /* 100 Gb/s a lane */
		.phys_state = 5,     /* link up */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	(void)ctx;
	if (port < 1 || port > NV_PORTS)
		return EINVAL;
	memset(out, 0, len);
	memcpy(out, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

/* The exported call knows a struct that ends before port_cap_flags2. */
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *out)
{
	return nv_query_port(ctx, port, (struct ibv_port_attr *)out, offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	if (nv_gid(nv_ctx(ctx)->dev, port, index, gid))
		return 0;
	errno = EINVAL;
	return -1;
}

static bool entry(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	memset(e, 0, sizeof(*e));
	if (port > NV_PORTS || index > 255 || !nv_gid(nv_ctx(ctx)->dev, (int)port, (int)index, &e->gid))
		return false;
	e->gid_index = index;
	e->port_num = port;
	e->gid_type = IBV_GID_TYPE_ROCE_V2;
	return true;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *out,
		      uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry e;

	if (flags || entry_size < sizeof(e) || !entry(ctx, port, index, &e))
		return EINVAL;
	memset(out, 0, entry_size);
	memcpy(out, &e, sizeof(e));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *out, size_t max, uint32_t flags,
			     size_t entry_size)
{
	struct ibv_gid_entry e;
	size_t n = 0;

	if (flags || entry_size < sizeof(e))
		return -EINVAL;
	for (uint32_t p = 1; p <= NV_PORTS; p++)
		for (uint32_t i = 0; n < max && entry(ctx, p, i, &e); i++, n++) {
			char *at = (char *)out + n * entry_size;

			memset(at, 0, entry_size);
			memcpy(at, &e, sizeof(e));
		}
	return (ssize_t)n;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
	(void)ctx;
	if (port < 1 || port > NV_PORTS || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, __be16 pkey)
{
	(void)ctx;
	return port >= 1 && port <= NV_PORTS && pkey == 0xffff ? 0 : -1;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return __builtin_bswap64(guid((struct nv_device *)device));
}

/* Private to the library's own tools; 1 stands for RoCE v2. */
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index, int *type);

int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned index, int *type)
{
	struct ibv_gid_entry e;

	if (!entry(ctx, port, index, &e)) {
		errno = EINVAL;
		return -1;
	}
	*type = 1;
	return 0;
}
