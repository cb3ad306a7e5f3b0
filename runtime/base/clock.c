/* clock.c: the system's monotonic clock. */
#include "runtime/base/clock.h"

#include <time.h>

#include "runtime/base/error.h"

static uint64_t monotonic_now(void *context)
{
    (void)context;
    struct timespec time;
    int failed = clock_gettime(CLOCK_MONOTONIC, &time);
    SL_ASSERT(failed == 0);
    return (uint64_t)time.tv_sec * SLUICE_SECOND + (uint64_t)time.tv_nsec;
}

const struct sl_clock *sl_clock_system(void)
{
    static const struct sl_clock monotonic = {.now = monotonic_now, .context = NULL};
    return &monotonic;
}
