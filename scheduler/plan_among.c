/*
 * plan_among.c: a plan for some of its ranks, under new numbers.
 *
 * Invariants: tasks keep ids, parts and their order, so a pair stream of two ranks that stay is as it was;
 * parameters keep their ids, those without a task too.
 */
#include "scheduler/plan_internal.h"

#define GONE (SL_RANK_SELF - 1)

static sluice_status map_ranks(const struct sl_plan *plan, const uint32_t *origin, uint32_t world, uint32_t *map)
{
    for (uint32_t i = 0; i < plan->world; i++)
        map[i] = GONE;
    for (uint32_t i = 0; i < world; i++) {
        if (origin[i] >= plan->world)
            return sl_fail(SLUICE_PLAN, "plan", "rank %u was rank %u at first, but the plan is for %u ranks", i,
                           origin[i], plan->world);
        map[origin[i]] = i;
    }
    return SLUICE_OK;
}

static uint32_t number_of(const uint32_t *map, uint32_t rank)
{
    return rank == SL_RANK_SELF ? rank : map[rank];
}

static void renumber(struct sl_plan *plan, const uint32_t *map)
{
    size_t kept = 0;
    for (size_t i = 0; i < plan->task_count; i++) {
        struct sluice_task task = plan->own_tasks[i];
        task.source = number_of(map, task.source);
        task.destination = number_of(map, task.destination);
        if (task.source != GONE && task.destination != GONE)
            plan->own_tasks[kept++] = task;
    }
    plan->task_count = kept;
    kept = 0;
    for (size_t i = 0; i < plan->buffer_count; i++) {
        struct sl_buffer buffer = plan->buffers[i];
        buffer.rank = number_of(map, buffer.rank);
        if (buffer.rank != GONE)
            plan->buffers[kept++] = buffer;
    }
    plan->buffer_count = kept;
}

sluice_status sl_plan_among(const struct sl_plan *plan, const uint32_t *origin, uint32_t world, struct sl_plan *ret)
{
    uint32_t *map = sl_new_array(plan->mem, plan->world, sizeof *map, "ranks of a plan");
    struct sl_plan copy = {0};
    if (map == NULL)
        return SLUICE_NOMEM;
    sluice_status status = map_ranks(plan, origin, world, map);
    if (status == SLUICE_OK && number_of(map, plan->self) == GONE)
        status = sl_fail(SLUICE_PLAN, "plan", "the plan holds halves of rank %u, which is gone", plan->self);
    if (status == SLUICE_OK)
        status = sl_plan_copy(plan, &copy);
    if (status == SLUICE_OK) {
        renumber(&copy, map);
        copy.self = number_of(map, plan->self);
        copy.world = world;
        copy.validated = 0;
        *ret = copy;
    }
    sl_free(plan->mem, map);
    return status;
}
