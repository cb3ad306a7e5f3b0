/*
 * nccl_model.h: how NCCL cuts a group of sends and receives into kernel plans, and whether a set of
 * groups hangs. Pure. The algorithm is docs/nccl-model.md's; it was checked against NCCL itself.
 */
#ifndef SL_SCHEDULER_NCCL_MODEL_H
#define SL_SCHEDULER_NCCL_MODEL_H

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

struct sl_nccl_config {
    uint32_t version;           /* 22809, 22902, 22907, 23007 ... (major * 10000 + minor * 100 + patch) */
    uint32_t channels;          /* P, a power of two <= 64 */
    uint32_t channels_per_peer; /* C <= P */
    uint32_t nodes;
    uint32_t ranks_per_node; /* nodes * ranks_per_node = world */
    uint64_t chunk_bytes;    /* p2p chunk */
    uint32_t args_bytes;     /* kernel arguments, default 4096 */
    uint32_t fifo_bytes;     /* work FIFO, default 1 MiB */
    _Bool low_latency;       /* connections have LL buffers (NVLink), for the rule before 2.29.2 */
    _Bool known;             /* P, C, chunk and nodes are exact, not bounds */
};

struct sl_nccl_op {
    uint64_t bytes;
    uint32_t peer;
    uint32_t tag; /* caller's; the index of the message */
    _Bool receive;
};

/* One part of an operation pair inside a batch; SL_NCCL_NONE where a direction is absent. */
struct sl_nccl_work {
    uint32_t send, recv; /* indices into the rank's ops */
    uint32_t part;
    uint32_t batch;
};
#define SL_NCCL_NONE UINT32_MAX

/* Works that run at once on one channel; a channel's batches of a plan run one after the other. */
struct sl_nccl_batch {
    uint32_t plan;
    uint32_t channel;
};

/* One rank's kernel plans of one group, works in the order in which NCCL adds them. */
struct sl_nccl_plans {
    struct sl_mem *mem;
    struct sl_nccl_work *works;
    size_t work_count, work_capacity;
    struct sl_nccl_batch *batches;
    size_t batch_count, batch_capacity;
    uint32_t *plan_of_op;
    size_t op_count;
    uint32_t plan_count;
    uint32_t items;      /* work items: a send and a receive of one round share one */
    uint64_t fifo_bytes; /* of the work FIFO that the group needs */
    _Bool fifo_exceeded; /* host hang: the FIFO may never have that much room */
};

/* INVALID for an impossible config (names the field), NOMEM. */
sluice_status sl_nccl_plan(const struct sl_nccl_config *config, uint32_t rank, const struct sl_nccl_op *ops,
                           size_t count, struct sl_mem *mem, struct sl_nccl_plans *ret);
void sl_nccl_plans_drop(struct sl_nccl_plans *plans);

/*
 * A group's FIFO space is returned only after the whole group, and up to an eighth of the FIFO may still
 * be held by earlier groups: beyond seven eighths a group can wait for itself.
 */
#define SL_NCCL_ITEMS_MAX           10000u /* our own limit for one group, on every version */
#define SL_NCCL_ITEMS_IN_FLIGHT_MAX 16000u /* over all groups in flight */

enum sl_nccl_verdict { SL_NCCL_OK = 0, SL_NCCL_HANGS = 1, SL_NCCL_HOST_HANGS = 2 };

struct sl_nccl_wait {
    uint32_t rank, plan, message, waits_for; /* message: tag; waits_for: rank */
};

struct sl_nccl_result {
    enum sl_nccl_verdict verdict;
    struct sl_nccl_wait *cycle; /* for HANGS */
    uint32_t cycle_count;
    struct sl_mem *mem;
};

/*
 * Executes one group on all ranks with rendezvous semantics: a part moves only while both ends are in
 * their current plan and batch. INVALID when a message has one end only or two sizes (names both ranks).
 */
sluice_status sl_nccl_execute(const struct sl_nccl_config *config, const struct sl_nccl_plans *plans,
                              const struct sl_nccl_op *const *ops, uint32_t world, struct sl_mem *mem,
                              struct sl_nccl_result *ret);
void sl_nccl_result_drop(struct sl_nccl_result *result);

/* One rank's streams of one group by the rule of docs/scheduling.md: is the group safe? */
struct sl_nccl_safety {
    _Bool single_plan; /* by the exact model where known, else by the sufficient bound */
    uint32_t items;
    _Bool items_ok; /* <= 10,000 */
};
sluice_status sl_nccl_safe(const struct sl_nccl_config *config, uint32_t rank, const struct sl_nccl_op *ops,
                           size_t count, struct sl_mem *mem, struct sl_nccl_safety *ret);
/* Items a group may have by the sufficient bound alone: how many fit 254 - C headers when each costs C. */
uint32_t sl_nccl_items_max(const struct sl_nccl_config *config);
/* True from 2.29.7 on without PXN: any cut is safe. */
_Bool sl_nccl_order_kept(uint32_t version);

/* The peer schedule (round r: whom to send to, whom to receive from). Arrays of world. */
sluice_status sl_nccl_rounds(const struct sl_nccl_config *config, uint32_t rank, uint32_t *ret_send,
                             uint32_t *ret_recv);

#endif
