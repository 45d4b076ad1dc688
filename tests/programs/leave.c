/* Leaves with verbs in use and work outstanding, in a way that runs no finalisers, with status 7.
 *
 *   leave exit|Exit|quick      _exit, _Exit, quick_exit
 *   leave signal               from a signal handler on the smallest stack there is
 *   leave malloc               from a signal handler that interrupts malloc, in a program with threads
 *   leave together             from eight threads at once
 *   leave cancelled            from a thread that is being cancelled
 *   leave vfork                a child of vfork and one of fork do, and the parent goes on to its own end
 *   leave closed               after closing every descriptor and removing what is in TELEREDUCE_DIR
 */
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#define STATUS 7

static pthread_barrier_t all;

static void on_signal(int sig)
{
	(void)sig;
	_exit(STATUS);
}

static void on_small_stack(void)
{
	static char small[8192];
	stack_t stack = { .ss_sp = small, .ss_size = sizeof(small) };
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };

	CHECK(!sigaltstack(&stack, NULL) && !sigaction(SIGUSR1, &sa, NULL) && !raise(SIGUSR1));
}

static void *busy(void *arg)
{
	void *volatile p[64] = { 0 };

	(void)arg;
	for (unsigned i = 0;; i++) {
		free(p[i % 64]);
		p[i % 64] = malloc(1 + i * 37 % 5000);
	}
	return NULL;
}

static void in_malloc(void)
{
	struct itimerval soon = { .it_value = { 0, 3000 } };
	struct sigaction sa = { .sa_handler = on_signal };
	pthread_t t;

	CHECK(!sigaction(SIGALRM, &sa, NULL) && !pthread_create(&t, NULL, busy, NULL));
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	busy(NULL);
}

static void *one_of_all(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&all);
	_exit(STATUS);
}

static void *cancelled(void *arg)
{
	(void)arg;
	CHECK(!pthread_cancel(pthread_self()));
	_exit(STATUS);
}

static void threads(void *(*f)(void *), int n)
{
	pthread_t t[8];

	CHECK(!pthread_barrier_init(&all, NULL, (unsigned)n));
	for (int i = 0; i < n; i++)
		CHECK(!pthread_create(&t[i], NULL, f, NULL));
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void children(void)
{
	for (int i = 0; i < 2; i++) {
		pid_t child = i ? fork() : vfork();
		int status;

		if (!child)
			_exit(3);
		CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	}
	exit(STATUS);
}

static void closed(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -f \"$TELEREDUCE_DIR\"/telereduce.*");
	CHECK(!getenv("TELEREDUCE_DIR") || !system(command));
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	_exit(STATUS);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "exit";

	want_model();
	q_half_polled();
	report();
	if (!strcmp(how, "exit"))
		_exit(STATUS);
	if (!strcmp(how, "Exit"))
		_Exit(STATUS);
	if (!strcmp(how, "quick"))
		quick_exit(STATUS);
	if (!strcmp(how, "signal"))
		on_small_stack();
	if (!strcmp(how, "malloc"))
		in_malloc();
	if (!strcmp(how, "together"))
		threads(one_of_all, 8);
	if (!strcmp(how, "cancelled"))
		threads(cancelled, 1);
	if (!strcmp(how, "vfork"))
		children();
	if (!strcmp(how, "closed"))
		closed();
	die("%s: no such way to leave", how);
}
