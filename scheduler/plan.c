/*
 * The plan as a store: parameters, buffers and tasks are appended; nothing is looked up or sorted here.
 *
 * Invariants:
 * - params[i].id == i; every name lies terminated in `names`.
 * - own_tasks == tasks unless the plan is borrowed; a borrowed plan copies everything before its first change.
 * - any change clears `validated`.
 * - a plan is either whole (tasks) or partial (halves), never both.
 */
#include <string.h>

#include "scheduler/plan_internal.h"

static_assert(sizeof(struct sluice_region) == 32, "record of the plan file");
static_assert(sizeof(struct sluice_task) == 96, "record of the plan file");
static_assert(sizeof(struct sl_param) == 32, "record of the plan file");
static_assert(sizeof(struct sl_buffer) == 24, "record of the plan file");

void sl_plan_init(struct sl_plan *plan, struct sl_mem *mem, uint32_t world)
{
    SL_ASSERT(world >= 1 && world <= SLUICE_WORLD_MAX);
    *plan = (struct sl_plan){.mem = mem, .world = world, .self = SL_RANK_SELF};
}

void sl_plan_drop(struct sl_plan *plan)
{
    if (plan == NULL || plan->mem == NULL)
        return;
    if (!plan->borrowed) {
        sl_free(plan->mem, plan->params);
        sl_free(plan->mem, plan->names);
        sl_free(plan->mem, plan->buffers);
        sl_free(plan->mem, plan->own_tasks);
    }
    *plan = (struct sl_plan){0};
}

static void *copy_of(struct sl_mem *mem, const void *from, size_t count, size_t bytes, const char *what)
{
    void *to = sl_new_array(mem, count, bytes, what);
    if (to != NULL && count > 0)
        memcpy(to, from, count * bytes);
    return to;
}

/* Gives a borrowed plan memory of its own, so that it can change. */
static sluice_status own(struct sl_plan *plan)
{
    struct sl_plan copy = *plan;
    copy.borrowed = 0;
    copy.params = copy_of(plan->mem, plan->params, plan->param_count, sizeof(*plan->params), "parameters");
    copy.names = copy_of(plan->mem, plan->names, plan->names_bytes, 1, "parameter names");
    copy.buffers = copy_of(plan->mem, plan->buffers, plan->buffer_count, sizeof(*plan->buffers), "buffers");
    copy.own_tasks = copy_of(plan->mem, plan->tasks, plan->task_count, sizeof(*plan->tasks), "tasks");
    if (copy.params == NULL || copy.names == NULL || copy.buffers == NULL || copy.own_tasks == NULL) {
        sl_free(plan->mem, copy.params);
        sl_free(plan->mem, copy.names);
        sl_free(plan->mem, copy.buffers);
        sl_free(plan->mem, copy.own_tasks);
        return SLUICE_NOMEM;
    }
    copy.tasks = copy.own_tasks;
    copy.param_capacity = plan->param_count;
    copy.names_capacity = plan->names_bytes;
    copy.buffer_capacity = plan->buffer_count;
    copy.task_capacity = plan->task_count;
    *plan = copy;
    return SLUICE_OK;
}

sluice_status sl_plan_copy(const struct sl_plan *plan, struct sl_plan *ret)
{
    struct sl_plan copy = *plan;
    sluice_status status = own(&copy);
    if (status == SLUICE_OK)
        *ret = copy;
    return status;
}

static sluice_status begin_change(struct sl_plan *plan)
{
    if (plan->borrowed) {
        sluice_status status = own(plan);
        if (status != SLUICE_OK)
            return status;
    }
    plan->validated = 0;
    return SLUICE_OK;
}

static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
                    : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                    : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                  : 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    _Bool long_form = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    _Bool outside = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return long_form || outside ? 0 : length;
}

const char *sl_name_fault(const char *name)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t bytes = 0;
    while (s[bytes] != 0) {
        if (s[bytes] < 0x20 || s[bytes] == 0x7f)
            return "has a control character";
        size_t length = utf8_length(s + bytes);
        if (length == 0)
            return "is not UTF-8";
        bytes += length;
        if (bytes >= SLUICE_NAME_MAX)
            return "is too long (511 bytes at most)";
    }
    return NULL;
}

static sluice_status check_param(const struct sl_plan *plan, const struct sluice_param *param)
{
    if (param->id != plan->param_count)
        return sl_fail(SLUICE_INVALID, "plan", "parameter %u: ids are dense and in order, the next one is %zu",
                       param->id, plan->param_count);
    if (plan->param_count >= SL_PARAMS_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "parameter %u: a plan has at most %u parameters", param->id,
                       SL_PARAMS_MAX);
    if (sluice_dtype_bytes(param->dtype) == 0)
        return sl_fail(SLUICE_INVALID, "plan", "parameter %u: unknown dtype %u", param->id, param->dtype);
    if (param->bytes > SLUICE_BYTES_MAX || param->row_bytes > SLUICE_BYTES_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "parameter %u: bytes and row bytes are at most 2^62", param->id);
    const char *fault = param->name == NULL ? NULL : sl_name_fault(param->name);
    if (fault != NULL)
        return sl_fail(SLUICE_INVALID, "plan", "parameter %u: its name %s", param->id, fault);
    return SLUICE_OK;
}

/* Appends one record whose contents were checked or are a placeholder. */
static sluice_status append_param(struct sl_plan *plan, const struct sluice_param *param)
{
    const char *name = param->name == NULL ? "" : param->name;
    size_t length = strlen(name) + 1;
    if (plan->names_bytes + length > UINT32_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "parameter %u: all names together are at most 4 GiB", param->id);
    sluice_status status = sl_grow(plan->mem, &plan->params, &plan->param_capacity, plan->param_count + 1,
                                   sizeof(*plan->params), "parameters");
    if (status != SLUICE_OK)
        return status;
    status = sl_grow(plan->mem, &plan->names, &plan->names_capacity, plan->names_bytes + length, 1, "parameter names");
    if (status != SLUICE_OK)
        return status;
    memcpy(plan->names + plan->names_bytes, name, length);
    plan->params[plan->param_count++] = (struct sl_param){.bytes = param->bytes,
                                                          .row_bytes = param->row_bytes,
                                                          .name_offset = (uint32_t)plan->names_bytes,
                                                          .id = param->id,
                                                          .dtype = param->dtype};
    plan->names_bytes += length;
    return SLUICE_OK;
}

sluice_status sl_plan_add_param(struct sl_plan *plan, const struct sluice_param *param)
{
    sluice_status status = check_param(plan, param);
    if (status == SLUICE_OK)
        status = begin_change(plan);
    return status == SLUICE_OK ? append_param(plan, param) : status;
}

sluice_status sl_plan_need_param(struct sl_plan *plan, uint32_t param, uint8_t dtype)
{
    if (param >= SL_PARAMS_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "parameter %u: ids are below %u", param, SL_PARAMS_MAX);
    while (plan->param_count <= param) {
        struct sluice_param placeholder = {.id = (uint32_t)plan->param_count, .dtype = SLUICE_DTYPE_NONE};
        sluice_status status = append_param(plan, &placeholder);
        if (status != SLUICE_OK)
            return status;
    }
    if (plan->params[param].dtype == SLUICE_DTYPE_NONE)
        plan->params[param].dtype = dtype;
    return SLUICE_OK;
}

sluice_status sl_plan_add_buffer(struct sl_plan *plan, uint32_t param, uint32_t rank, enum sluice_role role,
                                 uint64_t bytes)
{
    if (role != SLUICE_ROLE_SOURCE && role != SLUICE_ROLE_DESTINATION)
        return sl_fail(SLUICE_INVALID, "plan", "buffer of parameter %u: unknown role %d", param, (int)role);
    if (rank >= plan->world)
        return sl_fail(SLUICE_INVALID, "plan", "buffer of parameter %u: rank %u is outside the world of %u", param,
                       rank, plan->world);
    if (bytes > SL_OFFSET_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "buffer of parameter %u on rank %u: at most 2^63-1 bytes", param, rank);
    sluice_status status = begin_change(plan);
    if (status == SLUICE_OK)
        status = sl_grow(plan->mem, &plan->buffers, &plan->buffer_capacity, plan->buffer_count + 1,
                         sizeof(*plan->buffers), "buffers");
    if (status != SLUICE_OK)
        return status;
    plan->buffers[plan->buffer_count++] =
        (struct sl_buffer){.bytes = bytes, .rank = rank, .param = param, .role = (uint8_t)role};
    return SLUICE_OK;
}

sluice_status sl_plan_append_task(struct sl_plan *plan, const struct sluice_task *task)
{
    if (plan->task_count >= SL_TASKS_MAX)
        return sl_fail(SLUICE_LIMIT, "plan", "task %" PRIu64 ": a plan has at most %u tasks", task->id, SL_TASKS_MAX);
    sluice_status status = begin_change(plan);
    if (status == SLUICE_OK)
        status = sl_grow(plan->mem, &plan->own_tasks, &plan->task_capacity, plan->task_count + 1,
                         sizeof(*plan->own_tasks), "tasks");
    if (status != SLUICE_OK)
        return status;
    plan->own_tasks[plan->task_count++] = *task;
    plan->tasks = plan->own_tasks;
    return SLUICE_OK;
}

sluice_status sl_plan_add_task(struct sl_plan *plan, const struct sluice_task *task)
{
    if (plan->partial)
        return sl_fail(SLUICE_STATE, "plan", "task %" PRIu64 ": the plan holds halves; both kinds do not mix",
                       task->id);
    return sl_plan_append_task(plan, task);
}

const char *sl_param_name(const struct sl_plan *plan, uint32_t param)
{
    return param < plan->param_count ? plan->names + plan->params[param].name_offset : "";
}
