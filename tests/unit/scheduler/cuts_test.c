/* Cuts of whole plans: under the balanced policy every group is safe, whatever NCCL it meets. */
#include <criterion/criterion.h>

#include "scheduler/cuts.h"
#include "support/plans.h"

static struct sl_nccl_config random_config(struct sl_random *random, uint32_t world)
{
    static const uint32_t versions[] = {22203, 22809, 22902, 22907, 23007};
    uint32_t p_log = (uint32_t)sl_random_below(random, 7);
    uint32_t nodes = sl_random_below(random, 2) ? 1 : world;
    return (struct sl_nccl_config){.version = versions[sl_random_below(random, SL_COUNT(versions))],
                                   .channels = 1u << p_log,
                                   .channels_per_peer = 1u << sl_random_below(random, (uint64_t)p_log + 1),
                                   .nodes = nodes,
                                   .ranks_per_node = world / nodes,
                                   .chunk_bytes = UINT64_C(4096) << sl_random_below(random, 9),
                                   .args_bytes = 4096,
                                   .fifo_bytes = 1 << 20,
                                   .known = sl_random_below(random, 2) == 0};
}

static void assert_groups_are_safe(const struct sl_cuts *cuts, const struct sl_nccl_config *config)
{
    for (uint32_t r = 0; r < cuts->plan->world; r++) {
        struct sl_schedule schedule;
        cr_assert_eq(sl_cuts_schedule(cuts, r, &schedule), SLUICE_OK);
        struct sl_nccl_op *ops = sl_new_array(sl_mem_default(), schedule.message_count, sizeof *ops, "test");
        for (uint32_t w = 0; w < schedule.rule.windows; w++) {
            struct sl_nccl_plans plans;
            sl_window_ops(&cuts->halves[r], &schedule, w, ops);
            cr_assert_eq(sl_nccl_plan(config, r, ops, schedule.windows[w].message_count, sl_mem_default(), &plans),
                         SLUICE_OK);
            cr_assert_leq(plans.items, 10000);
            if (!sl_nccl_order_kept(config->version))
                cr_assert_leq(plans.plan_count, 1);
            sl_nccl_plans_drop(&plans);
        }
        sl_free(sl_mem_default(), ops);
        sl_schedule_drop(&schedule);
    }
}

static void decide_and_check(struct sl_random *random, const struct sl_plan *plan, uint64_t window_bytes)
{
    struct sl_nccl_config config = random_config(random, plan->world);
    struct sl_cuts_options options = {.policy = SLUICE_POLICY_BALANCED,
                                      .window_bytes = window_bytes,
                                      .direct_min = sl_random_below(random, 3) ? 0 : 4096,
                                      .slots = 3,
                                      .nccl = &config};
    struct sl_cuts cuts;
    cr_assert_eq(sl_cuts_decide(plan, &options, sl_mem_default(), &cuts), SLUICE_OK, "%s", sluice_last_error()->text);
    if (!config.known) /* the truth may be any smaller number of channels per peer */
        config.channels_per_peer = 1u << sl_random_below(random, (uint64_t)__builtin_ctz(config.channels) + 1);
    assert_groups_are_safe(&cuts, &config);
    sl_cuts_drop(&cuts);
}

Test(cuts, balanced_groups_are_one_plan_before_2_29_7_and_within_limits_on_all)
{
    struct sl_random random = {21};
    for (int round = 0; round < 120; round++) {
        struct sl_plan plan;
        uint32_t world = 2 + (uint32_t)sl_random_below(&random, 63);
        plans_random(&random, world, 50 + (uint32_t)sl_random_below(&random, 600), 1 << 20, &plan);
        decide_and_check(&random, &plan, 4 << 20);
        sl_plan_drop(&plan);
    }
}

Test(cuts, one_source_with_256_peers_is_cut_into_blocks)
{
    struct sl_random random = {22};
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), 257);
    for (uint32_t i = 0; i < 1024; i++)
        plans_add(&plan, 0, 1 + i % 256, 1 + sl_random_below(&random, 1 << 18));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    for (int round = 0; round < 10; round++)
        decide_and_check(&random, &plan, 16 << 20);

    struct sl_nccl_config config = {.version = 22809,
                                    .channels = 8,
                                    .channels_per_peer = 8,
                                    .nodes = 257,
                                    .ranks_per_node = 1,
                                    .chunk_bytes = 131072,
                                    .args_bytes = 4096,
                                    .fifo_bytes = 1 << 20,
                                    .known = 0};
    struct sl_cuts_options options = {
        .policy = SLUICE_POLICY_BALANCED, .window_bytes = 16 << 20, .slots = 3, .nccl = &config};
    struct sl_cuts cuts;
    cr_assert_eq(sl_cuts_decide(&plan, &options, sl_mem_default(), &cuts), SLUICE_OK);
    cr_assert_eq(cuts.rule.blocks, 9); /* 256 peers, at most 31 items a group */
    cr_assert_eq(cuts.rule.windows % 9, 0);
    sl_cuts_drop(&cuts);
    sl_plan_drop(&plan);
}

Test(cuts, policies_other_than_balanced_and_ordered_send_every_task_by_itself)
{
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_BALANCED, 0), 0);
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_ORDERED, 0), 0);
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_LOCKSTEP, 0), 1);
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_WINDOWS, 0), 1);
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_SINGLE, 0), 1);
    cr_assert_eq(sl_direct_min(SLUICE_POLICY_SINGLE, 4096), 4096);
}
