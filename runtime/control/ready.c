/*
 * ready.c: who has joined a run, how far all ranks are ready, and the one stream of grants.
 *
 * - A window is granted when all ranks have joined alike and every rank told READY beyond it.
 * - The run of the highest priority first; alike ones in turns, window by window; a run alone gets all
 *   that is ready in one note. A paced run gets window by window at its rate.
 * - Grants go out at most every GRANT_HOLD_NS, the first at once: one note then covers many gates.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/arbiter_run.h"

enum { GRANT_HOLD_NS = 200000, UNREADY_SHOWN = 4 };

static void mismatch(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    char text[SL_NOTE_TEXT_MAX];
    if (note->a != run->windows)
        snprintf(text, sizeof text, "rank %u runs %u windows, others %u: submit alike on all ranks", note->rank,
                 (unsigned)note->a, run->windows);
    else if (note->f != run->landing)
        snprintf(text, sizeof text,
                 "rank %u stages %lld windows, others %lld (-1: in place): submit with the same landing on all ranks",
                 note->rank, (long long)note->f - 1, (long long)run->landing - 1);
    else
        snprintf(text, sizeof text, "rank %u submitted the run with other options: submit alike on all ranks",
                 note->rank);
    arb_end(arbiter, run, SLUICE_MISMATCH, note->rank, text);
}

/* What a rank that joins late must hear: how the run ended, or why none can start. */
static void greet(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    if (run->state == ARB_ENDED || run->state == ARB_STOPPED)
        *arb_push(arbiter, run->cause.kind, run) = run->cause;
    else if (arbiter->over.kind)
        arb_end(arbiter, run, arbiter->over.status, arbiter->over.rank, arbiter->over.text);
    else if (note->a != run->windows || note->b != run->digest || note->f != run->landing)
        mismatch(arbiter, run, note);
    else if (run->state == ARB_PAUSED)
        *arb_push(arbiter, run->cause.kind, run) = run->cause;
}

void arb_join(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    if (rank->joined)
        return;
    SL_ASSERT(run->unjoined > 0);
    rank->joined = 1;
    run->unjoined--;
    run->unvoted[SL_PHASE_RELEASED]++;
    if (note->e > run->pace.unit)
        run->pace.unit = note->e;
    if (note->rank == 0) {
        run->pace.rate = note->d;
        run->priority = (uint32_t)note->c;
    }
    greet(arbiter, run, note);
}

static void find_low(struct arb_run *run, uint32_t world)
{
    run->ready_min = UINT32_MAX;
    for (uint32_t i = 0; i < world; i++) {
        uint32_t ready = run->ranks[i].ready;
        if (ready < run->ready_min) {
            run->ready_min = ready;
            run->ready_low = 0;
        }
        run->ready_low += ready == run->ready_min;
    }
}

void arb_ready(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    if (note->a <= rank->ready || note->a > run->windows)
        return;
    _Bool was_low = rank->ready == run->ready_min;
    rank->ready = (uint32_t)note->a;
    if (was_low && --run->ready_low == 0)
        find_low(run, arbiter->world);
}

static _Bool grantable(const struct arb_run *run)
{
    return run->state == ARB_OPEN && run->unjoined == 0 && run->ready_min > run->granted;
}

/* The run whose turn it is; `ret_alone`: no other of its priority wants a grant now. */
static struct arb_run *pick(const struct sl_arbiter *arbiter, _Bool *ret_alone)
{
    struct arb_run *best = NULL;
    *ret_alone = 1;
    for (struct arb_run *run = arbiter->first; run; run = run->next) {
        if (!grantable(run) || sl_pace_next(&run->pace) > arbiter->now)
            continue;
        if (best && run->priority == best->priority)
            *ret_alone = 0;
        if (!best || run->priority > best->priority) {
            best = run;
            *ret_alone = 1;
        } else if (run->priority == best->priority && run->last_grant < best->last_grant) {
            best = run;
        }
    }
    return best;
}

static void name_unready(const struct arb_run *run, struct sl_note *note)
{
    if (run->granted == run->windows || run->ready_min > run->granted)
        return;
    note->c = run->ready_low;
    while (run->ranks[note->rank].ready != run->ready_min)
        note->rank++;
}

_Bool arb_grant(struct sl_arbiter *arbiter, struct sl_note *ret)
{
    if (arbiter->over.kind || (arbiter->now != arbiter->batch && arbiter->now < arbiter->hold))
        return 0;
    _Bool alone;
    struct arb_run *run = pick(arbiter, &alone);
    if (!run)
        return 0;
    run->granted = alone && run->pace.rate == 0 ? run->ready_min : run->granted + 1;
    sl_pace_take(&run->pace, arbiter->now);
    arbiter->batch = arbiter->now;
    arbiter->hold = arbiter->now + GRANT_HOLD_NS;
    run->last_grant = ++arbiter->grants;
    *ret = (struct sl_note){.kind = SL_NOTE_GRANT, .key = run->key, .a = run->granted, .b = run->last_grant};
    name_unready(run, ret);
    return 1;
}

uint64_t arb_grant_timer(const struct sl_arbiter *arbiter)
{
    uint64_t soonest = UINT64_MAX;
    for (const struct arb_run *run = arbiter->first; run; run = run->next) {
        if (!grantable(run) || arbiter->over.kind)
            continue;
        uint64_t next = sl_pace_next(&run->pace);
        if (next < arbiter->hold)
            next = arbiter->hold;
        soonest = next < soonest ? next : soonest;
    }
    return soonest;
}

/* Appends to a text of SL_NOTE_TEXT_MAX bytes; cut when full. */
static void append(char *text, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, SL_NOTE_TEXT_MAX - used, "%s", more);
}

void arb_say_unready(const struct arb_run *run, uint32_t world, char *text)
{
    uint32_t shown = 0;
    uint32_t unready = 0;
    char part[64];
    for (uint32_t i = 0; i < world; i++) {
        const struct arb_rank *rank = &run->ranks[i];
        if (rank->joined && rank->ready > run->ready_min)
            continue;
        if (rank->joined && rank->ready == run->windows)
            continue;
        unready++;
        if (shown == UNREADY_SHOWN)
            continue;
        snprintf(part, sizeof part, "%s%u%s", shown++ ? ", " : "; ranks not ready: ", i,
                 rank->joined ? "" : " (not submitted)");
        append(text, part);
    }
    if (unready > shown) {
        snprintf(part, sizeof part, " and %u more", unready - shown);
        append(text, part);
    }
}
