/* draw.c: see draw.h. */
#include "tools/faults/draw.h"

#include "runtime/base/hash.h"
#include "tools/faults/job.h"
#include "tools/faults/world.h"

static uint32_t draw(uint64_t seed, uint32_t kinds, uint32_t all)
{
    uint64_t value = sl_mix64(seed ^ UINT64_C(0x5eed));
    uint32_t two = 1u << (value >> 8) % kinds | 1u << (value >> 16) % kinds;
    return value % 8 == 0 ? 0 : value % 8 == 1 ? all : two;
}

uint32_t faults_of_world(uint64_t seed)
{
    uint32_t alone = (sl_mix64(seed ^ UINT64_C(0x5eed)) >> 32) % 16 == 0 ? (uint32_t)WORLD_ALONE : 0;
    return draw(seed, 15, WORLD_FAULTS) | alone;
}

uint32_t faults_of_job(uint64_t seed)
{
    return draw(seed, 15, JOB_FAULTS);
}
