/*
 * plan_api.c: the public functions of plan.h that need no runtime.
 *
 * Invariants: the store changes in state OPEN only; sealing and sealed plans refuse with STATE. Outputs
 * are set on success only. Counting functions read a store that nobody changes.
 */
#include <string.h>
#include <unistd.h>

#include "runtime/core/plan_io.h"
#include "runtime/core/plan_object.h"
#include "runtime/core/sealed.h"

sluice_status sl_plan_object_new(uint32_t world, struct sluice_plan **ret)
{
    struct sl_mem *mem = sl_mem_default();
    struct sluice_plan *plan = sl_new(mem, sizeof *plan, "plan");
    if (plan == NULL)
        return SLUICE_NOMEM;
    plan->mem = mem;
    atomic_init(&plan->references, 1);
    atomic_init(&plan->users, 1);
    SL_ASSERT(pthread_mutex_init(&plan->lock, NULL) == 0);
    sl_plan_init(&plan->store, mem, world);
    *ret = plan;
    return SLUICE_OK;
}

void sl_plan_keep(struct sluice_plan *plan)
{
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
}

void sl_plan_release(struct sluice_plan *plan)
{
    if (plan == NULL || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    SL_ASSERT(plan->sealed == NULL);
    sl_plan_drop(&plan->store);
    sl_map_close(&plan->map);
    sl_free(plan->mem, plan->bindings);
    pthread_mutex_destroy(&plan->lock);
    sl_free(plan->mem, plan);
}

static sluice_status check_open(const struct sluice_plan *plan)
{
    if (plan == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "no plan given");
    if (atomic_load(&plan->state) != SL_PLAN_OPEN)
        return sl_fail(SLUICE_STATE, "plan", "the plan is sealed: make a new one to change it");
    return SLUICE_OK;
}

sluice_status sluice_plan_create(uint32_t world, sluice_plan **ret_plan)
{
    if (ret_plan == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "no place for the plan given");
    if (world == 0 || world > SLUICE_WORLD_MAX)
        return sl_fail(SLUICE_INVALID, "plan", "world %u is not within 1..%u", world, SLUICE_WORLD_MAX);
    return sl_plan_object_new(world, ret_plan);
}

sluice_status sluice_plan_load(const char *path, sluice_plan **ret_plan)
{
    struct sluice_plan *plan = NULL;
    if (path == NULL || ret_plan == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "a path and a place for the plan are needed");
    sluice_status status = sl_plan_object_new(1, &plan);
    if (status != SLUICE_OK)
        return status;
    status = sl_plan_open(path, &plan->store, &plan->map);
    if (status != SLUICE_OK) {
        sl_plan_release(plan);
        return status;
    }
    *ret_plan = plan;
    return SLUICE_OK;
}

sluice_status sluice_plan_save(const sluice_plan *plan, const char *path)
{
    if (plan == NULL || path == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "a plan and a path are needed");
    if (plan->store.partial)
        return sl_fail(SLUICE_STATE, "plan", "a plan of one rank's halves cannot be written: it knows one end only");
    sluice_status status = sluice_plan_validate(plan);
    return status == SLUICE_OK ? sl_plan_store(&plan->store, path) : status;
}

void sl_plan_use(struct sluice_plan *plan)
{
    sl_plan_keep(plan);
    atomic_fetch_add_explicit(&plan->users, 1, memory_order_relaxed);
}

void sl_plan_unuse(struct sluice_plan *plan)
{
    if (plan == NULL)
        return;
    if (atomic_fetch_sub_explicit(&plan->users, 1, memory_order_acq_rel) == 1)
        sl_sealed_orphan(plan);
    sl_plan_release(plan);
}

sluice_status sl_plan_check(const struct sluice_plan *plan, const char *where)
{
    int owner = atomic_load(&plan->owner);
    if (owner == 0 || owner == (int)getpid())
        return SLUICE_OK;
    return sl_fail(SLUICE_FORKED, where, "the plan was sealed by process %d and is used in its child %d", owner,
                   (int)getpid());
}

void sluice_plan_destroy(sluice_plan *plan)
{
    if (plan != NULL && sl_plan_check(plan, "plan") == SLUICE_OK)
        sl_plan_unuse(plan);
}

sluice_status sluice_plan_add_param(sluice_plan *plan, const struct sluice_param *param)
{
    sluice_status status = check_open(plan);
    if (status == SLUICE_OK && param == NULL)
        status = sl_fail(SLUICE_INVALID, "plan", "no parameter given");
    return status == SLUICE_OK ? sl_plan_add_param(&plan->store, param) : status;
}

sluice_status sluice_plan_add_buffer(sluice_plan *plan, uint32_t param, uint32_t rank, enum sluice_role role,
                                     uint64_t bytes)
{
    sluice_status status = check_open(plan);
    return status == SLUICE_OK ? sl_plan_add_buffer(&plan->store, param, rank, role, bytes) : status;
}

sluice_status sluice_plan_add_task(sluice_plan *plan, const struct sluice_task *task)
{
    sluice_status status = check_open(plan);
    if (status == SLUICE_OK && task == NULL)
        status = sl_fail(SLUICE_INVALID, "plan", "no task given");
    return status == SLUICE_OK ? sl_plan_add_task(&plan->store, task) : status;
}

static sluice_status add_half(struct sluice_plan *plan, uint64_t id, uint32_t param, uint8_t dtype, uint32_t peer,
                              _Bool receive, const struct sluice_region *region)
{
    sluice_status status = check_open(plan);
    if (status == SLUICE_OK && region == NULL)
        status = sl_fail(SLUICE_INVALID, "plan", "task %llu: no region given", (unsigned long long)id);
    return status == SLUICE_OK ? sl_plan_add_half(&plan->store, id, param, dtype, peer, receive, region) : status;
}

sluice_status sluice_plan_add_send(sluice_plan *plan, uint64_t id, uint32_t param, uint8_t dtype, uint32_t destination,
                                   const struct sluice_region *from)
{
    return add_half(plan, id, param, dtype, destination, 0, from);
}

sluice_status sluice_plan_add_recv(sluice_plan *plan, uint64_t id, uint32_t param, uint8_t dtype, uint32_t source,
                                   const struct sluice_region *to)
{
    return add_half(plan, id, param, dtype, source, 1, to);
}

sluice_status sluice_plan_validate(const sluice_plan *plan)
{
    if (plan == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "no plan given");
    if (plan->store.validated)
        return SLUICE_OK;
    /* Validation sorts the tasks in place; the caller's view of the plan does not change by it. */
    struct sluice_plan *own = (struct sluice_plan *)(uintptr_t)plan;
    return sl_plan_validate(&own->store);
}

uint32_t sluice_plan_world(const sluice_plan *plan)
{
    return plan == NULL ? 0 : plan->store.world;
}

uint64_t sluice_plan_tasks(const sluice_plan *plan)
{
    return plan == NULL ? 0 : plan->store.task_count;
}

uint32_t sluice_plan_params(const sluice_plan *plan)
{
    return plan == NULL ? 0 : (uint32_t)plan->store.param_count;
}

uint64_t sluice_plan_bytes(const sluice_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; plan != NULL && i < plan->store.task_count; i++)
        bytes += sl_task_bytes(&plan->store.tasks[i]);
    return bytes;
}

sluice_status sluice_plan_param(const sluice_plan *plan, uint32_t param, struct sluice_param *ret_param)
{
    if (plan == NULL || ret_param == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "a plan and a place for the parameter are needed");
    if (param >= plan->store.param_count)
        return sl_fail(SLUICE_NOT_FOUND, "plan", "parameter %u is not in the plan (it has %zu)", param,
                       plan->store.param_count);
    const struct sl_param *record = &plan->store.params[param];
    *ret_param = (struct sluice_param){.id = param,
                                       .dtype = record->dtype,
                                       .bytes = record->bytes,
                                       .row_bytes = record->row_bytes,
                                       .name = sl_param_name(&plan->store, param)};
    return SLUICE_OK;
}

sluice_status sluice_plan_buffer(const sluice_plan *plan, uint32_t param, uint32_t rank, enum sluice_role role,
                                 uint64_t *ret_bytes)
{
    if (plan == NULL || ret_bytes == NULL)
        return sl_fail(SLUICE_INVALID, "plan", "a plan and a place for the size are needed");
    if (!plan->store.validated)
        return sl_fail(SLUICE_STATE, "plan", "the plan was changed: validate it before you ask for its buffers");
    uint64_t bytes = sl_buffer_bytes(&plan->store, rank, role, param);
    if (bytes == UINT64_MAX)
        return sl_fail(SLUICE_NOT_FOUND, "plan", "the plan has no %s buffer of parameter %u on rank %u",
                       role == SLUICE_ROLE_SOURCE ? "source" : "destination", param, rank);
    *ret_bytes = bytes;
    return SLUICE_OK;
}

const struct sl_binding *sl_plan_binding(const struct sluice_plan *plan, uint32_t param, enum sluice_role role)
{
    size_t index = 2 * (size_t)param + (size_t)role;
    if (index >= plan->binding_capacity || !plan->bindings[index].bound)
        return NULL;
    return &plan->bindings[index];
}

static sluice_status check_binding(const struct sluice_plan *plan, uint32_t param, enum sluice_role role,
                                   const void *memory, uint64_t bytes)
{
    if (role != SLUICE_ROLE_SOURCE && role != SLUICE_ROLE_DESTINATION)
        return sl_fail(SLUICE_INVALID, "bind", "parameter %u: role %d is neither source nor destination", param,
                       (int)role);
    if (param >= plan->store.param_count)
        return sl_fail(SLUICE_INVALID, "bind", "parameter %u is not in the plan (it has %zu)", param,
                       plan->store.param_count);
    if (bytes > SLUICE_BYTES_MAX)
        return sl_fail(SLUICE_INVALID, "bind", "parameter %u: %llu bytes are more than 2^62", param,
                       (unsigned long long)bytes);
    if (memory == NULL && bytes > 0)
        return sl_fail(SLUICE_INVALID, "bind", "parameter %u: NULL with %llu bytes", param, (unsigned long long)bytes);
    if ((uint64_t)(uintptr_t)memory > UINT64_MAX - bytes)
        return sl_fail(SLUICE_INVALID, "bind", "parameter %u: the buffer wraps around the address space", param);
    return SLUICE_OK;
}

sluice_status sluice_plan_bind(sluice_plan *plan, uint32_t param, enum sluice_role role, void *memory, uint64_t bytes)
{
    sluice_status status = check_open(plan);
    if (status == SLUICE_OK)
        status = check_binding(plan, param, role, memory, bytes);
    size_t before = plan == NULL ? 0 : plan->binding_capacity;
    if (status == SLUICE_OK)
        status = sl_grow(plan->mem, &plan->bindings, &plan->binding_capacity, 2 * (size_t)param + 2,
                         sizeof *plan->bindings, "bindings");
    if (status != SLUICE_OK)
        return status;
    if (plan->binding_capacity > before)
        memset(plan->bindings + before, 0, (plan->binding_capacity - before) * sizeof *plan->bindings);
    plan->bindings[2 * (size_t)param + (size_t)role] = (struct sl_binding){memory, bytes, 1};
    return SLUICE_OK;
}

sluice_status sluice_plan_rebind(sluice_plan *plan, uint32_t param, enum sluice_role role, void *memory, uint64_t bytes)
{
    if (plan == NULL)
        return sl_fail(SLUICE_INVALID, "bind", "no plan given");
    sluice_status status = check_binding(plan, param, role, memory, bytes);
    return status == SLUICE_OK ? sl_sealed_rebind(plan, param, role, memory, bytes) : status;
}

uint32_t sluice_plan_windows(const sluice_plan *plan)
{
    return plan == NULL ? 0 : (uint32_t)atomic_load(&plan->windows);
}

uint64_t sluice_version(const sluice_plan *plan)
{
    return plan == NULL ? 0 : atomic_load(&plan->version);
}
