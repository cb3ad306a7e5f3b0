/* threads.h: the threads of this process, as the kernel shows them. */
#ifndef TESTS_SUPPORT_THREADS_H
#define TESTS_SUPPORT_THREADS_H

#include <stdint.h>

struct test_thread {
    int id;
    char name[32];
    uint64_t blocked; /* signals: bit (number - 1) */
};

/* At most `max`; returns how many. Threads that end meanwhile may be missing. */
uint32_t test_threads(struct test_thread *ret, uint32_t max);
_Bool test_thread_blocks(const struct test_thread *thread, int signal_number);

#endif
