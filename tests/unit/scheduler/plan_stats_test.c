/* Counts over a plan. */
#include <criterion/criterion.h>

#include "scheduler/plan_stats.h"
#include "support/plan_maker.h"

static struct sl_plan_stats stats_of(struct sl_plan *plan)
{
    struct sl_plan_stats stats;
    cr_assert_eq(sl_plan_validate(plan), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sl_plan_stats(plan, sl_mem_default(), &stats), SLUICE_OK);
    return stats;
}

Test(plan_stats, counts_sends_receives_and_local_tasks_apart)
{
    struct sl_plan plan;
    maker_open(&plan, 4, 2);
    maker_add(&plan, maker_task(1, 0, 2, 0, maker_range(0, 16)));
    maker_add(&plan, maker_task(2, 0, 2, 0, maker_range(16, 32)));
    maker_add(&plan, maker_task(3, 0, 3, 0, maker_rows(0, 16, 4, 64)));
    maker_add(&plan, maker_task(4, 1, 3, 1, maker_range(0, 128)));
    maker_add(&plan, maker_task(5, 1, 1, 0, maker_range(0, 1024)));
    maker_add(&plan, maker_task(6, 2, 1, 1, maker_range(0, 0)));
    struct sl_plan_stats stats = stats_of(&plan);
    cr_assert_eq(stats.bytes, 16 + 32 + 64 + 128 + 1024);
    cr_assert_eq(stats.local_bytes, 1024);
    cr_assert_eq(stats.local_tasks, 1);
    cr_assert_eq(stats.strided_tasks, 1);
    cr_assert_eq(stats.empty_tasks, 1);
    cr_assert_eq(stats.bound_bytes, 192);
    cr_assert_eq(stats.ranks[0].sends, 3);
    cr_assert_eq(stats.ranks[0].send_bytes, 112);
    cr_assert_eq(stats.ranks[0].send_peers, 2);
    cr_assert_eq(stats.ranks[0].recv_peers, 0);
    cr_assert_eq(stats.ranks[1].local_tasks, 1);
    cr_assert_eq(stats.ranks[1].local_bytes, 1024);
    cr_assert_eq(stats.ranks[1].sends, 1);
    cr_assert_eq(stats.ranks[1].recvs, 1);
    cr_assert_eq(stats.ranks[1].recv_bytes, 0);
    cr_assert_eq(stats.ranks[3].recvs, 2);
    cr_assert_eq(stats.ranks[3].recv_bytes, 192);
    cr_assert_eq(stats.ranks[3].recv_peers, 2);
    sl_plan_stats_drop(&stats);
    sl_plan_stats_drop(&stats);
    sl_plan_drop(&plan);
}

Test(plan_stats, percentiles_are_those_of_the_nearest_rank)
{
    struct sl_plan plan;
    maker_open(&plan, 2, 1);
    for (uint64_t i = 0; i < 200; i++)
        maker_add(&plan, maker_task(i, 0, 1, 0, maker_range(i * 1000, 200 - i)));
    struct sl_plan_stats stats = stats_of(&plan);
    cr_assert_eq(stats.task_min, 1);
    cr_assert_eq(stats.task_p50, 100);
    cr_assert_eq(stats.task_p90, 180);
    cr_assert_eq(stats.task_p99, 198);
    cr_assert_eq(stats.task_max, 200);
    sl_plan_stats_drop(&stats);
    sl_plan_drop(&plan);
}

Test(plan_stats, a_plan_without_tasks_is_all_zero)
{
    struct sl_plan plan;
    maker_open(&plan, 2, 0);
    struct sl_plan_stats stats = stats_of(&plan);
    cr_assert_eq(stats.bytes, 0);
    cr_assert_eq(stats.task_max, 0);
    cr_assert_eq(stats.bound_bytes, 0);
    sl_plan_stats_drop(&stats);
    sl_plan_drop(&plan);
}

Test(plan_stats, counts_totals_beyond_63_bits)
{
    struct sl_plan plan;
    maker_open(&plan, 2, 3);
    for (uint32_t i = 0; i < 3; i++)
        maker_add(&plan, maker_task(i, 0, 1, i, maker_range(0, UINT64_C(1) << 62)));
    struct sl_plan_stats stats = stats_of(&plan);
    cr_assert_eq(stats.bytes, UINT64_C(13835058055282163712));
    cr_assert_eq(stats.bound_bytes, UINT64_C(13835058055282163712));
    sl_plan_stats_drop(&stats);
    sl_plan_drop(&plan);
}
