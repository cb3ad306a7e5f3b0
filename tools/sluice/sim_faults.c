/*
 * sluice sim --faults: made-up worlds by seed, each with faults that its seed draws.
 *
 * Each seed is two worlds: engines and an arbiter alone, where steps are small and orders wild, and a job of whole
 * runtimes on simulated devices. Invariant: a seed means the same in every run of one version.
 */
#include "sim_faults.h"

#include <inttypes.h>

#include "tool.h"
#include "tools/faults/draw.h"
#include "tools/faults/job.h"
#include "tools/faults/world.h"

enum { PROGRESS_SEEDS = 50000 };

struct tally {
    uint64_t steps, succeeded, cancelled, failed;
};

static _Bool failed(uint64_t seed, const char *text)
{
    tool_say("a seed failed; again: sluice sim --faults --seed %" PRIu64, seed);
    (void)fputs(text, stderr);
    return 0;
}

static _Bool add(struct tally *tally, uint64_t steps, uint32_t succeeded, uint32_t cancelled, uint32_t failures)
{
    tally->steps += steps;
    tally->succeeded += succeeded;
    tally->cancelled += cancelled;
    tally->failed += failures;
    return 1;
}

static _Bool run_world(uint64_t seed, struct tally *tally)
{
    const struct world_options options = {.seed = seed, .faults = faults_of_world(seed)};
    struct world_result result;
    if (!world_run(&options, &result))
        return failed(seed, result.text);
    return add(tally, result.steps, result.succeeded, result.cancelled, result.failed);
}

static _Bool run_job(uint64_t seed, struct tally *tally)
{
    const struct job_options options = {.seed = seed, .faults = faults_of_job(seed)};
    struct job_result result;
    if (!job_run(&options, &result))
        return failed(seed, result.text);
    return add(tally, result.steps, result.succeeded, result.cancelled, result.failed);
}

static void print(const char *what, uint64_t count, const struct tally *tally)
{
    printf("%" PRIu64 " %s settled in %" PRIu64 " steps: %" PRIu64 " runs succeeded, %" PRIu64 " cancelled, %" PRIu64
           " failed\n",
           count, what, tally->steps, tally->succeeded, tally->cancelled, tally->failed);
}

int sim_faults(uint64_t first, uint64_t count)
{
    struct tally worlds = {0}, jobs = {0};
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && i % PROGRESS_SEEDS == 0)
            tool_say("%" PRIu64 " of %" PRIu64 " seeds", i, count);
        if (!run_world(first + i, &worlds) || !run_job(first + i, &jobs))
            return TOOL_FAILED;
    }
    print("worlds of engines", count, &worlds);
    print("jobs", count, &jobs);
    return tool_finish(TOOL_OK);
}
