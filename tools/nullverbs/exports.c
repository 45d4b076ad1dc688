/* The exported control calls: each goes through the context's private table, as in libibverbs, so what replaces
 * the public table's slots does not see them. */
#include "nullverbs.h"

#include <errno.h>
#include <string.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define CONTROL(obj) (&nv_own((obj)->context)->control)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx) { return nv_own(ctx)->control.alloc_pd(ctx); }
int ibv_dealloc_pd(struct ibv_pd *pd) { return CONTROL(pd)->dealloc_pd(pd); }

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
	return CONTROL(pd)->reg_mr(pd, addr, len, iova, access);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, iova, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr) { return CONTROL(mr)->dereg_mr(mr); }

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct ibv_cq *cq = nv_own(ctx)->control.create_cq(ctx, cqe, channel, vector);

	if (cq)
		cq->cq_context = cq_context;
	return cq;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe) { return CONTROL(cq)->resize_cq(cq, cqe); }
int ibv_destroy_cq(struct ibv_cq *cq) { return CONTROL(cq)->destroy_cq(cq); }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	return CONTROL(pd)->create_srq(pd, init);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	return CONTROL(srq)->modify_srq(srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) { return CONTROL(srq)->query_srq(srq, attr); }
int ibv_destroy_srq(struct ibv_srq *srq) { return CONTROL(srq)->destroy_srq(srq); }

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return CONTROL(pd)->create_qp(pd, init);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	return CONTROL(qp)->query_qp(qp, attr, mask, init);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return CONTROL(qp)->modify_qp(qp, attr, mask);
}

int ibv_destroy_qp(struct ibv_qp *qp) { return CONTROL(qp)->destroy_qp(qp); }
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) { return CONTROL(pd)->create_ah(pd, attr); }
/* The way back to who sent a message. */
int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	union ibv_gid own;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.hop_limit = 0xff;
	while (!ibv_query_gid(c, port, attr->grh.sgid_index, &own)) {
		if (!memcmp(&own, &grh->dgid, sizeof(own)))
			return 0;
		attr->grh.sgid_index++;
	}
	return -1;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

int ibv_destroy_ah(struct ibv_ah *ah) { return CONTROL(ah)->destroy_ah(ah); }

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	*ece = nv_qp(qp)->ece;
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	nv_qp(qp)->ece = *ece;
	return 0;
}

int ibv_fork_init(void) { return 0; }
enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

/* ---- what this device has not got ---- */

static void *nothing(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t off, size_t len, uint64_t iova, int fd, int access)
{
	(void)pd, (void)off, (void)len, (void)iova, (void)fd, (void)access;
	return nothing();
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len, int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)len, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

struct ibv_context *ibv_import_device(int fd) { return (void)fd, nothing(); }
struct ibv_pd *ibv_import_pd(struct ibv_context *c, uint32_t handle) { return (void)c, (void)handle, nothing(); }
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) { return (void)pd, (void)handle, nothing(); }
struct ibv_dm *ibv_import_dm(struct ibv_context *c, uint32_t handle) { return (void)c, (void)handle, nothing(); }
void ibv_unimport_pd(struct ibv_pd *pd) { (void)pd; }
void ibv_unimport_mr(struct ibv_mr *mr) { (void)mr; }
void ibv_unimport_dm(struct ibv_dm *dm) { (void)dm; }

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return (void)qp, (void)gid, (void)lid, EOPNOTSUPP;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return (void)qp, (void)gid, (void)lid, EOPNOTSUPP;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return (void)qp, (void)op, (void)flags, 0;
}

/* librdmacm is linked with these; it calls them for what only a kernel tells. */
void ibv_copy_ah_attr_from_kern(void *to, const void *from);
void ibv_copy_qp_attr_from_kern(void *to, const void *from);
void ibv_copy_path_rec_from_kern(void *to, const void *from);

void ibv_copy_ah_attr_from_kern(void *to, const void *from) { (void)to, (void)from; }
void ibv_copy_qp_attr_from_kern(void *to, const void *from) { (void)to, (void)from; }
void ibv_copy_path_rec_from_kern(void *to, const void *from) { (void)to, (void)from; }

/* There is no sysfs behind these devices. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

const char *ibv_get_sysfs_path(void) { return "/sys"; }

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	return (void)dir, (void)file, (void)buf, (void)size, -1;
}
