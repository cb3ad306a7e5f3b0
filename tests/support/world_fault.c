/* world_fault.c: requests of the application, losses, broken transports and aborts, when the seed says so. */
#include <stdio.h>

#include "support/world_state.h"

static struct part *any_part(struct world *world, uint32_t rank)
{
    return &world->run[world_below(world, world->runs)].part[rank];
}

static void cut(struct world *world, struct inbox *inbox)
{
    inbox->count = world_below(world, (uint32_t)inbox->count + 1);
}

static void kill_rank(struct world *world, uint32_t rank)
{
    struct rank *on = &world->rank[rank];
    on->dead = 1;
    on->from_arbiter.count = 0;
    backend_clear(world, rank);
    cut(world, &on->to_arbiter);
    world->unreported = rank + 1;
    if (rank > 0)
        return;
    sl_arbiter_destroy(world->arbiter);
    world->arbiter = NULL;
    for (uint32_t i = 0; i < world->ranks; i++) {
        cut(world, &world->rank[i].from_arbiter);
        world->rank[i].to_arbiter.count = 0;
    }
}

void fault_report_loss(struct world *world)
{
    uint32_t rank = world->unreported - 1;
    world->unreported = 0;
    if (world->arbiter) {
        sl_arbiter_lost(world->arbiter, rank, "a made-up loss of a rank", world->now);
        world_drain_arbiter(world);
        return;
    }
    struct sl_note note = {.kind = SL_NOTE_LOST, .rank = rank, .status = SLUICE_PEER_LOST};
    snprintf(note.text, sizeof note.text, "rank 0 is gone (made up)");
    for (uint32_t i = 1; i < world->ranks; i++)
        world_put(world, &world->rank[i].from_arbiter, &note);
}

void fault_strike(struct world *world, uint32_t rank)
{
    uint32_t faults = world->options.faults;
    struct part *part = any_part(world, rank);
    if ((faults & WORLD_PAUSE) && world->pauses_left > 0 && world_chance(world, 50)) {
        world->pauses_left--;
        part->paused = 1;
        world_request(world, rank, part, SL_REQUEST_PAUSE);
        return;
    }
    if (world->faults_left == 0)
        return;
    if ((faults & WORLD_CANCEL) && world_chance(world, 50)) {
        world->faults_left--;
        world_request(world, rank, part, SL_REQUEST_CANCEL);
    } else if ((faults & WORLD_BROKEN) && world_chance(world, 30)) {
        struct sluice_error error;
        sl_error_set(&error, SLUICE_TRANSPORT, "world", "a made-up transport error");
        struct sl_engine_event event = {.kind = SL_EVENT_BROKEN, .run = UINT32_MAX, .error = &error};
        world->faults_left--;
        world->rank[rank].broken = 1;
        world_event(world, rank, &event);
    } else if ((faults & WORLD_LOSE) && rank > 0 && !world->unreported && world_chance(world, 30)) {
        world->faults_left--;
        kill_rank(world, rank);
    } else if ((faults & WORLD_LOSE_FIRST) && rank == 0 && !world->unreported && world_chance(world, 30)) {
        world->faults_left--;
        kill_rank(world, rank);
    }
}

void fault_end_abort(struct world *world, uint32_t rank)
{
    struct sluice_error error;
    struct sl_engine_event event = {.kind = SL_EVENT_ABORTED, .run = UINT32_MAX};
    if ((world->options.faults & WORLD_ABORT_FAILS) && world_chance(world, 50)) {
        sl_error_set(&error, SLUICE_TIMEOUT, "world", "the abort has not returned (made up)");
        event.error = &error;
    }
    world->rank[rank].aborting = 0;
    backend_clear(world, rank);
    world_event(world, rank, &event);
}
