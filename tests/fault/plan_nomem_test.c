/* Every allocation of the plan fails once: the call says so, and nothing leaks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/plan_stats.h"
#include "support/memory.h"
#include "support/plan_maker.h"

static struct test_memory memory;

static void setup(void)
{
    test_memory_install(&memory);
}

static void teardown(void)
{
    test_memory_remove();
}

TestSuite(plan_nomem, .init = setup, .fini = teardown);

/* A step under test: NOMEM or OK, and nothing left alive behind it. */
typedef sluice_status (*step_fn)(void);

static int fail_each(step_fn step)
{
    for (uint64_t n = 1; n < 10000; n++) {
        test_memory_fail_at(&memory, n);
        sluice_status status = step();
        cr_assert_eq(memory.live, 0, "allocation %lu", n);
        if (status == SLUICE_OK)
            return (int)n;
        cr_assert_eq(status, SLUICE_NOMEM, "allocation %lu: %d", n, (int)status);
        cr_assert_eq(sluice_last_error()->status, SLUICE_NOMEM);
    }
    cr_assert_fail("no clean pass");
    return 0;
}

/* Tasks out of order, crossing strided destinations, two pitches: every path of the validation allocates. */
static sluice_status build(struct sl_plan *plan)
{
    struct sluice_param param = {.id = 0, .dtype = SLUICE_DTYPE_BF16, .bytes = 4096, .name = "w"};
    sl_plan_init(plan, sl_mem_default(), 4);
    sluice_status status = sl_plan_add_param(plan, &param);
    if (status == SLUICE_OK)
        status = sl_plan_add_buffer(plan, 0, 1, SLUICE_ROLE_DESTINATION, 4096);
    for (uint64_t i = 0; i < 20 && status == SLUICE_OK; i++) {
        struct sluice_region region = i == 7 ? maker_rows(1024, 8, 2, 192) : maker_rows(i * 16, 16, 2, 512);
        struct sluice_task task = maker_task(100 - i, 0, 1, 0, region);
        status = sl_plan_add_task(plan, &task);
    }
    return status == SLUICE_OK ? sl_plan_validate(plan) : status;
}

static sluice_status build_and_count(void)
{
    struct sl_plan plan;
    struct sl_plan_stats stats;
    sluice_status status = build(&plan);
    if (status == SLUICE_OK)
        status = sl_plan_stats(&plan, sl_mem_default(), &stats);
    if (status == SLUICE_OK)
        sl_plan_stats_drop(&stats);
    sl_plan_drop(&plan);
    return status;
}

Test(plan_nomem, building_validating_counting)
{
    cr_assert_gt(fail_each(build_and_count), 12);
}

static sluice_status build_halves(void)
{
    struct sl_plan plan;
    sluice_status status = SLUICE_OK;
    struct sluice_region region = maker_range(0, 64);
    sl_plan_init(&plan, sl_mem_default(), 4);
    for (uint64_t i = 0; i < 20 && status == SLUICE_OK; i++) {
        region.offset = i * 64;
        status = sl_plan_add_half(&plan, i / 2, 0, SLUICE_DTYPE_BF16, 2, i % 2 == 1, &region);
    }
    if (status == SLUICE_OK)
        status = sl_plan_set_rank(&plan, 2, 4);
    if (status == SLUICE_OK)
        status = sl_plan_validate(&plan);
    sl_plan_drop(&plan);
    return status;
}

Test(plan_nomem, halves)
{
    cr_assert_gt(fail_each(build_halves), 5);
}

static char *written;
static size_t written_bytes;

static void write_with(sluice_status (*write)(const struct sl_plan *plan, FILE *file))
{
    struct sl_plan plan;
    test_memory_fail_at(&memory, 0);
    cr_assert_eq(build(&plan), SLUICE_OK);
    FILE *stream = open_memstream(&written, &written_bytes);
    cr_assert_eq(write(&plan, stream), SLUICE_OK);
    fclose(stream);
    sl_plan_drop(&plan);
}

static sluice_status read_json(void)
{
    struct sl_plan plan;
    sluice_status status = sl_plan_read_json(written, written_bytes, "x", &plan);
    if (status == SLUICE_OK)
        sl_plan_drop(&plan);
    return status;
}

Test(plan_nomem, reading_json)
{
    write_with(sl_plan_write_json);
    cr_assert_gt(fail_each(read_json), 8);
    free(written);
}

/* Reads, and makes the borrowed plan its own by a change. */
static sluice_status read_binary(void)
{
    struct sl_plan plan;
    sluice_status status = sl_plan_read_binary((const uint8_t *)written, written_bytes, "x", &plan);
    if (status != SLUICE_OK)
        return status;
    status = sl_plan_add_buffer(&plan, 0, 2, SLUICE_ROLE_SOURCE, 64);
    sl_plan_drop(&plan);
    return status;
}

Test(plan_nomem, reading_and_changing_binary)
{
    write_with(sl_plan_write_binary);
    cr_assert_gt(fail_each(read_binary), 6);
    free(written);
}

static sluice_status write_binary(void)
{
    struct sl_plan plan;
    sluice_status status = build(&plan);
    FILE *sink = fopen("/dev/null", "w");
    if (status == SLUICE_OK)
        status = sl_plan_write_binary(&plan, sink);
    fclose(sink);
    sl_plan_drop(&plan);
    return status;
}

Test(plan_nomem, writing_binary)
{
    cr_assert_gt(fail_each(write_binary), 12);
}
