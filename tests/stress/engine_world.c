/*
 * Many made-up worlds (tools/faults/world.h), each with faults drawn by its seed; a sanitizer's target and
 * the nightly run. Arguments: count of seeds (default 2000), first seed (default 0), faults (default: drawn).
 * The first seed that fails is printed with what it waits for, and ends the run with status 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/faults/draw.h"
#include "tools/faults/world.h"

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
            options.faults = faults_of_world(seed);
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
