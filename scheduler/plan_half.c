/*
 * Partial plans: one rank's own halves of tasks, given by calls.
 *
 * Invariants:
 * - the own end of a half is `self` (SL_RANK_SELF until sl_plan_set_rank), the other end's dtype is NONE
 *   and its region is empty.
 * - part numbers count equal ids to one peer in one direction, in order of addition: the same on both ranks
 *   when both add in the same order.
 * - after sl_plan_set_rank no half is local: both halves of a local task are one record.
 */
#include "scheduler/plan_internal.h"

sluice_status sl_plan_add_half(struct sl_plan *plan, uint64_t id, uint32_t param, uint8_t dtype, uint32_t peer,
                               _Bool receive, const struct sluice_region *region)
{
    if (!plan->partial && plan->task_count > 0)
        return sl_fail(SLUICE_STATE, "plan", "task %" PRIu64 ": the plan holds whole tasks; both kinds do not mix", id);
    if (plan->self != SL_RANK_SELF)
        return sl_fail(SLUICE_STATE, "plan", "task %" PRIu64 ": the plan was sealed; make a new one", id);
    if (sluice_dtype_bytes(dtype) == 0)
        return sl_fail(SLUICE_INVALID, "plan", "task %" PRIu64 ": unknown dtype %u", id, dtype);
    if (peer >= plan->world)
        return sl_fail(SLUICE_INVALID, "plan", "task %" PRIu64 ": rank %u is outside the world of %u", id, peer,
                       plan->world);
    sluice_status status = sl_plan_need_param(plan, param, dtype);
    if (status != SLUICE_OK)
        return status;
    struct sluice_task task = {.id = id, .param = param, .origin = SLUICE_ORIGIN_NONE};
    task.source = receive ? peer : SL_RANK_SELF;
    task.destination = receive ? SL_RANK_SELF : peer;
    if (receive) {
        task.destination_dtype = dtype;
        task.to = *region;
    } else {
        task.source_dtype = dtype;
        task.from = *region;
    }
    status = sl_plan_append_task(plan, &task);
    if (status == SLUICE_OK)
        plan->partial = 1;
    return status;
}

static _Bool local_send(const struct sluice_task *task, uint32_t rank)
{
    return task->source_dtype != SLUICE_DTYPE_NONE && task->destination == rank;
}

static _Bool local_receive(const struct sluice_task *task, uint32_t rank)
{
    return task->destination_dtype != SLUICE_DTYPE_NONE && task->source == rank;
}

/* The local halves among tasks of one (id, part). */
struct local_pair {
    const struct sluice_task *send, *receive;
};

static size_t run_end(const struct sl_plan *plan, size_t first)
{
    size_t end = first + 1;
    while (end < plan->task_count && plan->tasks[end].id == plan->tasks[first].id &&
           plan->tasks[end].part == plan->tasks[first].part)
        end++;
    return end;
}

static struct local_pair find_locals(const struct sl_plan *plan, size_t first, size_t end, uint32_t rank)
{
    struct local_pair pair = {NULL, NULL};
    for (size_t i = first; i < end; i++) {
        if (local_send(&plan->tasks[i], rank))
            pair.send = &plan->tasks[i];
        if (local_receive(&plan->tasks[i], rank))
            pair.receive = &plan->tasks[i];
    }
    return pair;
}

static sluice_status check_locals(const struct sl_plan *plan, uint32_t rank)
{
    for (size_t i = 0, end; i < plan->task_count; i = end) {
        end = run_end(plan, i);
        struct local_pair pair = find_locals(plan, i, end, rank);
        const struct sluice_task *task = pair.send != NULL ? pair.send : pair.receive;
        if (task == NULL)
            continue;
        if (pair.send == NULL || pair.receive == NULL)
            return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 " (part %u): rank %u %s", task->id, task->part, rank,
                           pair.send != NULL ? "sends it to itself but does not receive it"
                                             : "receives it from itself but does not send it");
        if (pair.send->param != pair.receive->param)
            return sl_fail(SLUICE_PLAN, "plan", "task %" PRIu64 " (part %u): rank %u sends %s but receives %s",
                           task->id, task->part, rank, sl_param_label(plan, pair.send->param).text,
                           sl_param_label(plan, pair.receive->param).text);
    }
    return SLUICE_OK;
}

/* Joins local halves into the send's record; every local half has its other one. */
static void join_locals(struct sl_plan *plan, uint32_t rank)
{
    size_t kept = 0;
    for (size_t i = 0, end; i < plan->task_count; i = end) {
        end = run_end(plan, i);
        struct local_pair pair = find_locals(plan, i, end, rank);
        struct sluice_task joined = {0};
        if (pair.send != NULL) {
            SL_ASSERT(pair.receive != NULL);
            joined = *pair.send;
            joined.to = pair.receive->to;
            joined.destination_dtype = pair.receive->destination_dtype;
        }
        size_t send = pair.send != NULL ? (size_t)(pair.send - plan->tasks) : SIZE_MAX;
        size_t receive = pair.receive != NULL ? (size_t)(pair.receive - plan->tasks) : SIZE_MAX;
        for (size_t j = i; j < end; j++)
            if (j != receive)
                plan->own_tasks[kept++] = j == send ? joined : plan->own_tasks[j];
    }
    plan->task_count = kept;
}

static void name_self(struct sl_plan *plan, uint32_t rank)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        if (plan->own_tasks[i].source == SL_RANK_SELF)
            plan->own_tasks[i].source = rank;
        if (plan->own_tasks[i].destination == SL_RANK_SELF)
            plan->own_tasks[i].destination = rank;
    }
}

sluice_status sl_plan_set_rank(struct sl_plan *plan, uint32_t rank, uint32_t world)
{
    if (world != plan->world)
        return sl_fail(SLUICE_PLAN, "plan", "the plan is for %u ranks, the runtime has %u", plan->world, world);
    if (rank >= world)
        return sl_fail(SLUICE_INVALID, "plan", "rank %u is outside the world of %u", rank, world);
    if (!plan->partial || plan->self == rank)
        return SLUICE_OK;
    if (plan->self != SL_RANK_SELF)
        return sl_fail(SLUICE_STATE, "plan", "the plan holds halves of rank %u, not of rank %u", plan->self, rank);
    sluice_status status = sl_plan_sort_halves(plan);
    if (status == SLUICE_OK)
        status = check_locals(plan, rank);
    if (status != SLUICE_OK)
        return status;
    join_locals(plan, rank);
    name_self(plan, rank);
    plan->self = rank;
    plan->validated = 0;
    return SLUICE_OK;
}
