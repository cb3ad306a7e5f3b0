/*
 * bench_plan.c: the plan of a measurement within one rank.
 */
#include "bench.h"
#include "sluice/plan.h"

static sluice_status add(sluice_plan *plan, uint32_t id, uint64_t bytes, uint8_t *from, uint8_t *to)
{
    struct sluice_param param = {.id = id, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = ""};
    struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = id,
                               .param = id,
                               .from = whole,
                               .to = whole,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8};
    sluice_status status = sluice_plan_add_param(plan, &param);
    if (status == SLUICE_OK)
        status = sluice_plan_add_task(plan, &task);
    if (status == SLUICE_OK)
        status = sluice_plan_bind(plan, id, SLUICE_ROLE_SOURCE, from, bytes);
    return status == SLUICE_OK ? sluice_plan_bind(plan, id, SLUICE_ROLE_DESTINATION, to, bytes) : status;
}

sluice_status bench_local_plan(const uint64_t *sizes, const uint64_t *places, uint32_t count, uint8_t *from,
                               uint8_t *to, sluice_plan **ret)
{
    sluice_plan *plan = NULL;
    sluice_status status = sluice_plan_create(1, &plan);
    for (uint32_t i = 0; status == SLUICE_OK && i < count; i++)
        status = add(plan, i, sizes[i], from + places[i], to + places[i]);
    if (status == SLUICE_OK)
        *ret = plan;
    else
        sluice_plan_destroy(plan);
    return status;
}
