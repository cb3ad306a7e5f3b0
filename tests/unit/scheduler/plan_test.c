/* The plan as a store: what it takes and what it refuses; regions. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/plan_maker.h"

static struct sl_plan plan;

static void setup(void)
{
    maker_open(&plan, 4, 1);
}

static void teardown(void)
{
    sl_plan_drop(&plan);
}

TestSuite(plan, .init = setup, .fini = teardown);

static void refused(struct sluice_param param, sluice_status expected, const char *text)
{
    cr_assert_eq(sl_plan_add_param(&plan, &param), expected);
    cr_assert_str_eq(sluice_last_error()->text, text);
    cr_assert_eq(plan.param_count, 1);
}

Test(plan, keeps_names_and_numbers)
{
    struct sluice_param param = {
        .id = 1, .dtype = SLUICE_DTYPE_F32, .bytes = 64, .row_bytes = 16, .name = "a.b\xc3\xa9"};
    cr_assert_eq(sl_plan_add_param(&plan, &param), SLUICE_OK);
    cr_assert_str_eq(sl_param_name(&plan, 0), "p0");
    cr_assert_str_eq(sl_param_name(&plan, 1), "a.b\xc3\xa9");
    cr_assert_str_eq(sl_param_name(&plan, 2), "");
    cr_assert_eq(plan.params[1].row_bytes, 16);
}

Test(plan, parameters_come_in_id_order)
{
    refused((struct sluice_param){.id = 2, .dtype = SLUICE_DTYPE_F32}, SLUICE_INVALID,
            "parameter 2: ids are dense and in order, the next one is 1");
}

Test(plan, refuses_bad_parameters)
{
    refused((struct sluice_param){.id = 1}, SLUICE_INVALID, "parameter 1: unknown dtype 0");
    refused((struct sluice_param){.id = 1, .dtype = 18}, SLUICE_INVALID, "parameter 1: unknown dtype 18");
    refused((struct sluice_param){.id = 1, .dtype = 1, .bytes = (UINT64_C(1) << 62) + 1}, SLUICE_LIMIT,
            "parameter 1: bytes and row bytes are at most 2^62");
    refused((struct sluice_param){.id = 1, .dtype = 1, .name = "a\nb"}, SLUICE_INVALID,
            "parameter 1: its name has a control character");
    refused((struct sluice_param){.id = 1, .dtype = 1, .name = "\xff"}, SLUICE_INVALID,
            "parameter 1: its name is not UTF-8");
    refused((struct sluice_param){.id = 1, .dtype = 1, .name = "\xed\xa0\x80"}, SLUICE_INVALID,
            "parameter 1: its name is not UTF-8");
    char name[600];
    memset(name, 'x', sizeof(name));
    name[512] = '\0';
    refused((struct sluice_param){.id = 1, .dtype = 1, .name = name}, SLUICE_INVALID,
            "parameter 1: its name is too long (511 bytes at most)");
}

Test(plan, takes_the_longest_name)
{
    char name[SLUICE_NAME_MAX];
    memset(name, 'x', sizeof(name));
    name[511] = '\0';
    struct sluice_param param = {.id = 1, .dtype = 1, .name = name, .bytes = UINT64_C(1) << 62};
    cr_assert_eq(sl_plan_add_param(&plan, &param), SLUICE_OK);
}

Test(plan, knows_the_sizes_of_buffers)
{
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 3, SLUICE_ROLE_SOURCE, 30), SLUICE_OK);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_DESTINATION, 11), SLUICE_OK);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_SOURCE, 10), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(sl_buffer_bytes(&plan, 3, SLUICE_ROLE_SOURCE, 0), 30);
    cr_assert_eq(sl_buffer_bytes(&plan, 1, SLUICE_ROLE_DESTINATION, 0), 11);
    cr_assert_eq(sl_buffer_bytes(&plan, 1, SLUICE_ROLE_SOURCE, 0), 10);
    cr_assert_eq(sl_buffer_bytes(&plan, 2, SLUICE_ROLE_SOURCE, 0), UINT64_MAX);
    cr_assert_eq(sl_buffer_bytes(&plan, 3, SLUICE_ROLE_SOURCE, 1), UINT64_MAX);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 4, SLUICE_ROLE_SOURCE, 10), SLUICE_INVALID);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 0, SLUICE_ROLE_SOURCE, UINT64_MAX), SLUICE_LIMIT);
}

Test(plan, drop_may_be_repeated)
{
    sl_plan_drop(&plan);
    sl_plan_drop(&plan);
    sl_plan_drop(NULL);
}

Test(region, bytes_and_ends_do_not_wrap)
{
    struct sluice_region region = maker_rows(8, 16, 3, 64);
    cr_assert_eq(sl_region_bytes(&region), 48);
    cr_assert_eq(sl_region_end(&region), 8 + 128 + 16);
    cr_assert_not(sl_region_contiguous(&region));
    region = maker_rows(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    cr_assert_eq(sl_region_bytes(&region), UINT64_MAX);
    cr_assert_eq(sl_region_end(&region), UINT64_MAX);
    region = maker_range(UINT64_MAX - 7, 8);
    cr_assert_eq(sl_region_end(&region), UINT64_MAX);
    region = maker_range(7, 0);
    cr_assert_eq(sl_region_end(&region), 7);
    cr_assert(sl_region_contiguous(&region));
}
