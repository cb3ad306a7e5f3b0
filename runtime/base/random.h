/* random.h: a small seeded generator (SplitMix64) for tests, simulation and jitter. Not for secrets. */
#ifndef SL_BASE_RANDOM_H
#define SL_BASE_RANDOM_H

#include <stdint.h>

#include "runtime/base/int128.h"

struct sl_random {
    uint64_t state;
};

static inline uint64_t sl_random_next(struct sl_random *random)
{
    uint64_t z = (random->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
/* Uniform in [0, bound); bound > 0. The tiny bias of the multiply is accepted. */
static inline uint64_t sl_random_below(struct sl_random *random, uint64_t bound)
{
    return (uint64_t)(((sl_u128)sl_random_next(random) * bound) >> 64);
}

#endif
