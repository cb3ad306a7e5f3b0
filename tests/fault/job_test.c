/*
 * Made-up jobs by seed: whole runtimes on simulated devices settle, and the oracles hold, whatever fails and whenever.
 */
#include <criterion/criterion.h>

#include "tools/faults/job.h"

enum { SEEDS = 150 };

static struct job_result sum;

static void run_one(uint64_t seed, uint32_t faults)
{
    struct job_options options = {.seed = seed, .faults = faults};
    struct job_result result;
    cr_assert(job_run(&options, &result), "%s", result.text);
    sum.succeeded += result.succeeded;
    sum.cancelled += result.cancelled;
    sum.failed += result.failed;
    sum.aborts += result.aborts;
    sum.seals_failed += result.seals_failed;
}

static void run_seeds(uint32_t faults, uint64_t first)
{
    for (uint64_t seed = first; seed < first + SEEDS; seed++)
        run_one(seed, faults);
}

Test(job, without_faults_every_run_succeeds)
{
    run_seeds(0, 0);
    cr_assert_gt(sum.succeeded, SEEDS);
    cr_assert_eq(sum.failed + sum.cancelled + sum.aborts + sum.seals_failed, 0);
}

Test(job, back_pressure_lost_wake_ups_slow_ranks_and_pauses_change_no_outcome)
{
    run_seeds(JOB_AGAIN, 1000);
    run_seeds(JOB_DEAF, 2000);
    run_seeds(JOB_SLOW | JOB_PAUSE, 3000);
    run_seeds(JOB_HARMLESS, 4000);
    cr_assert_eq(sum.failed + sum.cancelled + sum.aborts + sum.seals_failed, 0);
}

Test(job, cancel_at_any_step_ends_all_ranks_alike)
{
    run_seeds(JOB_CANCEL | JOB_HARMLESS, 5000);
    cr_assert_gt(sum.cancelled, 0);
    cr_assert_gt(sum.succeeded, 0);
    cr_assert_eq(sum.failed, 0);
}

Test(job, refused_and_failed_operations_and_broken_devices_end_in_bounded_time)
{
    run_seeds(JOB_REFUSED, 6000);
    run_seeds(JOB_FAILS, 7000);
    run_seeds(JOB_STICKY | JOB_AGAIN, 8000);
    cr_assert_gt(sum.failed, 0);
    cr_assert_gt(sum.aborts, 0);
}

Test(job, completions_and_aborts_that_come_after_their_deadline_hurt_nobody)
{
    run_seeds(JOB_LATE, 9000);
    run_seeds(JOB_LATE | JOB_FAILS | JOB_ABORT_LATE, 10000);
    cr_assert_gt(sum.failed, 0);
}

Test(job, an_allocation_that_fails_anywhere_hangs_and_loses_nothing)
{
    run_seeds(JOB_NOMEM, 11000);
    run_seeds(JOB_NOMEM | JOB_AGAIN | JOB_CANCEL, 12000);
    cr_assert_gt(sum.failed, 0);
}

Test(job, ranks_that_close_or_die_at_any_step_are_survived)
{
    run_seeds(JOB_CLOSE, 13000);
    run_seeds(JOB_LOSE, 14000);
    run_seeds(JOB_LOSE | JOB_GATE | JOB_PAUSE, 15000);
    cr_assert_gt(sum.failed, 0);
}

Test(job, everything_at_once)
{
    run_seeds(JOB_FAULTS, 16000);
}

/*
 * In this order: a version's outcome that a failed allocation lost; an operation refused behind one that had been
 * taken; a wake-up from a device that was left open; a set in use after an abort that failed; digests of a transfer
 * that had ended; a turn passed outside of an event; memory of digests after a failed allocation; a commit launched
 * while an abort was under way; the first run of the first plan when another rank took the arbiter's place; digests
 * that waited for those of a transfer which was cancelled, and for a turn that came outside of an event; a rank
 * without memory for the word that another one had taken the arbiter's place.
 */
Test(job, seeds_that_once_failed)
{
    static const struct job_options options[] = {
        {.seed = 67, .faults = JOB_REFUSED | JOB_NOMEM},
        {.seed = 386, .faults = JOB_SLOW | JOB_NOMEM},
        {.seed = 90, .faults = JOB_REFUSED | JOB_STICKY},
        {.seed = 244, .faults = JOB_LATE | JOB_CLOSE},
        {.seed = 1670, .faults = JOB_REFUSED | JOB_ABORT_LATE},
        {.seed = 89, .faults = JOB_FAULTS & ~(uint32_t)JOB_DESTROY},
        {.seed = 359, .faults = JOB_REFUSED | JOB_SLOW},
        {.seed = 9044, .faults = JOB_REFUSED | JOB_FAILS},
        {.seed = 13454, .faults = JOB_FAULTS & ~(uint32_t)JOB_DESTROY},
        {.seed = 39832, .faults = JOB_REFUSED | JOB_LATE},
        {.seed = 2221, .faults = JOB_FAULTS & ~(uint32_t)JOB_DESTROY},
        {.seed = 1046198, .faults = JOB_AGAIN | JOB_CANCEL},
        {.seed = 1412161, .faults = JOB_REFUSED | JOB_DEAF},
        {.seed = 2044796, .faults = JOB_FAULTS},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        run_one(options[i].seed, options[i].faults);
}

Test(job, equal_seeds_run_alike)
{
    struct job_options options = {.seed = 4711, .faults = JOB_FAULTS};
    struct job_result first, second;
    cr_assert(job_run(&options, &first), "%s", first.text);
    cr_assert(job_run(&options, &second), "%s", second.text);
    cr_assert_eq(first.trace, second.trace);
    cr_assert_eq(first.steps, second.steps);
}
