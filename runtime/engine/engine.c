/*
 * engine.c: the table of runs, and events on their way in.
 *
 * - An event changes state and flags only; sl_engine_next (action.c) turns them into actions afterwards.
 *   So nothing calls back, and what changed twice between two drains is told once.
 * - A run's memory is taken in add_run and given back with RELEASE; nothing between allocates.
 * - An event about a run that is over is ignored: notes and completions may come late.
 */
#include "runtime/engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "runtime/engine/run.h"

struct sl_engine *sl_engine_create(const struct sl_engine_config *config)
{
    SL_ASSERT(config->world > 0 && config->rank < config->world && config->runs_max > 0);
    struct sl_engine *engine = sl_new(config->mem, sizeof *engine, "engine");
    if (!engine)
        return NULL;
    engine->mem = config->mem;
    engine->rank = config->rank;
    engine->world = config->world;
    engine->runs_max = config->runs_max;
    engine->runs = sl_new_array(config->mem, config->runs_max, sizeof *engine->runs, "engine's runs");
    if (!engine->runs) {
        sl_free(config->mem, engine);
        return NULL;
    }
    return engine;
}

static void run_drop(struct sl_engine *engine, struct run *run)
{
    sl_free(engine->mem, run->closed);
    sl_free(engine->mem, run->grants);
    sl_free(engine->mem, run->pending);
    memset(run, 0, sizeof *run);
}

void sl_engine_destroy(struct sl_engine *engine)
{
    if (!engine)
        return;
    for (uint32_t i = 0; i < engine->used; i++)
        run_drop(engine, &engine->runs[i]);
    sl_free(engine->mem, engine->runs);
    sl_free(engine->mem, engine);
}

void sl_run_release(struct sl_engine *engine, struct run *run)
{
    SL_ASSERT(run->state == RUN_ENDED && run->nodes == 0);
    run_drop(engine, run);
}

static void count_gates(struct run *run)
{
    const struct sl_run_config *config = &run->config;
    for (uint32_t i = 0; i < config->gate_count; i++) {
        const struct sl_run_gate *gate = &config->gates[i];
        if (gate->open)
            continue;
        if (config->shadow && gate->consumer) {
            run->consumer_closed++;
        } else if (gate->first_window < config->windows) {
            run->closed[gate->first_window]++;
            run->gates_closed++;
            run->turns_closed += gate->turn;
            run->words_closed += gate->word;
        }
    }
    while (run->ready < config->windows && run->closed[run->ready] == 0)
        run->ready++;
}

static sluice_status run_init(struct sl_engine *engine, struct run *run, const struct sl_run_config *config)
{
    memset(run, 0, sizeof *run);
    run->closed = sl_new_array(engine->mem, config->windows, sizeof *run->closed, "gates of a run");
    run->grants = sl_new_array(engine->mem, config->windows, sizeof *run->grants, "grants of a run");
    run->pending = sl_new_array(engine->mem, config->slots, sizeof *run->pending, "windows of a run");
    if (!run->closed || !run->grants || !run->pending) {
        run_drop(engine, run);
        return SLUICE_NOMEM;
    }
    run->config = *config;
    run->config.shadow = config->shadow || config->staged > 0 || config->commit;
    run->pace = (struct sl_pace){.rate = config->pace, .unit = config->window_bytes};
    run->submit_ns = run->turn_ns = run->alive_ns = run->mark_ns = engine->now;
    run->answer_by_ns = UINT64_MAX;
    run->tell_join = 1;
    count_gates(run);
    sl_run_enter(run, RUN_WINDOWS);
    return SLUICE_OK;
}

static struct run *find_key(const struct sl_engine *engine, uint64_t key)
{
    for (uint32_t i = 0; i < engine->used; i++)
        if (engine->runs[i].state != RUN_FREE && engine->runs[i].config.key == key)
            return &engine->runs[i];
    return NULL;
}

static struct run *find_free(struct sl_engine *engine)
{
    for (uint32_t i = 0; i < engine->runs_max; i++)
        if (engine->runs[i].state == RUN_FREE)
            return &engine->runs[i];
    return NULL;
}

static void see_time(struct sl_engine *engine, uint64_t now)
{
    if (now > engine->now)
        engine->now = now;
}

sluice_status sl_engine_add_run(struct sl_engine *engine, const struct sl_run_config *config, uint64_t now,
                                uint32_t *ret_run)
{
    SL_ASSERT(config->slots > 0 && config->staged <= config->windows && config->windows <= SLUICE_WINDOWS_MAX);
    SL_ASSERT(!find_key(engine, config->key));
    see_time(engine, now);
    if (engine->over.status)
        return sl_fail(engine->over.status, "run", "%s", engine->over.text);
    struct run *run = find_free(engine);
    if (!run)
        return sl_fail(SLUICE_AGAIN, "run", "%u transfers are in progress: submit again when one has ended",
                       engine->runs_max);
    sluice_status status = run_init(engine, run, config);
    if (status)
        return status;
    uint32_t index = sl_run_index(engine, run);
    if (index >= engine->used)
        engine->used = index + 1;
    sl_run_advance(engine, run);
    *ret_run = index;
    return SLUICE_OK;
}

static void on_gate(struct sl_engine *engine, struct run *run, const struct sl_engine_event *event)
{
    SL_ASSERT(event->index < run->config.gate_count);
    sl_run_account(run, engine->now);
    if (!event->error) {
        sl_run_gate_opened(run, event->index, engine->now);
        sl_run_advance(engine, run);
        return;
    }
    const struct sl_run_gate *gate = &run->config.gates[event->index];
    struct sluice_error cause;
    sl_error_set(&cause, event->error->status, "gate", "rank %u: gate %u%s%s (window %u) failed: %s", engine->rank,
                 event->index, gate->name ? " of " : "", gate->name ? gate->name : "", gate->first_window,
                 event->error->text);
    cause.domain = event->error->domain;
    cause.native = event->error->native;
    sl_fail_soft(engine, run, &cause);
}

static void on_request(struct sl_engine *engine, struct run *run, const struct sl_engine_event *event)
{
    if (!sl_run_live(run))
        return;
    switch ((enum sl_request)event->index) {
    case SL_REQUEST_PAUSE:
    case SL_REQUEST_RESUME:
        run->tell_pause = 1;
        run->want_pause = event->index == SL_REQUEST_PAUSE;
        break;
    case SL_REQUEST_CANCEL:
        if (run->decided)
            break;
        run->tell_cancel = 1;
        run->answer_by_ns = sl_later(engine->now, run->config.stall_timeout_ns);
        break;
    case SL_REQUEST_FAIL:
        SL_ASSERT(event->error);
        sl_fail_soft(engine, run, event->error);
        break;
    case SL_REQUEST_PACE:
        run->tell_pace = 1;
        run->want_pace = event->value;
        break;
    }
}

static void on_broken(struct sl_engine *engine, const struct sluice_error *error)
{
    SL_ASSERT(error);
    struct sluice_error cause;
    sl_error_set(&cause, SLUICE_POISONED, "transport", "rank %u: %s: recreate the runtime", engine->rank, error->text);
    cause.domain = error->domain;
    cause.native = error->native;
    sl_engine_break(engine, &cause);
}

void sl_engine_event(struct sl_engine *engine, const struct sl_engine_event *event, uint64_t now)
{
    see_time(engine, now);
    struct run *run = NULL;
    if (event->run < engine->used && engine->runs[event->run].state != RUN_FREE)
        run = &engine->runs[event->run];
    switch (event->kind) {
    case SL_EVENT_GATE:
        if (run)
            on_gate(engine, run, event);
        break;
    case SL_EVENT_NOTE:
        sl_engine_note(engine, event->note);
        break;
    case SL_EVENT_DONE:
        if (run && engine->abort != ABORT_SENT)
            sl_run_done(engine, run, event);
        else
            engine->stray++;
        break;
    case SL_EVENT_REQUEST:
        if (run)
            on_request(engine, run, event);
        break;
    case SL_EVENT_TIME:
        sl_engine_deadlines(engine);
        break;
    case SL_EVENT_ABORTED:
        sl_engine_aborted(engine, event->error);
        break;
    case SL_EVENT_BROKEN:
        on_broken(engine, event->error);
        break;
    case SL_EVENT_ALONE:
        sl_engine_alone(engine, event->error);
        engine->tell_standings |= event->value != 0;
        break;
    }
    sl_engine_desert(engine);
}

uint32_t sl_engine_in_flight(const struct sl_engine *engine)
{
    return engine->nodes;
}

uint64_t sl_engine_tail(const struct sl_engine *engine)
{
    uint64_t since = UINT64_MAX;
    for (uint32_t i = 0; i < engine->used; i++) {
        const struct run *run = &engine->runs[i];
        _Bool tail = sl_run_live(run) && run->nodes > 0 && (run->committing || run->launched == sl_run_goal(run));
        if (tail && (since == UINT64_MAX || run->alive_ns > since))
            since = run->alive_ns;
    }
    return since;
}

uint64_t sl_engine_stray(const struct sl_engine *engine)
{
    return engine->stray;
}
