/* Stands for libefa, as mlx5.c does for libmlx5. */
#include <infiniband/efadv.h>

struct ibv_qp *efadv_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr,
				  struct efadv_qp_init_attr *own, uint32_t inlen)
{
	(void)own, (void)inlen;
	return ibv_create_qp_ex(ctx, attr);
}

struct ibv_qp *efadv_create_driver_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, uint32_t type)
{
	(void)type;
	return ibv_create_qp(pd, attr);
}

struct ibv_cq_ex *efadv_create_cq(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr,
				  struct efadv_cq_init_attr *own, uint32_t inlen)
{
	(void)own, (void)inlen;
	return ibv_create_cq_ex(ctx, attr);
}
