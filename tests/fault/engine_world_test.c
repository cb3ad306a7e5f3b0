/*
 * Worlds of engines by seed: everything settles, and the oracles hold, whatever fails and whenever.
 */
#include <criterion/criterion.h>

#include "tools/faults/world.h"

enum { SEEDS = 300 };

static struct world_result sum;

static void run_seeds(uint32_t faults, uint64_t first, uint64_t count)
{
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct world_options options = {.seed = seed, .faults = faults};
        struct world_result result;
        cr_assert(world_run(&options, &result), "%s", result.text);
        sum.succeeded += result.succeeded;
        sum.cancelled += result.cancelled;
        sum.failed += result.failed;
        sum.torn += result.torn;
        sum.undecided += result.undecided;
        sum.aborts += result.aborts;
        sum.strays += result.strays;
    }
}

Test(engine_world, without_faults_every_run_succeeds)
{
    run_seeds(0, 0, SEEDS);
    cr_assert(sum.succeeded > SEEDS);
    cr_assert_eq(sum.failed + sum.cancelled, 0);
}

Test(engine_world, pace_and_pauses_change_no_outcome)
{
    run_seeds(WORLD_PAUSE | WORLD_PACED | WORLD_STRAY, 1000, SEEDS);
    cr_assert_eq(sum.failed + sum.cancelled, 0);
    cr_assert(sum.strays > 0);
}

Test(engine_world, a_world_of_one_needs_no_arbiter)
{
    run_seeds(WORLD_ALONE, 2000, SEEDS);
    run_seeds(WORLD_ALONE | WORLD_PAUSE | WORLD_PACED, 3000, SEEDS);
    cr_assert_eq(sum.failed + sum.cancelled, 0);
    run_seeds(WORLD_ALONE | WORLD_CANCEL | WORLD_NODE_FAILS | WORLD_NODE_HANGS | WORLD_GATE_CLOSED, 4000, SEEDS);
    cr_assert(sum.failed > 0 && sum.cancelled > 0);
}

Test(engine_world, cancel_at_any_step_ends_all_ranks_alike)
{
    run_seeds(WORLD_CANCEL, 5000, SEEDS);
    cr_assert(sum.cancelled > 0 && sum.succeeded > 0);
    cr_assert_eq(sum.failed, 0);
    run_seeds(WORLD_CANCEL | WORLD_PAUSE, 6000, SEEDS);
}

Test(engine_world, gates_that_fail_or_stay_closed_leave_the_communicator_whole)
{
    run_seeds(WORLD_GATE_CLOSED, 7000, SEEDS);
    run_seeds(WORLD_GATE_FAILS, 8000, SEEDS);
    cr_assert(sum.failed > 0);
    cr_assert_eq(sum.aborts, 0);
}

Test(engine_world, failed_and_hanging_nodes_end_in_bounded_time)
{
    run_seeds(WORLD_NODE_FAILS, 9000, SEEDS);
    run_seeds(WORLD_NODE_HANGS, 10000, SEEDS);
    cr_assert(sum.failed > 0 && sum.aborts > 0);
}

Test(engine_world, a_lost_rank_is_survived_at_any_step)
{
    run_seeds(WORLD_LOSE, 11000, 2 * SEEDS);
    cr_assert(sum.failed > 0 && sum.undecided > 0);
}

Test(engine_world, the_loss_of_rank_0_is_survived_at_any_step)
{
    run_seeds(WORLD_LOSE_FIRST, 12000, 2 * SEEDS);
    cr_assert(sum.failed > 0 && sum.undecided > 0);
}

Test(engine_world, broken_transports_and_failed_aborts_end_all_runs)
{
    run_seeds(WORLD_BROKEN, 13000, SEEDS);
    run_seeds(WORLD_NODE_FAILS | WORLD_NODE_HANGS | WORLD_ABORT_FAILS, 14000, SEEDS);
    cr_assert(sum.failed > 0 && sum.aborts > 0);
}

Test(engine_world, ranks_that_disagree_fail_alike)
{
    run_seeds(WORLD_MISMATCH | WORLD_DEADLINE, 15000, SEEDS);
    run_seeds(WORLD_REFUSED, 15500, SEEDS);
    cr_assert(sum.failed > 0);
}

Test(engine_world, everything_at_once)
{
    run_seeds(WORLD_FAULTS | WORLD_PACED, 16000, 2 * SEEDS);
    run_seeds(WORLD_FAULTS & ~(uint32_t)WORLD_LOSE_FIRST, 17000, 2 * SEEDS);
}

/* Takeovers: a second loss, an absent rank, a failure told before the standing, an abort beside a success. Then a cancel at
 * the last window, beside a deadline. */
Test(engine_world, seeds_that_once_failed)
{
    static const struct world_options options[] = {
        {.seed = 2804, .faults = WORLD_LOSE_FIRST | WORLD_PAUSE},
        {.seed = 509828, .faults = WORLD_LOSE_FIRST},
        {.seed = 519652, .faults = WORLD_LOSE_FIRST},
        {.seed = 601130, .faults = WORLD_LOSE_FIRST | WORLD_NODE_FAILS},
        {.seed = 602946, .faults = WORLD_LOSE_FIRST | WORLD_NODE_FAILS},
        {.seed = 158085, .faults = WORLD_FAULTS},
        {.seed = 663373, .faults = WORLD_CANCEL | WORLD_LOSE_FIRST},
    };
    struct world_result result;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        cr_assert(world_run(&options[i], &result), "%s", result.text);
}

Test(engine_world, equal_seeds_run_alike)
{
    struct world_options options = {.seed = 4711, .faults = WORLD_FAULTS};
    struct world_result first, second;
    cr_assert(world_run(&options, &first), "%s", first.text);
    cr_assert(world_run(&options, &second), "%s", second.text);
    cr_assert_eq(first.trace, second.trace);
    cr_assert_eq(first.steps, second.steps);
}
