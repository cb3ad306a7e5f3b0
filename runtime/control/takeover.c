/*
 * takeover.c: an arbiter on another rank after the first one's rank was lost: what becomes of the runs.
 *
 * - Every live rank tells the standing of all its runs, then that this was the last. Nothing is decided
 *   before all have: then, if any rank saw an outcome, it holds for all; else it was never given to
 *   anybody who lives, and the run fails alike everywhere.
 * - A rank that does not have the run any more has failed. Where it may have seen the decision, the others
 *   cannot say that the old version is untouched.
 * - A decided version that was staged whole is committed by the survivors; how the lost rank ended is
 *   not known. Of all other runs nobody can move a window any more.
 * - A run stays at a rank that saw it succeed until all have released it, so its standing is never missed.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/arbiter_run.h"

void arb_set_cause(struct arb_run *run, const struct sl_note *note)
{
    if (note->status == SLUICE_OK || run->cause.status != SLUICE_OK)
        return;
    run->cause.status = note->status;
    run->cause.rank = note->rank;
    snprintf(run->cause.text, sizeof run->cause.text, "%.*s", SL_NOTE_TEXT_MAX - 1, note->text);
}

void arb_standing(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    SL_ASSERT(arbiter->collecting);
    if (rank->joined || run->state == ARB_ENDED)
        return;
    rank->joined = 1;
    run->unjoined--;
    run->unvoted[SL_PHASE_RELEASED]++;
    run->seen |= (uint8_t)note->d;
    rank->voted = (uint8_t)note->c;
    for (uint32_t phase = SL_PHASE_STAGED; phase <= SL_PHASE_RELEASED; phase++)
        run->unvoted[phase] -= ((uint32_t)rank->voted >> phase) & 1u;
    arb_set_cause(run, note);
}

static void end_as(struct sl_arbiter *arbiter, struct arb_run *run, sluice_status status, const char *what)
{
    char text[SL_NOTE_TEXT_MAX];
    snprintf(text, sizeof text, "%.150s: %s", arbiter->over.text, what);
    arb_end(arbiter, run, status, arbiter->over.rank, text);
}

/* Some rank saw the decision, all live ranks still have the run, and nothing is missing. */
static void commit(struct sl_arbiter *arbiter, struct arb_run *run)
{
    run->undecided = 1;
    run->cause.rank = arbiter->over.rank;
    snprintf(run->cause.text, sizeof run->cause.text,
             "rank %u was lost after the decision: whether it holds the version is not known; all others do",
             arbiter->over.rank);
    run->given |= (uint8_t)(1u << SL_PHASE_STAGED | 1u << SL_PHASE_DECIDE);
    arb_push(arbiter, SL_NOTE_OUTCOME, run)->a = SL_PHASE_DECIDE;
    arb_decide(arbiter, run);
}

/* Every survivor that has the run voted for the decision, or in place that it has every byte. */
static _Bool may_be_decided(const struct sl_arbiter *arbiter, const struct arb_run *run)
{
    enum sl_phase phase = run->landing ? SL_PHASE_DECIDE : SL_PHASE_FINAL;
    for (uint32_t i = 0; i < arbiter->world; i++)
        if (!arbiter->lost[i] && run->ranks[i].joined && !((run->ranks[i].voted >> phase) & 1u))
            return 0;
    return 1;
}

static void fail(struct sl_arbiter *arbiter, struct arb_run *run)
{
    struct sl_note cause = run->cause;
    if (cause.status != SLUICE_OK)
        arb_end(arbiter, run, (sluice_status)cause.status, cause.rank, cause.text);
    else
        end_as(arbiter, run, SLUICE_PEER_LOST, "the run cannot go on without it");
}

static void resolve(struct sl_arbiter *arbiter, struct arb_run *run)
{
    _Bool decided = (run->seen >> SL_PHASE_DECIDE) & 1u;
    _Bool whole = run->cause.status == SLUICE_OK && run->unjoined == 0;
    if ((run->seen >> SL_PHASE_FINAL) & 1u)
        arb_end(arbiter, run, SLUICE_OK, 0, "");
    else if (!may_be_decided(arbiter, run))
        fail(arbiter, run);
    else if (!whole && decided)
        end_as(arbiter, run, SLUICE_TORN, "the version was decided, and another rank failed");
    else if (!whole)
        end_as(arbiter, run, SLUICE_UNDECIDED, "another rank failed that may have seen the decision");
    else if (decided && arb_atomic(run))
        commit(arbiter, run);
    else if (run->unvoted[SL_PHASE_FINAL] == 0)
        end_as(arbiter, run, SLUICE_UNDECIDED, "every byte is in place on all other ranks");
    else
        fail(arbiter, run);
}

void arb_take_over(struct sl_arbiter *arbiter)
{
    if (!arbiter->collecting || !arbiter->over.kind)
        return;
    for (uint32_t i = 0; i < arbiter->world; i++)
        if (!arbiter->lost[i] && !arbiter->told[i])
            return;
    arbiter->collecting = 0;
    for (struct arb_run *run = arbiter->first, *next; run; run = next) {
        next = run->next;
        if (run->state != ARB_ENDED)
            resolve(arbiter, run);
        arb_release(arbiter, run);
    }
}

void arb_told(struct sl_arbiter *arbiter, uint32_t rank)
{
    arbiter->told[rank] = 1;
    arb_take_over(arbiter);
}
