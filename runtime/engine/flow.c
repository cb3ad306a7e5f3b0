/*
 * flow.c: how a run moves from state to state, and how it ends.
 *
 * - sl_run_advance alone moves a run on; everything else only changes what it looks at.
 * - A vote OK is given once the thing voted for is true here, and never after a failure was asked for.
 * - A run ends once; its buffers are released when nothing of it is in flight, and after success or a
 *   cancel when all ranks are as far.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/engine/run.h"

#define BIT(state)   (1u << (state))
#define DESERTION_NS (10 * SLUICE_SECOND) /* twice what the loss of a silent rank takes to be noticed */

/* The table of run.h: from a state to these. */
static const uint32_t legal[RUN_STATES] = {
    [RUN_FREE] = BIT(RUN_WINDOWS),
    [RUN_WINDOWS] = BIT(RUN_FINAL_VOTE) | BIT(RUN_STAGED_VOTE) | BIT(RUN_ENDED),
    [RUN_STAGED_VOTE] = BIT(RUN_GATES) | BIT(RUN_ENDED),
    [RUN_GATES] = BIT(RUN_DECIDE_VOTE) | BIT(RUN_ENDED),
    [RUN_DECIDE_VOTE] = BIT(RUN_REST) | BIT(RUN_ENDED),
    [RUN_REST] = BIT(RUN_COMMIT) | BIT(RUN_FINAL_VOTE) | BIT(RUN_ENDED),
    [RUN_COMMIT] = BIT(RUN_FINAL_VOTE) | BIT(RUN_ENDED),
    [RUN_FINAL_VOTE] = BIT(RUN_ENDED),
    [RUN_ENDED] = BIT(RUN_FREE),
};

void sl_run_enter(struct run *run, enum run_state state)
{
    SL_ASSERT(legal[run->state] & BIT(state));
    run->state = state;
}

void sl_run_account(struct run *run, uint64_t now)
{
    uint64_t span = now - run->mark_ns;
    run->mark_ns = now;
    if (run->state != RUN_WINDOWS && run->state != RUN_REST)
        return;
    if (run->paused || run->launched == sl_run_goal(run))
        return;
    if (run->launched == sl_run_ready(run))
        run->stages.gate_ns += span;
    else if (run->launched == run->granted)
        run->stages.grant_ns += span;
}

void sl_run_gate_opened(struct run *run, uint32_t index, uint64_t now)
{
    struct sl_run_gate *gate = &run->config.gates[index];
    if (gate->open)
        return;
    gate->open = 1;
    if (run->config.shadow && gate->consumer) {
        SL_ASSERT(run->consumer_closed > 0);
        run->consumer_closed--;
        return;
    }
    if (gate->first_window >= run->config.windows)
        return;
    SL_ASSERT(run->closed[gate->first_window] > 0);
    run->closed[gate->first_window]--;
    run->gates_closed--;
    run->turns_closed -= gate->turn;
    run->words_closed -= gate->word;
    if (gate->turn)
        run->turn_ns = now;
    while (run->ready < run->config.windows && run->closed[run->ready] == 0)
        run->ready++;
}

static void vote(struct run *run, enum run_state state, enum sl_phase phase)
{
    SL_ASSERT(run->tell_vote == 0);
    sl_run_enter(run, state);
    run->tell_vote = phase;
}

void sl_run_committed(struct sl_engine *engine, struct run *run)
{
    run->committed_ns = engine->now;
    if (run->answer_by_ns != UINT64_MAX)
        run->answer_by_ns = sl_later(engine->now, run->config.stall_timeout_ns);
    vote(run, RUN_FINAL_VOTE, SL_PHASE_FINAL);
}

static void halted(struct sl_engine *engine, struct run *run)
{
    SL_ASSERT(run->launched <= run->halt_at);
    if (run->launched == run->halt_at && run->running == 0)
        sl_run_end(engine, run, run->halt == SL_REQUEST_CANCEL ? SLUICE_EVENT_CANCELLED : SLUICE_EVENT_FAILED,
                   &run->error);
}

/* One step; false when the run stays where it is. */
static _Bool step(struct sl_engine *engine, struct run *run)
{
    switch (run->state) {
    case RUN_WINDOWS:
        if (run->done < sl_run_goal(run) || run->failing)
            return 0;
        if (run->config.shadow)
            vote(run, RUN_STAGED_VOTE, SL_PHASE_STAGED);
        else
            vote(run, RUN_FINAL_VOTE, SL_PHASE_FINAL);
        return 1;
    case RUN_GATES:
        if (run->consumer_closed > 0 || run->failing)
            return 0;
        vote(run, RUN_DECIDE_VOTE, SL_PHASE_DECIDE);
        return 1;
    case RUN_REST:
        if (run->done < run->config.windows || run->failing)
            return 0;
        if (run->config.commit) {
            sl_run_enter(run, RUN_COMMIT);
            run->want_commit = 1;
            return 1;
        }
        sl_run_committed(engine, run);
        return 1;
    case RUN_FREE:
    case RUN_STAGED_VOTE:
    case RUN_DECIDE_VOTE:
    case RUN_COMMIT:
    case RUN_FINAL_VOTE:
    case RUN_ENDED:
    case RUN_STATES:
        return 0;
    }
    return 0;
}

static void settle(struct sl_engine *engine, struct run *run)
{
    if (run->nodes > 0 || run->released)
        return;
    if (!run->told_released)
        run->told_released = run->tell_released = 1;
    if (run->end == SLUICE_EVENT_FAILED || engine->orphan || run->all_released) {
        run->released = 1;
        run->emit_released = !run->stuck;
    }
}

void sl_run_advance(struct sl_engine *engine, struct run *run)
{
    if (sl_run_live(run) && run->halt)
        halted(engine, run);
    else
        while (step(engine, run))
            ;
    if (run->state == RUN_ENDED)
        settle(engine, run);
    else if (run->state == RUN_FINAL_VOTE && engine->orphan)
        sl_engine_orphaned(engine, run);
}

static void compose(const struct run *run, const struct sluice_error *cause, struct sluice_error *ret)
{
    char damage[160];
    sl_run_damage(run, damage, sizeof damage);
    *ret = *cause;
    size_t used = strnlen(cause->text, sizeof cause->text - 1);
    size_t room = sizeof ret->text - sizeof damage;
    if (used > room)
        used = room;
    snprintf(ret->text + used, sizeof ret->text - used, "%s", damage);
}

void sl_run_end(struct sl_engine *engine, struct run *run, enum sluice_event_kind end, const struct sluice_error *cause)
{
    struct sluice_error error = {0};
    if (cause)
        compose(run, cause, &error);
    if (end == SLUICE_EVENT_FAILED && run->decided && error.status != SLUICE_UNDECIDED)
        error.status = SLUICE_TORN;
    if (run->deserted && cause)
        engine->desertion = *cause;
    sl_run_account(run, engine->now);
    sl_run_enter(run, RUN_ENDED);
    run->error = error;
    run->end = end;
    run->emit_end = 1;
    run->end_ns = engine->now;
    run->answer_by_ns = UINT64_MAX;
    run->grant_count = 0;
    run->frozen = run->want_commit = run->tell_launched = 0;
    run->tell_pause = run->tell_cancel = run->tell_fail = run->tell_pace = 0;
    run->tell_vote = 0;
    engine->dirty = 1;
}

void sl_fail_soft(struct sl_engine *engine, struct run *run, const struct sluice_error *cause)
{
    if (!sl_run_live(run) || run->failing || run->halt == SL_REQUEST_FAIL)
        return;
    if (engine->orphan || sl_run_independent(run)) {
        sl_fail_hard(engine, run, cause);
        return;
    }
    run->failing = 1;
    run->tell_fail = 1;
    run->error = *cause;
    run->answer_by_ns = sl_later(engine->now, run->config.stall_timeout_ns);
}

static void want_abort(struct sl_engine *engine, const struct sluice_error *cause)
{
    if (engine->abort != ABORT_NONE)
        return;
    engine->abort = ABORT_WANTED;
    engine->abort_cause = *cause;
}

void sl_fail_told(struct sl_engine *engine, struct run *run, const struct sluice_error *cause)
{
    SL_ASSERT(sl_run_live(run));
    sl_run_end(engine, run, SLUICE_EVENT_FAILED, cause);
    if (run->groups > 0)
        want_abort(engine, cause);
    sl_run_advance(engine, run);
}

void sl_fail_hard(struct sl_engine *engine, struct run *run, const struct sluice_error *cause)
{
    if (!sl_run_live(run))
        return;
    struct sluice_error error = *cause;
    if (run->tell_vote == 0 && (run->state == RUN_DECIDE_VOTE || run->state == RUN_FINAL_VOTE))
        error.status = SLUICE_UNDECIDED;
    run->tell_failed = 1;
    run->cause = *cause;
    sl_fail_told(engine, run, &error);
}

void sl_run_stalled(struct sl_engine *engine, struct run *run, const struct sluice_error *cause)
{
    if (sl_run_live(run))
        sl_fail_hard(engine, run, cause);
    want_abort(engine, cause);
}

void sl_engine_poison(struct sl_engine *engine, const struct sluice_error *cause)
{
    if (!engine->over.status)
        engine->over = *cause;
    if (engine->poisoned || engine->groups > 0 || engine->abort != ABORT_NONE)
        return;
    engine->poisoned = 1;
    engine->emit_poison = 1;
    engine->over = *cause;
    engine->over.status = SLUICE_POISONED;
}

/* Has groups to run yet. A version staged whole that may be decided already waits for the outcome. */
static _Bool needs_communicator(const struct run *run)
{
    if (!sl_run_live(run) || run->state == RUN_FINAL_VOTE || sl_run_independent(run))
        return 0;
    return run->state != RUN_DECIDE_VOTE || run->config.staged < run->config.windows;
}

void sl_engine_break(struct sl_engine *engine, const struct sluice_error *cause)
{
    if (!engine->told_broken)
        engine->tell_broken = engine->told_broken = 1;
    if (engine->groups > 0)
        want_abort(engine, cause);
    sl_engine_poison(engine, cause);
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        if (needs_communicator(run))
            sl_fail_hard(engine, run, cause);
    }
}

void sl_run_desert(struct sl_engine *engine, struct run *run, const struct sluice_error *cause)
{
    run->deserted = 1;
    if (engine->desertion.status)
        return;
    engine->desertion = *cause;
    engine->desertion_by_ns = sl_later(engine->now, DESERTION_NS);
}

void sl_engine_desert(struct sl_engine *engine)
{
    if (!engine->desertion.status)
        return;
    for (uint32_t i = 0; i < engine->used; i++)
        if (engine->runs[i].deserted && sl_run_live(&engine->runs[i]))
            return;
    const struct sluice_error cause = engine->desertion;
    engine->desertion.status = SLUICE_OK;
    sl_engine_break(engine, &cause);
}

/* Whatever was in flight is not any more; false: the run had nothing in flight. */
static _Bool clear_flight(struct run *run)
{
    _Bool had = run->nodes > 0;
    run->nodes = run->groups = run->running = 0;
    run->committing = 0;
    memset(run->pending, 0, run->config.slots);
    return had;
}

void sl_engine_aborted(struct sl_engine *engine, const struct sluice_error *error)
{
    if (engine->abort != ABORT_SENT)
        return;
    engine->abort = ABORT_NONE;
    engine->running = engine->nodes = engine->groups = 0;
    struct sluice_error cause;
    if (error)
        sl_error_set(&cause, SLUICE_POISONED, "transport",
                     "rank %u: the abort failed, buffers stay in use: %s; recreate the runtime", engine->rank,
                     error->text);
    else
        sl_error_set(&cause, SLUICE_POISONED, "transport",
                     "rank %u: the communicator was aborted: recreate the runtime; because: %.300s", engine->rank,
                     engine->abort_cause.text);
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        if (run->state == RUN_FREE || !clear_flight(run))
            continue;
        run->stuck = error != NULL;
        sl_fail_hard(engine, run, &cause);
        sl_run_advance(engine, run);
    }
    sl_engine_break(engine, &cause);
}
