/*
 * world_backend.c: queues and a communicator per rank, as strict as the real ones may be.
 *
 * - Window k is on queue k mod slots: pack, group, unpack in order, one window after the other.
 * - A communicator runs its groups in the order of launch. A group ends once every rank that takes part
 *   has it as the first of its communicator, packed; from then on each rank ends it when it likes.
 */
#include <string.h>

#include "tools/faults/world_state.h"

void backend_launch(struct world *world, uint32_t rank, uint32_t run, uint32_t window, uint8_t flags)
{
    struct rank *on = &world->rank[rank];
    if (on->entry_count == ENTRIES_MAX) {
        world_violated(world, "rank %u has %u windows in flight", rank, ENTRIES_MAX);
        return;
    }
    struct entry *entry = &on->entries[on->entry_count++];
    *entry = (struct entry){.run = run, .window = window, .pending = flags};
    if ((world->options.faults & WORLD_NODE_HANGS) && world->faults_left > 0 && world_chance(world, 10)) {
        entry->hangs = 1;
        world->faults_left--;
    }
}

/* The first entry of the rank that has its group to run. */
static struct entry *first_group(struct rank *rank)
{
    for (size_t i = 0; i < rank->entry_count; i++)
        if (rank->entries[i].pending & SL_WINDOW_GROUP)
            return &rank->entries[i];
    return NULL;
}

/* The entry may use its queue: everything before it there is done. */
static _Bool queue_free(const struct world *world, const struct rank *rank, const struct entry *entry)
{
    const uint8_t queued = SL_WINDOW_PACK | SL_WINDOW_GROUP | SL_WINDOW_UNPACK;
    uint32_t slots = world->run[entry->run].slots;
    for (const struct entry *other = rank->entries; other < entry; other++)
        if ((other->pending & queued) && other->window % slots == entry->window % slots)
            return 0;
    return 1;
}

static _Bool at_head(const struct world *world, struct rank *rank, uint32_t run, uint32_t window)
{
    const struct entry *entry = first_group(rank);
    return entry && !rank->dead && !rank->broken && entry->run == run && entry->window == window &&
           !(entry->pending & SL_WINDOW_PACK) && queue_free(world, rank, entry);
}

static _Bool matched(struct world *world, const struct entry *entry)
{
    struct run_spec *run = &world->run[entry->run];
    if (run->matched[entry->window])
        return 1;
    for (uint32_t i = 0; i < world->ranks; i++)
        if ((run->part[i].flags[entry->window] & SL_WINDOW_GROUP) &&
            !at_head(world, &world->rank[i], entry->run, entry->window))
            return 0;
    run->matched[entry->window] = 1;
    return 1;
}

/* The flags of nodes that may end now. */
static uint8_t enabled(struct world *world, struct rank *rank, struct entry *entry)
{
    uint8_t result = entry->pending & (SL_WINDOW_LOCAL | COMMIT_BIT);
    if (entry->hangs || !queue_free(world, rank, entry))
        return entry->hangs ? 0 : result;
    if (entry->pending & SL_WINDOW_PACK)
        return result | SL_WINDOW_PACK;
    if (entry->pending & SL_WINDOW_GROUP) {
        if (first_group(rank) == entry && matched(world, entry))
            result |= SL_WINDOW_GROUP;
        return result;
    }
    return result | (entry->pending & SL_WINDOW_UNPACK);
}

static uint32_t bits(uint8_t flags)
{
    uint32_t count = 0;
    for (; flags; flags &= flags - 1)
        count++;
    return count;
}

uint32_t backend_candidates(struct world *world, uint32_t rank)
{
    struct rank *on = &world->rank[rank];
    uint32_t count = 0;
    if (on->dead)
        return 0;
    for (size_t i = 0; i < on->entry_count; i++)
        count += bits(enabled(world, on, &on->entries[i]));
    return count;
}

static enum sl_node node_of(uint8_t bit)
{
    return bit == COMMIT_BIT         ? SL_NODE_COMMIT
           : bit == SL_WINDOW_LOCAL  ? SL_NODE_LOCAL
           : bit == SL_WINDOW_UNPACK ? SL_NODE_UNPACK
           : bit == SL_WINDOW_GROUP  ? SL_NODE_GROUP
                                     : SL_NODE_PACK;
}

static void finish(struct world *world, uint32_t rank, size_t index, uint8_t bit)
{
    struct rank *on = &world->rank[rank];
    struct entry entry = on->entries[index];
    struct part *part = &world->run[entry.run].part[rank];
    on->entries[index].pending &= (uint8_t)~bit;
    part->in_flight--;
    if (on->entries[index].pending == 0) {
        part->windows_in_flight -= bit != COMMIT_BIT;
        memmove(&on->entries[index], &on->entries[index + 1], (--on->entry_count - index) * sizeof entry);
    }
    struct sluice_error error = {0};
    struct sl_engine_event event = {.kind = SL_EVENT_DONE, .run = part->index, .index = entry.window};
    event.node = node_of(bit);
    event.end_ns = 1000;
    if ((world->options.faults & WORLD_NODE_FAILS) && world->faults_left > 0 && world_chance(world, 5)) {
        world->faults_left--;
        sl_error_set(&error, SLUICE_DEVICE, "world", "a made-up device error");
        event.error = &error;
    } else if (bit == COMMIT_BIT) {
        part->committed = 1;
    }
    world_event(world, rank, &event);
    if (world->options.faults & WORLD_STRAY)
        world_event(world, rank, &event);
}

void backend_complete(struct world *world, uint32_t rank, uint32_t n)
{
    struct rank *on = &world->rank[rank];
    for (size_t i = 0; i < on->entry_count; i++) {
        uint8_t flags = enabled(world, on, &on->entries[i]);
        for (; flags; flags &= flags - 1) {
            if (n-- == 0) {
                finish(world, rank, i, flags & (uint8_t)-flags);
                return;
            }
        }
    }
}

void backend_clear(struct world *world, uint32_t rank)
{
    struct rank *on = &world->rank[rank];
    on->entry_count = 0;
    for (uint32_t i = 0; i < world->runs; i++)
        world->run[i].part[rank].in_flight = world->run[i].part[rank].windows_in_flight = 0;
}
