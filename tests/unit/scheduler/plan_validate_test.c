/* What a plan must hold to be valid, and what the refusal says. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/plan_maker.h"

static struct sl_plan plan;

static void setup(void)
{
    maker_open(&plan, 4, 3);
}

static void teardown(void)
{
    sl_plan_drop(&plan);
}

TestSuite(plan_validate, .init = setup, .fini = teardown);

static void refused(const char *text)
{
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_PLAN);
    cr_assert_str_eq(sluice_last_error()->text, text);
    cr_assert_not(plan.validated);
}

Test(plan_validate, sorts_tasks_by_id)
{
    maker_add(&plan, maker_task(9, 0, 1, 0, maker_range(0, 16)));
    maker_add(&plan, maker_task(2, 0, 2, 0, maker_range(0, 32)));
    maker_add(&plan, maker_task(5, 0, 3, 0, maker_range(0, 64)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert(plan.validated);
    cr_assert_eq(plan.tasks[0].id, 2);
    cr_assert_eq(plan.tasks[1].id, 5);
    cr_assert_eq(plan.tasks[2].id, 9);
    cr_assert_eq(sl_task_bytes(&plan.tasks[1]), 64);
}

Test(plan_validate, refuses_a_repeated_id_and_names_both_entries)
{
    maker_add(&plan, maker_task(5, 0, 1, 0, maker_range(0, 16)));
    maker_add(&plan, maker_task(4, 0, 1, 2, maker_range(0, 16)));
    maker_add(&plan, maker_task(5, 2, 3, 1, maker_range(0, 16)));
    refused(
        "task id 5 is used twice: entry 0 (parameter 0 'p0', rank 0 to rank 1) and entry 2 (parameter 1 'p1', rank 2 "
        "to rank 3)");
}

Test(plan_validate, refuses_a_repeated_id_in_sorted_entries)
{
    maker_add(&plan, maker_task(5, 0, 1, 0, maker_range(0, 16)));
    maker_add(&plan, maker_task(5, 0, 1, 0, maker_range(16, 16)));
    refused(
        "task id 5 is used twice: entry 0 (parameter 0 'p0', rank 0 to rank 1) and entry 1 (parameter 0 'p0', rank 0 "
        "to rank 1)");
}

Test(plan_validate, refuses_different_sizes_at_the_ends)
{
    struct sluice_task task = maker_task(7, 0, 1, 0, maker_range(0, 8));
    task.to = maker_range(0, 16);
    maker_add(&plan, task);
    refused("task 7: its ends differ: rank 0 sends 8 bytes of bf16, rank 1 expects 16 bytes of bf16");
}

Test(plan_validate, refuses_swapped_sizes_whose_totals_are_equal)
{
    struct sluice_task one = maker_task(1, 0, 1, 0, maker_range(0, 8)),
                       two = maker_task(2, 0, 1, 0, maker_range(8, 16));
    one.to = maker_range(0, 16);
    two.to = maker_range(16, 8);
    maker_add(&plan, one);
    maker_add(&plan, two);
    refused("task 1: its ends differ: rank 0 sends 8 bytes of bf16, rank 1 expects 16 bytes of bf16");
}

Test(plan_validate, refuses_different_dtypes_of_equal_counts)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 16));
    task.source_dtype = SLUICE_DTYPE_F32;
    task.to = maker_range(0, 8);
    maker_add(&plan, task);
    refused("task 1: its ends differ: rank 0 sends 16 bytes of f32, rank 1 expects 8 bytes of bf16");
}

Test(plan_validate, refuses_different_dtypes_of_equal_bytes)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.source_dtype = SLUICE_DTYPE_F32;
    maker_add(&plan, task);
    refused("task 1: its ends differ: rank 0 sends 8 bytes of f32, rank 1 expects 8 bytes of bf16");
}

Test(plan_validate, allows_untyped_bytes_at_both_ends_only)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.source_dtype = task.destination_dtype = SLUICE_DTYPE_BYTES;
    maker_add(&plan, task);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    task.id = 2;
    task.to.offset = 8;
    task.source_dtype = SLUICE_DTYPE_U8;
    maker_add(&plan, task);
    refused("task 2: its ends differ: rank 0 sends 8 bytes of u8, rank 1 expects 8 bytes of bytes");
}

Test(plan_validate, refuses_a_dtype_that_contradicts_the_parameter)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.source_dtype = task.destination_dtype = SLUICE_DTYPE_F32;
    maker_add(&plan, task);
    refused("task 1: its source is f32, but parameter 0 'p0' is bf16");
}

Test(plan_validate, refuses_an_unknown_dtype)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.source_dtype = task.destination_dtype = 200;
    maker_add(&plan, task);
    refused("task 1: its source has the unknown dtype 200");
}

Test(plan_validate, names_the_missing_side_of_an_unmatched_receive)
{
    struct sluice_task task = maker_task(3, UINT32_MAX, 1, 0, maker_range(0, 8));
    task.source_dtype = SLUICE_DTYPE_NONE;
    maker_add(&plan, task);
    refused("task 3 is unmatched: rank 1 receives it, but no rank sends it");
}

Test(plan_validate, names_the_missing_side_of_an_unmatched_send)
{
    struct sluice_task task = maker_task(3, 2, UINT32_MAX, 0, maker_range(0, 8));
    task.destination_dtype = SLUICE_DTYPE_NONE;
    maker_add(&plan, task);
    refused("task 3 is unmatched: rank 2 sends it, but no rank receives it");
}

Test(plan_validate, refuses_a_task_without_ends)
{
    struct sluice_task task = maker_task(3, 0, 1, 0, maker_range(0, 8));
    task.source_dtype = task.destination_dtype = SLUICE_DTYPE_NONE;
    maker_add(&plan, task);
    refused("task 3 has neither a source nor a destination");
}

Test(plan_validate, refuses_ranks_outside_the_world)
{
    maker_add(&plan, maker_task(1, 1057455228, 1, 0, maker_range(0, 8)));
    refused("task 1: its source rank 1057455228 is outside the world of 4");
}

Test(plan_validate, refuses_the_rank_one_past_the_world)
{
    maker_add(&plan, maker_task(1, 0, 4, 0, maker_range(0, 8)));
    refused("task 1: its destination rank 4 is outside the world of 4");
}

Test(plan_validate, refuses_an_unknown_parameter)
{
    maker_add(&plan, maker_task(1, 0, 1, 3, maker_range(0, 8)));
    refused("task 1: parameter 3 is unknown, the plan has 3 parameters");
}

Test(plan_validate, refuses_parts_in_whole_plans)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.part = 2;
    maker_add(&plan, task);
    refused("task 1: part 2: only halves have parts");
}

Test(plan_validate, takes_sizes_around_the_32_bit_limits_exactly)
{
    const uint64_t sizes[] = {UINT64_C(2147483647), UINT64_C(2147483648), UINT64_C(4294967296), UINT64_C(4294967304)};
    uint64_t offset = 0;
    for (uint32_t i = 0; i < 4; i++) {
        maker_add(&plan, maker_task(i, 0, 1, 0, maker_range(offset, sizes[i])));
        offset += sizes[i];
    }
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(sl_task_bytes(&plan.tasks[i]), sizes[i]);
}

Test(plan_validate, takes_a_task_of_two_to_the_62)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_range(0, UINT64_C(1) << 62)));
    maker_add(&plan, maker_task(2, 0, 1, 1, maker_rows(0, UINT64_C(1) << 31, UINT64_C(1) << 31, UINT64_C(1) << 31)));
    maker_add(&plan, maker_task(3, 0, 1, 2, maker_range(0, UINT64_C(1) << 62)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_validate, refuses_a_total_beyond_64_bits)
{
    for (uint32_t i = 0; i < 4; i++)
        maker_add(&plan, maker_task(i, 0, i, 0, maker_range(0, UINT64_C(1) << 62)));
    refused("range overflow: all tasks together hold more than 2^64-1 bytes");
}

Test(plan_validate, refuses_an_end_that_wraps_around)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_range(UINT64_MAX - 15, 16)));
    refused("task 1: range overflow: its source at offset 18446744073709551600 with 16 bytes ends beyond 2^63-1");
}

Test(plan_validate, refuses_a_product_that_wraps_around)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(0, UINT64_C(1) << 33, UINT64_C(1) << 33, UINT64_C(1) << 33)));
    refused("task 1: range overflow: its source has 8589934592 rows of 8589934592 bytes, more than 2^62 bytes");
}

Test(plan_validate, refuses_a_pitch_that_wraps_around)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(0, 8, 3, UINT64_C(1) << 63)));
    refused("task 1: range overflow: its source at offset 0 with 24 bytes ends beyond 2^63-1");
}

Test(plan_validate, refuses_rows_that_overlap_themselves)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(0, 16, 2, 8)));
    refused("task 1: the rows of its source overlap: pitch 8 is less than the 16 bytes of a row");
}

Test(plan_validate, refuses_a_pitch_of_zero)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 32));
    task.to = maker_rows(0, 16, 2, 0);
    maker_add(&plan, task);
    refused("task 1: the rows of its destination overlap: pitch 0 is less than the 16 bytes of a row");
}

Test(plan_validate, ignores_the_pitch_of_a_single_row)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(0, 16, 1, 0)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_validate, refuses_a_region_beyond_its_buffer)
{
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_DESTINATION, 64), SLUICE_OK);
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(32, 8, 3, 16)));
    refused("task 1: its destination on rank 1 reaches byte 72, but the buffer of parameter 0 'p0' holds 64");
}

Test(plan_validate, takes_a_region_that_ends_with_its_buffer)
{
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_DESTINATION, 72), SLUICE_OK);
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_rows(32, 8, 3, 16)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_validate, refuses_two_sizes_for_one_buffer)
{
    cr_assert_eq(sl_plan_add_buffer(&plan, 1, 2, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 2, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    cr_assert_eq(sl_plan_add_buffer(&plan, 1, 2, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    refused("the source buffer of parameter 1 'p1' on rank 2 is given twice (64 and 64 bytes)");
}

Test(plan_validate, refuses_a_buffer_of_an_unknown_parameter)
{
    cr_assert_eq(sl_plan_add_buffer(&plan, 7, 2, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    refused("a buffer on rank 2 is of parameter 7, but the plan has 3 parameters");
}

Test(plan_validate, takes_empty_tasks_into_the_numbering)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, (struct sluice_region){0}));
    maker_add(&plan, maker_task(2, 0, 1, 0, maker_range(0, 4096)));
    maker_add(&plan, maker_task(3, 0, 1, 0, maker_range(100, 0)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(plan.task_count, 3);
    cr_assert_eq(sl_task_bytes(&plan.tasks[0]), 0);
}

Test(plan_validate, refuses_an_origin_beyond_63_bits)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 8));
    task.origin = UINT64_C(1) << 63;
    maker_add(&plan, task);
    refused("task 1: range overflow: origin 9223372036854775808 is beyond 2^63-1");
}

Test(plan_validate, takes_an_empty_plan)
{
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_validate, a_change_asks_for_a_new_validation)
{
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    maker_add(&plan, maker_task(1, 0, 9, 0, maker_range(0, 8)));
    cr_assert_not(plan.validated);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_PLAN);
}

Test(plan_validate, takes_random_valid_plans)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sl_plan random;
        maker_random(&random, seed, 1 + (uint32_t)seed * 3);
        cr_assert_eq(sl_plan_validate(&random), SLUICE_OK, "seed %lu: %s", seed, sluice_last_error()->text);
        for (size_t i = 1; i < random.task_count; i++)
            cr_assert_lt(random.tasks[i - 1].id, random.tasks[i].id);
        sl_plan_drop(&random);
    }
}
