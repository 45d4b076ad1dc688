/* QP numbers: 24 bits, unique per device, found again in two steps through a table of pages. */
#include "nullverbs.h"
#include "script.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t wanted; /* set by nullverbs_reuse_qpn; 0: none */

static struct nv_qp **slot(struct nv_device *dev, uint32_t qpn, bool make)
{
	struct nv_qp ***page = &dev->qpn_page[(qpn & 0xffffff) / NV_QPN_PAGE];

	if (!*page && make)
		*page = calloc(NV_QPN_PAGE, sizeof(**page));
	return *page ? &(*page)[qpn % NV_QPN_PAGE] : NULL;
}

struct nv_qp *nv_qpn_find(struct nv_device *dev, uint32_t qpn)
{
	struct nv_qp **s = qpn > 0xffffff ? NULL : slot(dev, qpn, false);

	return s ? *s : NULL;
}

struct nv_qp *nv_qpn_find_any(uint32_t qpn)
{
	struct nv_qp *qp = NULL;

	for (int i = 0; i < nv_config()->devices && !qp; i++)
		qp = nv_qpn_find(nv_device_at(i), qpn);
	return qp;
}

static int settle(struct nv_device *dev, struct nv_qp *qp, uint32_t qpn)
{
	struct nv_qp **s = slot(dev, qpn, true);

	if (!s)
		return ENOMEM;
	if (*s)
		return EBUSY;
	*s = qp;
	qp->base.qp_num = qpn;
	return 0;
}

/* A number given back comes round again only after all others, unless the script asks for it. */
int nv_qpn_take(struct nv_device *dev, struct nv_qp *qp)
{
	if (wanted) {
		uint32_t qpn = wanted;

		wanted = 0;
		return settle(dev, qp, qpn);
	}
	for (uint32_t tries = 0; tries < 0xffffff; tries++) {
		int err = settle(dev, qp, dev->next_qpn);

		dev->next_qpn = dev->next_qpn >= 0xfffffe ? nv_config()->qpn_base : dev->next_qpn + 1;
		if (err != EBUSY)
			return err;
	}
	return ENOSPC;
}

void nv_qpn_give(struct nv_device *dev, uint32_t qpn)
{
	struct nv_qp **s = slot(dev, qpn, false);

	if (s)
		*s = NULL;
}

void nv_qpn_each(struct nv_device *dev, void (*f)(struct nv_qp *, void *), void *arg)
{
	for (uint32_t p = 0; p < NV_QPN_PAGES; p++)
		for (uint32_t i = 0; dev->qpn_page[p] && i < NV_QPN_PAGE; i++)
			if (dev->qpn_page[p][i])
				f(dev->qpn_page[p][i], arg);
}

int nullverbs_access(uint32_t qpn, unsigned *flags)
{
	struct nv_qp *qp;

	nv_lock();
	qp = nv_qpn_find_any(qpn);
	if (qp)
		*flags = qp->attr.qp_access_flags;
	nv_unlock();
	return qp ? 0 : ENOENT;
}

int nullverbs_reuse_qpn(uint32_t qpn)
{
	if (!qpn || qpn > 0xffffff)
		return EINVAL;
	nv_lock();
	wanted = qpn;
	nv_unlock();
	return 0;
}
