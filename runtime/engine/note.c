/*
 * note.c: what the arbiter says about runs, and who answers when there is none.
 *
 * - Notes reach all ranks in one order, so what is done here in reaction to them is alike everywhere.
 * - Notes about runs that are not here or are over, and notes that make no sense in the state of a run,
 *   are ignored: a peer may have submitted earlier, this rank may have failed already.
 * - The loss of another rank is not acted on: the arbiter says what it means for each run. When the rank of
 *   the arbiter is lost, its successor is told how far all runs are; without one they end as well as
 *   this rank alone can tell.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/engine/run.h"

/* A peer's own trouble is a failed peer here; what concerns all keeps its status. */
static sluice_status translate(const struct sl_engine *engine, const struct sl_note *note)
{
    static const sluice_status own[] = {SLUICE_DEVICE, SLUICE_TRANSPORT, SLUICE_SYSTEM,
                                        SLUICE_NOMEM,  SLUICE_ABORTED,   SLUICE_IO};
    for (size_t i = 0; i < SL_COUNT(own); i++)
        if (note->rank != engine->rank && note->status == (int32_t)own[i])
            return SLUICE_PEER_FAILED;
    return (sluice_status)note->status;
}

/* A note has no native codes: of a failure of this rank's own they are known here. */
static void take_error(const struct sl_engine *engine, const struct run *run, const struct sl_note *note,
                       struct sluice_error *ret)
{
    const struct sluice_error own = run->failing && note->rank == engine->rank ? run->error : (struct sluice_error){0};
    sl_error_set(ret, translate(engine, note), "run", "%.*s", SL_NOTE_TEXT_MAX - 1, note->text);
    ret->domain = own.domain;
    ret->native = own.native;
}

static void on_grant(struct run *run, const struct sl_note *note)
{
    if (run->paused || run->halt || note->a <= run->granted || note->a > run->config.windows)
        return;
    sl_run_grant(run, (uint32_t)note->a, note->b);
    run->unready = note->c;
    run->unready_rank = note->rank;
}

static void on_freeze(struct run *run, const struct sl_note *note)
{
    run->frozen = 1;
    run->freeze = note->b;
    run->tell_launched = 1;
}

static void on_stop(struct sl_engine *engine, struct run *run, const struct sl_note *note)
{
    if (note->a < run->launched || note->a > run->config.windows)
        return;
    run->frozen = 0;
    run->tell_launched = 0;
    run->answer_by_ns = UINT64_MAX;
    sl_run_truncate(run, (uint32_t)note->a);
    if (note->b == SL_REQUEST_PAUSE) {
        run->paused = 1;
        return;
    }
    _Bool whole = !run->config.shadow && note->a == run->config.windows;
    if (note->b == SL_REQUEST_CANCEL && whole) {
        /* Everything was launched: COMPLETED wins, also over a failure of ours that the arbiter heard too late. */
        run->failing = run->tell_fail = 0;
        return;
    }
    run->halt = (enum sl_request)note->b;
    run->halt_at = (uint32_t)note->a;
    take_error(engine, run, note, &run->error);
}

static void on_resume(struct run *run)
{
    run->frozen = 0;
    run->tell_launched = 0;
    run->paused = 0;
}

static void on_success(struct sl_engine *engine, struct run *run, enum sl_phase phase)
{
    uint8_t bit = (uint8_t)(1u << phase);
    if (phase == SL_PHASE_STAGED && run->state == RUN_STAGED_VOTE) {
        sl_run_enter(run, RUN_GATES);
        run->seen |= bit;
        run->staged_ns = engine->now;
        run->emit_staged = 1;
    } else if (phase == SL_PHASE_DECIDE && run->state == RUN_DECIDE_VOTE) {
        run->decided = 1;
        run->seen |= bit;
        run->decided_ns = engine->now;
        sl_run_enter(run, RUN_REST);
        if (sl_run_independent(run))
            run->failing = run->tell_fail = 0; /* the arbiter decided first, and nothing is left to stop */
        if (!run->failing)
            run->answer_by_ns = UINT64_MAX;
    } else if (phase == SL_PHASE_FINAL && run->state == RUN_FINAL_VOTE) {
        run->seen |= bit;
        sl_run_end(engine, run, run->config.shadow ? SLUICE_EVENT_COMMITTED : SLUICE_EVENT_COMPLETED, NULL);
    }
}

static void on_outcome(struct sl_engine *engine, struct run *run, const struct sl_note *note)
{
    if (run->state == RUN_ENDED) {
        if (note->a == SL_PHASE_RELEASED && run->told_released && !run->tell_released)
            run->all_released = 1;
        return;
    }
    if (note->status == SLUICE_OK) {
        on_success(engine, run, (enum sl_phase)note->a);
        return;
    }
    struct sluice_error cause;
    take_error(engine, run, note, &cause);
    /* An arbiter that took over hears of a cancel from a rank that is through; what is in flight here may wait for the lost one. */
    if (note->status == SLUICE_CANCELLED && run->nodes == 0)
        sl_run_end(engine, run, SLUICE_EVENT_CANCELLED, &cause);
    else
        sl_fail_told(engine, run, &cause);
}

void sl_engine_orphaned(struct sl_engine *engine, struct run *run)
{
    struct sluice_error cause = engine->over;
    _Bool voted = run->state == RUN_FINAL_VOTE || (run->state == RUN_DECIDE_VOTE && run->tell_vote == 0);
    if (voted) {
        sl_error_set(&cause, SLUICE_UNDECIDED, "run", "%.300s; it had not said the outcome", engine->over.text);
        run->cause = engine->over;
        run->tell_failed = 1; /* to an arbiter that is there all the same */
        sl_fail_told(engine, run, &cause);
    } else if (!sl_run_independent(run)) {
        sl_fail_hard(engine, run, &cause);
    }
}

/* Another rank takes the arbiter's place: tells it how far every run is, and waits for its word. */
static void stand(struct sl_engine *engine)
{
    engine->tell_standings = 1;
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        run->tell_standing = run->state != RUN_FREE;
        if (sl_run_live(run))
            run->answer_by_ns = sl_later(engine->now, run->config.stall_timeout_ns);
    }
}

void sl_engine_alone(struct sl_engine *engine, const struct sluice_error *cause)
{
    SL_ASSERT(cause);
    if (!engine->over.status)
        engine->over = *cause;
    engine->orphan = 1;
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        if (sl_run_live(run))
            sl_engine_orphaned(engine, run);
        sl_run_advance(engine, run);
    }
}

static void on_lost(struct sl_engine *engine, const struct sl_note *note)
{
    struct sluice_error cause;
    if (note->rank != engine->arbiter)
        return;
    sl_error_set(&cause, SLUICE_PEER_LOST, "run", "%.*s", SL_NOTE_TEXT_MAX - 1, note->text);
    if (note->a == 0) {
        sl_engine_alone(engine, &cause);
        return;
    }
    if (!engine->over.status)
        engine->over = cause;
    engine->arbiter = (uint32_t)note->a - 1;
    stand(engine);
}

static void on_poison(struct sl_engine *engine, const struct sl_note *note)
{
    struct sluice_error cause;
    engine->told_broken = 1;
    sl_error_set(&cause, SLUICE_POISONED, "transport", "%.*s", SL_NOTE_TEXT_MAX - 1, note->text);
    sl_engine_poison(engine, &cause);
}

static struct run *find(struct sl_engine *engine, uint64_t key)
{
    for (uint32_t i = 0; i < engine->used; i++)
        if (engine->runs[i].state != RUN_FREE && engine->runs[i].config.key == key)
            return &engine->runs[i];
    return NULL;
}

void sl_engine_note(struct sl_engine *engine, const struct sl_note *note)
{
    SL_ASSERT(note);
    if (note->kind == SL_NOTE_LOST) {
        on_lost(engine, note);
        return;
    }
    if (note->kind == SL_NOTE_POISON) {
        on_poison(engine, note);
        return;
    }
    struct run *run = find(engine, note->key);
    if (!run)
        return;
    sl_run_account(run, engine->now);
    if (note->kind == SL_NOTE_OUTCOME)
        on_outcome(engine, run, note);
    else if (run->state == RUN_ENDED)
        return;
    else if (note->kind == SL_NOTE_GRANT)
        on_grant(run, note);
    else if (note->kind == SL_NOTE_FREEZE)
        on_freeze(run, note);
    else if (note->kind == SL_NOTE_STOP_AT)
        on_stop(engine, run, note);
    else if (note->kind == SL_NOTE_RESUME)
        on_resume(run);
    sl_run_advance(engine, run);
}

_Bool sl_run_self_grants(const struct run *run)
{
    return run->config.world_of_one && sl_run_live(run) && !run->paused && !run->halt &&
           run->granted < sl_run_ready(run);
}

void sl_run_self_grant(struct sl_engine *engine, struct run *run)
{
    uint32_t ready = sl_run_ready(run);
    while (sl_run_self_grants(run) && sl_pace_next(&run->pace) <= engine->now) {
        uint32_t limit = run->pace.rate == 0 ? ready : run->granted + 1;
        sl_pace_take(&run->pace, engine->now);
        sl_run_grant(run, limit, ++engine->self_grants);
    }
}

static void answer_request(const struct run *run, const struct sl_note *note, struct sl_note *ret)
{
    if (note->a == SL_REQUEST_RESUME) {
        ret->kind = SL_NOTE_RESUME;
        return;
    }
    if (note->a == SL_REQUEST_PAUSE && run->decided)
        return;
    ret->kind = SL_NOTE_STOP_AT;
    ret->a = run->launched;
    ret->b = note->a;
    ret->status = note->a == SL_REQUEST_CANCEL ? (int32_t)SLUICE_CANCELLED : note->status;
    snprintf(ret->text, sizeof ret->text, "%s", note->a == SL_REQUEST_CANCEL ? "cancelled" : note->text);
}

void sl_engine_answer(struct sl_engine *engine, struct run *run, const struct sl_note *note)
{
    struct sl_note answer = {.key = note->key, .rank = engine->rank};
    engine->dirty = 1;
    if (note->kind == SL_NOTE_VOTE && (note->status == SLUICE_OK || note->a == SL_PHASE_RELEASED)) {
        answer.kind = SL_NOTE_OUTCOME;
        answer.a = note->a;
    } else if (note->kind == SL_NOTE_REQUEST && note->a == SL_REQUEST_PACE) {
        sl_pace_set(&run->pace, note->b, engine->now);
    } else if (note->kind == SL_NOTE_REQUEST) {
        answer_request(run, note, &answer);
    }
    if (answer.kind)
        sl_engine_note(engine, &answer);
}
