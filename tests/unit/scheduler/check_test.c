/* Verdicts for whole plans: the list that hung real ranks, limits of the work FIFO, idle ranks. */
#include <criterion/criterion.h>

#include "runtime/base/file.h"
#include "scheduler/check.h"
#include "scheduler/messages.h"
#include "support/plans.h"

static struct sl_nccl_config four_nodes(uint32_t version)
{
    return (struct sl_nccl_config){.version = version,
                                   .channels = 32,
                                   .channels_per_peer = 32,
                                   .nodes = 4,
                                   .ranks_per_node = 1,
                                   .chunk_bytes = 8192,
                                   .args_bytes = 4096,
                                   .fifo_bytes = 1 << 20,
                                   .known = 1};
}

static void check_under(const struct sl_plan *plan, enum sluice_policy policy, const struct sl_nccl_config *nccl,
                        struct sl_check *ret)
{
    struct sl_cuts cuts;
    struct sl_cuts_options options = {.policy = policy, .window_bytes = 256000000, .slots = 3, .nccl = nccl};
    cr_assert_eq(sl_cuts_decide(plan, &options, sl_mem_default(), &cuts), SLUICE_OK);
    cr_assert_eq(sl_check_run(&cuts, nccl, sl_mem_default(), ret), SLUICE_OK);
    sl_cuts_drop(&cuts);
}

static enum sl_nccl_verdict verdict(const struct sl_plan *plan, enum sluice_policy policy, uint32_t version)
{
    struct sl_nccl_config nccl = four_nodes(version);
    struct sl_check check;
    check_under(plan, policy, &nccl, &check);
    enum sl_nccl_verdict result = check.verdict;
    sl_check_drop(&check);
    return result;
}

static void load_hang_list(struct sl_plan *ret)
{
    struct sl_map map;
    cr_assert_eq(sl_map_open(SLUICE_TEST_DATA "/hang-4ranks.json", &map), SLUICE_OK);
    cr_assert_eq(sl_messages_read((const char *)map.data, map.bytes, "list", sl_mem_default(), ret), SLUICE_OK);
    sl_map_close(&map);
}

Test(check, the_134_messages_hang_as_one_group_and_never_when_balanced)
{
    struct sl_plan plan;
    load_hang_list(&plan);
    cr_assert_eq(verdict(&plan, SLUICE_POLICY_SINGLE, 22809), SL_NCCL_HANGS);
    cr_assert_eq(verdict(&plan, SLUICE_POLICY_SINGLE, 23007), SL_NCCL_OK);
    cr_assert_eq(verdict(&plan, SLUICE_POLICY_BALANCED, 22809), SL_NCCL_OK);
    cr_assert_eq(verdict(&plan, SLUICE_POLICY_BALANCED, 22902), SL_NCCL_OK);
    cr_assert_eq(verdict(&plan, SLUICE_POLICY_BALANCED, 23007), SL_NCCL_OK);
    sl_plan_drop(&plan);
}

Test(check, the_cycle_names_ranks_that_wait_for_each_other)
{
    struct sl_plan plan;
    struct sl_check check;
    struct sl_nccl_config nccl = four_nodes(22809);
    load_hang_list(&plan);
    check_under(&plan, SLUICE_POLICY_SINGLE, &nccl, &check);
    cr_assert_eq(check.windows, 1);
    cr_assert_geq(check.cycle_count, 2);
    for (uint32_t i = 0; i < check.cycle_count; i++) {
        const struct sluice_task *task = &plan.tasks[check.cycle[i].message];
        uint32_t rank = check.cycle[i].rank, other = check.cycle[i].waits_for;
        cr_assert((task->source == rank && task->destination == other) ||
                  (task->source == other && task->destination == rank));
        cr_assert_eq(check.cycle[(i + 1) % check.cycle_count].rank, other);
        cr_assert_gt(check.plans[rank], 1);
    }
    sl_check_drop(&check);
    sl_plan_drop(&plan);
}

Test(check, a_group_of_24000_messages_outgrows_the_work_fifo_and_8000_do_not)
{
    const uint32_t counts[] = {8000, 24000};
    const enum sl_nccl_verdict expected[] = {SL_NCCL_OK, SL_NCCL_HOST_HANGS};
    for (int i = 0; i < 2; i++) {
        struct sl_plan plan;
        struct sl_check check;
        struct sl_nccl_config nccl = four_nodes(23007);
        nccl.nodes = 1;
        nccl.ranks_per_node = 2;
        sl_plan_init(&plan, sl_mem_default(), 2);
        for (uint32_t t = 0; t < counts[i]; t++)
            plans_add(&plan, 0, 1, 4096);
        cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
        check_under(&plan, SLUICE_POLICY_SINGLE, &nccl, &check);
        cr_assert_eq(check.verdict, expected[i]);
        cr_assert_eq(check.max_group_items, counts[i]);
        sl_check_drop(&check);
        check_under(&plan, SLUICE_POLICY_BALANCED, &nccl, &check);
        cr_assert_eq(check.verdict, SL_NCCL_OK);
        sl_check_drop(&check);
        sl_plan_drop(&plan);
    }
}

Test(check, ranks_without_messages_have_no_plans)
{
    struct sl_plan plan;
    struct sl_check check;
    struct sl_nccl_config nccl = four_nodes(23007);
    sl_plan_init(&plan, sl_mem_default(), 4);
    plans_add(&plan, 1, 2, 4096);
    plans_add(&plan, 3, 3, 4096);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    check_under(&plan, SLUICE_POLICY_BALANCED, &nccl, &check);
    cr_assert_eq(check.plans[0], 0);
    cr_assert_eq(check.plans[1], 1);
    cr_assert_eq(check.plans[2], 1);
    cr_assert_eq(check.plans[3], 0);
    sl_check_drop(&check);
    sl_plan_drop(&plan);
}
