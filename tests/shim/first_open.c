/* Says at each step how many segments, threads and descriptors there are: before the device list, after it, after the
 * first device, after the second, after both are closed.
 *
 *   first_open DIRECTORY
 */
#include <infiniband/verbs.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count(const char *path, const char *prefix)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	if (!d)
		exit(1);
	while ((e = readdir(d)))
		n += !strncmp(e->d_name, prefix, strlen(prefix)) && e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void say(const char *step, const char *dir)
{
	printf("%s segments %d threads %d descriptors %d\n", step, count(dir, "telereduce."), count("/proc/self/task", ""),
	       count("/proc/self/fd", ""));
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	struct ibv_context *a, *b;
	const char *dir = argc > 1 ? argv[1] : ".";

	say("started", dir);
	list = ibv_get_device_list(NULL);
	say("listed", dir);
	if (!list || !list[0] || !(a = ibv_open_device(list[0])))
		return 1;
	say("opened", dir);
	if (!(b = ibv_open_device(list[0])))
		return 1;
	say("again", dir);
	if (ibv_close_device(a) || ibv_close_device(b))
		return 1;
	say("closed", dir);
	ibv_free_device_list(list);
	return 0;
}
