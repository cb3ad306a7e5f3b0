/*
 * half.h: one rank's half of a plan as pair streams. Pure.
 *
 * A stream is all tasks between this rank and one peer in one direction, in (id, part) order, each
 * rounded up to SLUICE_UNIT. Both ends of a pair derive the same units from their own half alone.
 * Local tasks (source = destination) are one stream of their own and never become messages.
 */
#ifndef SL_SCHEDULER_HALF_H
#define SL_SCHEDULER_HALF_H

#include "scheduler/plan.h"

struct sl_entry {
    uint64_t unit;  /* first unit in its stream */
    uint64_t bytes; /* of the task */
    uint32_t task;  /* index into plan->tasks */
    uint32_t reserved;
};

struct sl_stream {
    uint32_t peer;
    _Bool receive;
    uint32_t first; /* into entries */
    uint32_t count;
    uint64_t units;
    uint64_t bytes; /* without padding */
};

struct sl_half {
    struct sl_mem *mem;
    uint32_t rank, world;
    struct sl_stream *streams; /* sorted by (receive, peer): sends first; the local stream is not among them */
    uint32_t stream_count;
    struct sl_stream local;
    struct sl_entry *entries; /* stream by stream, those of the local stream last */
    size_t entry_count;
};

/*
 * The half of `rank`. NOMEM; LIMIT when the plan has 2^32 tasks or a rank's direction holds 2^63 bytes.
 * The plan must be validated and outlive the half. O(tasks + world).
 */
sluice_status sl_half_build(const struct sl_plan *plan, uint32_t rank, struct sl_mem *mem, struct sl_half *ret);
void sl_half_drop(struct sl_half *half);

/* Tasks by rank, built once where the halves of many ranks are needed: then a half costs O(own tasks + world). */
struct sl_plan_index {
    struct sl_mem *mem;
    size_t *first;   /* world + 1 of them, into tasks */
    uint32_t *tasks; /* indices into plan->tasks, ascending within a rank */
};
sluice_status sl_plan_index_build(const struct sl_plan *plan, struct sl_mem *mem, struct sl_plan_index *ret);
void sl_plan_index_drop(struct sl_plan_index *index);
/* sl_half_build by way of an index of the same plan. */
sluice_status sl_half_build_indexed(const struct sl_plan *plan, const struct sl_plan_index *index, uint32_t rank,
                                    struct sl_mem *mem, struct sl_half *ret);

/* Digest of one stream: ids, parts, bytes, order, the sender's or receiver's dtype. Equal on both ends. */
uint64_t sl_stream_digest(const struct sl_plan *plan, const struct sl_half *half, const struct sl_stream *stream);
const struct sl_stream *sl_half_find(const struct sl_half *half, uint32_t peer, _Bool receive);

#endif
