/* Somebody else's preloaded library that has a dlsym of its own, as tracers of graphics and of GPUs do. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int asked;

void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);

	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	asked += !strncmp(name, "ibv_", 4);
	return real(handle, name);
}

__attribute__((destructor)) static void report(void)
{
	printf("dlsyms: %s\n", asked ? "asked" : "never asked");
	fflush(stdout);
}
