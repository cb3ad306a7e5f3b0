/*
 * freeze.c: pause, cancel and failure without a broken communicator: all ranks stop at one window.
 *
 * - FREEZE asks each rank how far it has launched; STOP_AT names the highest answer; everybody runs to
 *   it, so no group is left waiting for a rank that stopped before it. Freezes are numbered: an answer
 *   to one that a RESUME took back does not count for the next.
 * - The decision is the point of no return: after it only a failure stops a run, and nothing one whose
 *   version was staged whole.
 * - While a rank has not joined, nothing is granted: the run ends at once.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/arbiter_run.h"

static void stop(struct sl_arbiter *arbiter, struct arb_run *run)
{
    SL_ASSERT(run->stop <= run->granted);
    run->state = run->request == SL_REQUEST_PAUSE ? ARB_PAUSED : ARB_STOPPED;
    run->granted = run->stop;
    if (run->cause.status == SLUICE_GATE_TIMEOUT || run->cause.status == SLUICE_TIMEOUT)
        arb_say_unready(run, arbiter->world, run->cause.text);
    run->cause.kind = SL_NOTE_STOP_AT;
    run->cause.key = run->key;
    run->cause.a = run->stop;
    run->cause.b = run->request;
    *arb_push(arbiter, SL_NOTE_STOP_AT, run) = run->cause;
}

static void freeze(struct sl_arbiter *arbiter, struct arb_run *run)
{
    run->stop = 0;
    if (run->granted == 0) {
        stop(arbiter, run);
        return;
    }
    run->state = ARB_FREEZING;
    run->freeze++;
    run->unanswered = arbiter->live;
    for (uint32_t i = 0; i < arbiter->world; i++)
        run->ranks[i].answered = 0;
    struct sl_note *note = arb_push(arbiter, SL_NOTE_FREEZE, run);
    note->a = run->request;
    note->b = run->freeze;
}

void arb_launched(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    if (run->state != ARB_FREEZING || note->b != run->freeze || rank->answered || note->a > run->granted)
        return;
    rank->answered = 1;
    rank->launched = (uint32_t)note->a;
    if (rank->launched > run->stop)
        run->stop = rank->launched;
    SL_ASSERT(run->unanswered > 0);
    if (--run->unanswered == 0)
        stop(arbiter, run);
}

static void resume(struct sl_arbiter *arbiter, struct arb_run *run)
{
    _Bool freezing = run->state == ARB_FREEZING && run->request == SL_REQUEST_PAUSE;
    if (!freezing && run->state != ARB_PAUSED)
        return;
    run->state = ARB_OPEN;
    memset(&run->cause, 0, sizeof run->cause);
    arb_push(arbiter, SL_NOTE_RESUME, run);
    arb_decide(arbiter, run);
}

static void set_cause(struct arb_run *run, const struct sl_note *note)
{
    memset(&run->cause, 0, sizeof run->cause);
    run->cause.rank = note->rank;
    run->cause.status = note->status;
    memcpy(run->cause.text, note->text, sizeof run->cause.text);
    run->cause.text[SL_NOTE_TEXT_MAX - 1] = '\0';
    if (note->a == SL_REQUEST_CANCEL) {
        run->cause.status = SLUICE_CANCELLED;
        snprintf(run->cause.text, sizeof run->cause.text, "cancelled by rank %u", note->rank);
    } else if (note->status == SLUICE_OK) {
        run->cause.status = SLUICE_PEER_FAILED;
    }
}

/* CANCEL and FAIL. A failure beats a cancel, a cancel beats a pause. */
static void halt(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    _Bool freezing = run->state == ARB_FREEZING;
    enum sl_request request = (enum sl_request)note->a;
    if (run->state >= ARB_STOPPED || (freezing && (run->request == SL_REQUEST_FAIL || run->request == request)))
        return;
    if (arb_given(run, SL_PHASE_DECIDE) && (request == SL_REQUEST_CANCEL || arb_atomic(run)))
        return;
    set_cause(run, note);
    run->request = request;
    if (run->unjoined > 0) {
        if (run->cause.status == SLUICE_GATE_TIMEOUT || run->cause.status == SLUICE_TIMEOUT)
            arb_say_unready(run, arbiter->world, run->cause.text);
        arb_end(arbiter, run, run->cause.status, note->rank, run->cause.text);
    } else if (run->state == ARB_PAUSED) {
        stop(arbiter, run);
    } else if (!freezing) {
        freeze(arbiter, run);
    }
}

static void pause_run(struct sl_arbiter *arbiter, struct arb_run *run)
{
    if (run->state != ARB_OPEN || arb_given(run, SL_PHASE_DECIDE))
        return;
    run->request = SL_REQUEST_PAUSE;
    freeze(arbiter, run);
}

void arb_request(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    if (note->a == SL_REQUEST_PAUSE)
        pause_run(arbiter, run);
    else if (note->a == SL_REQUEST_RESUME)
        resume(arbiter, run);
    else if (note->a == SL_REQUEST_CANCEL || note->a == SL_REQUEST_FAIL)
        halt(arbiter, run, note);
    else if (note->a == SL_REQUEST_PACE && note->rank == 0)
        sl_pace_set(&run->pace, note->b, arbiter->now);
}
