/*
 * Every allocation, and every call of a backend, fails once in turn through open, seal, run, commit and close of some
 * ranks, until a clean pass: all settles, nothing is left, and what a failure leaves is as the oracles want it.
 */
#include <criterion/criterion.h>

#include "tools/faults/job.h"

/* Jobs of different shape: alone and in company, in place and in shadow memory, with digests, parts of plans. */
static const uint64_t seeds[] = {1, 2, 3, 5, 8, 13};

static uint64_t run_all(uint64_t seed, _Bool calls)
{
    struct job_result result = {.struck = 1};
    uint64_t n = 0;
    while (result.struck) {
        struct job_options options = {.seed = seed};
        *(calls ? &options.fail_call : &options.fail_allocation) = ++n;
        cr_assert(job_run(&options, &result), "number %lu: %s", (unsigned long)n, result.text);
    }
    cr_assert_gt(result.succeeded, 0);
    cr_assert_eq(result.failed, 0);
    return n;
}

Test(nth, every_allocation_fails_once)
{
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        cr_assert_gt(run_all(seeds[i], 0), 50);
}

Test(nth, every_call_of_a_backend_fails_once)
{
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        cr_assert_gt(run_all(seeds[i], 1), 50);
}
