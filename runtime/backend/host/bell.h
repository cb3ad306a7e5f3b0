/*
 * bell.h: a wake-up that cannot be lost, between threads and between processes.
 *
 * A waiter looks, checks its condition, and waits for the bell to leave the value that it saw. Whoever makes the
 * condition true rings afterwards. The bell may lie in shared memory; the system is called only when somebody sleeps.
 */
#ifndef SL_HOST_BELL_H
#define SL_HOST_BELL_H

#include <stdatomic.h>
#include <stdint.h>

struct sl_bell {
    _Atomic uint32_t rings;
    _Atomic uint32_t sleepers; /* a killed process may leave it too high: that costs calls, not correctness */
};

/* To be called before the condition is checked. Any thread. */
uint32_t sl_bell_look(struct sl_bell *bell);
/* Wakes all waiters. Any thread or process. */
void sl_bell_ring(struct sl_bell *bell);
/* Returns when the bell was rung after `seen`, or after `timeout_ns`, or for no reason. */
void sl_bell_wait(struct sl_bell *bell, uint32_t seen, uint64_t timeout_ns);

#endif
