/*
 * bell.c: the bell over a futex.
 *
 * - A waiter counts itself before the kernel compares `rings`; a ringer changes `rings` before it reads the count.
 *   Both are sequentially consistent, so one of them sees the other.
 * - The futex is a shared one, because the same word may be mapped by several processes.
 */
#include "runtime/backend/host/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(_Atomic uint32_t) == 4, "the kernel compares 32 bits");

uint32_t sl_bell_look(struct sl_bell *bell)
{
    return atomic_load(&bell->rings);
}

void sl_bell_ring(struct sl_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleepers) > 0)
        syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sl_bell_wait(struct sl_bell *bell, uint32_t seen, uint64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                                     .tv_nsec = (long)(timeout_ns % 1000000000u)};
    atomic_fetch_add(&bell->sleepers, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, seen, &timeout, NULL, 0);
    atomic_fetch_sub(&bell->sleepers, 1);
}
