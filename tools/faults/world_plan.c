/* world_plan.c: draws the runs of a world: windows, landing, gates, who takes part in what. */
#include <string.h>

#include "tools/faults/world_state.h"

static uint8_t draw_flags(struct world *world, uint32_t rank)
{
    static const uint8_t sender = SL_WINDOW_PACK | SL_WINDOW_GROUP;
    static const uint8_t receiver = SL_WINDOW_GROUP | SL_WINDOW_UNPACK;
    uint8_t flags = rank % 2 ? receiver : sender;
    if (world_chance(world, 10))
        flags = 0;
    if (world_chance(world, 20))
        flags |= SL_WINDOW_LOCAL;
    if (world_chance(world, 10))
        flags = SL_WINDOW_PACK | SL_WINDOW_GROUP | SL_WINDOW_UNPACK | SL_WINDOW_LOCAL;
    return flags;
}

static void draw_gates(struct world *world, struct run_spec *run, struct part *part)
{
    part->config.gates = part->gates;
    part->config.gate_count = world_below(world, GATES_MAX + 1);
    for (uint32_t i = 0; i < part->config.gate_count; i++) {
        part->gates[i] = (struct sl_run_gate){
            .first_window = world_below(world, run->windows + 1),
            .consumer = world_chance(world, 40),
            .open = world_chance(world, 20),
            .name = i % 2 ? "a parameter" : NULL,
        };
        if ((world->options.faults & WORLD_GATE_CLOSED) && world_chance(world, 5))
            part->gate_stuck[i] = 1;
    }
}

static void draw_part(struct world *world, uint32_t index, uint32_t rank)
{
    struct run_spec *run = &world->run[index];
    struct part *part = &run->part[rank];
    uint32_t faults = world->options.faults;
    for (uint32_t i = 0; i < run->windows; i++)
        part->flags[i] = draw_flags(world, rank);
    part->config = (struct sl_run_config){
        .key = index, /* as the first plan numbers its runs */
        .windows = run->windows,
        .slots = run->slots,
        .window_flags = part->flags,
        .staged = run->staged,
        .shadow = run->shadow,
        .commit = run->shadow && rank % 2,
        .world_of_one = (faults & WORLD_ALONE) != 0,
        .priority = index % 2,
        .pace = faults & WORLD_PACED ? 1000000000 : 0,
        .window_bytes = 100000 + 100000 * rank,
        .options_digest = 77,
        .version = index + 1,
        .gate_timeout_ns = faults & WORLD_GATE_CLOSED ? 50 * SLUICE_MILLISECOND : UINT64_MAX,
        .timeout_ns = faults & WORLD_DEADLINE && world_chance(world, 30) ? world_below(world, 20000000) : UINT64_MAX,
        .stall_timeout_ns = 10 * SLUICE_SECOND,
        .window_events = world_chance(world, 50),
        .owner = part,
    };
    draw_gates(world, run, part);
}

static void draw_run(struct world *world, uint32_t index)
{
    struct run_spec *run = &world->run[index];
    run->windows = world_chance(world, 5) ? 0 : 1 + world_below(world, WINDOWS_MAX);
    run->slots = 3 + world_below(world, 2);
    run->shadow = world_chance(world, 50);
    if (run->shadow)
        run->staged = world_chance(world, 50) ? run->windows : world_below(world, run->windows + 1);
    for (uint32_t i = 0; i < world->ranks; i++)
        draw_part(world, index, i);
    if ((world->options.faults & WORLD_MISMATCH) && world_chance(world, 50))
        run->part[world_below(world, world->ranks)].config.options_digest = 78;
}

static void draw_order(struct world *world, struct rank *rank)
{
    for (uint32_t i = 0; i < world->runs; i++) {
        uint32_t other = world_below(world, i + 1);
        rank->submit_order[i] = rank->submit_order[other];
        rank->submit_order[other] = i;
    }
}

void world_draw(struct world *world)
{
    world->ranks = world->options.faults & WORLD_ALONE ? 1 : 2 + world_below(world, RANKS_MAX - 1);
    world->runs = 1 + world_below(world, RUNS_MAX);
    for (uint32_t i = 0; i < world->runs; i++)
        draw_run(world, i);
    for (uint32_t i = 0; i < world->ranks; i++)
        draw_order(world, &world->rank[i]);
}
