/*
 * cost.h: how long a schedule takes on all ranks, in virtual time, without running it. Pure.
 *
 * The model: every rank moves `link` bytes per second each way; the ranks that a window's messages join
 * together start its group together, when the last of them can, and end together after the overhead plus
 * the time of their busiest rank. Packing, unpacking and local copies run at `pack_rate` beside the wire,
 * in the order of queues and slots that docs/internals.md gives.
 */
#ifndef SL_SCHEDULER_COST_H
#define SL_SCHEDULER_COST_H

#include "scheduler/cuts.h"

struct sl_cost_options {
    double link;           /* bytes per second, each way */
    double pack_rate;      /* bytes per second */
    double group_overhead; /* seconds */
    _Bool lockstep;        /* every group waits for the previous one of all ranks, as published executors do */
};

/* One node of one rank in the timeline; seconds. */
struct sl_cost_span {
    uint32_t rank, window;
    uint32_t node; /* enum sl_cost_node */
    double begin, end;
};
enum sl_cost_node { SL_COST_PACK, SL_COST_WAIT, SL_COST_GROUP, SL_COST_UNPACK, SL_COST_LOCAL };

/* Called for every node in window order when a timeline is wanted. */
typedef void (*sl_cost_span_fn)(void *context, const struct sl_cost_span *span);

enum { SL_COST_MARKS = 10 };

struct sl_cost {
    double makespan; /* seconds */
    double bound;    /* the busiest rank's larger direction at link rate, local tasks left out */
    uint64_t bound_bytes;
    uint64_t bytes; /* of all tasks */
    uint32_t windows, blocks;
    uint32_t groups_max;  /* most groups that one rank takes part in */
    uint32_t items_max;   /* most messages of one rank in one group */
    uint64_t staging_max; /* bytes of all slots on the worst rank */
    double pack_seconds, wait_seconds, group_seconds, unpack_seconds, local_seconds; /* summed over ranks */
    double param_marks[SL_COST_MARKS]; /* when 10 %, 20 % ... 100 % of destination parameters were whole */
};

/* Runs the model. NOMEM, LIMIT. `span` may be NULL. */
sluice_status sl_cost_run(const struct sl_cuts *cuts, const struct sl_cost_options *options, sl_cost_span_fn span,
                          void *context, struct sl_cost *ret);

#endif
