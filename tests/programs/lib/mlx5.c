/* Stands for libmlx5: its calls that lead around verbs make ordinary objects, so that they can be used over any device. */
#include <infiniband/mlx5dv.h>

#include <errno.h>
#include <stdlib.h>

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	if (type & MLX5DV_OBJ_QP)
		obj->qp.out->comp_mask = 0;
	if (type & MLX5DV_OBJ_CQ)
		obj->cq.out->comp_mask = 0;
	return type & ~(uint64_t)(MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) ? EINVAL : 0;
}

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr,
				struct mlx5dv_qp_init_attr *own)
{
	(void)own;
	return ibv_create_qp_ex(ctx, attr);
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *ctx, const void *in, size_t inlen, void *out,
					       size_t outlen)
{
	(void)ctx, (void)in, (void)inlen, (void)out, (void)outlen;
	return malloc(1);
}

int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	free(obj);
	return 0;
}
