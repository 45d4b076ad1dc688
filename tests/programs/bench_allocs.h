/* Counts the allocations of the whole process, preloads included, while asked to. */
#ifndef BENCH_ALLOCS_H
#define BENCH_ALLOCS_H

#include <stdbool.h>

/* true: start at 0. false: stop, and return how many there were. */
unsigned long count_allocs(bool on);

#endif
