/*
 * world_check.c: what must hold after every step of the made-up world, and at its end.
 *
 * - Windows of a run launch in order, with their gates open, at most `slots` at once; after the staged
 *   prefix only when all ranks voted for the decision.
 * - Groups of all runs launch in one order on all ranks.
 * - One terminal event, RELEASED after it and with nothing in flight, RELEASE last.
 * - Success on one rank is success on all that live; a version that a rank began to commit is on every
 *   other rank committed, torn or undecided, never said to be untouched.
 */
#include <stdio.h>
#include <string.h>

#include "tools/faults/world_state.h"

static void check_gates(struct world *world, uint32_t rank, uint32_t run, uint32_t window)
{
    struct run_spec *spec = &world->run[run];
    struct part *part = &spec->part[rank];
    for (uint32_t i = 0; i < part->config.gate_count; i++) {
        const struct sl_run_gate *gate = &part->gates[i];
        _Bool decision = spec->shadow && gate->consumer;
        if (!gate->open && !decision && gate->first_window <= window)
            world_violated(world, "rank %u run %u: window %u launched with gate %u closed", rank, run, window, i);
    }
}

static void check_decided(struct world *world, uint32_t rank, uint32_t run, const char *what)
{
    struct run_spec *spec = &world->run[run];
    for (uint32_t i = 0; i < world->ranks; i++) {
        if (!spec->part[i].decided_vote)
            world_violated(world, "rank %u run %u: %s without the vote of rank %u", rank, run, what, i);
        for (uint32_t k = 0; k < spec->part[i].config.gate_count; k++)
            if (spec->part[i].gates[k].consumer && !spec->part[i].gates[k].open)
                world_violated(world, "rank %u run %u: %s with a consumer gate of rank %u closed", rank, run, what, i);
    }
}

/* Every rank launches in the order of the grants. */
static void check_order(struct world *world, uint32_t rank, uint32_t run, uint32_t window)
{
    if (!world->arbiter)
        return;
    uint32_t position = world->run[run].granted_at[window];
    if (position == 0 || position <= world->rank[rank].last_launch)
        world_violated(world, "rank %u: run %u window %u launched out of the common order", rank, run, window);
    world->rank[rank].last_launch = position;
}

void check_launch(struct world *world, uint32_t rank, uint32_t run, uint32_t window)
{
    struct run_spec *spec = &world->run[run];
    struct part *part = &spec->part[rank];
    if (window >= spec->windows || window < part->launched) {
        world_violated(world, "rank %u run %u: window %u launched after %u", rank, run, window, part->launched);
        return;
    }
    for (uint32_t i = part->launched; i < window; i++)
        if (part->flags[i])
            world_violated(world, "rank %u run %u: window %u was skipped", rank, run, i);
    part->launched = window + 1;
    if (!part->flags[window])
        world_violated(world, "rank %u run %u: empty window %u launched", rank, run, window);
    if (part->ends > 0)
        world_violated(world, "rank %u run %u: window %u launched after the end", rank, run, window);
    if (++part->windows_in_flight > spec->slots)
        world_violated(world, "rank %u run %u: %u windows in flight", rank, run, part->windows_in_flight);
    check_gates(world, rank, run, window);
    check_order(world, rank, run, window);
    if (spec->shadow && window >= spec->staged) {
        part->rest_begun = 1;
        check_decided(world, rank, run, "a window after the staged prefix was launched");
    }
}

void check_commit(struct world *world, uint32_t rank, uint32_t run)
{
    struct part *part = &world->run[run].part[rank];
    if (part->commit_begun || part->ends > 0 || !part->config.commit)
        world_violated(world, "rank %u run %u: commit out of place", rank, run);
    part->commit_begun = 1;
    check_decided(world, rank, run, "the commit was launched");
}

static void check_terminal(struct world *world, uint32_t rank, uint32_t run, const struct sl_action *action)
{
    struct run_spec *spec = &world->run[run];
    struct part *part = &spec->part[rank];
    if (++part->ends > 1)
        world_violated(world, "rank %u run %u: terminal event %u after %u", rank, run, action->event, part->end);
    part->end = (enum sluice_event_kind)action->event;
    part->error = action->error;
    _Bool success = part->end == SLUICE_EVENT_COMPLETED || part->end == SLUICE_EVENT_COMMITTED;
    if (success != (action->error.status == SLUICE_OK))
        world_violated(world, "rank %u run %u: end %u with status %d", rank, run, part->end, action->error.status);
    if (!success && action->error.text[0] == '\0')
        world_violated(world, "rank %u run %u: an error without words", rank, run);
    if (part->end == SLUICE_EVENT_CANCELLED && part->in_flight > 0)
        world_violated(world, "rank %u run %u: cancelled with %u in flight", rank, run, part->in_flight);
    if (!success)
        return;
    if ((part->end == SLUICE_EVENT_COMMITTED) != spec->shadow)
        world_violated(world, "rank %u run %u: wrong kind of success", rank, run);
    for (uint32_t i = 0; i < world->ranks; i++)
        if (!spec->part[i].final_vote)
            world_violated(world, "rank %u run %u: success without the vote of rank %u", rank, run, i);
}

void check_emit(struct world *world, uint32_t rank, uint32_t run, const struct sl_action *action)
{
    struct part *part = &world->run[run].part[rank];
    _Bool terminal = action->event >= SLUICE_EVENT_COMPLETED && action->event <= SLUICE_EVENT_CANCELLED;
    if (part->released || (part->ends > 0 && !terminal && action->event != SLUICE_EVENT_RELEASED))
        world_violated(world, "rank %u run %u: event %u after the end", rank, run, action->event);
    if (terminal)
        check_terminal(world, rank, run, action);
    if (action->event == SLUICE_EVENT_WINDOW && action->window != part->windows_told++)
        world_violated(world, "rank %u run %u: event of window %u out of order", rank, run, action->window);
    if (action->event == SLUICE_EVENT_STARTED && part->started)
        world_violated(world, "rank %u run %u: started twice", rank, run);
    part->started |= action->event == SLUICE_EVENT_STARTED;
    if (action->event != SLUICE_EVENT_RELEASED)
        return;
    part->released = 1;
    if (part->ends != 1 || part->in_flight > 0)
        world_violated(world, "rank %u run %u: released with %u in flight after %u ends", rank, run, part->in_flight,
                       part->ends);
}

void check_release(struct world *world, uint32_t rank, uint32_t run)
{
    struct part *part = &world->run[run].part[rank];
    if (part->gone || part->ends != 1 || part->in_flight > 0)
        world_violated(world, "rank %u run %u: RELEASE out of place", rank, run);
    if (!part->released && !(world->options.faults & WORLD_ABORT_FAILS))
        world_violated(world, "rank %u run %u: RELEASE without RELEASED", rank, run);
    part->gone = 1;
}

static void count_end(struct world *world, const struct part *part)
{
    struct world_result *result = world->result;
    result->succeeded += part->end == SLUICE_EVENT_COMPLETED || part->end == SLUICE_EVENT_COMMITTED;
    result->cancelled += part->end == SLUICE_EVENT_CANCELLED;
    result->failed += part->end == SLUICE_EVENT_FAILED;
    result->torn += part->error.status == SLUICE_TORN;
    result->undecided += part->error.status == SLUICE_UNDECIDED;
}

static void check_versions(struct world *world, uint32_t run)
{
    struct run_spec *spec = &world->run[run];
    _Bool success = 0, touched = 0;
    for (uint32_t i = 0; i < world->ranks; i++) {
        const struct part *part = &spec->part[i];
        success |= part->end == SLUICE_EVENT_COMPLETED || part->end == SLUICE_EVENT_COMMITTED;
        touched |= part->commit_begun || part->rest_begun;
    }
    for (uint32_t i = 0; i < world->ranks; i++) {
        const struct part *part = &spec->part[i];
        if (world->rank[i].dead || !part->submitted)
            continue;
        _Bool failed = part->end == SLUICE_EVENT_FAILED || part->end == SLUICE_EVENT_CANCELLED;
        _Bool known = part->error.status != SLUICE_UNDECIDED;
        if (success && failed && known)
            world_violated(world, "run %u: success elsewhere, rank %u says: %s", run, i, part->error.text);
        if (spec->shadow && touched && failed && known && part->error.status != SLUICE_TORN)
            world_violated(world, "run %u: a rank committed, rank %u says: %s", run, i, part->error.text);
    }
}

static void check_reason(struct world *world, uint32_t rank, uint32_t run)
{
    const struct part *part = &world->run[run].part[rank];
    const uint32_t harmless = WORLD_PAUSE | WORLD_STRAY | WORLD_PACED | WORLD_ALONE;
    uint32_t faults = world->options.faults & ~harmless;
    if (faults == 0 && part->end != SLUICE_EVENT_COMPLETED && part->end != SLUICE_EVENT_COMMITTED)
        world_violated(world, "rank %u run %u failed without a fault: %s", rank, run, part->error.text);
    if (faults == WORLD_CANCEL && part->end == SLUICE_EVENT_FAILED)
        world_violated(world, "rank %u run %u failed by a cancel: %s", rank, run, part->error.text);
}

void check_end(struct world *world)
{
    for (uint32_t run = 0; run < world->runs; run++) {
        for (uint32_t i = 0; i < world->ranks; i++) {
            struct part *part = &world->run[run].part[i];
            if (world->rank[i].dead || !part->submitted)
                continue;
            count_end(world, part);
            check_reason(world, i, run);
            if (!part->gone)
                world_violated(world, "rank %u run %u is not over", i, run);
        }
        check_versions(world, run);
    }
}
