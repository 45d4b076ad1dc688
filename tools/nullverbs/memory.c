/* Protection domains, memory regions with their keys, address handles. */
#include "nullverbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ibv_pd *nv_alloc_pd(struct ibv_context *ctx)
{
	struct nv_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->base.context = ctx;
	return &pd->base;
}

int nv_dealloc_pd(struct ibv_pd *pd)
{
	unsigned users;

	nv_lock();
	users = nv_pd(pd)->users;
	nv_unlock();
	if (users)
		return EBUSY;
	if (nv_pd(pd)->parent) {
		nv_lock();
		nv_pd(pd)->parent->users--;
		nv_unlock();
	}
	free(pd);
	return 0;
}

/* A key is (place in the device's table + 1) << 8; places are never used again, so a stale key stays invalid. */
static bool add_mr(struct nv_device *dev, struct nv_mr *mr)
{
	if (dev->mr_len == dev->mr_cap) {
		size_t cap = dev->mr_cap ? dev->mr_cap * 2 : 64;
		struct nv_mr **more = realloc(dev->mr, cap * sizeof(*more));

		if (!more)
			return false;
		dev->mr = more;
		dev->mr_cap = cap;
	}
	mr->base.handle = (uint32_t)dev->mr_len;
	dev->mr[dev->mr_len++] = mr;
	mr->base.lkey = (uint32_t)dev->mr_len << 8 | 0x11;
	mr->base.rkey = (uint32_t)dev->mr_len << 8 | 0x22;
	return true;
}

struct ibv_mr *nv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct nv_mr *mr;
	bool ok;

	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		errno = EINVAL;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.addr = addr;
	mr->base.length = length;
	mr->iova = iova;
	mr->access = access;
	nv_lock();
	ok = add_mr(nv_ctx(pd->context)->dev, mr);
	if (ok)
		nv_root(pd)->users++;
	nv_unlock();
	if (!ok) {
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	return &mr->base;
}

int nv_dereg_mr(struct ibv_mr *mr)
{
	nv_lock();
	nv_ctx(mr->context)->dev->mr[mr->handle] = NULL;
	nv_root(mr->pd)->users--;
	nv_unlock();
	free(mr);
	return 0;
}

void *nv_translate(struct nv_device *dev, struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t len,
		   unsigned access)
{
	size_t at = key >> 8;
	struct nv_mr *mr = at && at <= dev->mr_len ? dev->mr[at - 1] : NULL;

	if (!mr || (key != mr->base.lkey && key != mr->base.rkey) || nv_root(mr->base.pd) != nv_root(pd))
		return NULL;
	if ((mr->access & access) != access)
		return NULL;
	if (addr < mr->iova || len > mr->base.length || addr - mr->iova > mr->base.length - len)
		return NULL;
	return (char *)mr->base.addr + (addr - mr->iova);
}

struct ibv_ah *nv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct nv_ah *ah = calloc(1, sizeof(*ah));

	if (!ah) {
		errno = ENOMEM;
		return NULL;
	}
	ah->base.context = pd->context;
	ah->base.pd = pd;
	ah->attr = *attr;
	ah->dev = nv_device_by_av(nv_ctx(pd->context)->dev, attr);
	nv_lock();
	nv_root(pd)->users++;
	nv_unlock();
	return &ah->base;
}

int nv_destroy_ah(struct ibv_ah *ah)
{
	nv_lock();
	nv_root(ah->pd)->users--;
	nv_unlock();
	free(ah);
	return 0;
}
