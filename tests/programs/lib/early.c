/* Looks things up in a constructor: before those of libraries that were loaded earlier, or, as `first`, before everybody
 * else's, libc's own included, where no library can be loaded yet. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char seen[4096];

static void see(const char *what, const void *p)
{
	snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "early %s: %s\n", what, p ? "found" : "missing");
}

__attribute__((constructor)) static void before_everybody(void)
{
#ifndef FIRST
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
#endif

	see("malloc", dlsym(RTLD_NEXT, "malloc"));
	see("nothing", dlsym(RTLD_DEFAULT, "no_such_function"));
	see("not by default", dlsym(RTLD_DEFAULT, "ibv_open_device"));
	see("versioned", dlvsym(RTLD_DEFAULT, "malloc", "NOSUCH_1"));
#ifndef FIRST
	see("list", verbs ? dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1") : NULL);
	see("open", verbs ? dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1") : NULL);
#endif
}

__attribute__((destructor)) static void say(void)
{
	fputs(seen, stdout);
	fflush(stdout);
}
