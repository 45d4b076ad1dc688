/* QPs, CQs and queues by the calls of providers' own libraries, used by verbs all the same.
 *
 *   opaque [--dlsym | --dlvsym]     looks the calls up, instead of being linked with them
 */
#include "common.h"

#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>

#define CALLS(X) \
	X(mlx5dv_init_obj) X(mlx5dv_create_qp) X(mlx5dv_devx_obj_create) X(mlx5dv_devx_obj_destroy) \
	X(efadv_create_qp_ex) X(efadv_create_driver_qp) X(efadv_create_cq)

#define DECLARE(name) static __typeof__(&name) c_##name = name;
CALLS(DECLARE)

static void look_up(bool with_version)
{
	void *mlx5 = dlopen("libmlx5.so.1", RTLD_NOW), *efa = dlopen("libefa.so.1", RTLD_NOW);

	CHECK(mlx5 && efa);
#define LOOK_UP(name) \
	c_##name = with_version ? dlvsym(#name[0] == 'm' ? mlx5 : efa, #name, #name[0] == 'm' ? "MLX5_1.0" : "EFA_1.0") : \
				  dlsym(#name[0] == 'm' ? mlx5 : efa, #name); \
	CHECK(c_##name);
	CALLS(LOOK_UP)
}

static struct dev *d;

static struct q *use(struct ibv_qp *qp)
{
	struct q *q = q_adopt(d, qp);

	q_pair(q, q);
	for (uint64_t i = 0; i < 5; i++)
		CHECK(!post(q, IBV_WR_RDMA_WRITE, i, 1000, IBV_SEND_SIGNALED) && drain(q->send_cq) == 1);
	return q;
}

static bool devx(uint16_t opcode)
{
	uint8_t command[64] = { (uint8_t)(opcode >> 8), (uint8_t)opcode }, answer[16];
	struct mlx5dv_devx_obj *o = c_mlx5dv_devx_obj_create(d->ctx, command, sizeof(command), answer, sizeof(answer));

	return o && !c_mlx5dv_devx_obj_destroy(o);
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr plain = { .cap = { 64, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr_ex init = {
		.cap = { 64, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 64 };
	struct ibv_cq *cq, *efa_cq;
	struct mlx5dv_qp qp_out;
	struct mlx5dv_cq cq_out;
	struct mlx5dv_obj obj;
	struct q *q[5];

	want_model();
	if (arg_flag(argc, argv, "dlsym") || arg_flag(argc, argv, "dlvsym"))
		look_up(arg_flag(argc, argv, "dlvsym"));
	d = dev_open(0);
	cq = cq_make(d, 64);
	CHECK((efa_cq = ibv_cq_ex_to_cq(c_efadv_create_cq(d->ctx, &cq_attr, NULL, 0))));
	plain.send_cq = plain.recv_cq = cq;
	init.send_cq = init.recv_cq = cq;
	init.pd = d->pd;
	q[0] = use(c_mlx5dv_create_qp(d->ctx, &init, NULL));
	q[1] = use(c_efadv_create_qp_ex(d->ctx, &init, NULL, 0));
	plain.send_cq = plain.recv_cq = efa_cq;
	q[2] = use(c_efadv_create_driver_qp(d->pd, &plain, 0));
	plain.send_cq = plain.recv_cq = cq;
	q[3] = use(ibv_create_qp(d->pd, &plain));
	q[4] = use(ibv_create_qp(d->pd, &plain)); /* the only one that nothing is said of */
	obj.qp.in = q[3]->qp;
	obj.qp.out = &qp_out;
	obj.cq.in = cq;
	obj.cq.out = &cq_out;
	CHECK(!c_mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
	CHECK(!c_mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP)); /* twice is once */
	CHECK(c_mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH) == EINVAL);
	CHECK(devx(0x500) && devx(0x904) && devx(0x200)); /* CREATE_QP, CREATE_SQ, CREATE_MKEY */
	for (int i = 0; i < 5; i++)
		q_destroy(q[i]);
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(efa_cq));
	dev_close(d);
	report();
	return 0;
}
