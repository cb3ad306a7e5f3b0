#include <criterion/criterion.h>

#include "scheduler/schedule.h"
#include "support/taskplan.h"

static struct sl_plan plan;
static uint32_t *windows;
static uint32_t count;

static void assign(enum sluice_policy policy, uint64_t window_bytes)
{
    cr_assert_eq(sl_assign_windows(&plan, policy, window_bytes, sl_mem_default(), &windows, &count), SLUICE_OK);
}

static void expect(const uint32_t *expected, uint32_t expected_count)
{
    cr_expect_eq(count, expected_count, "%u windows", count);
    for (size_t i = 0; i < plan.task_count; i++) {
        cr_expect_eq(windows[i], expected[i], "task %zu is in window %u", i, windows[i]);
    }
    sl_free(sl_mem_default(), windows);
}

Test(assign, single_puts_everything_into_window_0)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 5, 0, 0, 1, 10);
    taskplan_add(&plan, 5000, 0, 1, 0, 10);
    assign(SLUICE_POLICY_SINGLE, 1);
    expect((uint32_t[]){0, 0}, 1);
    taskplan_drop(&plan);
}

Test(assign, windows_are_of_256_task_ids_whatever_the_rank_knows)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 10);
    taskplan_add(&plan, 255, 0, 0, 1, 10);
    taskplan_add(&plan, 256, 0, 0, 1, 0);
    taskplan_add(&plan, 1030, 0, 0, 1, 10);
    assign(SLUICE_POLICY_WINDOWS, 1);
    expect((uint32_t[]){0, 0, 1, 4}, 5);
    plan.partial = 1;
    assign(SLUICE_POLICY_WINDOWS, 1);
    expect((uint32_t[]){0, 0, 1, 4}, 5);
    taskplan_drop(&plan);
}

Test(assign, windows_of_ids_that_are_too_high_are_refused)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 256ull * SLUICE_WINDOWS_MAX - 1, 0, 0, 1, 10);
    assign(SLUICE_POLICY_WINDOWS, 1);
    expect((uint32_t[]){SLUICE_WINDOWS_MAX - 1}, SLUICE_WINDOWS_MAX);
    taskplan_add(&plan, 256ull * SLUICE_WINDOWS_MAX, 0, 0, 1, 10);
    cr_assert_eq(sl_assign_windows(&plan, SLUICE_POLICY_WINDOWS, 1, sl_mem_default(), &windows, &count), SLUICE_LIMIT);
    cr_assert_str_eq(sluice_last_error()->text, "task 268435456 would be in window 1048576 of policy windows; ids must "
                                                "stay below 268435456");
    taskplan_drop(&plan);
}

Test(assign, ordered_gathers_parameters_until_some_rank_would_exceed_the_window)
{
    taskplan_open(&plan, 4, 5);
    taskplan_add(&plan, 0, 0, 0, 2, 60);
    taskplan_add(&plan, 1, 0, 1, 3, 10);
    taskplan_add(&plan, 2, 0, 3, 3, 4000); /* local: no load */
    taskplan_add(&plan, 3, 1, 0, 2, 30);   /* 64 + 32 on ranks 0 and 2 */
    taskplan_add(&plan, 4, 2, 1, 2, 10);   /* rank 2 would receive 112 */
    taskplan_add(&plan, 5, 3, 1, 3, 500);  /* more than a window alone */
    taskplan_add(&plan, 6, 4, 0, 2, 10);
    assign(SLUICE_POLICY_ORDERED, 100);
    expect((uint32_t[]){0, 0, 0, 0, 1, 2, 3}, 4);
    taskplan_drop(&plan);
}

Test(assign, ordered_keeps_a_parameter_together_wherever_its_tasks_are)
{
    taskplan_open(&plan, 2, 3);
    taskplan_add(&plan, 0, 2, 0, 1, 16);
    taskplan_add(&plan, 1, 0, 0, 1, 16);
    taskplan_add(&plan, 2, 1, 0, 1, 16);
    taskplan_add(&plan, 3, 0, 0, 1, 16);
    taskplan_add(&plan, 4, 2, 0, 1, 16);
    assign(SLUICE_POLICY_ORDERED, 32);
    expect((uint32_t[]){2, 0, 1, 0, 2}, 3);
    assign(SLUICE_POLICY_ORDERED, 48);
    expect((uint32_t[]){1, 0, 0, 0, 1}, 2);
    taskplan_drop(&plan);
}

Test(assign, lockstep_batches_hold_32_parameters_that_have_tasks)
{
    taskplan_open(&plan, 2, 101);
    for (uint32_t param = 0; param < 100; param += 2) { /* 50 parameters; odd ones have no task */
        taskplan_add(&plan, param, param, 0, 1, 1);
    }
    assign(SLUICE_POLICY_LOCKSTEP, 1000000);
    cr_assert_eq(count, 2);
    cr_assert_eq(windows[31], 0);
    cr_assert_eq(windows[32], 1);
    sl_free(sl_mem_default(), windows);
    taskplan_drop(&plan);
}

Test(assign, lockstep_batches_keep_the_byte_limit_of_a_rank_but_for_one_parameter)
{
    taskplan_open(&plan, 3, 4);
    taskplan_add(&plan, 0, 0, 0, 2, 48);
    taskplan_add(&plan, 1, 1, 1, 2, 48);
    taskplan_add(&plan, 2, 2, 0, 2, 960);
    taskplan_add(&plan, 3, 3, 0, 2, 16);
    assign(SLUICE_POLICY_LOCKSTEP, 96);
    expect((uint32_t[]){0, 0, 1, 2}, 3);
    taskplan_drop(&plan);
}

Test(assign, a_lockstep_batch_of_more_than_256_operations_on_a_rank_is_cut_by_task_position)
{
    taskplan_open(&plan, 3, 2);
    uint32_t id = 0;
    for (; id < 256; id++) {
        taskplan_add(&plan, 10 * id, 0, 0, 1, 1);
    }
    assign(SLUICE_POLICY_LOCKSTEP, 1000000);
    cr_assert_eq(count, 1, "256 operations are not too many");
    sl_free(sl_mem_default(), windows);
    taskplan_add(&plan, 10 * id, 1, 2, 1, 1); /* rank 1 has 257 */
    assign(SLUICE_POLICY_LOCKSTEP, 1000000);
    cr_assert_eq(count, 2);
    cr_assert_eq(windows[255], 0);
    cr_assert_eq(windows[256], 1);
    sl_free(sl_mem_default(), windows);
    taskplan_drop(&plan);
}

Test(assign, a_crowded_parameter_does_not_cut_the_batch_before_it)
{
    taskplan_open(&plan, 4, 2);
    for (uint32_t id = 0; id < 300; id++) { /* 300 tasks, at most 256 on a rank: one window */
        taskplan_add(&plan, id, 0, id < 150 ? 0 : 2, id < 150 ? 1 : 3, 1);
    }
    for (uint32_t id = 300; id < 600; id++) {
        taskplan_add(&plan, id, 1, 0, 1, 100);
    }
    assign(SLUICE_POLICY_LOCKSTEP, 10000); /* parameter 1 exceeds the bytes and has 300 operations */
    cr_assert_eq(count, 3);
    cr_assert_eq(windows[0], 0);
    cr_assert_eq(windows[299], 0);
    cr_assert_eq(windows[300 + 255], 1);
    cr_assert_eq(windows[300 + 256], 2);
    sl_free(sl_mem_default(), windows);
    taskplan_drop(&plan);
}

Test(assign, policies_by_parameter_need_a_whole_plan)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 1);
    plan.partial = 1;
    cr_assert_eq(sl_assign_windows(&plan, SLUICE_POLICY_ORDERED, 1, sl_mem_default(), &windows, &count),
                 SLUICE_UNSUPPORTED);
    cr_assert_str_eq(sluice_last_error()->text,
                     "policy ordered needs a whole plan; load it from a file or make it with "
                     "sluice_plan_add_task, or use policy balanced");
    cr_assert_eq(sl_assign_windows(&plan, SLUICE_POLICY_LOCKSTEP, 1, sl_mem_default(), &windows, &count),
                 SLUICE_UNSUPPORTED);
    taskplan_drop(&plan);
}

Test(assign, a_plan_without_tasks_has_one_window)
{
    static const enum sluice_policy policies[] = {SLUICE_POLICY_ORDERED, SLUICE_POLICY_LOCKSTEP, SLUICE_POLICY_WINDOWS,
                                                  SLUICE_POLICY_SINGLE};
    taskplan_open(&plan, 2, 1);
    for (uint32_t i = 0; i < SL_COUNT(policies); i++) {
        assign(policies[i], 1);
        expect(NULL, 1);
    }
    taskplan_drop(&plan);
}

Test(assign, batches_keep_their_limits_on_random_plans)
{
    struct sl_random random = {21};
    for (uint32_t round = 0; round < 200; round++) {
        uint64_t limit = 1 + sl_random_below(&random, 200000);
        uint64_t send[6] = {0}, recv[6] = {0};
        taskplan_random(&plan, &random);
        assign(SLUICE_POLICY_ORDERED, limit);
        for (uint32_t w = 0; w < count; w++) {
            uint32_t first = UINT32_MAX, last = 0;
            _Bool exceeded = 0;
            for (uint32_t rank = 0; rank < 6; rank++) {
                send[rank] = recv[rank] = 0;
            }
            for (size_t i = 0; i < plan.task_count; i++) {
                const struct sluice_task *task = &plan.tasks[i];
                if (windows[i] == w && task->source != task->destination) {
                    exceeded |= (send[task->source] += (sl_task_bytes(task) + 15) / 16 * 16) > limit;
                    exceeded |= (recv[task->destination] += (sl_task_bytes(task) + 15) / 16 * 16) > limit;
                }
                if (windows[i] == w) {
                    first = task->param < first ? task->param : first;
                    last = task->param > last ? task->param : last;
                }
            }
            cr_assert(first != UINT32_MAX || plan.task_count == 0, "window %u is empty", w);
            cr_assert(!exceeded || first == last, "round %u window %u", round, w);
        }
        sl_free(sl_mem_default(), windows);
        taskplan_drop(&plan);
    }
}
