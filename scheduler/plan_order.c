/*
 * The order of a plan's records: tasks by (id, part), buffers by (rank, role, parameter).
 *
 * Invariants: records are moved through a permutation, so that equal ids keep their order of addition;
 * a borrowed plan is in order already (its reader saw to it) and is never written to.
 */
#include <stdlib.h>

#include "scheduler/plan_internal.h"

struct task_key {
    uint64_t id;
    uint32_t part;
    uint32_t receive;
    uint32_t peer;
    uint32_t index;
};

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

sluice_status sl_plan_permute_tasks(struct sl_plan *plan, const uint32_t *order)
{
    SL_ASSERT(!plan->borrowed);
    struct sluice_task *sorted = sl_new_aligned(plan->mem, plan->task_count * sizeof(*sorted), 8, "sorted tasks");
    if (sorted == NULL)
        return SLUICE_NOMEM;
    for (size_t i = 0; i < plan->task_count; i++)
        sorted[i] = plan->own_tasks[order[i]];
    sl_free(plan->mem, plan->own_tasks);
    plan->own_tasks = sorted;
    plan->tasks = sorted;
    plan->task_capacity = plan->task_count;
    return SLUICE_OK;
}

/* --- whole plans --- */

static sluice_status repeated(const struct sl_plan *plan, uint32_t first, uint32_t second)
{
    const struct sluice_task *a = &plan->tasks[first];
    const struct sluice_task *b = &plan->tasks[second];
    return sl_fail(SLUICE_PLAN, "plan",
                   "task id %" PRIu64 " is used twice: entry %u (%s, rank %u to rank %u) and entry %u (%s, rank %u to "
                   "rank %u)",
                   a->id, first, sl_param_label(plan, a->param).text, a->source, a->destination, second,
                   sl_param_label(plan, b->param).text, b->source, b->destination);
}

static int by_id(const void *left, const void *right)
{
    const struct task_key *a = left, *b = right;
    return a->id != b->id ? compare(a->id, b->id) : compare(a->index, b->index);
}

static sluice_status sort_by_id(struct sl_plan *plan, struct task_key *keys, uint32_t *order)
{
    for (size_t i = 0; i < plan->task_count; i++)
        keys[i] = (struct task_key){.id = plan->tasks[i].id, .index = (uint32_t)i};
    qsort(keys, plan->task_count, sizeof(*keys), by_id);
    for (size_t i = 0; i < plan->task_count; i++) {
        if (i > 0 && keys[i].id == keys[i - 1].id)
            return repeated(plan, keys[i - 1].index, keys[i].index);
        order[i] = keys[i].index;
    }
    return sl_plan_permute_tasks(plan, order);
}

sluice_status sl_plan_sort_tasks(struct sl_plan *plan)
{
    size_t i = 1;
    while (i < plan->task_count && plan->tasks[i - 1].id < plan->tasks[i].id)
        i++;
    if (i >= plan->task_count)
        return SLUICE_OK;
    struct task_key *keys = sl_new_array(plan->mem, plan->task_count, sizeof(*keys), "task order");
    uint32_t *order = sl_new_array(plan->mem, plan->task_count, sizeof(*order), "task order");
    sluice_status status = keys == NULL || order == NULL ? SLUICE_NOMEM : sort_by_id(plan, keys, order);
    sl_free(plan->mem, keys);
    sl_free(plan->mem, order);
    return status;
}

/* --- halves --- */

static int by_stream(const void *left, const void *right)
{
    const struct task_key *a = left, *b = right;
    if (a->id != b->id)
        return compare(a->id, b->id);
    if (a->receive != b->receive)
        return compare(a->receive, b->receive);
    if (a->peer != b->peer)
        return compare(a->peer, b->peer);
    return compare(a->index, b->index);
}

static int by_part(const void *left, const void *right)
{
    const struct task_key *a = left, *b = right;
    if (a->id != b->id)
        return compare(a->id, b->id);
    if (a->part != b->part)
        return compare(a->part, b->part);
    return by_stream(left, right);
}

/* Counts parts within equal (id, direction, peer); keys are sorted by_stream. */
static sluice_status number_parts(struct sl_plan *plan, struct task_key *keys)
{
    for (size_t i = 1; i < plan->task_count; i++) {
        const struct task_key *before = &keys[i - 1];
        if (keys[i].id == before->id && keys[i].receive == before->receive && keys[i].peer == before->peer)
            keys[i].part = before->part + 1;
        if (keys[i].part > UINT16_MAX)
            return sl_fail(SLUICE_LIMIT, "plan", "task id %" PRIu64 " is used more than 65536 times with rank %u",
                           keys[i].id, keys[i].peer);
    }
    for (size_t i = 0; i < plan->task_count; i++)
        plan->own_tasks[keys[i].index].part = (uint16_t)keys[i].part;
    return SLUICE_OK;
}

static sluice_status sort_by_part(struct sl_plan *plan, struct task_key *keys, uint32_t *order)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        _Bool receive = task->source_dtype == SLUICE_DTYPE_NONE;
        keys[i] = (struct task_key){.id = task->id,
                                    .receive = receive,
                                    .peer = receive ? task->source : task->destination,
                                    .index = (uint32_t)i};
    }
    qsort(keys, plan->task_count, sizeof(*keys), by_stream);
    sluice_status status = number_parts(plan, keys);
    if (status != SLUICE_OK)
        return status;
    qsort(keys, plan->task_count, sizeof(*keys), by_part);
    for (size_t i = 0; i < plan->task_count; i++)
        order[i] = keys[i].index;
    return sl_plan_permute_tasks(plan, order);
}

sluice_status sl_plan_sort_halves(struct sl_plan *plan)
{
    SL_ASSERT(plan->partial && plan->self == SL_RANK_SELF);
    if (plan->task_count == 0)
        return SLUICE_OK;
    struct task_key *keys = sl_new_array(plan->mem, plan->task_count, sizeof(*keys), "task order");
    uint32_t *order = sl_new_array(plan->mem, plan->task_count, sizeof(*order), "task order");
    sluice_status status = keys == NULL || order == NULL ? SLUICE_NOMEM : sort_by_part(plan, keys, order);
    sl_free(plan->mem, keys);
    sl_free(plan->mem, order);
    return status;
}

/* --- buffers --- */

int sl_buffer_compare(const void *left, const void *right)
{
    const struct sl_buffer *a = left, *b = right;
    if (a->rank != b->rank)
        return compare(a->rank, b->rank);
    return a->role != b->role ? compare(a->role, b->role) : compare(a->param, b->param);
}

sluice_status sl_plan_sort_buffers(struct sl_plan *plan)
{
    _Bool sorted = 1;
    for (size_t i = 1; i < plan->buffer_count && sorted; i++)
        sorted = sl_buffer_compare(&plan->buffers[i - 1], &plan->buffers[i]) < 0;
    if (!sorted && !plan->borrowed)
        qsort(plan->buffers, plan->buffer_count, sizeof(*plan->buffers), sl_buffer_compare);
    for (size_t i = 0; i < plan->buffer_count; i++) {
        const struct sl_buffer *buffer = &plan->buffers[i];
        if (buffer->param >= plan->param_count)
            return sl_fail(SLUICE_PLAN, "plan",
                           "a buffer on rank %u is of parameter %u, but the plan has %zu parameters", buffer->rank,
                           buffer->param, plan->param_count);
        if (buffer->rank >= plan->world)
            return sl_fail(SLUICE_PLAN, "plan", "a buffer of %s is on rank %u, outside the world of %u",
                           sl_param_label(plan, buffer->param).text, buffer->rank, plan->world);
        if (i > 0 && sl_buffer_compare(buffer - 1, buffer) == 0)
            return sl_fail(SLUICE_PLAN, "plan",
                           "the %s buffer of %s on rank %u is given twice (%" PRIu64 " and %" PRIu64 " bytes)",
                           buffer->role == SLUICE_ROLE_SOURCE ? "source" : "destination",
                           sl_param_label(plan, buffer->param).text, buffer->rank, buffer[-1].bytes, buffer->bytes);
    }
    return SLUICE_OK;
}

uint64_t sl_buffer_bytes(const struct sl_plan *plan, uint32_t rank, enum sluice_role role, uint32_t param)
{
    const struct sl_buffer wanted = {.rank = rank, .role = (uint8_t)role, .param = param};
    size_t low = 0, high = plan->buffer_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sl_buffer_compare(&plan->buffers[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == plan->buffer_count || sl_buffer_compare(&plan->buffers[low], &wanted) != 0)
        return UINT64_MAX;
    return plan->buffers[low].bytes;
}
