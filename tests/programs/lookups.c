/* Looks up what is there and what is not, in every way, and prints what it finds: the same natively and preloaded.
 *
 *   lookups [LIBRARY]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *verbs;
static int threads_wrong;

static const char *const names[] = {
	"ibv_open_device", "ibv_close_device", "ibv_create_qp", "ibv_destroy_qp", "ibv_create_cq", "ibv_modify_qp",
	"ibv_get_device_list", "ibv_alloc_pd", "ibv_no_such_call", "ibv_", "ibv_create_q", "ibv_create_qpx", "",
};
static const char *const versions[] = { "IBVERBS_1.1", "IBVERBS_1.0", "IBVERBS_9.9", "GLIBC_2.2.5", "", "x y\n" };

/* Whether it is there, and what dlerror says then. */
static void say(const char *what, const char *name, const void *p)
{
	const char *error = dlerror();

	printf("%s %s: %s, %s\n", what, name, p ? "found" : "missing", error ? error : "no error");
	if (dlerror())
		puts("and the error is still there");
}

/* The object that a function is in: for what nobody may replace. */
static const char *object(const void *p)
{
	Dl_info info = { 0 };
	const char *slash = p && dladdr(p, &info) ? strrchr(info.dli_fname, '/') : NULL;

	return slash ? slash + 1 : "nowhere";
}

/* How a look-up ends that no sane program makes. */
static void outcome(const char *what, const char *name, const char *version, int by_version)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		void *p = by_version ? dlvsym(verbs, name, version) : dlsym(verbs, name);

		_exit(p ? 1 : 2);
	}
	waitpid(pid, &status, 0);
	printf("%s: status %x\n", what, (unsigned)status);
}

static void *many(void *unused)
{
	void *first[sizeof(names) / sizeof(*names)] = { 0 };

	(void)unused;
	for (int round = 0; round < 500; round++)
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			void *p = dlsym(verbs, names[i]), *v = dlvsym(verbs, names[i], "IBVERBS_1.1");

			if (!p != !v || (p && p != v) || (round && p != first[i]))
				__atomic_fetch_add(&threads_wrong, 1, __ATOMIC_RELAXED);
			first[i] = p;
			if (!dlsym(RTLD_DEFAULT, "puts"))
				__atomic_fetch_add(&threads_wrong, 1, __ATOMIC_RELAXED);
		}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *file = argc > 1 ? argv[1] : "libibverbs.so.1";
	void *self = dlopen(NULL, RTLD_NOW), *libm = dlopen("libm.so.6", RTLD_NOW), *again;
	pthread_t thread[8];

	/* before there is any libibverbs */
	printf("default: %s\n", dlsym(RTLD_DEFAULT, "ibv_open_device") ? "found" : "missing");
	printf("its error names it: %d\n", strstr(dlerror() ?: "", "undefined symbol: ibv_open_device") != NULL);
	printf("self: %s\n", dlsym(self, "ibv_create_qp") ? "found" : "missing");
	printf("its error names it: %d\n", strstr(dlerror() ?: "", "undefined symbol: ibv_create_qp") != NULL);
	say("next", "ibv_no_such_call", dlsym(RTLD_NEXT, "ibv_no_such_call"));
	say("libm", "ibv_create_qp", dlsym(libm, "ibv_create_qp"));
	say("libm", "ibv_create_qp@", dlvsym(libm, "ibv_create_qp", "IBVERBS_1.1"));
	say("default", "ibv_create_qp@", dlvsym(RTLD_DEFAULT, "ibv_create_qp", "IBVERBS_1.1"));
	say("default", "puts", dlsym(RTLD_DEFAULT, "puts"));
	say("next", "malloc", dlsym(RTLD_NEXT, "malloc"));
	printf("malloc is libc's: %s\n", object(dlsym(RTLD_NEXT, "malloc")));
	printf("dlsym finds dlsym: %d\n", dlsym(RTLD_DEFAULT, "dlsym") == (void *)dlsym);

	verbs = dlopen(file, RTLD_NOW);
	if (!verbs) {
		puts("no libibverbs");
		return 1;
	}
	/* loaded for nobody else to see */
	printf("default: %s\n", dlsym(RTLD_DEFAULT, "ibv_open_device") ? "found" : "missing");
	printf("self: %s\n", dlsym(self, "ibv_create_qp") ? "found" : "missing");
	dlerror();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		say("dlsym", names[i], dlsym(verbs, names[i]));
		for (size_t k = 0; k < sizeof(versions) / sizeof(*versions); k++)
			say(versions[k], names[i], dlvsym(verbs, names[i], versions[k]));
	}
	/* old calls, and what is not hooked, stay the library's own */
	printf("1.0: %s\n", object(dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0")));
	printf("1.0: %s\n", object(dlvsym(verbs, "ibv_create_qp", "IBVERBS_1.0")));
	printf("list: %s\n", object(dlsym(verbs, "ibv_get_device_list")));
	dlerror();
	/* an error that waits is gone after a look-up that succeeds, as always */
	dlsym(verbs, "ibv_no_such_call");
	say("after an error", "ibv_create_qp", dlsym(verbs, "ibv_create_qp"));
	again = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
	printf("the same by both: %d\n", dlsym(verbs, "ibv_create_qp") == dlvsym(again, "ibv_create_qp", "IBVERBS_1.1"));
	printf("the default is 1.1: %d\n", dlsym(verbs, "ibv_open_device") == dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1"));
	printf("but not 1.0: %d\n", dlsym(verbs, "ibv_open_device") != dlvsym(verbs, "ibv_open_device", "IBVERBS_1.0"));

	outcome("no name", NULL, NULL, 0);
	outcome("no name but a version", NULL, "IBVERBS_1.1", 1);
	outcome("no version", "ibv_create_qp", NULL, 1);
	outcome("neither", NULL, NULL, 1);

	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, many, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	printf("wrong in threads: %d\n", threads_wrong);
	return 0;
}
