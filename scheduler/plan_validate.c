/*
 * What makes a plan valid, task by task; overlap is plan_overlap.c's.
 *
 * Invariants: the first fault in task order is reported, so that all ranks name the same one; nothing is
 * multiplied or added in 64 bits before it was bounded. Sharing a source range is legal (tied weights).
 */
#include "runtime/base/int128.h"
#include "scheduler/plan_internal.h"

#include <stdio.h>

struct sl_label sl_param_label(const struct sl_plan *plan, uint32_t param)
{
    struct sl_label label;
    const char *name = sl_param_name(plan, param);
    if (name[0] == '\0')
        snprintf(label.text, sizeof(label.text), "parameter %u", param);
    else
        snprintf(label.text, sizeof(label.text), "parameter %u '%.90s'", param, name);
    return label;
}

/* One end of a task, so that both ends go through the same checks. */
struct end {
    const struct sluice_region *region;
    const char *side; /* "source" */
    enum sluice_role role;
    uint32_t rank;
    uint8_t dtype;
};

static struct end source_end(const struct sluice_task *task)
{
    return (struct end){&task->from, "source", SLUICE_ROLE_SOURCE, task->source, task->source_dtype};
}

static struct end destination_end(const struct sluice_task *task)
{
    return (struct end){&task->to, "destination", SLUICE_ROLE_DESTINATION, task->destination, task->destination_dtype};
}

static sluice_status check_rank(const struct sl_plan *plan, const struct sluice_task *task, const struct end *end)
{
    _Bool own_unknown = plan->partial && plan->self == SL_RANK_SELF && end->rank == SL_RANK_SELF;
    if (end->rank < plan->world || own_unknown)
        return SLUICE_OK;
    return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": its %s rank %u is outside the world of %u", task->id,
                   end->side, end->rank, plan->world);
}

static sluice_status check_dtype(const struct sl_plan *plan, const struct sluice_task *task, const struct end *end)
{
    uint8_t expected = plan->params[task->param].dtype;
    if (sluice_dtype_bytes(end->dtype) == 0)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": its %s has the unknown dtype %u", task->id, end->side,
                       end->dtype);
    if (end->dtype == expected || end->dtype == SLUICE_DTYPE_BYTES)
        return SLUICE_OK;
    return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": its %s is %s, but %s is %s", task->id, end->side,
                   sluice_dtype_name(end->dtype), sl_param_label(plan, task->param).text, sluice_dtype_name(expected));
}

static sluice_status check_region(const struct sl_plan *plan, const struct sluice_task *task, const struct end *end)
{
    const struct sluice_region *region = end->region;
    uint64_t bytes = sl_region_bytes(region);
    if (bytes == UINT64_MAX)
        return sl_fail(SLUICE_PLAN, "plan",
                       "task %" PRIu64 ": range overflow: its %s has %" PRIu64 " rows of %" PRIu64
                       " bytes, more than 2^62 bytes",
                       task->id, end->side, region->rows, region->row_bytes);
    if (!sl_region_contiguous(region) && region->pitch < region->row_bytes)
        return sl_fail(SLUICE_PLAN, "plan",
                       "task %" PRIu64 ": the rows of its %s overlap: pitch %" PRIu64 " is less than the %" PRIu64
                       " bytes of a row",
                       task->id, end->side, region->pitch, region->row_bytes);
    uint64_t last = sl_region_end(region);
    if (last > SL_OFFSET_MAX)
        return sl_fail(SLUICE_PLAN, "plan",
                       "task %" PRIu64 ": range overflow: its %s at offset %" PRIu64 " with %" PRIu64
                       " bytes ends beyond 2^63-1",
                       task->id, end->side, region->offset, bytes);
    uint64_t room = plan->buffer_count == 0 ? UINT64_MAX : sl_buffer_bytes(plan, end->rank, end->role, task->param);
    if (last > room)
        return sl_fail(SLUICE_PLAN, "plan",
                       "task %" PRIu64 ": its %s on rank %u reaches byte %" PRIu64
                       ", but the buffer of %s holds %" PRIu64,
                       task->id, end->side, end->rank, last, sl_param_label(plan, task->param).text, room);
    return SLUICE_OK;
}

static sluice_status check_halves(const struct sl_plan *plan, const struct sluice_task *task)
{
    _Bool sends = task->source_dtype != SLUICE_DTYPE_NONE, receives = task->destination_dtype != SLUICE_DTYPE_NONE;
    if ((sends && receives) || (plan->partial && (sends || receives)))
        return SLUICE_OK;
    if (sends)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 " is unmatched: rank %u sends it, but no rank receives it",
                       task->id, task->source);
    if (receives)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 " is unmatched: rank %u receives it, but no rank sends it",
                       task->id, task->destination);
    return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 " has neither a source nor a destination", task->id);
}

/* Size and dtype of both ends; the library never converts. */
static sluice_status check_agreement(const struct sluice_task *task)
{
    if (task->source_dtype == SLUICE_DTYPE_NONE || task->destination_dtype == SLUICE_DTYPE_NONE)
        return SLUICE_OK;
    uint64_t sent = sl_region_bytes(&task->from), expected = sl_region_bytes(&task->to);
    if (task->source_dtype == task->destination_dtype && sent == expected)
        return SLUICE_OK;
    return sl_fail(SLUICE_PLAN, "plan",
                   "task %" PRIu64 ": its ends differ: rank %u sends %" PRIu64 " bytes of %s, rank %u expects %" PRIu64
                   " bytes of %s",
                   task->id, task->source, sent, sluice_dtype_name(task->source_dtype), task->destination, expected,
                   sluice_dtype_name(task->destination_dtype));
}

static sluice_status check_numbers(const struct sl_plan *plan, const struct sluice_task *task)
{
    if (task->param >= plan->param_count)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": parameter %u is unknown, the plan has %zu parameters",
                       task->id, task->param, plan->param_count);
    if (!plan->partial && task->part != 0)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": part %u: only halves have parts", task->id, task->part);
    if (task->origin != SLUICE_ORIGIN_NONE && task->origin > SL_OFFSET_MAX)
        return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 ": range overflow: origin %" PRIu64 " is beyond 2^63-1",
                       task->id, task->origin);
    return SLUICE_OK;
}

static sluice_status check_task(const struct sl_plan *plan, const struct sluice_task *task)
{
    const struct end ends[2] = {source_end(task), destination_end(task)};
    sluice_status status = check_numbers(plan, task);
    if (status == SLUICE_OK)
        status = check_halves(plan, task);
    for (int i = 0; i < 2 && status == SLUICE_OK; i++) {
        status = check_rank(plan, task, &ends[i]);
        if (status == SLUICE_OK && ends[i].dtype != SLUICE_DTYPE_NONE)
            status = check_region(plan, task, &ends[i]);
    }
    if (status == SLUICE_OK)
        status = check_agreement(task);
    for (int i = 0; i < 2 && status == SLUICE_OK; i++)
        if (ends[i].dtype != SLUICE_DTYPE_NONE)
            status = check_dtype(plan, task, &ends[i]);
    return status;
}

/* All counters of bytes, padding counted, fit 64 bits. */
static sluice_status check_total(const struct sl_plan *plan)
{
    sl_u128 total = 0;
    for (size_t i = 0; i < plan->task_count; i++)
        total += (sl_u128)sl_task_bytes(&plan->tasks[i]) + SLUICE_UNIT;
    if (total > UINT64_MAX)
        return sl_fail(SLUICE_PLAN, "plan", "range overflow: all tasks together hold more than 2^64-1 bytes");
    return SLUICE_OK;
}

static sluice_status sort_tasks(struct sl_plan *plan)
{
    if (!plan->partial)
        return sl_plan_sort_tasks(plan);
    return plan->self == SL_RANK_SELF ? sl_plan_sort_halves(plan) : SLUICE_OK;
}

sluice_status sl_plan_validate(struct sl_plan *plan)
{
    if (plan->validated)
        return SLUICE_OK;
    sluice_status status = sl_plan_sort_buffers(plan);
    if (status == SLUICE_OK)
        status = sort_tasks(plan);
    for (size_t i = 0; i < plan->task_count && status == SLUICE_OK; i++)
        status = check_task(plan, &plan->tasks[i]);
    if (status == SLUICE_OK)
        status = check_total(plan);
    if (status == SLUICE_OK)
        status = sl_plan_check_overlap(plan);
    if (status == SLUICE_OK)
        plan->validated = 1;
    return status;
}
