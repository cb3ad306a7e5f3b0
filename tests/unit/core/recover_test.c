/* A new epoch of the ranks that are left, in one process: rank 3 of 4 closes its runtime. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/many.h"

static struct many many;

enum { PARAMS = 4, BYTES = 48 * 1024, LEAVER = 3 };

static struct sluice_seal_options small_windows(void)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = 32 * 1024;
    return options;
}

static void run(struct many_rank *rank, uint64_t version, sluice_status expected)
{
    sluice_transfer *transfer = NULL;
    struct sluice_transfer_options options = many_options(rank);
    options.version = version;
    cr_assert_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), expected, "%s", sluice_last_error()->text);
    sluice_transfer_destroy(transfer);
}

/* The runtime and the plan of the new epoch in place of the old ones. */
static void recover(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    uint32_t windows = sluice_plan_windows(rank->plan);
    cr_assert_eq(sluice_runtime_recover(rank->runtime, 0, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_plan_recover(rank->plan, runtime, &plan), SLUICE_OK, "%s", sluice_last_error()->text);
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = runtime;
    rank->plan = plan;
    many_seal(rank, &seal);
    cr_assert_eq(sluice_plan_windows(plan), windows);
}

static void lose_one(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    many_plan(rank, 2, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    run(rank, 1, SLUICE_OK);
    many_meet(rank);
    if (rank->rank == LEAVER) {
        many_drop(rank);
        return;
    }
    run(rank, 2, SLUICE_PEER_LOST);
    recover(rank);
    cr_expect_eq(sluice_runtime_world(rank->runtime), 3u);
    cr_expect_eq(sluice_runtime_rank(rank->runtime), rank->rank);
    cr_expect_eq(sluice_runtime_origin(rank->runtime, 2), 2u);
    cr_expect_eq(sluice_runtime_origin(rank->runtime, 3), UINT32_MAX);
    cr_expect_eq(sluice_version(rank->plan), 1u);
    many_fill(rank, 6);
    run(rank, 2, SLUICE_OK);
    cr_expect(many_holds(rank, 6));
    cr_expect_eq(sluice_version(rank->plan), 2u);
    many_drop(rank);
}

Test(recover, goes_on_among_the_ranks_that_are_left)
{
    many_run(&many, 4, lose_one);
}

/* Nobody is lost: one epoch follows another, and the first plan serves all. */
static void again_and_again(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_plan *first = NULL;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    first = rank->plan;
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        sluice_runtime *runtime = NULL;
        sluice_plan *plan = NULL;
        cr_assert_eq(sluice_runtime_recover(rank->runtime, 0, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
        cr_assert_eq(sluice_plan_recover(first, runtime, &plan), SLUICE_OK);
        sluice_runtime_close_wait(rank->runtime);
        rank->runtime = runtime;
        rank->plan = plan;
        many_seal(rank, &seal);
        many_fill(rank, epoch);
        run(rank, epoch + 1, SLUICE_OK);
        cr_expect(many_holds(rank, epoch));
        sluice_plan_destroy(plan);
    }
    rank->plan = first;
    many_drop(rank);
}

Test(recover, may_be_asked_for_when_nobody_is_lost_and_again_later)
{
    many_run(&many, 3, again_and_again);
}

static void missing(struct many_rank *rank)
{
    sluice_runtime *runtime = NULL;
    many_meet(rank);
    if (rank->rank < 2) {
        cr_assert_eq(sluice_runtime_recover(rank->runtime, SLUICE_SECOND, &runtime), SLUICE_TIMEOUT);
        cr_assert_not_null(strstr(sluice_last_error()->text, "missing: 2"), "%s", sluice_last_error()->text);
    }
    many_meet(rank);
    cr_assert_eq(sluice_runtime_recover(rank->runtime, 0, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = runtime;
}

Test(recover, names_the_rank_that_does_not_ask_for_it_and_may_be_tried_again)
{
    many_run(&many, 3, missing);
}

static void alone(struct many_rank *rank)
{
    sluice_runtime *runtime = NULL;
    cr_assert_eq(sluice_runtime_recover(rank->runtime, 0, &runtime), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "open it again"), "%s", sluice_last_error()->text);
}

Test(recover, is_not_for_a_world_of_one)
{
    many_run(&many, 1, alone);
}
