/*
 * memory.h: an allocator table that counts and fails, for tests.
 *
 * Install it first thing in a test: a block goes back to the table that gave it. Counters may be read
 * while threads run.
 */
#ifndef SL_TESTS_MEMORY_H
#define SL_TESTS_MEMORY_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/base/memory.h"

struct test_memory {
    _Atomic uint64_t allocations; /* tried, failed ones too */
    _Atomic int64_t live;         /* blocks not freed */
    _Atomic uint64_t fail_at;     /* this allocation fails, the first is 1; 0: none */
    _Atomic uint64_t failed;      /* how many failed */
};

/* Installs the table for the default memory and for arenas opened from now on. `memory` must live on. */
void test_memory_install(struct test_memory *memory);
/* Starts to count from zero and lets the n-th allocation from now fail (0: none). */
void test_memory_fail_at(struct test_memory *memory, uint64_t n);
void test_memory_remove(void);

#endif
