/*
 * cuts.h: the cut rule of a whole plan seen at once, for check and simulation. Pure. The seal comes to
 * the same rule from the ranks' halves.
 */
#ifndef SL_SCHEDULER_CUTS_H
#define SL_SCHEDULER_CUTS_H

#include "scheduler/nccl_model.h"
#include "scheduler/schedule.h"

/* `direct_min` of a policy where 0 stands for its default: BALANCED and ORDERED pack all, the others nothing. */
uint64_t sl_direct_min(enum sluice_policy policy, uint64_t wanted);

struct sl_cuts_options {
    enum sluice_policy policy;
    uint64_t window_bytes;
    uint64_t direct_min; /* 0: the policy's default */
    uint32_t slots;
    const struct sl_nccl_config *nccl; /* NULL: no rule for groups */
};

struct sl_cuts {
    struct sl_mem *mem;
    const struct sl_plan *plan;
    struct sl_half *halves; /* plan->world of them */
    struct sl_rule rule;
    uint16_t **block_of_stream; /* per rank; NULL with one block */
    uint32_t *window_of_task;   /* NULL for BALANCED */
};

/* The plan must be whole and validated and outlive the cuts. NOMEM, LIMIT, UNSUPPORTED. */
sluice_status sl_cuts_decide(const struct sl_plan *plan, const struct sl_cuts_options *options, struct sl_mem *mem,
                             struct sl_cuts *ret);
void sl_cuts_drop(struct sl_cuts *cuts);
/* The schedule of one rank under the cuts. */
sluice_status sl_cuts_schedule(const struct sl_cuts *cuts, uint32_t rank, struct sl_schedule *ret);

/*
 * The operations of one window of a schedule as NCCL sees them, in call order, into `ops` (room for the
 * window's messages). Tags are task indices of the messages' first pieces.
 */
void sl_window_ops(const struct sl_half *half, const struct sl_schedule *schedule, uint32_t window,
                   struct sl_nccl_op *ops);

#endif
