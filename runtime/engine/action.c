/*
 * action.c: what the engine wants done, one thing at a time, found by looking at the runs.
 *
 * Order: notes before events before releases of a run; an abort after the notes that explain it; launches
 * last. A run that is its own arbiter answers its notes at once and the search starts again.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/engine/run.h"

static void note_init(const struct sl_engine *engine, const struct run *run, enum sl_note_kind kind,
                      struct sl_note *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->kind = kind;
    ret->rank = engine->rank;
    ret->key = run ? run->config.key : SL_KEY_NONE;
}

static void note_error(struct sl_note *note, const struct sluice_error *error)
{
    note->status = error->status;
    snprintf(note->text, sizeof note->text, "%.*s", SL_NOTE_TEXT_MAX - 1, error->text);
}

static void join(const struct run *run, struct sl_note *note)
{
    const struct sl_run_config *config = &run->config;
    note->a = config->windows;
    note->b = config->options_digest;
    note->c = config->priority;
    note->d = config->pace;
    note->e = config->window_bytes;
    note->f = config->shadow ? (uint64_t)config->staged + 1 : 0;
}

static void standing(const struct run *run, struct sl_note *note)
{
    join(run, note);
    note->c = run->voted;
    note->d = run->seen;
    if (run->state == RUN_ENDED && run->error.status)
        note_error(note, &run->error);
}

static _Bool ready_due(const struct sl_engine *engine, const struct run *run)
{
    if (!sl_run_live(run) || sl_run_ready(run) <= run->told_ready || run->config.world_of_one)
        return 0;
    return run->told_ready_ns == 0 || engine->now >= run->told_ready_ns + READY_HOLD_NS;
}

static _Bool tell_vote(const struct sl_engine *engine, struct run *run, struct sl_note *note)
{
    if (run->tell_failed) {
        run->tell_failed = 0;
        note_init(engine, run, SL_NOTE_VOTE, note);
        note->a = SL_PHASE_FINAL;
        note_error(note, &run->cause);
        return 1;
    }
    if (run->tell_vote) {
        note_init(engine, run, SL_NOTE_VOTE, note);
        note->a = run->tell_vote;
        run->voted |= (uint8_t)(1u << run->tell_vote);
        run->tell_vote = 0;
        return 1;
    }
    return 0;
}

static _Bool tell_request(const struct sl_engine *engine, struct run *run, struct sl_note *note)
{
    note_init(engine, run, SL_NOTE_REQUEST, note);
    if (run->tell_fail) {
        run->tell_fail = 0;
        note->a = SL_REQUEST_FAIL;
        note_error(note, &run->error);
    } else if (run->tell_cancel) {
        run->tell_cancel = 0;
        note->a = SL_REQUEST_CANCEL;
    } else if (run->tell_pause) {
        run->tell_pause = 0;
        note->a = run->want_pause ? SL_REQUEST_PAUSE : SL_REQUEST_RESUME;
    } else if (run->tell_pace) {
        run->tell_pace = 0;
        note->a = SL_REQUEST_PACE;
        note->b = run->want_pace;
    } else {
        return 0;
    }
    return 1;
}

/* The next note of the run; JOIN is its first, RELEASED its last. */
static _Bool tell(struct sl_engine *engine, struct run *run, struct sl_note *note)
{
    if (run->tell_join) {
        run->tell_join = 0;
        note_init(engine, run, SL_NOTE_JOIN, note);
        join(run, note);
        return 1;
    }
    if (run->tell_standing) {
        run->tell_standing = 0;
        note_init(engine, run, SL_NOTE_STANDING, note);
        standing(run, note);
        return 1;
    }
    if (run->tell_launched) {
        run->tell_launched = 0;
        note_init(engine, run, SL_NOTE_LAUNCHED, note);
        note->a = run->launched;
        note->b = run->freeze;
        return 1;
    }
    if (ready_due(engine, run)) {
        run->told_ready = sl_run_ready(run);
        run->told_ready_ns = engine->now;
        note_init(engine, run, SL_NOTE_READY, note);
        note->a = run->told_ready;
        return 1;
    }
    if (tell_vote(engine, run, note) || tell_request(engine, run, note))
        return 1;
    if (!run->tell_released || run->emit_end)
        return 0;
    run->tell_released = 0;
    note_init(engine, run, SL_NOTE_VOTE, note);
    note->a = SL_PHASE_RELEASED;
    run->voted |= 1u << SL_PHASE_RELEASED;
    return 1;
}

/* What a run that did not end well has left of its version in the destinations. */
static void say_damage(const struct run *run, struct sl_action *ret)
{
    const struct sl_run_config *config = &run->config;
    if (!config->shadow) {
        ret->whole = run->done;
        ret->clean = run->launched;
    } else if (run->committed_ns != 0) {
        ret->whole = ret->clean = config->windows;
    } else if (run->commit_begun || run->launched > config->staged) {
        ret->clean = config->windows;
    }
}

static void emit(struct run *run, enum sluice_event_kind event, struct sl_action *ret)
{
    ret->kind = SL_ACTION_EMIT;
    ret->event = event;
    ret->window = 0;
    if (event == SLUICE_EVENT_FAILED || event == SLUICE_EVENT_CANCELLED)
        ret->error = run->error;
    if (event == SLUICE_EVENT_FAILED || event == SLUICE_EVENT_CANCELLED)
        say_damage(run, ret);
    ret->holds_version = event == SLUICE_EVENT_FAILED && run->committed_ns != 0;
}

/* The next event of the run for the application, in the order of the contract. */
static _Bool emit_next(struct run *run, struct sl_action *ret)
{
    if (run->emit_started) {
        run->emit_started = 0;
        emit(run, SLUICE_EVENT_STARTED, ret);
        return 1;
    }
    if (run->windows_told < run->done && run->end != SLUICE_EVENT_FAILED && run->end != SLUICE_EVENT_CANCELLED) {
        emit(run, SLUICE_EVENT_WINDOW, ret);
        ret->window = run->windows_told++;
        return 1;
    }
    if (run->emit_staged) {
        run->emit_staged = 0;
        emit(run, SLUICE_EVENT_STAGED, ret);
        return 1;
    }
    if (run->emit_end) {
        run->emit_end = 0;
        emit(run, run->end, ret);
        return 1;
    }
    if (run->emit_released && !run->tell_released) {
        run->emit_released = 0;
        emit(run, SLUICE_EVENT_RELEASED, ret);
        return 1;
    }
    return 0;
}

static _Bool run_next(struct sl_engine *engine, struct run *run, struct sl_action *ret)
{
    *ret = (struct sl_action){.run = sl_run_index(engine, run), .owner = run->config.owner};
    while (tell(engine, run, &ret->note)) {
        if (!run->config.world_of_one) {
            ret->kind = SL_ACTION_TELL;
            return 1;
        }
        sl_engine_answer(engine, run, &ret->note);
    }
    if (!run->config.window_events)
        run->windows_told = run->done;
    if (emit_next(run, ret))
        return 1;
    if (run->want_commit) {
        run->want_commit = 0;
        sl_run_commit(engine, run);
        ret->kind = SL_ACTION_COMMIT;
        return 1;
    }
    if (run->state == RUN_ENDED && run->released && !run->tell_released) {
        sl_run_release(engine, run);
        ret->kind = SL_ACTION_RELEASE;
        return 1;
    }
    return 0;
}

static _Bool engine_next(struct sl_engine *engine, struct sl_action *ret)
{
    if (engine->tell_broken) {
        engine->tell_broken = 0;
        *ret = (struct sl_action){.kind = SL_ACTION_TELL};
        note_init(engine, NULL, SL_NOTE_BROKEN, &ret->note);
        note_error(&ret->note, &engine->over);
        if (engine->world > 1)
            return 1;
    }
    if (engine->tell_standings) {
        engine->tell_standings = 0;
        *ret = (struct sl_action){.kind = SL_ACTION_TELL};
        note_init(engine, NULL, SL_NOTE_STANDING, &ret->note);
        return 1;
    }
    if (engine->abort == ABORT_WANTED) {
        engine->abort = ABORT_SENT;
        *ret = (struct sl_action){.kind = SL_ACTION_ABORT, .error = engine->abort_cause};
        return 1;
    }
    if (engine->emit_poison) {
        engine->emit_poison = 0;
        *ret = (struct sl_action){.kind = SL_ACTION_POISON, .error = engine->over};
        return 1;
    }
    return 0;
}

_Bool sl_engine_next(struct sl_engine *engine, struct sl_action *ret)
{
    do {
        engine->dirty = 0;
        for (uint32_t i = 0; i < engine->used; i++) {
            struct run *run = &engine->runs[i];
            if (run->state == RUN_FREE)
                continue;
            if (run_next(engine, run, ret))
                return 1;
            sl_run_self_grant(engine, run);
        }
        if (engine_next(engine, ret) || sl_engine_launch(engine, ret))
            return 1;
    } while (engine->dirty);
    return 0;
}
