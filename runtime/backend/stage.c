/*
 * stage.c: see stage.h.
 *
 * Invariants: `first` to `last` are the sets that have not ended, in the order of their beginning; a slot that is not
 * FREE belongs to one chunk; `op` of a slot is NULL once the set may have ended without it.
 */
#include "runtime/backend/stage.h"

#include "runtime/base/error.h"

enum slot_state {
    FREE,
    FILLING, /* the crew copies into it, or it needs no such copy */
    PASSING, /* the device has it */
    EMPTYING /* the crew copies out of it */
};

struct slot {
    enum slot_state state;
    struct sl_stage_op *op;
    uint32_t chunk;
    struct sl_crew_job job;
};

struct sl_stage {
    struct sl_mem *mem;
    const struct sl_stage_ops *ops;
    void *context;
    struct sl_crew *crew;
    struct sl_stage_op *first, *last;
    uint32_t busy; /* slots that are not free */
    _Bool lost;
    struct slot slots[SL_STAGE_SLOTS_MAX];
};

sluice_status sl_stage_open(struct sl_mem *mem, const struct sl_stage_ops *ops, void *context, struct sl_crew *crew,
                            struct sl_stage **ret)
{
    struct sl_stage *stage = sl_new(mem, sizeof *stage, "stage");
    if (stage == NULL)
        return SLUICE_NOMEM;
    stage->mem = mem;
    stage->ops = ops;
    stage->context = context;
    stage->crew = crew;
    *ret = stage;
    return SLUICE_OK;
}

void sl_stage_close(struct sl_stage *stage)
{
    if (stage == NULL)
        return;
    SL_ASSERT(stage->first == NULL);
    sl_free(stage->mem, stage);
}

void sl_stage_begin(struct sl_stage *stage, struct sl_stage_op *op)
{
    op->next = NULL;
    if (stage->first == NULL)
        stage->first = op;
    else
        stage->last->next = op;
    stage->last = op;
}

void sl_stage_lose(struct sl_stage *stage)
{
    stage->lost = 1;
}

/* --- slots --- */

static void work_on(struct sl_stage *stage, struct slot *slot, const struct sl_stage_list *list, size_t begin,
                    size_t end)
{
    slot->job.copies = list->copies + begin;
    slot->job.count = end - begin;
    slot->op->working++;
    if (begin == end)
        atomic_store(&slot->job.done, 1);
    else
        sl_crew_push(stage->crew, &slot->job);
}

static void set_free(struct sl_stage *stage, struct slot *slot)
{
    slot->state = FREE;
    slot->op = NULL;
    stage->busy--;
}

static void fill(struct sl_stage *stage, struct sl_stage_op *op)
{
    const struct sl_stage_chunk *chunk = &op->plan->chunks[op->claimed];
    struct slot *slot = &stage->slots[chunk->slot];
    slot->state = FILLING;
    slot->op = op;
    slot->chunk = op->claimed++;
    stage->busy++;
    work_on(stage, slot, &op->plan->in, chunk[0].in, chunk[1].in);
}

/* Slots for chunks, in order: the first one that has to wait ends it. */
static _Bool claim(struct sl_stage *stage)
{
    _Bool moved = 0;
    for (struct sl_stage_op *op = stage->first; op != NULL && !stage->lost; op = op->next)
        while (op->claimed < op->plan->count) {
            if (stage->slots[op->plan->chunks[op->claimed].slot].state != FREE)
                return moved;
            fill(stage, op);
            moved = 1;
        }
    return moved;
}

static void enter(struct sl_stage *stage, struct slot *slot)
{
    struct sl_stage_op *op = slot->op;
    const struct sl_stage_chunk *chunk = &op->plan->chunks[slot->chunk];
    op->entered++;
    slot->state = PASSING;
    if (stage->ops->enqueue(stage->context, op, slot->chunk) != SLUICE_OK)
        stage->lost = 1;
    if (chunk[0].out == chunk[1].out) {
        op->emptied++;
        slot->op = NULL; /* the device alone decides when it is free */
    }
}

/* A slot that is filled: chunks of a set enter in order. */
static _Bool filled(struct sl_stage *stage, struct slot *slot)
{
    if (!atomic_load(&slot->job.done))
        return 0;
    if (stage->lost) {
        slot->op->working--;
        set_free(stage, slot);
        return 1;
    }
    if (slot->chunk != slot->op->entered)
        return 0;
    slot->op->working--;
    enter(stage, slot);
    return 1;
}

static _Bool passing(struct sl_stage *stage, uint32_t number)
{
    struct slot *slot = &stage->slots[number];
    sluice_status status = stage->lost ? SLUICE_DEVICE : stage->ops->passed(stage->context, number);
    if (status == SLUICE_AGAIN)
        return 0;
    if (status != SLUICE_OK)
        stage->lost = 1;
    if (status != SLUICE_OK || slot->op == NULL) {
        set_free(stage, slot);
        return 1;
    }
    const struct sl_stage_chunk *chunk = &slot->op->plan->chunks[slot->chunk];
    slot->state = EMPTYING;
    work_on(stage, slot, &slot->op->plan->out, chunk[0].out, chunk[1].out);
    return 1;
}

static _Bool emptied(struct sl_stage *stage, struct slot *slot)
{
    if (!atomic_load(&slot->job.done))
        return 0;
    slot->op->working--;
    slot->op->emptied++;
    set_free(stage, slot);
    return 1;
}

static _Bool advance_slots(struct sl_stage *stage)
{
    _Bool moved = 0;
    for (uint32_t i = 0; i < SL_STAGE_SLOTS_MAX && stage->busy > 0; i++) {
        struct slot *slot = &stage->slots[i];
        if (slot->state == FILLING)
            moved |= filled(stage, slot);
        else if (slot->state == PASSING)
            moved |= passing(stage, i);
        else if (slot->state == EMPTYING)
            moved |= emptied(stage, slot);
    }
    return moved;
}

/* --- sets --- */

static _Bool is_over(const struct sl_stage *stage, const struct sl_stage_op *op)
{
    if (stage->lost)
        return op->working == 0;
    return op->emptied == op->plan->count;
}

static void unlink_op(struct sl_stage *stage, const struct sl_stage_op *op)
{
    struct sl_stage_op *before = NULL;
    for (struct sl_stage_op *it = stage->first; it != op; it = it->next)
        before = it;
    if (before == NULL)
        stage->first = op->next;
    else
        before->next = op->next;
    if (stage->last == op)
        stage->last = before;
}

static _Bool end_ops(struct sl_stage *stage)
{
    _Bool moved = 0;
    for (struct sl_stage_op *op = stage->first, *next; op != NULL; op = next) {
        next = op->next;
        if (!is_over(stage, op))
            continue;
        unlink_op(stage, op);
        stage->ops->ended(stage->context, op, stage->lost);
        moved = 1;
    }
    return moved;
}

_Bool sl_stage_advance(struct sl_stage *stage)
{
    _Bool moved = advance_slots(stage);
    moved |= claim(stage);
    moved |= end_ops(stage);
    return moved;
}

void sl_stage_cancel(struct sl_stage *stage, struct sl_stage_op *op)
{
    for (uint32_t i = 0; i < SL_STAGE_SLOTS_MAX; i++) {
        struct slot *slot = &stage->slots[i];
        if (slot->state == FREE || slot->op != op)
            continue;
        if (slot->state != PASSING)
            sl_crew_wait(stage->crew, &slot->job);
        set_free(stage, slot);
    }
    unlink_op(stage, op);
}
