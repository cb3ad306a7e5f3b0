/*
 * plan_recover.c: sluice_plan_recover.
 *
 * Invariants: the old plan is not changed; the new one remembers how the old one was cut (`resumes`), so that its seal
 * takes at least as many windows, and a transfer can tell whether windows of an earlier one are its own.
 */
#include <string.h>

#include "runtime/core/plan_object.h"
#include "runtime/core/runtime_object.h"

static sluice_status copy_store(const struct sluice_plan *plan, const struct sluice_runtime *runtime,
                                struct sl_plan *ret)
{
    uint32_t world = runtime->identity.world;
    if (plan->store.world != runtime->origin_world)
        return sl_fail(SLUICE_PLAN, "plan", "the plan is for %u ranks, the world that was opened first had %u",
                       plan->store.world, runtime->origin_world);
    uint32_t *origin = sl_new_array(plan->mem, world, sizeof *origin, "ranks of a plan");
    if (origin == NULL)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < world; i++)
        origin[i] = sluice_runtime_origin(runtime, i);
    sluice_status status = sl_plan_among(&plan->store, origin, world, ret);
    sl_free(plan->mem, origin);
    return status;
}

static sluice_status copy_bindings(const struct sluice_plan *plan, struct sluice_plan *ret)
{
    size_t count = plan->binding_capacity;
    if (count == 0)
        return SLUICE_OK;
    ret->bindings = sl_new_array(ret->mem, count, sizeof *ret->bindings, "bindings");
    if (ret->bindings == NULL)
        return SLUICE_NOMEM;
    memcpy(ret->bindings, plan->bindings, count * sizeof *ret->bindings);
    ret->binding_capacity = count;
    return SLUICE_OK;
}

/* Without some of its ranks only a balanced plan is cut as before, and only while nobody deals its pairs into blocks. */
static void keep_cuts(struct sluice_plan *plan, const struct sluice_runtime *runtime, struct sluice_plan *ret)
{
    pthread_mutex_lock(&plan->lock);
    _Bool shares = plan->cuts.policy == SLUICE_POLICY_BALANCED && plan->cuts.blocks == 1;
    if (shares || runtime->identity.world == plan->store.world)
        ret->resumes = plan->cuts;
    pthread_mutex_unlock(&plan->lock);
    atomic_store(&ret->version, atomic_load(&plan->version));
}

sluice_status sluice_plan_recover(const sluice_plan *plan, const sluice_runtime *runtime, sluice_plan **ret_plan)
{
    struct sluice_plan *own = (struct sluice_plan *)(uintptr_t)plan; /* for its lock */
    struct sluice_plan *copy = NULL;
    struct sl_plan store = {0};
    if (plan == NULL || ret_plan == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "a plan and a place for the new one are needed");
    sluice_status status = sl_runtime_check(runtime, "plan");
    if (status == SLUICE_OK)
        status = sl_plan_check(plan, "plan");
    if (status == SLUICE_OK)
        status = copy_store(plan, runtime, &store);
    if (status == SLUICE_OK)
        status = sl_plan_object_new(1, &copy);
    if (status != SLUICE_OK) {
        sl_plan_drop(&store);
        return status;
    }
    sl_plan_drop(&copy->store);
    copy->store = store;
    status = copy_bindings(plan, copy);
    if (status != SLUICE_OK) {
        sluice_plan_destroy(copy);
        return status;
    }
    keep_cuts(own, runtime, copy);
    *ret_plan = copy;
    return SLUICE_OK;
}
