/* These replace libc's allocation calls for the whole process and pass on to libc's internal names. */
#include "bench_allocs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static _Atomic bool counting;
static _Atomic unsigned long allocs;

unsigned long count_allocs(bool on)
{
	if (on)
		atomic_store(&allocs, 0);
	atomic_store(&counting, on);
	return atomic_load(&allocs);
}

static void count(void)
{
	if (atomic_load_explicit(&counting, memory_order_relaxed))
		atomic_fetch_add_explicit(&allocs, 1, memory_order_relaxed);
}

void *malloc(size_t n) { return count(), __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return count(), __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return count(), __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return count(), __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return count(), __libc_memalign(a, n); }

int posix_memalign(void **out, size_t a, size_t n)
{
	void *p = (count(), __libc_memalign(a, n));

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
