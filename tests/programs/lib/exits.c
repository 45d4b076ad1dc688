/* Wraps _exit, as other preloaded libraries may. */
#include <sys/syscall.h>
#include <unistd.h>

void _exit(int status)
{
	if (write(1, "wrapped\n", 8) == 8)
		syscall(SYS_exit_group, status + 1);
	__builtin_trap();
}
