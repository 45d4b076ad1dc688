/* Opens a device, forks; the child waits for its parent's death by SIGKILL, says so, and stays until stdin closes. */
#include <infiniband/verbs.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	pid_t parent = getpid();
	char c;

	if (!list || !list[0] || !ibv_open_device(list[0]))
		return 1;
	if (fork()) {
		pause();
		return 1;
	}
	kill(parent, SIGKILL);
	while (getppid() == parent)
		usleep(1000);
	puts("parent gone");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}
