/*
 * plan_layout.c: the planner behind the public interface.
 *
 * - A plan that leaves here was validated.
 */
#include "runtime/base/error.h"
#include "runtime/core/model_file.h"
#include "runtime/core/options.h"
#include "runtime/core/plan_object.h"

static sluice_status read_options(const struct sluice_layout_options *given, struct sl_layout_options *ret)
{
    struct sluice_layout_options options = SLUICE_LAYOUT_OPTIONS_INIT;
    sluice_status status = given ? sl_options_copy(&options, sizeof options, given, "layout options") : SLUICE_OK;
    if (status != SLUICE_OK)
        return status;
    if (options.source_choice > SLUICE_SOURCE_FIRST || options.id_order > SLUICE_ID_DESTINATION || options.reserved)
        return sl_fail(SLUICE_INVALID, "layout",
                       "layout options: unknown source choice or id order, or reserved is not 0");
    *ret = (struct sl_layout_options){.source_choice = (enum sluice_source_choice)options.source_choice,
                                      .id_order = (enum sluice_id_order)options.id_order,
                                      .scale = options.scale};
    return SLUICE_OK;
}

static sluice_status make_validated(const struct sl_model *model, const struct sl_layout *from,
                                    const struct sl_layout *to, const struct sl_layout_options *options,
                                    struct sl_mem *mem, struct sl_plan *ret)
{
    struct sl_plan plan;
    sluice_status status = sl_plan_make(model, from, to, options, mem, &plan);
    if (status != SLUICE_OK)
        return status;
    status = sl_plan_validate(&plan);
    if (status == SLUICE_OK)
        *ret = plan;
    else
        sl_plan_drop(&plan);
    return status;
}

sluice_status sl_plan_from_layouts(const char *model, const char *from, const char *to,
                                   const struct sluice_layout_options *options, struct sl_mem *mem, struct sl_plan *ret)
{
    struct sl_layout sides[2];
    struct sl_layout_options choices;
    struct sl_model opened;
    if (!model || !from || !to)
        return sl_fail(SLUICE_INVALID, "layout", "a model and two layouts are needed");
    sluice_status status = read_options(options, &choices);
    if (status == SLUICE_OK)
        status = sl_layout_parse(from, "--from", &sides[0]);
    if (status == SLUICE_OK)
        status = sl_layout_parse(to, "--to", &sides[1]);
    if (status == SLUICE_OK)
        status = sl_model_open(model, mem, &opened);
    if (status != SLUICE_OK)
        return status;
    status = make_validated(&opened, &sides[0], &sides[1], &choices, mem, ret);
    sl_model_drop(&opened);
    return status;
}

sluice_status sluice_plan_from_layouts(const char *model, const char *from, const char *to,
                                       const struct sluice_layout_options *options, sluice_plan **ret_plan)
{
    struct sluice_plan *plan = NULL;
    struct sl_plan store;
    if (!ret_plan)
        return sl_fail(SLUICE_INVALID, "layout", "no place for the plan given");
    sluice_status status = sl_plan_from_layouts(model, from, to, options, sl_mem_default(), &store);
    if (status != SLUICE_OK)
        return status;
    status = sl_plan_object_new(store.world, &plan);
    if (status != SLUICE_OK) {
        sl_plan_drop(&store);
        return status;
    }
    sl_plan_drop(&plan->store);
    plan->store = store;
    *ret_plan = plan;
    return SLUICE_OK;
}
