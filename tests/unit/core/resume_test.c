/* Transfers that go on with a version that failed: which windows move again, and which do not. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/core/agree.h"
#include "runtime/core/plan_object.h"
#include "support/many.h"

static struct many many;

enum { PARAMS = 6, BYTES = 48 * 1024, OLD = 3, NEW = 4 };

static struct sluice_seal_options small_windows(void)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = 32 * 1024;
    return options;
}

static uint32_t windows_done(const sluice_transfer *transfer)
{
    struct sluice_progress progress = {.size = sizeof progress};
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    return progress.windows_done;
}

/* A version of which the windows before the last parameter arrive, alike on all ranks; returns how many. */
static uint32_t stop_midway(struct many_rank *rank, uint32_t version)
{
    sluice_gate *gate = NULL;
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_param_gate last = {.param = PARAMS - 1, .role = SLUICE_ROLE_SOURCE, .gate = gate};
    struct sluice_transfer_options options = many_options(rank);
    uint32_t first = UINT32_MAX;
    options.version = version;
    options.param_gates = rank->rank == 0 ? &last : NULL;
    options.param_gate_count = rank->rank == 0;
    if (rank->rank == 0) {
        cr_assert_eq(sluice_plan_first_window(rank->plan, PARAMS - 1, SLUICE_ROLE_SOURCE, &first), SLUICE_OK);
        *(uint32_t *)rank->many->context = first;
    }
    many_meet(rank);
    first = *(const uint32_t *)rank->many->context;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    while (windows_done(transfer) < first)
        sched_yield();
    many_meet(rank);
    if (rank->rank == 0)
        sluice_transfer_cancel(transfer);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_CANCELLED);
    cr_assert_eq(windows_done(transfer), first);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    return first;
}

/* Bytes of the destination that hold the new content begin behind those that hold the old; whether both are there. */
static void count_contents(const struct many_rank *rank, uint32_t *ret_old, uint32_t *ret_new)
{
    struct many_rank one = *rank;
    uint8_t *buffers[2 * PARAMS] = {NULL};
    one.buffers = buffers;
    *ret_old = *ret_new = 0;
    for (uint32_t p = 0; p < PARAMS; p++) {
        buffers[2 * p + 1] = rank->buffers[2 * p + 1];
        *ret_old += many_holds(&one, OLD);
        *ret_new += many_holds(&one, NEW);
        buffers[2 * p + 1] = NULL;
    }
}

static void replace_plan(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_plan *plan = NULL;
    uint32_t windows = sluice_plan_windows(rank->plan);
    cr_assert_eq(sluice_plan_recover(rank->plan, rank->runtime, &plan), SLUICE_OK, "%s", sluice_last_error()->text);
    sluice_plan_destroy(rank->plan);
    rank->plan = plan;
    many_seal(rank, &seal);
    cr_assert_eq(sluice_plan_windows(plan), windows);
}

static void fill_sources(struct many_rank *rank, uint64_t seed)
{
    uint8_t *destinations[PARAMS];
    for (uint32_t p = 0; p < PARAMS; p++) {
        destinations[p] = rank->buffers[2 * p + 1];
        rank->buffers[2 * p + 1] = NULL;
    }
    many_fill(rank, seed);
    for (uint32_t p = 0; p < PARAMS; p++)
        rank->buffers[2 * p + 1] = destinations[p];
}

/* What moves is the new content of the sources, so that skipped windows are told from those that moved. */
static void go_on(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    struct sluice_progress progress = {.size = sizeof progress};
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, OLD);
    many_seal(rank, &seal);
    uint32_t have = stop_midway(rank, 7);
    cr_assert_gt(have, 2u);
    replace_plan(rank);
    fill_sources(rank, NEW);
    many_meet(rank);
    struct sluice_transfer_options options = many_options(rank);
    options.version = 7;
    options.resume = 1;
    options.resume_windows = rank->rank == 1 ? have - 2 : have; /* rank 1 lost two windows */
    options.verify = 1;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.windows_skipped, have - 2);
    cr_expect_eq(progress.windows_again, rank->rank == 1 ? 0u : 2u);
    cr_expect_eq(progress.bytes_again > 0, rank->rank != 1);
    cr_expect_eq(progress.bytes_done, progress.bytes_total);
    cr_expect_eq(sluice_version(rank->plan), 7u);
    if (rank->rank > 0) {
        uint32_t old = 0, new = 0;
        count_contents(rank, &old, &new);
        cr_expect_gt(old, 0u, "the first windows were not moved again");
        cr_expect_gt(new, 0u, "the last ones were");
        cr_expect_geq(old + new, PARAMS - 1u);
    }
    sluice_transfer_destroy(transfer);
    many_drop(rank);
}

Test(resume, goes_on_at_the_first_window_that_not_all_have)
{
    uint32_t first = 0;
    many.context = &first;
    many_run(&many, 3, go_on);
}

static void cut_anew(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_plan *plan = NULL;
    struct sluice_progress progress = {.size = sizeof progress};
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, OLD);
    many_seal(rank, &seal);
    uint32_t have = stop_midway(rank, 1);
    cr_assert_eq(sluice_plan_recover(rank->plan, rank->runtime, &plan), SLUICE_OK);
    sluice_plan_destroy(rank->plan);
    rank->plan = plan;
    seal.window_bytes = 16 * 1024;
    many_seal(rank, &seal);
    many_fill(rank, NEW);
    many_meet(rank);
    struct sluice_transfer_options options = many_options(rank);
    options.resume = 1;
    options.resume_windows = have;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.windows_skipped, 0u);
    cr_expect_eq(progress.windows_again, 0u);
    cr_expect(many_holds(rank, NEW));
    sluice_transfer_destroy(transfer);
    many_drop(rank);
}

Test(resume, begins_anew_where_windows_are_cut_otherwise)
{
    uint32_t first = 0;
    many.context = &first;
    many_run(&many, 2, cut_anew);
}

/* All windows are everywhere: the transfer ends by its digests alone, and nothing of its buffers is touched. */
static void has_all(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_transfer_options options = many_options(rank);
    options.version = 7;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, OLD);
    many_seal(rank, &seal);
    many_meet(rank);
    many_complete(many_submit(rank->plan, &options));
    replace_plan(rank);
    fill_sources(rank, NEW);
    options.resume = 1;
    options.resume_windows = sluice_plan_windows(rank->plan);
    options.verify = 1;
    for (uint32_t round = 0; round < 10; round++) {
        options.version = 8 + round;
        many_meet(rank);
        sluice_transfer *transfer = many_submit(rank->plan, &options);
        cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
        cr_expect_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
        cr_expect_eq(progress.windows_skipped, options.resume_windows);
        cr_expect_eq(progress.bytes_done, 0u);
        sluice_transfer_destroy(transfer);
        many_meet(rank);
        cr_expect(many_holds(rank, OLD));
    }
    many_drop(rank);
}

Test(resume, moves_nothing_where_all_ranks_have_all_windows)
{
    many_run(&many, 3, has_all);
}

static void refused(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_transfer *transfer = NULL;
    seal.shadow_bytes = 2 * PARAMS * BYTES;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.resume_windows = 1;
    cr_expect_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_INVALID);
    options.resume = 1;
    options.landing = SLUICE_LANDING_SHADOW;
    cr_expect_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_INVALID);
    replace_plan(rank);
    options.landing = SLUICE_LANDING_IN_PLACE;
    options.resume_windows = sluice_plan_windows(rank->plan) + 1;
    cr_expect_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_INVALID);
    options.resume_windows = 0;
    options.resume = rank->rank == 0; /* not alike */
    transfer = many_submit(rank->plan, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_MISMATCH);
    sluice_transfer_destroy(transfer);
    many_drop(rank);
}

Test(resume, refuses_what_cannot_go_on)
{
    many_run(&many, 2, refused);
}

/* What this rank has counts only where the same windows hold the same bytes. */
static uint32_t counted(struct sl_rule then, struct sl_rule now)
{
    static struct sluice_plan plan;
    static struct sl_sealed sealed;
    plan.resumes = then;
    sealed.plan = &plan;
    sealed.schedule.rule = now;
    return sl_resume_windows(&sealed, 3);
}

Test(resume, counts_windows_only_where_they_are_cut_alike)
{
    const struct sl_rule shares = {
        .policy = SLUICE_POLICY_BALANCED, .window_bytes = 65536, .windows = 8, .blocks = 2, .slots = 3};
    struct sl_rule other = shares;
    cr_expect_eq(counted(shares, shares), 3u);
    other.window_bytes = 131072;
    cr_expect_eq(counted(shares, other), 3u, "eight shares are eight shares");
    other.windows = 10;
    cr_expect_eq(counted(shares, other), 0u);
    other = shares;
    other.blocks = 4;
    cr_expect_eq(counted(shares, other), 0u);
    other = shares;
    other.policy = SLUICE_POLICY_ORDERED;
    cr_expect_eq(counted(shares, other), 0u);
    cr_expect_eq(counted(other, other), 3u);
    struct sl_rule wider = other;
    wider.window_bytes = 131072;
    cr_expect_eq(counted(other, wider), 0u, "other tasks in as many windows");
}

static void lose_one_of_blocks(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    many_meet(rank);
    if (rank->rank == 2) {
        many_drop(rank);
        return;
    }
    uint32_t windows = sluice_plan_windows(rank->plan);
    cr_assert_eq(sluice_runtime_recover(rank->runtime, 0, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_plan_recover(rank->plan, runtime, &plan), SLUICE_OK);
    cr_expect_eq(plan->resumes.windows, windows);
    sluice_plan_destroy(plan);
    rank->plan->cuts.blocks = 2; /* as with more pairs than a group takes */
    cr_assert_eq(sluice_plan_recover(rank->plan, runtime, &plan), SLUICE_OK);
    cr_expect_eq(plan->resumes.windows, 0u, "the pairs that are left are dealt anew");
    sluice_plan_destroy(plan);
    sluice_plan_destroy(rank->plan);
    rank->plan = NULL;
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = runtime;
    many_drop(rank);
}

Test(resume, a_plan_in_blocks_begins_anew_without_a_rank)
{
    many_run(&many, 3, lose_one_of_blocks);
}
