/* Looks for the calls of providers' own libraries, which this program does not have. */
#include "common.h"

#include <dlfcn.h>

int main(void)
{
	static const char *const names[] = { "mlx5dv_init_obj", "mlx5dv_create_qp", "mlx5dv_devx_obj_create",
					     "efadv_create_qp_ex", "efadv_create_driver_qp", "efadv_create_cq", NULL };
	void *self = dlopen(NULL, RTLD_NOW), *verbs = dlopen("libibverbs.so.1", RTLD_NOW);

	CHECK(self && verbs);
	for (const char *const *n = names; *n; n++) {
		void *found[] = { dlsym(RTLD_DEFAULT, *n), dlsym(RTLD_NEXT, *n), dlsym(self, *n), dlsym(verbs, *n),
				  dlvsym(RTLD_DEFAULT, *n, "MLX5_1.0") };
		bool any = false;

		for (int i = 0; i < 5; i++)
			any = any || found[i];
		printf("%s %s\n", *n, any ? "found" : "absent");
	}
	return 0;
}
