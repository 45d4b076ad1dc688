/* What objects can be created in besides a PD: thread domains, parent domains, XRC domains; and memory windows, of which
 * binding is all there is. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>

static void *make(size_t bytes)
{
	void *o = calloc(1, bytes);

	if (!o)
		errno = ENOMEM;
	return o;
}

struct ibv_td *nv_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *init)
{
	struct ibv_td *td;

	if (init->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = make(sizeof(*td));
	if (td)
		td->context = ctx;
	return td;
}

int nv_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

/* Its users count as the true PD's. */
struct ibv_pd *nv_alloc_parent_domain(struct ibv_context *ctx, struct ibv_parent_domain_init_attr *init)
{
	struct nv_pd *pd;

	if (!init->pd || init->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	pd = make(sizeof(*pd));
	if (!pd)
		return NULL;
	pd->base.context = ctx;
	pd->parent = nv_root(init->pd);
	nv_lock();
	pd->parent->users++;
	nv_unlock();
	return &pd->base;
}

struct ibv_xrcd *nv_open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *init)
{
	struct ibv_xrcd *x;

	if (!(init->comp_mask & IBV_XRCD_INIT_ATTR_FD) || init->fd != -1) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	x = make(sizeof(*x));
	if (x)
		x->context = ctx;
	return x;
}

int nv_close_xrcd(struct ibv_xrcd *x)
{
	free(x);
	return 0;
}

struct ibv_mw *nv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = make(sizeof(*mw));

	if (!mw)
		return NULL;
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	mw->rkey = 0x33;
	return mw;
}

int nv_dealloc_mw(struct ibv_mw *mw)
{
	free(mw);
	return 0;
}

/* A WR as any other; posted directly, not through the context's table, as in any provider. */
int nv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = { .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags }, *bad;
	int err;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	err = nv_config()->model ? nv_model_post_send(qp, &wr, &bad) : nv_null_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}
