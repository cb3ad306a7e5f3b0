/*
 * bindings.c: whether the buffers of a rank can carry its half of a plan.
 *
 * Invariants: pure reading; a source may overlap sources (tied weights), a destination overlaps nothing;
 * zero-byte tasks need no buffer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/core/sealed.h"

static const char *const role_names[] = {"source", "destination"};

struct label {
    char text[SLUICE_NAME_MAX + 32];
};

/* "parameter 3 (model.w)", or "parameter 3" where it has no name. */
static struct label label_of(const struct sluice_plan *plan, uint32_t param)
{
    struct label label;
    const char *name = sl_param_name(&plan->store, param);
    if (name[0] == '\0')
        (void)snprintf(label.text, sizeof label.text, "parameter %u", param);
    else
        (void)snprintf(label.text, sizeof label.text, "parameter %u (%s)", param, name);
    return label;
}

static const struct sluice_region *region_of(const struct sluice_task *task, enum sluice_role role)
{
    return role == SLUICE_ROLE_SOURCE ? &task->from : &task->to;
}

/* One end of one task lies inside `bytes` of a buffer. */
static sluice_status check_room(const struct sluice_plan *plan, const struct sluice_task *task, enum sluice_role role,
                                uint64_t bytes)
{
    uint64_t end = sl_region_end(region_of(task, role));
    if (end <= bytes)
        return SLUICE_OK;
    return sl_fail(SLUICE_PLAN, "bind", "the %s buffer of %s has %llu bytes, but task %llu reaches to byte %llu",
                   role_names[role], label_of(plan, task->param).text, (unsigned long long)bytes,
                   (unsigned long long)task->id, (unsigned long long)end);
}

static sluice_status check_end(const struct sluice_plan *plan, const struct sluice_task *task, enum sluice_role role)
{
    if (sl_task_bytes(task) == 0)
        return SLUICE_OK;
    const struct sl_binding *binding = sl_plan_binding(plan, task->param, role);
    if (binding == NULL)
        return sl_fail(SLUICE_PLAN, "bind",
                       "%s has no %s buffer on this rank, but task %llu needs it: call sluice_plan_bind",
                       label_of(plan, task->param).text, role_names[role], (unsigned long long)task->id);
    return check_room(plan, task, role, binding->bytes);
}

static sluice_status check_stream(const struct sluice_plan *plan, const struct sl_half *half,
                                  const struct sl_stream *stream, enum sluice_role role)
{
    sluice_status status = SLUICE_OK;
    for (uint32_t i = 0; i < stream->count && status == SLUICE_OK; i++)
        status = check_end(plan, &plan->store.tasks[half->entries[stream->first + i].task], role);
    return status;
}

static sluice_status check_tasks(const struct sluice_plan *plan, const struct sl_half *half)
{
    for (uint32_t s = 0; s < half->stream_count; s++) {
        const struct sl_stream *stream = &half->streams[s];
        enum sluice_role role = stream->receive ? SLUICE_ROLE_DESTINATION : SLUICE_ROLE_SOURCE;
        sluice_status status = check_stream(plan, half, stream, role);
        if (status != SLUICE_OK)
            return status;
    }
    sluice_status status = check_stream(plan, half, &half->local, SLUICE_ROLE_SOURCE);
    return status == SLUICE_OK ? check_stream(plan, half, &half->local, SLUICE_ROLE_DESTINATION) : status;
}

struct span {
    uint64_t begin, end;
    uint32_t param;
    enum sluice_role role;
};

static sluice_status fail_overlap(const struct sluice_plan *plan, const struct span *a, const struct span *b)
{
    return sl_fail(SLUICE_PLAN, "bind", "the %s buffer of %s overlaps the %s buffer of %s", role_names[a->role],
                   label_of(plan, a->param).text, role_names[b->role], label_of(plan, b->param).text);
}

static int by_begin(const void *a, const void *b)
{
    uint64_t x = ((const struct span *)a)->begin;
    uint64_t y = ((const struct span *)b)->begin;
    return x < y ? -1 : x > y;
}

static size_t collect_spans(const struct sluice_plan *plan, struct span *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->binding_capacity; i++) {
        const struct sl_binding *binding = &plan->bindings[i];
        uint64_t begin = (uint64_t)(uintptr_t)binding->memory;
        if (binding->bound && binding->bytes > 0)
            spans[count++] = (struct span){begin, begin + binding->bytes, (uint32_t)(i / 2), (enum sluice_role)(i % 2)};
    }
    return count;
}

/* In address order it is enough to know what reaches furthest, among all and among destinations. */
static sluice_status sweep(const struct sluice_plan *plan, const struct span *spans, size_t count)
{
    const struct span *furthest = NULL;
    const struct span *furthest_destination = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct span *span = &spans[i];
        _Bool destination = span->role == SLUICE_ROLE_DESTINATION;
        const struct span *other = destination ? furthest : furthest_destination;
        if (other != NULL && span->begin < other->end)
            return fail_overlap(plan, other, span);
        if (furthest == NULL || span->end > furthest->end)
            furthest = span;
        if (destination && (furthest_destination == NULL || span->end > furthest_destination->end))
            furthest_destination = span;
    }
    return SLUICE_OK;
}

static sluice_status check_overlap(const struct sluice_plan *plan)
{
    struct span *spans = sl_new_array(plan->mem, plan->binding_capacity, sizeof *spans, "buffer spans");
    if (spans == NULL)
        return SLUICE_NOMEM;
    size_t count = collect_spans(plan, spans);
    qsort(spans, count, sizeof *spans, by_begin);
    sluice_status status = sweep(plan, spans, count);
    sl_free(plan->mem, spans);
    return status;
}

sluice_status sl_bindings_check(const struct sluice_plan *plan, const struct sl_half *half)
{
    sluice_status status = check_tasks(plan, half);
    return status == SLUICE_OK ? check_overlap(plan) : status;
}

static sluice_status check_overlap_one(const struct sluice_plan *plan, const struct span *span)
{
    for (size_t i = 0; i < plan->binding_capacity && span->end > span->begin; i++) {
        const struct sl_binding *binding = &plan->bindings[i];
        struct span other = {(uint64_t)(uintptr_t)binding->memory,
                             (uint64_t)(uintptr_t)binding->memory + binding->bytes, (uint32_t)(i / 2),
                             (enum sluice_role)(i % 2)};
        _Bool same = other.param == span->param && other.role == span->role;
        _Bool sources = other.role == SLUICE_ROLE_SOURCE && span->role == SLUICE_ROLE_SOURCE;
        if (binding->bound && !same && !sources && other.begin < span->end && span->begin < other.end)
            return fail_overlap(plan, span, &other);
    }
    return SLUICE_OK;
}

sluice_status sl_bindings_check_one(const struct sluice_plan *plan, const struct sl_half *half, uint32_t param,
                                    enum sluice_role role, const void *memory, uint64_t bytes)
{
    for (size_t i = 0; i < half->entry_count; i++) {
        const struct sluice_task *task = &plan->store.tasks[half->entries[i].task];
        uint32_t rank = role == SLUICE_ROLE_SOURCE ? task->source : task->destination;
        sluice_status status = SLUICE_OK;
        if (task->param == param && rank == half->rank && sl_task_bytes(task) > 0)
            status = check_room(plan, task, role, bytes);
        if (status != SLUICE_OK)
            return status;
    }
    uint64_t begin = (uint64_t)(uintptr_t)memory;
    return check_overlap_one(plan, &(struct span){begin, begin + bytes, param, role});
}
