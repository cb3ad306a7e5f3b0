/*
 * schedule.h: from a half and a rule to windows, messages, pieces and slots. Pure.
 *
 * Invariants: every byte of every task is in exactly one piece; both ends of a pair derive the same
 * messages; pieces of a packed message start at multiples of SLUICE_UNIT. A window is one group. With
 * B blocks, window w serves the pairs of block w % B, and each pair is cut into windows / B shares.
 */
#ifndef SL_SCHEDULER_SCHEDULE_H
#define SL_SCHEDULER_SCHEDULE_H

#include "scheduler/half.h"

/* Sealed numbers that decide the cuts; equal on all ranks. */
struct sl_rule {
    enum sluice_policy policy;
    uint64_t window_bytes;
    uint64_t direct_min; /* 0: all packed */
    uint32_t slots;
    uint32_t windows; /* N, a multiple of blocks */
    uint32_t blocks;  /* B >= 1 */
};

/*
 * The smallest multiple N of `blocks`, at least `at_least`, for which every window of this half stays within
 * window_bytes each way, padding counted. It is a bound that larger N keep: the maximum over the ranks is right for
 * all of them. CONFIG when window_bytes has no room for a unit of every stream of a block; LIMIT when N would
 * exceed SLUICE_WINDOWS_MAX.
 */
sluice_status sl_propose_windows(const struct sl_half *half, uint64_t window_bytes, uint32_t blocks,
                                 const uint16_t *block_of_stream, uint32_t at_least, uint32_t *ret_windows);
/* Units [begin, end) of a stream of `units` in share `share` of `shares`; 128-bit product. */
void sl_share(uint64_t units, uint32_t share, uint32_t shares, uint64_t *ret_begin, uint64_t *ret_end);

/*
 * The other policies give whole tasks to windows, as docs/scheduling.md says. ORDERED and LOCKSTEP need a whole
 * plan (UNSUPPORTED otherwise); LIMIT above SLUICE_WINDOWS_MAX. `ret_window_of_task` has plan->task_count entries, freed by the caller.
 */
sluice_status sl_assign_windows(const struct sl_plan *plan, enum sluice_policy policy, uint64_t window_bytes,
                                struct sl_mem *mem, uint32_t **ret_window_of_task, uint32_t *ret_windows);

#define SL_MESSAGE_NONE UINT32_MAX
#define SL_NO_SLOT      UINT64_MAX
#define SL_SLOT_ALIGN   256u /* of a message in a slot */

struct sl_piece {
    uint64_t begin, end; /* bytes of the task, row after row of its region */
    uint64_t offset;     /* in the message */
    uint32_t entry;      /* into half->entries */
    uint32_t message;    /* into the window's messages; SL_MESSAGE_NONE for local */
};

struct sl_message {
    uint64_t bytes;  /* on the wire; packed: padding counted */
    uint64_t offset; /* in the slot (send or receive part); SL_NO_SLOT when user memory itself is sent or received */
    uint32_t peer;
    uint32_t first_piece, piece_count;
    _Bool receive;
    _Bool single; /* one piece of at least direct_min bytes */
};

struct sl_window {
    uint32_t first_message, message_count; /* sends first; by peer; singles largest first, then packed */
    uint32_t first_local, local_count;     /* pieces */
    uint64_t send_bytes, recv_bytes;       /* on the wire, the padding of packed messages counted */
    uint64_t local_bytes;
};

/* A task without bytes: no piece, but it belongs to the window of its position (behind the last byte: the last one). */
struct sl_empty {
    uint32_t entry; /* into half->entries */
    uint32_t window;
};

struct sl_schedule {
    struct sl_mem *mem;
    struct sl_rule rule;
    struct sl_window *windows; /* rule.windows of them */
    struct sl_message *messages;
    size_t message_count;
    struct sl_piece *pieces;
    size_t piece_count;
    struct sl_empty *empties;
    size_t empty_count;
    uint64_t slot_send_bytes, slot_recv_bytes;    /* the real maximum of this rank */
    uint64_t send_bytes, recv_bytes, local_bytes; /* sums over the windows */
};

/*
 * Builds this rank's schedule. `block_of_stream` (half->stream_count entries) may be NULL with one
 * block; `window_of_task` is for policies other than BALANCED. NOMEM, LIMIT.
 */
sluice_status sl_schedule_build(const struct sl_plan *plan, const struct sl_half *half, const struct sl_rule *rule,
                                const uint16_t *block_of_stream, const uint32_t *window_of_task, struct sl_mem *mem,
                                struct sl_schedule *ret);
void sl_schedule_drop(struct sl_schedule *schedule);

/*
 * Gives every message its place in the slot. Packed messages and singles that are strided on this end are staged;
 * so is message i where `stage` (message_count entries; NULL: none) says so, for user memory that the transport
 * cannot reach. This choice is private to an end. sl_schedule_build calls it with NULL.
 */
void sl_schedule_place(const struct sl_plan *plan, const struct sl_half *half, const _Bool *stage,
                       struct sl_schedule *schedule);

/*
 * First window in which the rank touches each parameter's buffer of a role; UINT32_MAX where none. Arrays of
 * param_count. Tasks without bytes count, here and below.
 */
void sl_schedule_first_windows(const struct sl_plan *plan, const struct sl_half *half,
                               const struct sl_schedule *schedule, uint32_t *source, uint32_t *destination);
/* Last window in which a destination parameter receives (or is copied); UINT32_MAX where none. */
void sl_schedule_last_windows(const struct sl_plan *plan, const struct sl_half *half,
                              const struct sl_schedule *schedule, uint32_t *destination);

/* --- blocks (blocks.c): where one group would break NCCL's rule --- */
struct sl_pair_total {
    uint32_t source, destination;
    uint64_t units;
};
/* The pairs of a whole plan, sorted by (source, destination), local ones left out; freed by the caller. NOMEM, LIMIT. */
sluice_status sl_pair_totals(const struct sl_plan *plan, struct sl_mem *mem, struct sl_pair_total **ret_pairs,
                             size_t *ret_count);
/*
 * Deals pairs by bytes into blocks that keep every rank at most `items_max` items a group: the fewest that it finds, or
 * up to three numbers more where that takes less time. An item is one peer in one direction; NCCL may join a send and a
 * receive, so this count is never too low. Deterministic, whatever the order of the pairs. INVALID for items_max 0;
 * LIMIT when more than 65535 blocks are needed.
 */
sluice_status sl_deal_blocks(const struct sl_pair_total *pairs, size_t count, uint32_t world, uint32_t items_max,
                             struct sl_mem *mem, uint16_t *ret_block_of_pair, uint32_t *ret_blocks);
/* The blocks of a half's streams; `pairs` sorted as sl_pair_totals does. A stream that is not among them is in block 0. */
void sl_blocks_of_half(const struct sl_half *half, const struct sl_pair_total *pairs, const uint16_t *block_of_pair,
                       size_t count, uint16_t *ret_block_of_stream);

#endif
