/*
 * check.h: would the groups of a plan under a policy hang? Pure.
 *
 * Windows run one after the other on every rank; a window whose groups are single kernel plans on all
 * ranks is safe; the others are executed with rendezvous semantics.
 */
#ifndef SL_SCHEDULER_CHECK_H
#define SL_SCHEDULER_CHECK_H

#include "scheduler/cuts.h"

struct sl_check {
    struct sl_mem *mem;
    enum sl_nccl_verdict verdict;
    uint32_t window; /* the first that hangs */
    uint32_t windows;
    uint32_t blocks;
    uint32_t *plans; /* per rank: most kernel plans of one group; 0 for a rank without messages */
    uint32_t world;
    uint32_t max_group_items;   /* most work items of one rank in one group */
    uint64_t max_fifo_bytes;    /* most work FIFO that one group needs on a rank */
    uint32_t host_rank;         /* HOST_HANGS: the rank */
    struct sl_nccl_wait *cycle; /* message: task index */
    uint32_t cycle_count;
};

/* INVALID when the config does not fit the world; NOMEM; LIMIT. */
sluice_status sl_check_run(const struct sl_cuts *cuts, const struct sl_nccl_config *nccl, struct sl_mem *mem,
                           struct sl_check *ret);
void sl_check_drop(struct sl_check *check);

#endif
