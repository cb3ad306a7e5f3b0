/* plan_stats.h: what `sluice show` tells about a plan. Pure. */
#ifndef SL_SCHEDULER_PLAN_STATS_H
#define SL_SCHEDULER_PLAN_STATS_H

#include "scheduler/plan.h"

/* One rank's part. Sends and receives are tasks between two ranks; local tasks are counted apart. */
struct sl_rank_stats {
    uint64_t sends, recvs, local_tasks;
    uint64_t send_bytes, recv_bytes, local_bytes;
    uint32_t send_peers, recv_peers;
};

/* Percentiles are those of the nearest rank over all tasks; 0 without tasks. */
struct sl_plan_stats {
    struct sl_mem *mem;
    uint64_t bytes, local_bytes;
    uint64_t local_tasks, empty_tasks, strided_tasks; /* strided: at either end */
    uint64_t task_min, task_p50, task_p90, task_p99, task_max;
    uint64_t bound_bytes;        /* the busiest rank's larger direction, local tasks left out */
    struct sl_rank_stats *ranks; /* world of them */
    uint32_t world;
};

/* Of a validated whole plan. NOMEM. */
sluice_status sl_plan_stats(const struct sl_plan *plan, struct sl_mem *mem, struct sl_plan_stats *ret);
void sl_plan_stats_drop(struct sl_plan_stats *stats);

#endif
