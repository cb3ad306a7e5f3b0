/* The cost model: hand-worked timelines, and bounds that no schedule can break. */
#include <criterion/criterion.h>
#include <math.h>

#include "scheduler/cost.h"
#include "support/plans.h"

static const struct sl_cost_options GIGABYTE_LINK = {.link = 1e9, .pack_rate = 1e10, .group_overhead = 0.1};

static void cut(const struct sl_plan *plan, enum sluice_policy policy, uint64_t window_bytes, struct sl_cuts *ret)
{
    struct sl_cuts_options options = {.policy = policy, .window_bytes = window_bytes, .slots = 3};
    cr_assert_eq(sl_cuts_decide(plan, &options, sl_mem_default(), ret), SLUICE_OK, "%s", sluice_last_error()->text);
}

static struct sl_cost cost_of(const struct sl_plan *plan, enum sluice_policy policy, uint64_t window_bytes)
{
    struct sl_cuts cuts;
    struct sl_cost cost;
    cut(plan, policy, window_bytes, &cuts);
    cr_assert_eq(sl_cost_run(&cuts, &GIGABYTE_LINK, NULL, NULL, &cost), SLUICE_OK);
    sl_cuts_drop(&cuts);
    return cost;
}

Test(cost, four_windows_of_one_pair_overlap_packing_with_the_wire)
{
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), 2);
    plans_add(&plan, 0, 1, 1000000000);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct sl_cost cost = cost_of(&plan, SLUICE_POLICY_BALANCED, 250000000);
    cr_assert_eq(cost.windows, 4);
    cr_assert_eq(cost.bound_bytes, 1000000000);
    cr_assert_float_eq(cost.bound, 1.0, 1e-12);
    /* pack 0.025, four groups of 0.1 + 0.25, unpack 0.025 */
    cr_assert_float_eq(cost.makespan, 1.45, 1e-9);
    cr_assert_float_eq(cost.pack_seconds, 0.1, 1e-9);
    cr_assert_float_eq(cost.group_seconds, 2.8, 1e-9);
    cr_assert_eq(cost.staging_max, 750000384); /* slots are multiples of 256 bytes */
    cr_assert_float_eq(cost.param_marks[9], 1.45, 1e-9);
    sl_plan_drop(&plan);
}

Test(cost, pairs_that_share_no_rank_do_not_wait_for_each_other)
{
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), 4);
    plans_add(&plan, 0, 1, 100000000);
    plans_add(&plan, 2, 3, 200000000);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct sl_cost cost = cost_of(&plan, SLUICE_POLICY_SINGLE, 1000000000);
    /* Singles are sent from user memory: no packing. */
    cr_assert_float_eq(cost.makespan, 0.3, 1e-9);
    cr_assert_float_eq(cost.wait_seconds, 0, 1e-9);
    sl_plan_drop(&plan);
}

Test(cost, in_lockstep_a_group_waits_for_the_one_before_it_on_all_ranks)
{
    struct sl_plan plan;
    struct sl_cuts cuts;
    struct sl_cost cost;
    struct sl_cost_options options = GIGABYTE_LINK;
    sl_plan_init(&plan, sl_mem_default(), 4);
    for (int i = 0; i < 256; i++)
        plans_add(&plan, 0, 1, i == 0 ? 100000000 : 0);
    plans_add(&plan, 2, 3, 200000000);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cut(&plan, SLUICE_POLICY_WINDOWS, 1000000000, &cuts);
    cr_assert_eq(sl_cost_run(&cuts, &options, NULL, NULL, &cost), SLUICE_OK);
    cr_assert_float_eq(cost.makespan, 0.3, 1e-9);
    options.lockstep = 1;
    cr_assert_eq(sl_cost_run(&cuts, &options, NULL, NULL, &cost), SLUICE_OK);
    cr_assert_float_eq(cost.makespan, 0.5, 1e-9);
    sl_cuts_drop(&cuts);
    sl_plan_drop(&plan);
}

Test(cost, local_tasks_take_copy_time_only)
{
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), 1);
    plans_add(&plan, 0, 0, 1000000000);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct sl_cost cost = cost_of(&plan, SLUICE_POLICY_BALANCED, 2000000000);
    cr_assert_float_eq(cost.makespan, 0.1, 1e-9);
    cr_assert_eq(cost.bound_bytes, 0);
    cr_assert_eq(cost.items_max, 0);
    sl_plan_drop(&plan);
}

Test(cost, a_plan_without_tasks_takes_no_time)
{
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), 4);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct sl_cost cost = cost_of(&plan, SLUICE_POLICY_BALANCED, 1000000);
    cr_assert_float_eq(cost.makespan, 0, 1e-12);
    sl_plan_drop(&plan);
}

struct span_check {
    double group_end[64];
    size_t count;
};

static void check_span(void *context, const struct sl_cost_span *span)
{
    struct span_check *check = context;
    cr_assert_leq(span->begin, span->end);
    check->count++;
    if (span->node != SL_COST_GROUP)
        return;
    cr_assert_geq(span->begin, check->group_end[span->rank]);
    check->group_end[span->rank] = span->end;
}

Test(cost, groups_of_a_rank_never_overlap_and_the_bound_holds)
{
    struct sl_random random = {3};
    for (int round = 0; round < 60; round++) {
        struct sl_plan plan;
        plans_random(&random, 2 + (uint32_t)sl_random_below(&random, 12), 80, 50000000, &plan);
        for (uint32_t policy = SLUICE_POLICY_BALANCED; policy <= SLUICE_POLICY_SINGLE; policy++) {
            struct sl_cuts cuts;
            struct sl_cost cost;
            struct span_check check = {0};
            cut(&plan, policy, 20000000, &cuts);
            cr_assert_eq(sl_cost_run(&cuts, &GIGABYTE_LINK, check_span, &check, &cost), SLUICE_OK);
            cr_assert_geq(cost.makespan, cost.bound);
            cr_assert_gt(check.count, 0);
            sl_cuts_drop(&cuts);
        }
        sl_plan_drop(&plan);
    }
}
