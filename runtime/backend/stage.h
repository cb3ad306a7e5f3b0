/*
 * stage.h: copy sets with ends that only the processor reaches: their chunks pass through slots of shared memory,
 * filled and emptied by a crew of threads, with the device's part between.
 *
 * - One thread calls all of it, and everything of the device happens in callbacks on that thread.
 * - Chunks take their slots in the order in which sets were begun, and the chunks of a set in theirs. A set waits for
 *   sets begun before it alone, so slots that are shared by queues cannot make a cycle.
 * - A slot is free again when the device has passed it and, where the processor empties it, when that is done.
 */
#ifndef SL_BACKEND_STAGE_H
#define SL_BACKEND_STAGE_H

#include "runtime/backend/crew.h"
#include "runtime/backend/stage_cut.h"

struct sl_stage;

/* A set on its way; belongs to the caller, and to the stage from begin to its end. */
struct sl_stage_op {
    struct sl_stage_op *next;
    const struct sl_stage_plan *plan;
    void *owner;
    uint32_t claimed; /* chunks that have a slot */
    uint32_t entered; /* that were handed to the device */
    uint32_t emptied; /* that were handed over, and that the processor has emptied where it has to */
    uint32_t working; /* jobs of it that the crew has */
};

struct sl_stage_ops {
    /*
     * Puts a chunk's device part behind what the owner has given to the device, and a mark behind that for its slot. A
     * failure loses the stage.
     */
    sluice_status (*enqueue)(void *context, const struct sl_stage_op *op, uint32_t chunk);
    /* OK: the device has passed the slot's mark. AGAIN: not yet. Else the stage is lost. */
    sluice_status (*passed)(void *context, uint32_t slot);
    /*
     * The set has ended: all of it is with the device, and what the processor has to empty is empty. `lost`: it has
     * not, but no memory of it will be touched by the processor again. May begin another set.
     */
    void (*ended)(void *context, struct sl_stage_op *op, _Bool lost);
};

/* `ops`, `context` and the crew outlive it. NOMEM. */
sluice_status sl_stage_open(struct sl_mem *mem, const struct sl_stage_ops *ops, void *context, struct sl_crew *crew,
                            struct sl_stage **ret);
/* Every set has ended or was cancelled. NULL is allowed. */
void sl_stage_close(struct sl_stage *stage);

/* Hands a set over; its `plan` and `owner` are set, all else is zero. */
void sl_stage_begin(struct sl_stage *stage, struct sl_stage_op *op);
/* Does what can be done now; true when anything moved. Never blocks. */
_Bool sl_stage_advance(struct sl_stage *stage);
/* The device is of no use any more: sets end as soon as the processor has let go of them. */
void sl_stage_lose(struct sl_stage *stage);
/* Takes back a set that has not ended; blocks until the crew has let go of it. The device was lost or is idle. */
void sl_stage_cancel(struct sl_stage *stage, struct sl_stage_op *op);

#endif
