/*
 * assign.c: the policies that give whole tasks to windows.
 *
 * - windows: 256 consecutive task ids. Needs the ids alone, so every rank can do it for its half.
 * - single: everything in window 0.
 * - ordered, lockstep: consecutive parameters are gathered into batches by the load of every rank, so all ends
 *   must be known. A parameter is never divided between batches; one that alone exceeds the limit gets a batch of
 *   its own. Local tasks travel with their batch but load no rank: they never pass a slot or a group.
 *
 * Every rank computes the same from the same plan: the order is (parameter, task), both the plan's own.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "scheduler/schedule.h"

#define IDS_PER_WINDOW   256u
#define PARAMS_PER_BATCH 32u
#define OPS_PER_GROUP    256u

/* What one rank moves in the open batch; stale when `batch` is not the open one, so that nothing needs clearing. */
struct load {
    uint64_t send, recv;
    uint32_t ops;
    uint32_t batch;
};

struct gather {
    const struct sl_plan *plan;
    const size_t *first;   /* of each parameter, param_count + 1, into by_param */
    const uint32_t *tasks; /* by parameter, in plan order within one */
    struct load *loads;    /* of each rank */
    uint64_t window_bytes;
    uint32_t params_max;
    _Bool cut_ops; /* cut a batch of too many operations by task position */
    uint32_t *window_of_task;
    uint32_t *scratch; /* task_count: the tasks of one batch */
    uint32_t windows;
    uint32_t batch; /* number of the open batch, from 1 */
    uint32_t begin; /* first parameter of it */
    uint32_t params;
    _Bool crowded; /* some rank has more than OPS_PER_GROUP operations */
    _Bool over;    /* its only parameter exceeds window_bytes: nothing more goes in */
};

static struct load *load_of(struct gather *gather, uint32_t rank)
{
    struct load *load = &gather->loads[rank];
    if (load->batch != gather->batch) {
        *load = (struct load){.batch = gather->batch};
    }
    return load;
}

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + SLUICE_UNIT - 1) / SLUICE_UNIT * SLUICE_UNIT;
}

/* Adds a parameter's tasks to the open batch; true when some rank then exceeds window_bytes. */
static _Bool add_param(struct gather *gather, size_t param)
{
    _Bool exceeded = 0;
    for (size_t i = gather->first[param]; i < gather->first[param + 1]; i++) {
        const struct sluice_task *task = &gather->plan->tasks[gather->tasks[i]];
        uint64_t bytes = padded(sl_task_bytes(task));
        if (task->source == task->destination || bytes == 0) {
            continue;
        }
        struct load *source = load_of(gather, task->source);
        struct load *destination = load_of(gather, task->destination);
        source->send = add_capped(source->send, bytes);
        destination->recv = add_capped(destination->recv, bytes);
        source->ops++;
        destination->ops++;
        exceeded |= source->send > gather->window_bytes || destination->recv > gather->window_bytes;
        gather->crowded |= source->ops > OPS_PER_GROUP || destination->ops > OPS_PER_GROUP;
    }
    gather->params++;
    return exceeded;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static sluice_status too_many(enum sluice_policy policy)
{
    return sl_fail(SLUICE_LIMIT, "schedule", "policy %s needs more than %u windows; use policy balanced",
                   policy == SLUICE_POLICY_ORDERED    ? "ordered"
                   : policy == SLUICE_POLICY_LOCKSTEP ? "lockstep"
                                                      : "windows",
                   SLUICE_WINDOWS_MAX);
}

/* Gives the tasks of parameters [begin, end) their windows and opens the next batch. */
static sluice_status close_batch(struct gather *gather, uint32_t end)
{
    size_t first = gather->first[gather->begin];
    size_t count = gather->first[end] - first;
    size_t per_window = gather->cut_ops && gather->crowded ? IDS_PER_WINDOW : count;
    if (per_window < count) {
        for (size_t i = 0; i < count; i++) {
            gather->scratch[i] = gather->tasks[first + i];
        }
        qsort(gather->scratch, count, sizeof(*gather->scratch), by_number);
    }
    const uint32_t *tasks = per_window < count ? gather->scratch : gather->tasks + first;
    for (size_t i = 0; i < count; i++) {
        gather->window_of_task[tasks[i]] = gather->windows + (uint32_t)(i / per_window);
    }
    gather->windows += count == 0 ? 0 : (uint32_t)((count - 1) / per_window) + 1;
    gather->begin = end;
    gather->batch++;
    gather->params = 0;
    gather->crowded = 0;
    return gather->windows > SLUICE_WINDOWS_MAX
               ? too_many(gather->cut_ops ? SLUICE_POLICY_LOCKSTEP : SLUICE_POLICY_ORDERED)
               : SLUICE_OK;
}

/* A parameter that does not fit opens the next batch: its load is added again there. */
static sluice_status gather_params(struct gather *gather)
{
    uint32_t count = (uint32_t)gather->plan->param_count;
    for (uint32_t param = 0; param < count; param++) {
        if (gather->first[param] == gather->first[param + 1]) {
            continue;
        }
        _Bool crowded = gather->crowded;
        _Bool full = gather->params == gather->params_max;
        if (gather->params > 0 && (full || gather->over || add_param(gather, param))) {
            gather->crowded = crowded;
            sluice_status status = close_batch(gather, param);
            if (status != SLUICE_OK) {
                return status;
            }
        }
        if (gather->params == 0) {
            gather->over = add_param(gather, param);
        }
    }
    return close_batch(gather, count);
}

/* Tasks by parameter: one counting sort, stable. */
static sluice_status sort_by_param(const struct sl_plan *plan, struct sl_mem *mem, size_t **ret_first,
                                   uint32_t **ret_tasks)
{
    size_t *first = sl_new_array(mem, plan->param_count + 2, sizeof(*first), "tasks by parameter");
    uint32_t *tasks = sl_new_array(mem, plan->task_count, sizeof(*tasks), "tasks by parameter");
    if (first == NULL || tasks == NULL) {
        sl_free(mem, first);
        sl_free(mem, tasks);
        return SLUICE_NOMEM;
    }
    /* Counts lie two places up, so that after the sums first[param + 1] runs from a parameter's begin to its end. */
    for (size_t i = 0; i < plan->task_count; i++) {
        first[plan->tasks[i].param + 2]++;
    }
    for (size_t param = 0; param < plan->param_count; param++) {
        first[param + 2] += first[param + 1];
    }
    for (size_t i = 0; i < plan->task_count; i++) {
        tasks[first[plan->tasks[i].param + 1]++] = (uint32_t)i;
    }
    *ret_first = first;
    *ret_tasks = tasks;
    return SLUICE_OK;
}

static sluice_status assign_by_param(struct gather *gather, struct sl_mem *mem)
{
    const struct sl_plan *plan = gather->plan;
    if (plan->partial) {
        return sl_fail(SLUICE_UNSUPPORTED, "schedule",
                       "policy %s needs a whole plan; load it from a file or make it with sluice_plan_add_task, or use "
                       "policy balanced",
                       gather->cut_ops ? "lockstep" : "ordered");
    }
    size_t *first = NULL;
    uint32_t *tasks = NULL;
    sluice_status status = sort_by_param(plan, mem, &first, &tasks);
    if (status != SLUICE_OK) {
        return status;
    }
    gather->first = first;
    gather->tasks = tasks;
    gather->batch = 1;
    gather->loads = sl_new_array(mem, plan->world, sizeof(*gather->loads), "loads of ranks");
    gather->scratch = sl_new_array(mem, plan->task_count, sizeof(*gather->scratch), "tasks of a batch");
    status = gather->loads == NULL || gather->scratch == NULL ? SLUICE_NOMEM : gather_params(gather);
    sl_free(mem, gather->scratch);
    sl_free(mem, gather->loads);
    sl_free(mem, tasks);
    sl_free(mem, first);
    return status;
}

static sluice_status assign_by_id(const struct sl_plan *plan, uint32_t *window_of_task, uint32_t *ret_windows)
{
    uint64_t last = 0;
    for (size_t i = 0; i < plan->task_count; i++) {
        uint64_t window = plan->tasks[i].id / IDS_PER_WINDOW;
        if (window >= SLUICE_WINDOWS_MAX) {
            return sl_fail(SLUICE_LIMIT, "schedule",
                           "task %" PRIu64 " would be in window %" PRIu64 " of policy windows; ids must stay below %u",
                           plan->tasks[i].id, window, SLUICE_WINDOWS_MAX * IDS_PER_WINDOW);
        }
        window_of_task[i] = (uint32_t)window;
        last = window > last ? window : last;
    }
    *ret_windows = (uint32_t)last + 1;
    return SLUICE_OK;
}

static sluice_status assign(const struct sl_plan *plan, enum sluice_policy policy, uint64_t window_bytes,
                            struct sl_mem *mem, uint32_t *window_of_task, uint32_t *ret_windows)
{
    if (policy == SLUICE_POLICY_SINGLE) {
        *ret_windows = 1; /* the array is zeroed */
        return SLUICE_OK;
    }
    if (policy == SLUICE_POLICY_WINDOWS) {
        return assign_by_id(plan, window_of_task, ret_windows);
    }
    SL_ASSERT(policy == SLUICE_POLICY_ORDERED || policy == SLUICE_POLICY_LOCKSTEP);
    _Bool lockstep = policy == SLUICE_POLICY_LOCKSTEP;
    struct gather gather = {
        .plan = plan,
        .window_bytes = window_bytes,
        .params_max = lockstep ? PARAMS_PER_BATCH : UINT32_MAX,
        .cut_ops = lockstep,
        .window_of_task = window_of_task,
    };
    sluice_status status = assign_by_param(&gather, mem);
    if (status == SLUICE_OK) {
        *ret_windows = gather.windows > 0 ? gather.windows : 1;
    }
    return status;
}

sluice_status sl_assign_windows(const struct sl_plan *plan, enum sluice_policy policy, uint64_t window_bytes,
                                struct sl_mem *mem, uint32_t **ret_window_of_task, uint32_t *ret_windows)
{
    if (plan->task_count >= UINT32_MAX) {
        return sl_fail(SLUICE_LIMIT, "schedule", "%zu tasks; a plan may have fewer than 2^32", plan->task_count);
    }
    uint32_t *window_of_task = sl_new_array(mem, plan->task_count, sizeof(*window_of_task), "windows of tasks");
    if (window_of_task == NULL) {
        return SLUICE_NOMEM;
    }
    sluice_status status = assign(plan, policy, window_bytes, mem, window_of_task, ret_windows);
    if (status != SLUICE_OK) {
        sl_free(mem, window_of_task);
        return status;
    }
    *ret_window_of_task = window_of_task;
    return SLUICE_OK;
}
