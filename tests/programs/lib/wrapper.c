/* Somebody else's preloaded library: counts calls of libc and of libibverbs, and passes them on to the next function of
 * the name, or, with WRAPPER_BY_HANDLE set, to that of a libibverbs which it loads itself. Says on stdout what it counted;
 * the sums do not depend on who else is preloaded. */
#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int creates, destroys, opens;
static _Thread_local int depth;

static void *next(const char *name)
{
	void *handle = RTLD_NEXT, *p;

	if (getenv("WRAPPER_BY_HANDLE") && name[0] == 'i')
		handle = dlopen("libibverbs.so.1", RTLD_NOW);
	p = handle ? dlsym(handle, name) : NULL;
	if (!p || p == (void *)ibv_create_qp || p == (void *)ibv_destroy_qp || p == (void *)open) {
		fprintf(stderr, "wrapper: the next %s is %s\n", name, p ? "itself" : "missing");
		abort();
	}
	return p;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *(*real)(struct ibv_pd *, struct ibv_qp_init_attr *) = next("ibv_create_qp");
	struct ibv_qp *qp;

	creates += depth++ == 0;
	qp = real(pd, init);
	depth--;
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*real)(struct ibv_qp *) = next("ibv_destroy_qp");
	int rc;

	destroys += depth++ == 0;
	rc = real(qp);
	depth--;
	return rc;
}

int open(const char *path, int flags, ...)
{
	int (*real)(const char *, int, ...) = next("open");
	va_list ap;
	int mode = 0;

	va_start(ap, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(ap, int);
	va_end(ap);
	opens++;
	return real(path, flags, mode);
}

void *malloc(size_t size)
{
	static void *(*real)(size_t);

	if (!real)
		real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
	return real(size);
}

__attribute__((destructor)) static void report(void)
{
	printf("wrapper creates %d destroys %d opens %s\n", creates, destroys, opens >= 0 ? "some" : "none");
	fflush(stdout);
}
