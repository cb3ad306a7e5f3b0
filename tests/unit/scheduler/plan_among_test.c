/* A plan for the ranks that are left. */
#include <criterion/criterion.h>

#include "support/plan_maker.h"

static struct sl_plan plan, among;

static void setup(void)
{
    sl_plan_init(&plan, sl_mem_default(), 4);
}

static void teardown(void)
{
    sl_plan_drop(&plan);
    sl_plan_drop(&among);
}

TestSuite(plan_among, .init = setup, .fini = teardown);

static void task(uint64_t id, uint32_t source, uint32_t destination, uint64_t bytes)
{
    struct sluice_task one = {.id = id,
                              .source = source,
                              .destination = destination,
                              .source_dtype = SLUICE_DTYPE_U8,
                              .destination_dtype = SLUICE_DTYPE_U8,
                              .from = maker_range(0, bytes),
                              .to = maker_range(0, bytes),
                              .origin = SLUICE_ORIGIN_NONE};
    cr_assert_eq(sl_plan_add_task(&plan, &one), SLUICE_OK);
}

static void add_param(const char *name)
{
    struct sluice_param param = {.dtype = SLUICE_DTYPE_U8, .bytes = 64, .name = name};
    cr_assert_eq(sl_plan_add_param(&plan, &param), SLUICE_OK);
}

static const uint32_t without_1[] = {0, 2, 3};

Test(plan_among, keeps_the_tasks_between_ranks_that_stay_under_their_new_numbers)
{
    add_param("weight");
    task(7, 0, 1, 16);
    task(8, 0, 3, 32);
    task(9, 1, 2, 16);
    task(10, 3, 2, 64);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 3, SLUICE_ROLE_SOURCE, 64), SLUICE_OK);
    cr_assert_eq(sl_plan_among(&plan, without_1, 3, &among), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&among), SLUICE_OK);
    cr_assert_eq(among.world, 3);
    cr_assert_eq(among.task_count, 2);
    cr_assert_eq(among.tasks[0].id, 8);
    cr_assert_eq(among.tasks[0].source, 0);
    cr_assert_eq(among.tasks[0].destination, 2);
    cr_assert_eq(among.tasks[1].id, 10);
    cr_assert_eq(among.tasks[1].source, 2);
    cr_assert_eq(among.tasks[1].destination, 1);
    cr_assert_eq(sl_buffer_bytes(&among, 2, SLUICE_ROLE_SOURCE, 0), 64);
    cr_assert_eq(sl_buffer_bytes(&among, 1, SLUICE_ROLE_SOURCE, 0), UINT64_MAX);
    cr_assert_str_eq(sl_param_name(&among, 0), "weight");
    cr_assert_eq(plan.task_count, 4, "the old plan is as it was");
}

Test(plan_among, renumbers_halves_before_and_after_their_rank_is_known)
{
    struct sluice_region region = maker_range(0, 16);
    cr_assert_eq(sl_plan_add_half(&plan, 1, 0, SLUICE_DTYPE_U8, 1, 0, &region), SLUICE_OK);
    cr_assert_eq(sl_plan_add_half(&plan, 2, 0, SLUICE_DTYPE_U8, 3, 0, &region), SLUICE_OK);
    for (int known = 0; known < 2; known++) {
        if (known)
            cr_assert_eq(sl_plan_set_rank(&plan, 2, 4), SLUICE_OK);
        cr_assert_eq(sl_plan_among(&plan, without_1, 3, &among), SLUICE_OK);
        cr_assert_eq(sl_plan_set_rank(&among, 1, 3), SLUICE_OK);
        cr_assert_eq(among.task_count, 1);
        cr_assert_eq(among.tasks[0].id, 2);
        cr_assert_eq(among.tasks[0].source, 1);
        cr_assert_eq(among.tasks[0].destination, 2);
        sl_plan_drop(&among);
    }
}

Test(plan_among, refuses_ranks_that_the_plan_does_not_have)
{
    static const uint32_t strange[] = {0, 4};
    cr_assert_eq(sl_plan_among(&plan, strange, 2, &among), SLUICE_PLAN);
    cr_assert_str_eq(sluice_last_error()->text, "rank 1 was rank 4 at first, but the plan is for 4 ranks");
}
