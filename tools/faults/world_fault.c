/* world_fault.c: requests of the application, losses, broken transports and aborts, when the seed says so. */
#include <stdio.h>

#include "tools/faults/world_state.h"

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
    if (rank != world->arbiter_rank)
        return;
    sl_arbiter_destroy(world->arbiter);
    world->arbiter = NULL;
    for (uint32_t i = 0; i < world->ranks; i++) {
        cut(world, &world->rank[i].from_arbiter);
        world->rank[i].to_arbiter.count = 0;
    }
}

/* With a majority of the ranks the lowest that lives takes the arbiter's place. */
static void take_over(struct world *world)
{
    uint32_t live = 0;
    for (uint32_t i = world->ranks; i-- > 0;) {
        live += !world->rank[i].dead;
        world->arbiter_rank = world->rank[i].dead ? world->arbiter_rank : i;
    }
    struct sl_arbiter_config config = {
        .world = world->ranks, .runs_max = RUNS_MAX, .mem = world->mem, .host = world->arbiter_rank, .takeover = 1};
    if (live * 2 > world->ranks)
        world->arbiter = sl_arbiter_create(&config);
}

/* No majority is left: every rank is alone with what it knows. */
static void leave_alone(struct world *world)
{
    struct sl_note note = {.kind = SL_NOTE_LOST, .status = SLUICE_PEER_LOST};
    for (note.rank = 0; note.rank < world->ranks; note.rank++) {
        snprintf(note.text, sizeof note.text, "rank %u is gone (made up)", note.rank);
        for (uint32_t i = 0; i < world->ranks; i++)
            if (world->rank[note.rank].dead)
                world_put(world, &world->rank[i].from_arbiter, &note);
    }
}

void fault_report_loss(struct world *world)
{
    world->unreported = 0;
    if (!world->arbiter)
        take_over(world);
    if (!world->arbiter) {
        leave_alone(world);
        return;
    }
    for (uint32_t i = 0; i < world->ranks; i++)
        if (world->rank[i].dead)
            sl_arbiter_lost(world->arbiter, i, "a made-up loss of a rank", world->now);
    world_drain_arbiter(world);
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
    } else if ((faults & WORLD_LOSE) && rank != world->arbiter_rank && !world->unreported && world_chance(world, 30)) {
        world->faults_left--;
        kill_rank(world, rank);
    } else if ((faults & WORLD_LOSE_FIRST) && rank == world->arbiter_rank && !world->unreported &&
               world_chance(world, 30)) {
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
