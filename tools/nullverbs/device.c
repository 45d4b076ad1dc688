/* Devices and contexts: the list, opening (through the exported verbs_open_device, which a preload may replace),
 * the tables laid out as libibverbs lays them out, and closing. */
#include "nullverbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Part of the library's private interface, so in no public header. */
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);

static struct nv_device *device[NV_MAX_DEVICES];
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;

static void make_devices(void)
{
	for (int i = 0; i < nv_config()->devices; i++) {
		struct nv_device *d = calloc(1, sizeof(*d));

		if (!d)
			abort();
		d->index = i;
		d->next_qpn = nv_config()->qpn_base;
		d->base.node_type = IBV_NODE_CA;
		d->base.transport_type = IBV_TRANSPORT_IB;
		snprintf(d->base.name, sizeof(d->base.name), "null%d", i);
		snprintf(d->base.dev_name, sizeof(d->base.dev_name), "uverbs_null%d", i);
		snprintf(d->base.dev_path, sizeof(d->base.dev_path), "/sys/class/infiniband_verbs/uverbs_null%d", i);
		snprintf(d->base.ibdev_path, sizeof(d->base.ibdev_path), "/sys/class/infiniband/null%d", i);
		device[i] = d;
	}
}

struct nv_device *nv_device_at(int index)
{
	pthread_once(&devices_once, make_devices);
	return device[index];
}

static void another(const char *what)
{
	fprintf(stderr, "nullverbs: %s of another copy of the library was passed to this one\n", what);
	abort();
}

struct nv_context *nv_own(struct ibv_context *ctx)
{
	struct nv_context *c = nv_ctx(ctx);

	if (c->owner != device)
		another("a context");
	return c;
}

struct ibv_device **ibv_get_device_list(int *num)
{
	int n = nv_config()->devices;
	struct ibv_device **list = calloc((size_t)n + 1, sizeof(*list));

	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	for (int i = 0; i < n; i++)
		list[i] = &nv_device_at(i)->base;
	if (num)
		*num = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *dev) { return dev->name; }
int ibv_get_device_index(struct ibv_device *dev) { return ((struct nv_device *)dev)->index; }

static void fill_ops(struct nv_context *c)
{
	struct ibv_context_ops *o = &c->v.context.ops;
	bool model = nv_config()->model;

	c->control = (struct nv_control){
		.alloc_pd = nv_alloc_pd, .dealloc_pd = nv_dealloc_pd,
		.reg_mr = nv_reg_mr, .dereg_mr = nv_dereg_mr,
		.create_cq = nv_create_cq, .resize_cq = nv_resize_cq, .destroy_cq = nv_destroy_cq,
		.create_srq = nv_create_srq, .modify_srq = nv_modify_srq,
		.query_srq = nv_query_srq, .destroy_srq = nv_destroy_srq,
		.create_qp = nv_create_qp, .query_qp = nv_query_qp,
		.modify_qp = nv_modify_qp, .destroy_qp = nv_destroy_qp,
		.create_ah = nv_create_ah, .destroy_ah = nv_destroy_ah,
	};
	o->alloc_mw = nv_alloc_mw;
	o->dealloc_mw = nv_dealloc_mw;
	o->bind_mw = nv_bind_mw;
	o->poll_cq = model ? nv_model_poll_cq : nv_null_poll_cq;
	o->req_notify_cq = nv_req_notify_cq;
	o->post_send = model ? nv_model_post_send : nv_null_post_send;
	o->post_recv = model ? nv_model_post_recv : nv_null_post_recv;
	o->post_srq_recv = model ? nv_model_post_srq_recv : nv_null_post_srq_recv;
#define MIRROR(name) o->_compat_##name = (void *(*)(void))(void (*)(void))c->control.name
	MIRROR(alloc_pd); MIRROR(dealloc_pd); MIRROR(reg_mr); MIRROR(dereg_mr);
	MIRROR(create_cq); MIRROR(resize_cq); MIRROR(destroy_cq);
	MIRROR(create_srq); MIRROR(modify_srq); MIRROR(query_srq); MIRROR(destroy_srq);
	MIRROR(create_qp); MIRROR(query_qp); MIRROR(modify_qp); MIRROR(destroy_qp);
	MIRROR(create_ah); MIRROR(destroy_ah);
#undef MIRROR
}

static void fill_slots(struct nv_context *c)
{
	struct verbs_context *v = &c->v;
	enum nv_abi abi = nv_config()->abi;

	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->sz = sizeof(*v);
	v->priv = (struct verbs_ex_private *)&c->control;
	v->query_port = nv_query_port;
	v->create_cq_ex = nv_create_cq_ex;
	v->create_qp_ex = nv_create_qp_ex;
	v->create_srq_ex = nv_create_srq_ex;
	v->query_device_ex = nv_query_device_ex;
	v->get_srq_num = nv_get_srq_num;
	v->open_xrcd = nv_open_xrcd;
	v->close_xrcd = nv_close_xrcd;
	v->alloc_td = nv_alloc_td;
	v->dealloc_td = nv_dealloc_td;
	v->alloc_parent_domain = nv_alloc_parent_domain;
	v->post_srq_ops = nv_post_srq_ops;
	v->create_wq = nv_create_wq;
	v->modify_wq = nv_modify_wq;
	v->destroy_wq = nv_destroy_wq;
	v->create_rwq_ind_table = nv_create_rwq_ind_table;
	v->destroy_rwq_ind_table = nv_destroy_rwq_ind_table;
	switch (abi) {
	case NV_ABI_NOW:
		break;
	case NV_ABI_FUTURE: /* slots that nobody knows yet, in front of those that everybody knows */
		v->sz += sizeof(c->future);
		memset(c->future, 0xA5, sizeof(c->future));
		break;
	case NV_ABI_SHORT: /* a library from before create_cq_ex: nothing valid in front of ibv_create_flow */
		v->sz = sizeof(*v) - offsetof(struct verbs_context, ibv_create_flow);
		memset(c, 0xA5, offsetof(struct nv_context, v) + offsetof(struct verbs_context, ibv_create_flow));
		break;
	case NV_ABI_OLD: /* a context with nothing in front of it at all */
		memset(c, 0xA5, offsetof(struct nv_context, v) + offsetof(struct verbs_context, context));
		v->context.abi_compat = NULL;
		break;
	}
}

struct ibv_context *verbs_open_device(struct ibv_device *dev, void *private_data)
{
	struct nv_context *c = calloc(1, sizeof(*c));
	struct ibv_context *ctx;

	(void)private_data;
	if (nv_device_at(((struct nv_device *)dev)->index) != (struct nv_device *)dev)
		another("a device");
	if (!c) {
		errno = ENOMEM;
		return NULL;
	}
	c->owner = device;
	ctx = &c->v.context;
	ctx->async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (ctx->async_fd < 0) {
		free(c);
		return NULL;
	}
	ctx->device = dev;
	ctx->cmd_fd = -1;
	ctx->num_comp_vectors = 4;
	pthread_mutex_init(&ctx->mutex, NULL);
	c->dev = (struct nv_device *)dev;
	fill_ops(c);
	fill_slots(c);
	return ctx;
}

struct ibv_context *ibv_open_device(struct ibv_device *dev) { return verbs_open_device(dev, NULL); }

static void abandon(struct nv_qp *qp, void *ctx)
{
	if (qp->base.context == ctx)
		nv_qp_abandon(qp);
}

/* What the program forgot to destroy leaves the device, as the kernel would have it; the handles themselves are
 * only memory and stay. */
int ibv_close_device(struct ibv_context *ctx)
{
	struct nv_context *c = nv_own(ctx);

	nv_lock();
	nv_qpn_each(c->dev, abandon, ctx);
	nv_unlock();
	nv_forget_async(ctx, NULL);
	close(ctx->async_fd);
	pthread_mutex_destroy(&ctx->mutex);
	free(c);
	return 0;
}
