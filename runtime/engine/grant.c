/*
 * grant.c: the order of launches, and completions.
 *
 * - Launches follow the grant stream: all windows of a grant before any of the next, over all runs. So
 *   every rank's communicator sees the groups in one order. A run that cannot launch its turn now (slots
 *   taken, frozen) holds back those behind it.
 * - A stop cuts grants off alike on all ranks: windows past it are launched by nobody.
 * - Window k needs window k - slots done, so that slot memory rotates; over all runs at most `slots`
 *   windows are in flight, since runs share the queues.
 * - No window launches before its gates are open here, whatever was granted.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/engine/run.h"

static struct grant *front(struct run *run)
{
    return &run->grants[run->grant_first];
}

void sl_run_grant(struct run *run, uint32_t limit, uint64_t number)
{
    SL_ASSERT(limit > run->granted && limit <= run->config.windows && run->grant_count < run->config.windows);
    uint32_t index = (run->grant_first + run->grant_count++) % run->config.windows;
    run->grants[index] = (struct grant){.number = number, .limit = limit};
    run->granted = limit;
}

void sl_run_truncate(struct run *run, uint32_t limit)
{
    if (limit >= run->granted)
        return;
    SL_ASSERT(limit >= run->launched);
    uint32_t kept = 0;
    uint32_t begin = run->launched;
    while (kept < run->grant_count && begin < limit) {
        struct grant *grant = &run->grants[(run->grant_first + kept) % run->config.windows];
        if (grant->limit > limit)
            grant->limit = limit;
        begin = grant->limit;
        kept++;
    }
    run->grant_count = kept;
    run->granted = limit;
}

/* The run whose grant is the oldest that is not launched. */
static struct run *turn(struct sl_engine *engine)
{
    struct run *first = NULL;
    for (uint32_t i = 0; i < engine->used; i++) {
        struct run *run = &engine->runs[i];
        if (run->grant_count > 0 && (!first || front(run)->number < front(first)->number))
            first = run;
    }
    return first;
}

static _Bool may_launch(const struct sl_engine *engine, const struct run *run)
{
    if (run->frozen || run->launched >= sl_run_ready(run) || engine->desertion.status)
        return 0;
    return run->launched - run->done < run->config.slots && engine->running < run->config.slots;
}

static uint32_t count_nodes(uint8_t flags)
{
    uint32_t count = 0;
    for (; flags; flags &= (uint8_t)(flags - 1))
        count++;
    return count;
}

static void pass_done(struct run *run)
{
    while (run->done < run->launched && run->pending[run->done % run->config.slots] == 0)
        run->done++;
}

/* Takes the next window of the run; false when this rank has nothing to do in it. */
static _Bool take_window(struct sl_engine *engine, struct run *run)
{
    uint8_t flags = run->config.window_flags[run->launched];
    sl_run_account(run, engine->now);
    if (run->launched == 0)
        run->start_ns = engine->now;
    if (!run->started)
        run->started = run->emit_started = 1;
    run->alive_ns = engine->now;
    SL_ASSERT(run->pending[run->launched % run->config.slots] == 0);
    run->pending[run->launched % run->config.slots] = flags;
    run->launched++;
    if (run->launched == front(run)->limit) {
        run->grant_first = (run->grant_first + 1) % run->config.windows;
        run->grant_count--;
    }
    if (flags == 0) {
        pass_done(run);
        sl_run_advance(engine, run);
        engine->dirty = 1;
        return 0;
    }
    run->running++;
    engine->running++;
    run->nodes += count_nodes(flags);
    engine->nodes += count_nodes(flags);
    run->groups += (flags & SL_WINDOW_GROUP) != 0;
    engine->groups += (flags & SL_WINDOW_GROUP) != 0;
    return 1;
}

_Bool sl_engine_launch(struct sl_engine *engine, struct sl_action *ret)
{
    for (;;) {
        struct run *run = turn(engine);
        if (!run || engine->abort != ABORT_NONE || engine->over.status == SLUICE_POISONED || !may_launch(engine, run))
            return 0;
        uint32_t window = run->launched;
        if (!take_window(engine, run))
            continue;
        *ret = (struct sl_action){
            .kind = SL_ACTION_LAUNCH, .run = sl_run_index(engine, run), .window = window, .owner = run->config.owner};
        return 1;
    }
}

void sl_run_commit(struct sl_engine *engine, struct run *run)
{
    run->committing = run->commit_begun = 1;
    run->nodes++;
    engine->nodes++;
    run->alive_ns = engine->now;
}

static void add_time(struct run *run, const struct sl_engine_event *event)
{
    uint64_t span = event->end_ns > event->begin_ns ? event->end_ns - event->begin_ns : 0;
    switch ((enum sl_node)event->node) {
    case SL_NODE_PACK:
        run->stages.pack_ns += span;
        break;
    case SL_NODE_GROUP:
        run->stages.group_ns += span;
        break;
    case SL_NODE_UNPACK:
        run->stages.unpack_ns += span;
        break;
    case SL_NODE_LOCAL:
        run->stages.local_ns += span;
        break;
    case SL_NODE_COMMIT:
        run->stages.commit_ns += span;
        break;
    case SL_NODE_VERIFY:
        break;
    }
}

/* Takes the node off what is in flight; false when nobody waits for it. */
static _Bool take_node(struct sl_engine *engine, struct run *run, uint32_t window, uint32_t node)
{
    if (node == SL_NODE_COMMIT) {
        if (!run->committing)
            return 0;
        run->committing = 0;
    } else {
        if (node < SL_NODE_PACK || node > SL_NODE_VERIFY || window < run->done || window >= run->launched)
            return 0;
        uint8_t *pending = &run->pending[window % run->config.slots];
        uint8_t bit = (uint8_t)(1u << (node - SL_NODE_PACK));
        if (!(*pending & bit))
            return 0;
        *pending &= (uint8_t)~bit;
        if (*pending == 0) {
            run->running--;
            engine->running--;
        }
        run->groups -= node == SL_NODE_GROUP;
        engine->groups -= node == SL_NODE_GROUP;
    }
    SL_ASSERT(run->nodes > 0 && engine->nodes > 0);
    run->nodes--;
    engine->nodes--;
    return 1;
}

/*
 * A failure that follows from another one: a peer left the group, or an earlier group failed whose completion has
 * not come yet, or this is what came behind such a group. And there is somebody who knows the reason.
 */
static _Bool is_deserted(const struct sl_engine *engine, const struct run *run, const struct sl_engine_event *event)
{
    if (!sl_run_live(run) || run->config.world_of_one || engine->orphan || engine->abort != ABORT_NONE)
        return 0;
    const sluice_status status = event->error->status;
    if (event->node != SL_NODE_GROUP)
        return run->deserted;
    return status == SLUICE_PEER_FAILED || status == SLUICE_ABORTED;
}

static void node_failed(struct sl_engine *engine, struct run *run, const struct sl_engine_event *event)
{
    static const char *const names[] = {"", "pack", "group", "unpack", "local copy", "commit", "verification"};
    struct sluice_error cause;
    if (event->node == SL_NODE_COMMIT)
        sl_error_set(&cause, event->error->status, "run", "rank %u: the commit copy failed: %s", engine->rank,
                     event->error->text);
    else
        sl_error_set(&cause, event->error->status, "run", "rank %u: window %u of %u: %s failed: %s", engine->rank,
                     event->index, run->config.windows, names[event->node], event->error->text);
    cause.domain = event->error->domain;
    cause.native = event->error->native;
    if (is_deserted(engine, run, event)) {
        sl_run_desert(engine, run, &cause);
        return;
    }
    sl_fail_hard(engine, run, &cause);
    if (event->node == SL_NODE_GROUP)
        sl_engine_break(engine, &cause);
}

void sl_run_done(struct sl_engine *engine, struct run *run, const struct sl_engine_event *event)
{
    if (!take_node(engine, run, event->index, event->node)) {
        engine->stray++;
        return;
    }
    run->alive_ns = engine->now;
    add_time(run, event);
    if (event->error)
        node_failed(engine, run, event);
    else if (run->state == RUN_COMMIT)
        sl_run_committed(engine, run);
    else if (sl_run_live(run) && !run->deserted) /* the failed window never is done */
        pass_done(run);
    sl_run_advance(engine, run);
    if (engine->over.status == SLUICE_POISONED)
        sl_engine_poison(engine, &engine->over);
}
