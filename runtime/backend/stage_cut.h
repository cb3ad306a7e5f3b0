/*
 * stage_cut.h: a copy set with ends that only the processor reaches, cut into chunks that pass through slots of
 * memory which both reach. Pure.
 *
 * A chunk has up to three parts, in this order: `in`, copies of the processor into its slot; `device`, copies of the
 * device out of or into the slot; `out`, copies of the processor out of it.
 */
#ifndef SL_BACKEND_STAGE_CUT_H
#define SL_BACKEND_STAGE_CUT_H

#include "runtime/base/memory.h"
#include "sluice/backend.h"

enum { SL_STAGE_SLOTS_MAX = 16 };

/* Ends of a piece that only the processor reaches. */
enum { SL_STAGE_FROM = 1, SL_STAGE_TO = 2 };

/* The slots, and which one the next chunk of the next set takes: they go round over all sets. */
struct sl_stage_slots {
    uint8_t *memory[SL_STAGE_SLOTS_MAX]; /* at multiples of 16 */
    uint64_t bytes;                      /* of a slot, a multiple of 16 */
    uint32_t count;
    uint32_t next;
};

struct sl_stage_list {
    struct sluice_copy *copies;
    size_t count, capacity;
};

/* Where a chunk's parts begin in the lists; they end where the next chunk's begin. */
struct sl_stage_chunk {
    uint32_t slot;
    size_t in, device, out;
};

struct sl_stage_plan {
    struct sl_mem *mem;
    struct sl_stage_list in, device, out;
    struct sl_stage_chunk *chunks; /* count + 1: the last one is where all ends */
    size_t capacity;
    uint32_t count;
};

/* A contiguous copy. */
struct sl_stage_run {
    uint64_t from, to, bytes;
};

/*
 * The chunks of the pieces with a staged end (`ends`: one byte a piece); pieces without one are left out. NOMEM, LIMIT.
 * Drop the plan in any case.
 */
sluice_status sl_stage_cut(struct sl_mem *mem, struct sl_stage_slots *slots, const struct sluice_copy *pieces,
                           const uint8_t *ends, size_t count, struct sl_stage_plan *ret);
void sl_stage_plan_drop(struct sl_stage_plan *plan);

/*
 * The device part of a chunk as at most `max` contiguous copies; 0: it has none, or is not so simple. With `ours` the
 * far ends lie in one allocation of ours and gaps below 16 bytes hold nothing: neighbours are joined over them.
 */
uint32_t sl_stage_runs(const struct sl_stage_plan *plan, uint32_t chunk, _Bool ours, uint32_t max,
                       struct sl_stage_run *ret);

#endif
