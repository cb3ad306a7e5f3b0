/* Partial plans: halves, parts and local pairs. */
#include <criterion/criterion.h>

#include "support/plan_maker.h"

static struct sl_plan plan;

static void setup(void)
{
    sl_plan_init(&plan, sl_mem_default(), 4);
}

static void teardown(void)
{
    sl_plan_drop(&plan);
}

TestSuite(plan_half, .init = setup, .fini = teardown);

static void half(uint64_t id, uint32_t param, uint32_t peer, _Bool receive, uint64_t offset, uint64_t bytes)
{
    struct sluice_region region = maker_range(offset, bytes);
    cr_assert_eq(sl_plan_add_half(&plan, id, param, SLUICE_DTYPE_BF16, peer, receive, &region), SLUICE_OK);
}

static void refused(sluice_status status, sluice_status expected, const char *text)
{
    cr_assert_eq(status, expected);
    cr_assert_str_eq(sluice_last_error()->text, text);
}

Test(plan_half, validates_before_and_after_the_rank_is_known)
{
    half(2, 0, 1, 0, 0, 64);
    half(1, 0, 3, 1, 0, 64);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.tasks[0].source, 3);
    cr_assert_eq(plan.tasks[0].destination, SL_RANK_SELF);
    cr_assert_eq(sl_plan_set_rank(&plan, 2, 4), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.tasks[0].destination, 2);
    cr_assert_eq(plan.tasks[0].source_dtype, SLUICE_DTYPE_NONE);
    cr_assert_eq(plan.tasks[1].source, 2);
    cr_assert_eq(sl_task_bytes(&plan.tasks[0]), 64);
}

Test(plan_half, repeated_ids_get_parts_in_order_of_addition)
{
    half(5, 0, 1, 0, 0, 16);
    half(4, 0, 1, 0, 0, 2);
    half(5, 0, 1, 0, 16, 32);
    half(5, 0, 2, 0, 48, 64);
    half(5, 0, 1, 1, 0, 128);
    half(5, 0, 1, 0, 112, 256);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    const struct {
        uint64_t id, bytes;
        uint16_t part;
    } expected[] = {{4, 2, 0}, {5, 16, 0}, {5, 64, 0}, {5, 128, 0}, {5, 32, 1}, {5, 256, 2}};
    for (size_t i = 0; i < 6; i++) {
        cr_assert_eq(plan.tasks[i].id, expected[i].id);
        cr_assert_eq(plan.tasks[i].part, expected[i].part);
        cr_assert_eq(sl_task_bytes(&plan.tasks[i]), expected[i].bytes);
    }
}

Test(plan_half, parts_go_on_after_a_validation)
{
    half(5, 0, 1, 0, 0, 16);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    half(5, 0, 1, 0, 16, 32);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.tasks[1].part, 1);
    cr_assert_eq(sl_task_bytes(&plan.tasks[1]), 32);
}

Test(plan_half, local_halves_become_one_task)
{
    half(5, 0, 2, 0, 0, 16);
    half(6, 0, 1, 0, 0, 16);
    half(5, 0, 2, 1, 96, 16);
    cr_assert_eq(sl_plan_set_rank(&plan, 2, 4), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.task_count, 2);
    cr_assert_eq(plan.tasks[0].id, 5);
    cr_assert_eq(plan.tasks[0].source, 2);
    cr_assert_eq(plan.tasks[0].destination, 2);
    cr_assert_eq(plan.tasks[0].to.offset, 96);
    cr_assert_eq(plan.tasks[1].id, 6);
}

Test(plan_half, local_halves_join_part_by_part)
{
    half(5, 0, 0, 0, 0, 16);
    half(5, 0, 0, 0, 16, 32);
    half(5, 0, 0, 1, 100, 16);
    half(5, 0, 0, 1, 200, 32);
    cr_assert_eq(sl_plan_set_rank(&plan, 0, 4), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.task_count, 2);
    cr_assert_eq(plan.tasks[0].to.offset, 100);
    cr_assert_eq(plan.tasks[1].to.offset, 200);
}

Test(plan_half, a_surplus_local_send_is_refused)
{
    half(5, 0, 0, 0, 0, 16);
    half(5, 0, 0, 0, 16, 16);
    half(5, 0, 0, 1, 0, 16);
    refused(sl_plan_set_rank(&plan, 0, 4), SLUICE_PLAN,
            "task 5 (part 1): rank 0 sends it to itself but does not receive it");
}

Test(plan_half, a_local_receive_alone_is_refused)
{
    half(7, 0, 3, 1, 0, 16);
    refused(sl_plan_set_rank(&plan, 3, 4), SLUICE_PLAN,
            "task 7 (part 0): rank 3 receives it from itself but does not send it");
}

Test(plan_half, a_local_pair_of_two_parameters_is_refused)
{
    half(7, 0, 3, 0, 0, 16);
    half(7, 1, 3, 1, 0, 16);
    refused(sl_plan_set_rank(&plan, 3, 4), SLUICE_PLAN,
            "task 7 (part 0): rank 3 sends parameter 0 but receives parameter 1");
}

Test(plan_half, local_sizes_must_agree)
{
    half(7, 0, 3, 0, 0, 16);
    half(7, 0, 3, 1, 0, 8);
    cr_assert_eq(sl_plan_set_rank(&plan, 3, 4), SLUICE_OK);
    refused(sl_plan_validate(&plan), SLUICE_PLAN,
            "task 7: its ends differ: rank 3 sends 16 bytes of bf16, rank 3 expects 8 bytes of bf16");
}

Test(plan_half, overlapping_receives_are_found)
{
    half(1, 0, 1, 1, 0, 16);
    half(2, 0, 2, 1, 8, 16);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_PLAN);
    cr_assert_eq(sl_plan_set_rank(&plan, 0, 4), SLUICE_OK);
    refused(sl_plan_validate(&plan), SLUICE_PLAN,
            "tasks 1 and 2 overlap: both write bytes [8, 16) of parameter 0 on rank 0");
}

Test(plan_half, parameters_appear_with_the_dtype_of_their_first_region)
{
    half(1, 2, 1, 0, 0, 16);
    cr_assert_eq(plan.param_count, 3);
    cr_assert_eq(plan.params[2].dtype, SLUICE_DTYPE_BF16);
    cr_assert_str_eq(sl_param_name(&plan, 2), "");
    struct sluice_region region = maker_range(0, 4);
    cr_assert_eq(sl_plan_add_half(&plan, 2, 2, SLUICE_DTYPE_F32, 1, 0, &region), SLUICE_OK);
    refused(sl_plan_validate(&plan), SLUICE_PLAN, "task 2: its source is f32, but parameter 2 is bf16");
}

Test(plan_half, refuses_what_is_out_of_range)
{
    struct sluice_region region = maker_range(0, 4);
    refused(sl_plan_add_half(&plan, 2, 2, 0, 1, 0, &region), SLUICE_INVALID, "task 2: unknown dtype 0");
    refused(sl_plan_add_half(&plan, 2, 2, SLUICE_DTYPE_F32, 4, 0, &region), SLUICE_INVALID,
            "task 2: rank 4 is outside the world of 4");
    refused(sl_plan_add_half(&plan, 2, UINT32_MAX, SLUICE_DTYPE_F32, 1, 0, &region), SLUICE_LIMIT,
            "parameter 4294967295: ids are below 16777216");
    refused(sl_plan_set_rank(&plan, 1, 8), SLUICE_PLAN, "the plan is for 4 ranks, the runtime has 8");
    refused(sl_plan_set_rank(&plan, 4, 4), SLUICE_INVALID, "rank 4 is outside the world of 4");
}

Test(plan_half, does_not_mix_with_whole_tasks)
{
    half(1, 0, 1, 0, 0, 16);
    struct sluice_task task = maker_task(3, 0, 1, 0, maker_range(0, 16));
    refused(sl_plan_add_task(&plan, &task), SLUICE_STATE, "task 3: the plan holds halves; both kinds do not mix");
    struct sl_plan whole;
    maker_open(&whole, 4, 1);
    maker_add(&whole, task);
    refused(sl_plan_add_half(&whole, 4, 0, SLUICE_DTYPE_BF16, 1, 0, &task.from), SLUICE_STATE,
            "task 4: the plan holds whole tasks; both kinds do not mix");
    sl_plan_drop(&whole);
}

Test(plan_half, is_closed_once_its_rank_is_set)
{
    half(1, 0, 1, 0, 0, 16);
    cr_assert_eq(sl_plan_set_rank(&plan, 0, 4), SLUICE_OK);
    cr_assert_eq(sl_plan_set_rank(&plan, 0, 4), SLUICE_OK);
    struct sluice_region region = maker_range(0, 4);
    refused(sl_plan_add_half(&plan, 2, 0, SLUICE_DTYPE_BF16, 1, 0, &region), SLUICE_STATE,
            "task 2: the plan was sealed; make a new one");
    refused(sl_plan_set_rank(&plan, 1, 4), SLUICE_STATE, "the plan holds halves of rank 0, not of rank 1");
}

Test(plan_half, takes_any_64_bit_id)
{
    half(UINT64_MAX, 0, 1, 0, 0, 16);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}
