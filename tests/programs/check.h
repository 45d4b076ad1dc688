/* For programs and plugins that do not share common.c: what must hold, or the program ends and says what does not. */
#ifndef PROGRAMS_CHECK_H
#define PROGRAMS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
			exit(1); \
		} \
	} while (0)

#endif
