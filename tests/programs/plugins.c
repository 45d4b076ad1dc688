/* Not linked to libibverbs: loads plugins that are, each perhaps with another one, and uses them at the same time.
 *
 *   plugins [--global] [--deepbind] FILE...
 */
#define C(name) name
#include "flow.h"

#include <dlfcn.h>
#include <string.h>

int main(int argc, char **argv)
{
	int mode = RTLD_NOW, n = 0, index = 0;
	void *plugin[8];

	setenv("NULLVERBS_MODE", "model", 0);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--global"))
			mode |= RTLD_GLOBAL;
		else if (!strcmp(argv[i], "--deepbind"))
			mode |= RTLD_DEEPBIND;
		else {
			plugin[n] = dlopen(argv[i], mode);
			if (!plugin[n])
				fprintf(stderr, "plugins: %s\n", dlerror());
			CHECK(n < 8 && plugin[n]);
			n++;
		}
	}
	CHECK(n);
	for (const char **step = (const char *[]){ "plugin_open", "plugin_work", "plugin_close", NULL }; *step; step++)
		for (int i = 0; i < n; i++) {
			void (*run)(int) = (void (*)(int))dlsym(plugin[i], *step);

			CHECK(run);
			run(step[1] && !strcmp(step[0], "plugin_work") ? index++ : 0);
		}
	flow_report_total(n, "null0");
	return 0;
}
