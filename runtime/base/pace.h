/*
 * pace.h: a token schedule: units of fixed size leave at a rate on average, without bursts beyond one.
 *
 * Pure; time comes in. Late callers may catch up by at most one unit, so that timer jitter costs no rate.
 */
#ifndef SL_BASE_PACE_H
#define SL_BASE_PACE_H

#include <stdint.h>

#include "runtime/base/int128.h"

struct sl_pace {
    uint64_t rate;    /* bytes per second; 0: no limit */
    uint64_t unit;    /* bytes of a unit */
    uint64_t next_ns; /* the next unit may leave then */
};

static inline uint64_t sl_pace_interval(const struct sl_pace *pace)
{
    if (pace->rate == 0)
        return 0;
    sl_u128 interval = (sl_u128)pace->unit * 1000000000u / pace->rate;
    return interval > UINT64_MAX / 4 ? UINT64_MAX / 4 : (uint64_t)interval;
}

/* When the next unit may leave; 0: at any time. */
static inline uint64_t sl_pace_next(const struct sl_pace *pace)
{
    return pace->rate == 0 ? 0 : pace->next_ns;
}

/* A unit leaves now. */
static inline void sl_pace_take(struct sl_pace *pace, uint64_t now)
{
    uint64_t interval = sl_pace_interval(pace);
    uint64_t base = pace->next_ns;
    if (base + interval < now)
        base = now - interval;
    if (pace->next_ns == 0)
        base = now;
    pace->next_ns = base + interval;
}

static inline void sl_pace_set(struct sl_pace *pace, uint64_t rate, uint64_t now)
{
    pace->rate = rate;
    uint64_t soonest = now + sl_pace_interval(pace);
    if (pace->next_ns > soonest)
        pace->next_ns = soonest;
}

#endif
