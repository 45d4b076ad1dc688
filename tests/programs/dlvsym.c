/* Not linked to libibverbs: loads it, looks the calls up on the handle, and uses post_send and poll_cq inline, through
 * the context. As collectives libraries do: by dlvsym, calls that may be missing included, and the data path on a thread
 * of its own.
 *
 *   dlvsym [--dlsym] [--mixed] [--default] [--deepbind] [--global] [--dlmopen] [--again] [--cancel] [LIBRARY...]
 *
 * Several libraries are used at the same time. --dlsym: plain dlsym instead; --mixed: in turn; --default: on RTLD_DEFAULT,
 * where --global put them; --dlmopen: in a namespace of its own; --again: loaded, used and unloaded several times;
 * --cancel: a thread that waits for asynchronous events is cancelled.
 */
#define CALLS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) X(ibv_open_device) X(ibv_close_device) \
	X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_query_device) X(ibv_query_port) X(ibv_query_gid) \
	X(ibv_query_qp) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr) X(ibv_create_cq) \
	X(ibv_destroy_cq) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp) X(ibv_fork_init) X(ibv_event_type_str)
#define MEMBER(name) __typeof__(name) *name##_p;
#define FLOW_CALLS CALLS(MEMBER)
#define C(name) f->name##_p

#include "flow.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#undef ibv_query_port

static bool plain, mixed, on_default, deepbind, global, own_namespace, again, cancels;

static void *find(void *lib, const char *name, const char *version, bool optional)
{
	static int turn;
	void *p;

	lib = on_default ? RTLD_DEFAULT : lib;
	p = plain || (mixed && turn++ % 2) ? dlsym(lib, name) : dlvsym(lib, name, version);
	if (!p && !optional) {
		fprintf(stderr, "dlvsym: no %s@%s: %s\n", name, version, dlerror());
		exit(1);
	}
	return p;
}

static void *load(const char *name)
{
	int mode = RTLD_NOW | (deepbind ? RTLD_DEEPBIND : 0) | (global ? RTLD_GLOBAL : RTLD_LOCAL);
	void *lib = own_namespace ? dlmopen(LM_ID_NEWLM, name, RTLD_NOW) : dlopen(name, mode);

	if (!lib)
		fprintf(stderr, "dlvsym: %s\n", dlerror());
	CHECK(lib);
	return lib;
}

static void look_up(struct flow *f, void *lib)
{
#define FIND(name) f->name##_p = find(lib, #name, "IBVERBS_1.1", false);
	CALLS(FIND)
	CHECK(find(lib, "ibv_reg_mr_iova2", "IBVERBS_1.8", true));
	CHECK(find(lib, "ibv_query_ece", "IBVERBS_1.10", true) && find(lib, "ibv_set_ece", "IBVERBS_1.10", true));
	CHECK(find(lib, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", true));
	CHECK(!find(lib, "ibv_query_port_speed", "IBVERBS_1.16", true));
	CHECK(!dlvsym(lib, "ibv_create_qp", "IBVERBS_9.9") && dlerror() && !dlerror());
}

static void *work(void *f)
{
	flow_work(f);
	return NULL;
}

static void *sleep_for_good(void *f)
{
	struct ibv_async_event event;

	((struct flow *)f)->ibv_get_async_event_p(((struct flow *)f)->ctx, &event);
	return NULL;
}

/* As it is done with a thread that waits for asynchronous events. */
static void cancel_a_sleeper(struct flow *f)
{
	pthread_t thread;
	void *result;

	CHECK(!pthread_create(&thread, NULL, sleep_for_good, f));
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);
}

int main(int argc, char **argv)
{
	const struct { const char *name; bool *flag; } flags[] = {
		{ "--dlsym", &plain }, { "--mixed", &mixed }, { "--default", &on_default }, { "--deepbind", &deepbind },
		{ "--global", &global }, { "--dlmopen", &own_namespace }, { "--again", &again },
		{ "--cancel", &cancels },
	};
	const char *name[16] = { "libibverbs.so" };
	struct flow flow[16] = { 0 };
	void *lib[16];
	int n = 0, rounds, reported = 0;

	setenv("NULLVERBS_MODE", "model", 0);
	for (int i = 1; i < argc; i++) {
		bool known = false;

		for (size_t k = 0; k < sizeof(flags) / sizeof(*flags); k++)
			if (!strcmp(argv[i], flags[k].name))
				*flags[k].flag = known = true;
		CHECK(known || (argv[i][0] != '-' && n < 16));
		if (!known)
			name[n++] = argv[i];
	}
	n = n ? n : 1;
	rounds = again ? 5 : 1;
	for (int r = 0; r < rounds; r++) {
		pthread_t thread;

		for (int i = 0; i < n; i++)
			look_up(&flow[i], lib[i] = load(name[i]));
		for (int i = 0; i < n; i++)
			flow_open(&flow[i]);
		for (int i = 0; i < n; i++) {
			CHECK(!pthread_create(&thread, NULL, work, &flow[i]));
			CHECK(!pthread_join(thread, NULL));
			if (cancels)
				cancel_a_sleeper(&flow[i]);
			flow_report_qp(reported++, &flow[i]);
		}
		for (int i = 0; i < n; i++)
			flow_close(&flow[i]);
		for (int i = n - 1; i >= 0; i--)
			CHECK(!again || !dlclose(lib[i]));
	}
	flow_report_total(reported, flow[0].name);
	return 0;
}
