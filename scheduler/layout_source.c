/*
 * layout_source.c: source sets and the published choice among their ranks.
 *
 * - Sets are numbered in the order in which they are first asked for; a set never changes.
 * - The order of ranks within a set depends on the layout alone.
 */
#include "scheduler/layout_source.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

void sl_sources_init(struct sl_sources *sources, const struct sl_layout *layout, struct sl_mem *mem)
{
    *sources = (struct sl_sources){.mem = mem, .layout = layout};
}

void sl_sources_drop(struct sl_sources *sources)
{
    if (!sources->mem)
        return;
    for (size_t i = 0; i < sources->count; i++) {
        sl_free(sources->mem, sources->sets[i].ranks);
        sl_free(sources->mem, sources->sets[i].groups);
    }
    sl_free(sources->mem, sources->sets);
    sl_free(sources->mem, sources->slots);
    *sources = (struct sl_sources){0};
}

_Bool sl_stage_is(const struct sl_layout *layout, uint32_t stage, uint32_t rank)
{
    uint32_t at = sl_grid_at(&layout->dense, SL_AXIS_PP, rank);
    return stage == SL_STAGE_ENDS ? at == 0 || at + 1 == layout->pp : at == stage;
}

static uint32_t shard_at(const struct sl_layout *layout, const struct sl_source_key *key, uint32_t rank)
{
    return sl_grid_at(key->expert ? &layout->expert : &layout->dense, SL_AXIS_TP, rank);
}

_Bool sl_source_has(const struct sl_layout *layout, const struct sl_source_key *key, uint32_t rank)
{
    if (rank >= layout->world || !sl_stage_is(layout, key->stage, rank))
        return 0;
    if (key->expert && sl_grid_at(&layout->expert, SL_AXIS_EP, rank) != key->ep)
        return 0;
    uint32_t shard = shard_at(layout, key, rank);
    return shard >= key->shard && shard - key->shard < key->shards;
}

/* A dense data-parallel group is named by its lowest rank. */
static uint32_t group_of(const struct sl_layout *layout, uint32_t rank)
{
    return rank - sl_grid_at(&layout->dense, SL_AXIS_DP, rank) * layout->dense.stride[SL_AXIS_DP];
}

struct member {
    uint32_t group;
    uint32_t rank;
};

static int by_group(const void *a, const void *b)
{
    const struct member *left = a;
    const struct member *right = b;
    if (left->group != right->group)
        return left->group < right->group ? -1 : 1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

static void add_member(const struct sl_layout *layout, uint32_t rank, struct member *members, uint32_t *count)
{
    members[(*count)++] = (struct member){.group = group_of(layout, rank), .rank = rank};
}

/* All members of one stage, by walking the axes that the key leaves open. */
static void add_stage(const struct sl_layout *layout, const struct sl_source_key *key, uint32_t stage,
                      struct member *members, uint32_t *count)
{
    const struct sl_grid *grid = key->expert ? &layout->expert : &layout->dense;
    uint32_t base = stage * grid->stride[SL_AXIS_PP] + (key->expert ? key->ep * grid->stride[SL_AXIS_EP] : 0);
    for (uint32_t copy = 0; copy < grid->size[SL_AXIS_DP]; copy++)
        for (uint32_t context = 0; context < grid->size[SL_AXIS_CP]; context++)
            for (uint32_t shard = key->shard; shard < key->shard + key->shards; shard++)
                add_member(layout,
                           base + copy * grid->stride[SL_AXIS_DP] + context * grid->stride[SL_AXIS_CP] +
                               shard * grid->stride[SL_AXIS_TP],
                           members, count);
}

static uint32_t most_members(const struct sl_layout *layout, const struct sl_source_key *key)
{
    uint32_t stages = key->stage == SL_STAGE_ENDS && layout->pp > 1 ? 2 : 1;
    const struct sl_grid *grid = key->expert ? &layout->expert : &layout->dense;
    return stages * grid->size[SL_AXIS_DP] * grid->size[SL_AXIS_CP] * key->shards;
}

static void fill_set(const struct sl_layout *layout, struct member *members, struct sl_source_set *set)
{
    const struct sl_source_key *key = &set->key;
    uint32_t count = 0;
    add_stage(layout, key, key->stage == SL_STAGE_ENDS ? 0 : key->stage, members, &count);
    if (key->stage == SL_STAGE_ENDS && layout->pp > 1)
        add_stage(layout, key, layout->pp - 1, members, &count);
    qsort(members, count, sizeof *members, by_group);
    for (uint32_t i = 0; i < count; i++) {
        set->ranks[i] = members[i].rank;
        if (i == 0 || members[i].group != members[i - 1].group)
            set->groups[set->group_count++] = i;
    }
    set->groups[set->group_count] = count;
    set->count = count;
}

static sluice_status make_set(struct sl_sources *sources, const struct sl_source_key *key)
{
    uint32_t most = most_members(sources->layout, key);
    struct sl_source_set set = {.key = *key};
    struct member *members = sl_new_array(sources->mem, most, sizeof *members, "source ranks");
    set.ranks = sl_new_array(sources->mem, most, sizeof *set.ranks, "source ranks");
    set.groups = sl_new_array(sources->mem, most + 1u, sizeof *set.groups, "source ranks");
    sluice_status status = sl_grow(sources->mem, &sources->sets, &sources->capacity, sources->count + 1,
                                   sizeof *sources->sets, "source sets");
    if (!members || !set.ranks || !set.groups || status != SLUICE_OK) {
        sl_free(sources->mem, members);
        sl_free(sources->mem, set.ranks);
        sl_free(sources->mem, set.groups);
        return SLUICE_NOMEM;
    }
    fill_set(sources->layout, members, &set);
    sl_free(sources->mem, members);
    sources->sets[sources->count++] = set;
    return SLUICE_OK;
}

/* The slot that holds the key, or the empty one where it belongs. */
static uint32_t *slot_of(const struct sl_sources *sources, const struct sl_source_key *key)
{
    size_t at = (size_t)sl_hash64(key, sizeof *key, 0) & (sources->slot_count - 1);
    while (sources->slots[at] && memcmp(&sources->sets[sources->slots[at] - 1].key, key, sizeof *key) != 0)
        at = (at + 1) & (sources->slot_count - 1);
    return &sources->slots[at];
}

static sluice_status grow_slots(struct sl_sources *sources)
{
    if (2 * (sources->count + 1) <= sources->slot_count)
        return SLUICE_OK;
    size_t slot_count = sources->slot_count ? 2 * sources->slot_count : 64;
    uint32_t *slots = sl_new_array(sources->mem, slot_count, sizeof *slots, "source sets");
    if (!slots)
        return SLUICE_NOMEM;
    sl_free(sources->mem, sources->slots);
    sources->slots = slots;
    sources->slot_count = slot_count;
    for (size_t i = 0; i < sources->count; i++)
        *slot_of(sources, &sources->sets[i].key) = (uint32_t)i + 1;
    return SLUICE_OK;
}

sluice_status sl_sources_find(struct sl_sources *sources, const struct sl_source_key *key, uint32_t *ret_index)
{
    sluice_status status = grow_slots(sources);
    if (status != SLUICE_OK)
        return status;
    uint32_t *slot = slot_of(sources, key);
    if (!*slot) {
        status = make_set(sources, key);
        if (status != SLUICE_OK)
            return status;
        *slot = (uint32_t)sources->count;
    }
    *ret_index = *slot - 1;
    return SLUICE_OK;
}

/* The owner that the published rule selects; its tensor-parallel group serves all shards. */
static uint32_t select_owner(const struct sl_layout *layout, const struct sl_source_set *all, uint32_t destination)
{
    uint32_t own = destination - layout->offset;
    if (destination >= layout->offset && sl_source_has(layout, &all->key, own))
        return own;
    uint32_t group = destination % all->group_count;
    uint32_t members = all->groups[group + 1] - all->groups[group];
    uint32_t member = all->group_count == 1 ? 0 : destination / all->group_count % members;
    return all->ranks[all->groups[group] + member];
}

uint32_t sl_source_first(const struct sl_layout *layout, const struct sl_source_set *all, uint32_t shard,
                         uint32_t shards, uint32_t destination)
{
    uint32_t owner = select_owner(layout, all, destination);
    uint32_t at = shard_at(layout, &all->key, owner);
    if (at >= shard && at - shard < shards)
        return owner;
    const struct sl_grid *grid = all->key.expert ? &layout->expert : &layout->dense;
    return owner + shard * grid->stride[SL_AXIS_TP] - at * grid->stride[SL_AXIS_TP];
}
