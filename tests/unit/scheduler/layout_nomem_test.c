/* The planner without memory: every allocation fails once, and nothing is kept. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/layouts.h"
#include "support/memory.h"

static const char text[] =
    "{\"schema\":1,\"name\":\"m\",\"sources\":[],\"dtype\":\"bf16\",\"pattern\":\"AA\","
    "\"first\":[{\"name\":\"embed\",\"shape\":[8,2],\"split\":\"tp\",\"dim\":0}],"
    "\"layers\":{\"A\":[{\"name\":\"{layer}.w\",\"shape\":[4]},"
    "{\"name\":\"{layer}.e{expert}\",\"shape\":[4,2],\"split\":\"etp\",\"dim\":1,\"experts\":4}]},\"last\":[]}";

Test(layout_nomem, every_failed_allocation_is_an_error_that_keeps_nothing)
{
    static struct test_memory memory;
    static struct sl_layout from, to;
    struct sl_layout_options options = {.scale = 2};
    struct sl_model model;
    struct sl_plan plan;
    cr_assert_eq(sl_layout_parse("tp=2,ep=2,world=4", "--from", &from), SLUICE_OK);
    cr_assert_eq(sl_layout_parse("etp=2,ep=2,world=4", "--to", &to), SLUICE_OK);
    test_memory_install(&memory);
    cr_assert_eq(sl_model_read(text, strlen(text), "m", sl_mem_default(), &model), SLUICE_OK);
    int64_t before = memory.live;
    uint64_t n = 1;
    for (;; n++) {
        test_memory_fail_at(&memory, n);
        sluice_status status = sl_plan_make(&model, &from, &to, &options, sl_mem_default(), &plan);
        if (status == SLUICE_OK)
            break;
        cr_assert_eq(status, SLUICE_NOMEM, "allocation %d: %s", (int)n, sluice_last_error()->text);
        cr_assert_eq(memory.live, before, "allocation %d", (int)n);
    }
    cr_expect_gt(n, 20);
    sl_plan_drop(&plan);
    sl_model_drop(&model);
    cr_expect_eq(memory.live, 0);
    test_memory_remove();
}
