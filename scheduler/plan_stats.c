/*
 * Counts over a plan.
 *
 * Invariant: the validation bounded the sum of all bytes, so no counter here wraps around.
 */
#include "scheduler/plan_stats.h"

#include <stdlib.h>

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void count_task(struct sl_plan_stats *stats, const struct sluice_task *task)
{
    uint64_t bytes = sl_task_bytes(task);
    stats->bytes += bytes;
    stats->empty_tasks += bytes == 0;
    stats->strided_tasks += !sl_region_contiguous(&task->from) || !sl_region_contiguous(&task->to);
    if (task->source == task->destination) {
        stats->local_tasks++;
        stats->local_bytes += bytes;
        stats->ranks[task->source].local_tasks++;
        stats->ranks[task->source].local_bytes += bytes;
        return;
    }
    stats->ranks[task->source].sends++;
    stats->ranks[task->source].send_bytes += bytes;
    stats->ranks[task->destination].recvs++;
    stats->ranks[task->destination].recv_bytes += bytes;
}

static uint64_t percentile(const uint64_t *sorted, size_t count, unsigned percent)
{
    size_t nearest = (count * percent + 99) / 100;
    return count == 0 ? 0 : sorted[nearest == 0 ? 0 : nearest - 1];
}

static void measure_sizes(struct sl_plan_stats *stats, const struct sl_plan *plan, uint64_t *scratch)
{
    size_t count = plan->task_count;
    for (size_t i = 0; i < count; i++)
        scratch[i] = sl_task_bytes(&plan->tasks[i]);
    qsort(scratch, count, sizeof(*scratch), by_value);
    stats->task_min = percentile(scratch, count, 0);
    stats->task_p50 = percentile(scratch, count, 50);
    stats->task_p90 = percentile(scratch, count, 90);
    stats->task_p99 = percentile(scratch, count, 99);
    stats->task_max = percentile(scratch, count, 100);
}

static void count_peers(struct sl_plan_stats *stats, const struct sl_plan *plan, uint64_t *scratch)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->task_count; i++)
        if (plan->tasks[i].source != plan->tasks[i].destination)
            scratch[count++] = (uint64_t)plan->tasks[i].source << 32 | plan->tasks[i].destination;
    qsort(scratch, count, sizeof(*scratch), by_value);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && scratch[i] == scratch[i - 1])
            continue;
        stats->ranks[scratch[i] >> 32].send_peers++;
        stats->ranks[scratch[i] & UINT32_MAX].recv_peers++;
    }
}

static void find_bound(struct sl_plan_stats *stats)
{
    for (uint32_t rank = 0; rank < stats->world; rank++) {
        const struct sl_rank_stats *one = &stats->ranks[rank];
        uint64_t larger = one->send_bytes > one->recv_bytes ? one->send_bytes : one->recv_bytes;
        stats->bound_bytes = larger > stats->bound_bytes ? larger : stats->bound_bytes;
    }
}

sluice_status sl_plan_stats(const struct sl_plan *plan, struct sl_mem *mem, struct sl_plan_stats *ret)
{
    SL_ASSERT(plan->validated && !plan->partial);
    struct sl_plan_stats stats = {.mem = mem, .world = plan->world};
    stats.ranks = sl_new_array(mem, plan->world, sizeof(*stats.ranks), "statistics");
    uint64_t *scratch = sl_new_array(mem, plan->task_count, sizeof(*scratch), "statistics");
    if (stats.ranks == NULL || scratch == NULL) {
        sl_free(mem, stats.ranks);
        sl_free(mem, scratch);
        return SLUICE_NOMEM;
    }
    for (size_t i = 0; i < plan->task_count; i++)
        count_task(&stats, &plan->tasks[i]);
    measure_sizes(&stats, plan, scratch);
    count_peers(&stats, plan, scratch);
    find_bound(&stats);
    sl_free(mem, scratch);
    *ret = stats;
    return SLUICE_OK;
}

void sl_plan_stats_drop(struct sl_plan_stats *stats)
{
    if (stats == NULL || stats->mem == NULL)
        return;
    sl_free(stats->mem, stats->ranks);
    *stats = (struct sl_plan_stats){0};
}
