/*
 * stage_stress.c: staging under the thread sanitizer: the crew fills and empties slots while this thread moves chunks on.
 * Usage: stage_stress [rounds] [seed]
 */
#include <stdio.h>
#include <stdlib.h>

#include "support/stage_bench.h"

int main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (uint32_t slots = 2; slots <= SL_STAGE_SLOTS_MAX; slots += 7)
        stage_bench_windows(slots, 0, rounds, seed + slots);
    printf("stage_stress: %u rounds with seed %llu are right\n", rounds, (unsigned long long)seed);
    return 0;
}
