/*
 * Many made-up worlds (tests/support/world.h), each with faults drawn by its seed; a sanitizer's target and
 * the nightly run. Arguments: count of seeds (default 2000), first seed (default 0), faults (default: drawn).
 * The first seed that fails is printed with what it waits for, and ends the run with status 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/hash.h"
#include "support/world.h"

/* Most seeds get two kinds of fault, every eighth none, every eighth all. */
static uint32_t draw_faults(uint64_t seed)
{
    uint64_t value = sl_mix64(seed ^ UINT64_C(0x5eed));
    uint32_t two = 1u << (value >> 8) % 15 | 1u << (value >> 16) % 15;
    uint32_t faults = value % 8 == 0 ? 0 : value % 8 == 1 ? (uint32_t)WORLD_FAULTS : two;
    return faults | ((value >> 32) % 16 == 0 ? (uint32_t)WORLD_ALONE : 0);
}

static uint64_t argument(int argc, char **argv, int index, uint64_t otherwise)
{
    return index < argc ? strtoull(argv[index], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
    uint64_t count = argument(argc, argv, 1, 2000);
    uint64_t first = argument(argc, argv, 2, 0);
    uint64_t faults = argument(argc, argv, 3, UINT64_MAX);
    uint64_t succeeded = 0, cancelled = 0, failed = 0, steps = 0;
    struct world_result result;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct world_options options = {.seed = seed, .faults = (uint32_t)faults};
        if (faults == UINT64_MAX)
            options.faults = draw_faults(seed);
        if (!world_run(&options, &result)) {
            printf("%s", result.text);
            return 1;
        }
        succeeded += result.succeeded;
        cancelled += result.cancelled;
        failed += result.failed;
        steps += result.steps;
    }
    printf("%" PRIu64 " worlds settled in %" PRIu64 " steps: %" PRIu64 " runs succeeded, %" PRIu64
           " cancelled, %" PRIu64 " failed\n",
           count, steps, succeeded, cancelled, failed);
    return 0;
}
