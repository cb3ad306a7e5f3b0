/* Overlapping destinations, exact for strided slices, against a byte map as the reference. */
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

TestSuite(plan_overlap, .init = setup, .fini = teardown);

/* A task whose source is contiguous and whose destination is `to` on rank 1. */
static void add_to(uint64_t id, struct sluice_region to)
{
    struct sluice_task task = maker_task(id, 0, 1, 0, maker_range(0, to.row_bytes * to.rows));
    task.to = to;
    maker_add(&plan, task);
}

static void refused(const char *text)
{
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_PLAN);
    cr_assert_str_eq(sluice_last_error()->text, text);
}

Test(plan_overlap, names_both_tasks_and_the_range)
{
    add_to(1, maker_range(0, 64));
    add_to(2, maker_range(32, 64));
    refused("tasks 1 and 2 overlap: both write bytes [32, 64) of parameter 0 'p0' on rank 1");
}

Test(plan_overlap, takes_neighbours)
{
    add_to(1, maker_range(0, 64));
    add_to(2, maker_range(64, 64));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, takes_the_same_range_on_other_ranks_and_parameters)
{
    maker_add(&plan, maker_task(1, 0, 1, 0, maker_range(0, 64)));
    maker_add(&plan, maker_task(2, 0, 2, 0, maker_range(0, 64)));
    maker_add(&plan, maker_task(3, 0, 1, 1, maker_range(0, 64)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, takes_a_shared_source)
{
    struct sluice_task task = maker_task(1, 0, 1, 0, maker_range(0, 64));
    maker_add(&plan, task);
    task.id = 2;
    task.to.offset = 64;
    maker_add(&plan, task);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, takes_interleaved_columns)
{
    add_to(1, maker_rows(0, 16, 8, 64));
    add_to(2, maker_rows(16, 16, 8, 64));
    add_to(3, maker_rows(32, 32, 8, 64));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, finds_columns_that_cross)
{
    add_to(1, maker_rows(0, 16, 8, 64));
    add_to(2, maker_rows(136, 16, 8, 64));
    refused("tasks 1 and 2 overlap: both write bytes [136, 144) of parameter 0 'p0' on rank 1");
}

Test(plan_overlap, finds_a_range_that_crosses_a_column)
{
    add_to(1, maker_rows(32, 16, 4, 64));
    add_to(2, maker_range(48, 49));
    refused("tasks 1 and 2 overlap: both write bytes [96, 97) of parameter 0 'p0' on rank 1");
}

Test(plan_overlap, takes_a_range_between_two_rows)
{
    add_to(1, maker_rows(32, 16, 4, 64));
    add_to(2, maker_range(48, 48));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, finds_columns_that_run_over_the_edge_of_a_line)
{
    add_to(1, maker_rows(56, 16, 4, 64));
    add_to(2, maker_rows(64, 8, 4, 64));
    refused("tasks 1 and 2 overlap: both write bytes [64, 72) of parameter 0 'p0' on rank 1");
}

Test(plan_overlap, takes_different_pitches_that_do_not_meet)
{
    add_to(1, maker_rows(0, 16, 8, 64));
    add_to(2, maker_rows(16, 16, 4, 128));
    add_to(3, maker_rows(80, 16, 4, 128));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, finds_different_pitches_that_meet)
{
    add_to(1, maker_rows(0, 16, 9, 64));
    add_to(2, maker_rows(16, 16, 4, 112));
    refused("tasks 1 and 2 overlap: both write bytes [128, 144) of parameter 0 'p0' on rank 1");
}

Test(plan_overlap, refuses_different_pitches_with_too_many_rows)
{
    add_to(1, maker_rows(0, 8, 1000000, 64));
    add_to(2, maker_rows(16, 8, 500000, 128));
    refused("tasks 1 and 2 cross in parameter 0 'p0' on rank 1 with pitches 64 and 128: more than 262144 rows of other "
            "pitches can't be checked for overlap; use one pitch");
}

Test(plan_overlap, an_empty_task_inside_another_is_none)
{
    add_to(1, maker_range(0, 64));
    add_to(2, maker_range(32, 0));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

Test(plan_overlap, checks_a_hundred_thousand_columns)
{
    for (uint64_t i = 0; i < 100000; i++)
        add_to(i, maker_rows((i * 7919 % 100000) * 16, 16, 1000, 1600000));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    add_to(100000, maker_rows(1600000 * 500 + 24, 8, 100, 1600000));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_PLAN);
}

Test(plan_overlap, checks_a_hundred_thousand_stacked_blocks)
{
    for (uint64_t i = 0; i < 50000; i++) {
        add_to(2 * i, maker_rows(i * 4 * 64, 32, 4, 64));
        add_to(2 * i + 1, maker_rows(i * 4 * 64 + 32, 32, 4, 64));
    }
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
}

#define MAP 4096

/* Marks a region's bytes; false when one was marked already. */
static _Bool mark(uint8_t *map, const struct sluice_region *region)
{
    for (uint64_t row = 0; row < region->rows; row++)
        for (uint64_t i = 0; i < region->row_bytes; i++)
            if (map[region->offset + row * region->pitch + i]++ != 0)
                return 0;
    return 1;
}

static struct sluice_region random_region(struct sl_random *random)
{
    static const uint64_t pitches[] = {32, 48, 64};
    if (sl_random_below(random, 4) == 0)
        return maker_range(sl_random_below(random, 1024), 1 + sl_random_below(random, 40));
    uint64_t pitch = sl_random_below(random, 4) == 0 ? pitches[sl_random_below(random, 3)] : 64;
    return maker_rows(sl_random_below(random, 1024), 1 + sl_random_below(random, 12), 1 + sl_random_below(random, 10),
                      pitch);
}

Test(plan_overlap, agrees_with_a_byte_map_on_random_plans)
{
    struct sl_random random = {1};
    int legal = 0;
    for (int round = 0; round < 4000; round++) {
        static uint8_t map[MAP];
        memset(map, 0, sizeof(map));
        struct sl_plan one;
        maker_open(&one, 2, 1);
        _Bool free = 1;
        uint64_t tasks = 2 + sl_random_below(&random, 6);
        for (uint64_t i = 0; i < tasks; i++) {
            struct sluice_region region = random_region(&random);
            free = mark(map, &region) && free;
            maker_add(&one, maker_task(i, 0, 1, 0, region));
        }
        sluice_status status = sl_plan_validate(&one);
        cr_assert_eq(status, free ? SLUICE_OK : SLUICE_PLAN, "round %d: %s", round, sluice_last_error()->text);
        legal += free;
        sl_plan_drop(&one);
    }
    cr_assert_gt(legal, 400);
    cr_assert_lt(legal, 3600);
}
