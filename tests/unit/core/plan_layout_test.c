/* Plans from layouts through the public interface: options, errors, ownership. */
#include <criterion/criterion.h>
#include <string.h>

#include "sluice/layout.h"
#include "sluice/plan.h"

static sluice_plan *const untouched = (sluice_plan *)8;

static void refused(const char *model, const char *from, const struct sluice_layout_options *options,
                    sluice_status status, const char *part)
{
    sluice_plan *plan = untouched;
    cr_expect_eq(sluice_plan_from_layouts(model, from, "world=1", options, &plan), status);
    cr_expect_not_null(strstr(sluice_last_error()->text, part), "%s", sluice_last_error()->text);
    cr_expect_eq(plan, untouched);
}

Test(plan_layout, a_name_or_a_path_and_two_layouts_make_a_plan)
{
    static const char *const models[] = {"llama3-70b", "tools/models/llama3-70b.json"};
    for (int i = 0; i < 2; i++) {
        sluice_plan *plan = NULL;
        cr_assert_eq(sluice_plan_from_layouts(models[i], "tp=8,world=8", "tp=4,world=8", NULL, &plan), SLUICE_OK, "%s",
                     sluice_last_error()->text);
        cr_expect_eq(sluice_plan_world(plan), 16);
        cr_expect_eq(sluice_plan_tasks(plan), 7720);
        cr_expect_eq(sluice_plan_params(plan), 483);
        cr_expect_eq(sluice_plan_validate(plan), SLUICE_OK);
        uint64_t bytes = 0;
        cr_expect_eq(sluice_plan_buffer(plan, 0, 0, SLUICE_ROLE_SOURCE, &bytes), SLUICE_OK);
        cr_expect_eq(bytes, UINT64_C(128256) / 8 * 8192 * 2, "an eighth of the embedding: %llu",
                     (unsigned long long)bytes);
        sluice_plan_destroy(plan);
    }
}

Test(plan_layout, options_choose_and_scale)
{
    struct sluice_layout_options options = SLUICE_LAYOUT_OPTIONS_INIT;
    sluice_plan *plan = NULL;
    options.scale = 1000;
    options.source_choice = SLUICE_SOURCE_FIRST;
    options.id_order = SLUICE_ID_DESTINATION;
    cr_assert_eq(sluice_plan_from_layouts("llama3-70b", "tp=8,world=8", "tp=4,world=8", &options, &plan), SLUICE_OK);
    cr_expect_eq(sluice_plan_tasks(plan), 7720);
    cr_expect_eq(sluice_plan_bytes(plan), 521204480);
    sluice_plan_destroy(plan);
}

Test(plan_layout, shorter_options_take_defaults_and_longer_ones_must_be_zero)
{
    struct {
        struct sluice_layout_options options;
        uint64_t later;
    } longer = {.options = {.size = sizeof longer, .scale = 1000}};
    struct sluice_layout_options shorter = {.size = 8, .source_choice = SLUICE_SOURCE_FIRST, .id_order = 99};
    sluice_plan *plan = NULL;
    cr_assert_eq(sluice_plan_from_layouts("llama3-70b", "world=1", "world=1", &longer.options, &plan), SLUICE_OK);
    sluice_plan_destroy(plan);
    cr_assert_eq(sluice_plan_from_layouts("llama3-70b", "world=1", "world=1", &shorter, &plan), SLUICE_OK);
    sluice_plan_destroy(plan);
    longer.later = 1;
    refused("llama3-70b", "world=1", &longer.options, SLUICE_INVALID, "not known to this version");
}

Test(plan_layout, errors_name_what_is_wrong)
{
    struct sluice_layout_options options = {.size = sizeof options, .source_choice = 2};
    refused("llama3-70b", "world=1", &options, SLUICE_INVALID, "unknown source choice");
    refused("llama3-70b", "tp=x,world=1", NULL, SLUICE_INVALID, "--from: tp=x");
    refused("llama4", "world=1", NULL, SLUICE_NOT_FOUND, "no model 'llama4'");
    refused("", "world=1", NULL, SLUICE_NOT_FOUND, "no model ''");
    refused("./llama4", "world=1", NULL, SLUICE_IO, "cannot open ./llama4");
    refused("CHANGES", "world=1", NULL, SLUICE_PARSE, "CHANGES: line 1");
    refused(NULL, "world=1", NULL, SLUICE_INVALID, "two layouts are needed");
    cr_expect_eq(sluice_plan_from_layouts("llama3-70b", "world=1", "world=1", NULL, NULL), SLUICE_INVALID);
}
