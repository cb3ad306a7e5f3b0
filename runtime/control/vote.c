/*
 * vote.c: votes of all ranks become one outcome a phase; losses and broken communicators end runs.
 *
 * - An outcome OK needs the vote of every live rank, and is given once. The first error ends the run.
 * - A rank lost before the decision fails the run everywhere. After the decision of a version that was
 *   staged whole the survivors commit; the outcome is then UNDECIDED and names the lost rank, unless it
 *   had already voted that its bytes are in place.
 * - A lost rank or a broken communicator ends all runs and lets none start: membership is fixed.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/arbiter_run.h"

void arb_end(struct sl_arbiter *arbiter, struct arb_run *run, sluice_status status, uint32_t rank, const char *text)
{
    SL_ASSERT(run->state != ARB_ENDED);
    struct sl_note outcome = {.kind = SL_NOTE_OUTCOME, .key = run->key, .a = SL_PHASE_FINAL, .rank = rank};
    outcome.status = status;
    snprintf(outcome.text, sizeof outcome.text, "%s", text);
    run->state = ARB_ENDED;
    run->given |= (uint8_t)(1u << SL_PHASE_FINAL);
    run->cause = outcome;
    *arb_push(arbiter, SL_NOTE_OUTCOME, run) = outcome;
}

static void give(struct sl_arbiter *arbiter, struct arb_run *run, enum sl_phase phase)
{
    run->given |= (uint8_t)(1u << phase);
    arb_push(arbiter, SL_NOTE_OUTCOME, run)->a = phase;
}

static void finish(struct sl_arbiter *arbiter, struct arb_run *run)
{
    if (run->state == ARB_STOPPED && run->request == SL_REQUEST_FAIL)
        return;
    if (run->undecided)
        arb_end(arbiter, run, SLUICE_UNDECIDED, run->cause.rank, run->cause.text);
    else
        arb_end(arbiter, run, SLUICE_OK, 0, "");
}

void arb_decide(struct sl_arbiter *arbiter, struct arb_run *run)
{
    if (arbiter->collecting)
        return;
    for (enum sl_phase phase = SL_PHASE_STAGED; phase <= SL_PHASE_DECIDE; phase++)
        if (run->state == ARB_OPEN && run->unvoted[phase] == 0 && !arb_given(run, phase))
            give(arbiter, run, phase);
    if (run->state != ARB_ENDED && run->unvoted[SL_PHASE_FINAL] == 0)
        finish(arbiter, run);
}

void arb_release(struct sl_arbiter *arbiter, struct arb_run *run)
{
    if (run->state < ARB_STOPPED || run->unvoted[SL_PHASE_RELEASED] > 0)
        return;
    give(arbiter, run, SL_PHASE_RELEASED);
    arb_drop_if_over(arbiter, run);
}

void arb_vote(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    if (note->a < SL_PHASE_STAGED || note->a > SL_PHASE_RELEASED)
        return;
    if (note->status != SLUICE_OK) {
        if (arbiter->collecting)
            arb_set_cause(run, note);
        else if (run->state != ARB_ENDED)
            arb_end(arbiter, run, (sluice_status)note->status, note->rank, note->text);
        return;
    }
    uint8_t bit = (uint8_t)(1u << note->a);
    if (rank->voted & bit)
        return;
    rank->voted |= bit;
    SL_ASSERT(run->unvoted[note->a] > 0);
    run->unvoted[note->a]--;
    if (note->a == SL_PHASE_RELEASED)
        arb_release(arbiter, run);
    else
        arb_decide(arbiter, run);
}

void arb_decline(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note)
{
    struct arb_rank *rank = &run->ranks[note->rank];
    SL_ASSERT(!rank->joined && run->unjoined > 0);
    rank->joined = 1;
    rank->voted |= 1u << SL_PHASE_RELEASED;
    run->unjoined--;
    if (run->state != ARB_ENDED)
        arb_end(arbiter, run, note->status ? (sluice_status)note->status : SLUICE_PEER_FAILED, note->rank, note->text);
    arb_release(arbiter, run);
}

/* Commits of versions that were staged whole go on: they need nobody else. */
static _Bool independent(const struct arb_run *run)
{
    return run->state == ARB_ENDED || (arb_given(run, SL_PHASE_DECIDE) && arb_atomic(run));
}

static void leave_undecided(struct sl_arbiter *arbiter, struct arb_run *run, uint32_t rank)
{
    run->unvoted[SL_PHASE_FINAL]--;
    if (!run->undecided) {
        run->undecided = 1;
        run->cause.rank = rank;
        snprintf(run->cause.text, sizeof run->cause.text,
                 "rank %u was lost after the decision: whether it holds the version is not known; all others do", rank);
    }
    arb_decide(arbiter, run);
}

static void expect_no_votes(struct arb_run *run, const struct arb_rank *rank)
{
    for (uint32_t phase = SL_PHASE_STAGED; phase <= SL_PHASE_FINAL; phase++)
        if (!((rank->voted >> phase) & 1u))
            run->unvoted[phase]--;
}

static void lose(struct sl_arbiter *arbiter, struct arb_run *run, uint32_t rank)
{
    struct arb_rank *state = &run->ranks[rank];
    if (arbiter->collecting)
        expect_no_votes(run, state);
    else if (!independent(run))
        arb_end(arbiter, run, SLUICE_PEER_LOST, rank, arbiter->over.text);
    else if (run->state != ARB_ENDED && !(state->voted & (1u << SL_PHASE_FINAL)))
        leave_undecided(arbiter, run, rank);
    if (!state->joined)
        run->unjoined--;
    else if (!(state->voted & (1u << SL_PHASE_RELEASED)))
        run->unvoted[SL_PHASE_RELEASED]--;
    arb_release(arbiter, run);
}

void sl_arbiter_lost(struct sl_arbiter *arbiter, uint32_t rank, const char *text, uint64_t now)
{
    arbiter->now = now > arbiter->now ? now : arbiter->now;
    if (rank >= arbiter->world || arbiter->lost[rank])
        return;
    arbiter->lost[rank] = 1;
    arbiter->live--;
    struct sl_note *note = arb_push(arbiter, SL_NOTE_LOST, NULL);
    note->rank = rank;
    note->a = arbiter->host + 1;
    note->status = SLUICE_PEER_LOST;
    snprintf(note->text, sizeof note->text, "%s", text);
    if (!arbiter->over.kind)
        arbiter->over = *note;
    for (struct arb_run *run = arbiter->first, *next; run; run = next) {
        next = run->next;
        lose(arbiter, run, rank);
    }
    arb_take_over(arbiter);
}

void arb_broken(struct sl_arbiter *arbiter, const struct sl_note *note)
{
    if (arbiter->poisoned)
        return;
    arbiter->poisoned = 1;
    struct sl_note *poison = arb_push(arbiter, SL_NOTE_POISON, NULL);
    poison->rank = note->rank;
    poison->status = SLUICE_POISONED;
    snprintf(poison->text, sizeof poison->text, "%s", note->text);
    if (!arbiter->over.kind)
        arbiter->over = *poison;
    for (struct arb_run *run = arbiter->first; run; run = run->next)
        if (!independent(run) && !arbiter->collecting)
            arb_end(arbiter, run, SLUICE_POISONED, note->rank, poison->text);
}
