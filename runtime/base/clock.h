/* clock.h: monotonic time as a table, so that simulation and tests can own it. Never the wall clock. */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

#include <stdint.h>

struct sl_clock {
    uint64_t (*now)(void *context); /* nanoseconds, never goes back */
    void *context;
};

/* CLOCK_MONOTONIC. */
const struct sl_clock *sl_clock_system(void);
static inline uint64_t sl_now(const struct sl_clock *clock)
{
    return clock->now(clock->context);
}
/* A deadline `timeout` after `now`, saturating; UINT64_MAX stays "none". */
static inline uint64_t sl_deadline(uint64_t now, uint64_t timeout)
{
    return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

#endif
