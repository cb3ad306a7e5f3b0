/*
 * deadline.c: what must happen by when.
 *
 * - Gate deadline: from submit, or the end of an earlier run that this one had to wait for, for gates that
 *   hold windows; from STAGED for gates that hold the decision. Only for the application's gates.
 * - Whole transfer: from submit, until the decision: after it, finishing does less harm than stopping.
 *   Both leave the communicator whole.
 * - Stall: nothing completed for that long though something is launched; waiting at gates or for grants
 *   is none. It also bounds how long the arbiter may leave a cancel or a failure unanswered.
 * - Reason: from a peer's leaving a group until the arbiter's word for it.
 * A deadline that has fired changes the state so that it is not due again.
 */
#include <stdio.h>

#include "runtime/engine/run.h"

static uint64_t gate_deadline(const struct run *run)
{
    if (!sl_run_live(run) || run->failing || run->halt)
        return UINT64_MAX;
    if (run->turns_closed > 0)
        return UINT64_MAX;
    if (run->gates_closed > run->words_closed)
        return sl_later(run->turn_ns, run->config.gate_timeout_ns);
    if (run->state == RUN_GATES && run->consumer_closed > 0)
        return sl_later(run->staged_ns, run->config.gate_timeout_ns);
    return UINT64_MAX;
}

static uint64_t whole_deadline(const struct run *run)
{
    if (!sl_run_live(run) || run->failing || run->halt || run->decided)
        return UINT64_MAX;
    return sl_later(run->submit_ns, run->config.timeout_ns);
}

static uint64_t stall_deadline(const struct sl_engine *engine, const struct run *run)
{
    if (run->nodes == 0 || engine->abort != ABORT_NONE)
        return UINT64_MAX;
    return sl_later(run->alive_ns, run->config.stall_timeout_ns);
}

static uint64_t reason_deadline(const struct sl_engine *engine, const struct run *run)
{
    return run->deserted && sl_run_live(run) ? engine->desertion_by_ns : UINT64_MAX;
}

/* A commit that needs nobody may take its time, whoever was asked for what before. */
static uint64_t answer_deadline(const struct run *run)
{
    return sl_run_independent(run) && run->state != RUN_FINAL_VOTE ? UINT64_MAX : run->answer_by_ns;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void say(const struct sl_engine *engine, const struct run *run, struct sluice_error *ret, sluice_status status,
                const char *what, uint64_t since, uint64_t limit)
{
    char words[SL_NOTE_TEXT_MAX];
    if (status == SLUICE_GATE_TIMEOUT)
        sl_run_gate_words(run, words, sizeof words);
    else
        sl_run_words(run, words, sizeof words);
    sl_error_set(ret, status, "run", "rank %u, plan %u run %u: %s after %.3f s (limit %.3f s): %s", engine->rank,
                 (unsigned)(run->config.key >> 32), (unsigned)run->config.key, what, seconds(engine->now - since),
                 seconds(limit), words);
}

static void check_soft(struct sl_engine *engine, struct run *run)
{
    struct sluice_error cause;
    if (engine->now >= gate_deadline(run)) {
        uint64_t since = run->gates_closed > run->words_closed ? run->turn_ns : run->staged_ns;
        say(engine, run, &cause, SLUICE_GATE_TIMEOUT, "closed gate", since, run->config.gate_timeout_ns);
        sl_fail_soft(engine, run, &cause);
    } else if (engine->now >= whole_deadline(run)) {
        say(engine, run, &cause, SLUICE_TIMEOUT, "not finished", run->submit_ns, run->config.timeout_ns);
        sl_fail_soft(engine, run, &cause);
    }
}

static void check_hard(struct sl_engine *engine, struct run *run)
{
    struct sluice_error cause;
    if (engine->now >= stall_deadline(engine, run)) {
        say(engine, run, &cause, SLUICE_TIMEOUT, "no progress", run->alive_ns, run->config.stall_timeout_ns);
        sl_run_stalled(engine, run, &cause);
    } else if (engine->now >= answer_deadline(run)) {
        uint64_t asked = run->answer_by_ns - run->config.stall_timeout_ns;
        say(engine, run, &cause, run->failing ? run->error.status : SLUICE_TIMEOUT, "the arbiter did not answer", asked,
            run->config.stall_timeout_ns);
        sl_fail_hard(engine, run, &cause);
    } else if (engine->now >= reason_deadline(engine, run)) {
        cause = engine->desertion;
        sl_fail_hard(engine, run, &cause);
    }
}

void sl_engine_deadlines(struct sl_engine *engine)
{
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        if (run->state == RUN_FREE)
            continue;
        check_soft(engine, run);
        check_hard(engine, run);
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t tell_time(const struct run *run)
{
    if (!sl_run_live(run) || run->told_ready_ns == 0 || sl_run_ready(run) <= run->told_ready)
        return UINT64_MAX;
    return run->told_ready_ns + READY_HOLD_NS;
}

static uint64_t pace_time(const struct run *run)
{
    if (!sl_run_self_grants(run))
        return UINT64_MAX;
    return sl_pace_next(&run->pace);
}

uint64_t sl_run_timer(const struct sl_engine *engine, const struct run *run)
{
    uint64_t soonest = least(gate_deadline(run), whole_deadline(run));
    soonest = least(soonest, stall_deadline(engine, run));
    soonest = least(soonest, answer_deadline(run));
    soonest = least(soonest, reason_deadline(engine, run));
    soonest = least(soonest, pace_time(run));
    return least(soonest, tell_time(run));
}

uint64_t sl_engine_timer(const struct sl_engine *engine)
{
    uint64_t soonest = UINT64_MAX;
    for (uint32_t i = 0; i < engine->used; i++)
        if (engine->runs[i].state != RUN_FREE)
            soonest = least(soonest, sl_run_timer(engine, &engine->runs[i]));
    return soonest;
}
