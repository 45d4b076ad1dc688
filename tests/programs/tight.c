/* Little room: no verbs here, only what a preloaded library may not need more of.
 *
 *   tight stack       look-ups on the smallest stack that a thread can have
 *   tight seccomp     only the system calls that the end of a program needs
 */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *look_up(void *unused)
{
	(void)unused;
	return dlsym(RTLD_DEFAULT, "puts") && dlsym(RTLD_NEXT, "malloc") && !dlsym(RTLD_DEFAULT, "ibv_open_device") ?
		       (void *)1 :
		       NULL;
}

static int stack(void)
{
	static char room[65536] __attribute__((aligned(4096)));
	pthread_attr_t attr;
	pthread_t thread;
	void *found;

	pthread_attr_init(&attr);
	if (pthread_attr_setstack(&attr, room, PTHREAD_STACK_MIN) || pthread_create(&thread, &attr, look_up, NULL))
		return 1;
	pthread_join(thread, &found);
	puts(found ? "found" : "missing");
	return 0;
}

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int seccomp(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(write), ALLOW(exit_group), ALLOW(brk), ALLOW(newfstatat), ALLOW(getrandom), ALLOW(futex),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		puts("no seccomp here");
		return 0;
	}
	puts(look_up(NULL) ? "found" : "missing");
	return 3;
}

int main(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[1], "seccomp") ? seccomp() : stack();
}
