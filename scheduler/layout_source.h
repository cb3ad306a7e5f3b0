/*
 * layout_source.h: who holds a piece on the source side, and who of them sends it. Pure.
 *
 * A source set is all ranks that hold the same bytes: one stage, for experts one expert-parallel
 * coordinate, and a run of tensor-parallel shards, over all context and data parallel copies. Ranks are
 * relative to the source layout's offset.
 */
#ifndef SL_SCHEDULER_LAYOUT_SOURCE_H
#define SL_SCHEDULER_LAYOUT_SOURCE_H

#include "scheduler/layout.h"

/* The first and the last stage: where a tied tensor lies. */
#define SL_STAGE_ENDS UINT32_MAX

struct sl_source_key {
    uint32_t stage;  /* or SL_STAGE_ENDS */
    uint32_t expert; /* 1: `ep` counts and shards are those of the expert grid */
    uint32_t ep;
    uint32_t shard;
    uint32_t shards;
};

struct sl_source_set {
    struct sl_source_key key;
    uint32_t *ranks; /* by dense data-parallel group (lowest rank of the group), then rank */
    uint32_t count;
    uint32_t *groups; /* group g: ranks[groups[g]] .. ranks[groups[g + 1] - 1] */
    uint32_t group_count;
};

struct sl_sources {
    struct sl_mem *mem;
    const struct sl_layout *layout;
    struct sl_source_set *sets;
    size_t count, capacity;
    uint32_t *slots; /* open addressing: index + 1, 0: empty */
    size_t slot_count;
};

void sl_sources_init(struct sl_sources *sources, const struct sl_layout *layout, struct sl_mem *mem);
void sl_sources_drop(struct sl_sources *sources);
/* The set with that key, made when it is new. NOMEM. */
sluice_status sl_sources_find(struct sl_sources *sources, const struct sl_source_key *key, uint32_t *ret_index);
/* Whether `rank` is of the set. */
_Bool sl_source_has(const struct sl_layout *layout, const struct sl_source_key *key, uint32_t rank);

_Bool sl_stage_is(const struct sl_layout *layout, uint32_t stage, uint32_t rank);
/*
 * The published round-robin rule. `all` is the set over all shards; the result is the rank that sends shard
 * `shard` .. `shard + shards - 1` to `destination`, an absolute rank.
 */
uint32_t sl_source_first(const struct sl_layout *layout, const struct sl_source_set *all, uint32_t shard,
                         uint32_t shards, uint32_t destination);

/*
 * Chooses `source` of every task (absolute ranks), wants[i] being the set and the bytes of tasks[i]: a rank's
 * own copy where it has one; else so that the busiest source sends as little as possible, then within a
 * node. NOMEM.
 */
struct sl_source_want {
    uint64_t bytes; /* unscaled, so that a scaled plan has the same sources */
    uint32_t set;
    uint32_t reserved;
};
sluice_status sl_source_balance(const struct sl_sources *sources, struct sluice_task *tasks,
                                const struct sl_source_want *wants, size_t count, uint32_t world);

#endif
