/*
 * blocks.c: pairs dealt into blocks, each of which is a group of its own.
 *
 * Largest first: each pair goes to the block where the busier of its two ends has least so far, among the blocks
 * where both ends have room for an item. So every rank's bytes are even over the blocks, and the sum of the blocks'
 * makespans stays near the makespan of one.
 *
 * It always ends: of a pair's two ends, each fills fewer than ceil(items / items_max) blocks with its other items, so
 * twice as many blocks less one always have a free one. The number begins at the least that the fullest rank allows
 * and grows by about 3 % after a deal that got stuck.
 *
 * The fewest blocks are not always the fastest: sixteen equal pairs of a rank make 6 + 5 + 5 of three blocks, and 6 of
 * them on another rank in another block cost 18 in all. So a few more numbers are tried, and the deal that takes least
 * is kept: the blocks' busiest ranks summed, and a fixed cost for each block.
 *
 * Ties are broken by (source, destination) and then by block, so the result depends on the pairs alone.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/schedule.h"

#define BLOCKS_MAX  65535u
#define TRIES       4       /* deals that end */
#define GROUP_UNITS 625000u /* what a group costs beside its bytes: 10 MB, 0.2 ms at 50 GB/s */
#define UNITS_MAX   ((UINT64_C(1) << 63) / SLUICE_UNIT - 1)

/* A pair and where it was in the caller's array. */
struct dealt {
    struct sl_pair_total pair;
    size_t place;
};

/* What one rank has in one block. */
struct hand {
    uint64_t send, recv; /* units */
    uint32_t items;
};

struct deal {
    const struct dealt *pairs; /* largest first */
    size_t count;
    uint32_t items_max;
    uint32_t blocks;
    struct hand *hands; /* `blocks` of them for each rank */
};

static int by_ends(const void *a, const void *b)
{
    const struct sl_pair_total *x = a;
    const struct sl_pair_total *y = b;
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return (x->destination > y->destination) - (x->destination < y->destination);
}

static int largest_first(const void *a, const void *b)
{
    const struct dealt *x = a;
    const struct dealt *y = b;
    if (x->pair.units != y->pair.units) {
        return x->pair.units > y->pair.units ? -1 : 1;
    }
    return by_ends(&x->pair, &y->pair);
}

/* The block for a pair; deal->blocks when none has room. */
static uint32_t choose(const struct deal *deal, const struct hand *source, const struct hand *destination)
{
    uint32_t best = deal->blocks;
    uint64_t best_most = 0;
    uint64_t best_least = 0;
    for (uint32_t block = 0; block < deal->blocks; block++) {
        if (source[block].items >= deal->items_max || destination[block].items >= deal->items_max) {
            continue;
        }
        uint64_t send = source[block].send;
        uint64_t recv = destination[block].recv;
        uint64_t most = send > recv ? send : recv;
        uint64_t least = send > recv ? recv : send;
        if (best == deal->blocks || most < best_most || (most == best_most && least < best_least)) {
            best = block;
            best_most = most;
            best_least = least;
        }
    }
    return best;
}

/* Deals all pairs into deal->blocks; false when one finds no room. */
static _Bool deal_all(const struct deal *deal, uint16_t *block_of_pair)
{
    for (size_t i = 0; i < deal->count; i++) {
        const struct sl_pair_total *pair = &deal->pairs[i].pair;
        struct hand *source = &deal->hands[(size_t)pair->source * deal->blocks];
        struct hand *destination = &deal->hands[(size_t)pair->destination * deal->blocks];
        uint32_t block = pair->units == 0 ? 0 : choose(deal, source, destination);
        if (block == deal->blocks) {
            return 0;
        }
        if (pair->units > 0) {
            source[block].send += pair->units;
            source[block].items++;
            destination[block].recv += pair->units;
            destination[block].items++;
        }
        block_of_pair[deal->pairs[i].place] = (uint16_t)block;
    }
    return 1;
}

/* Blocks that the fullest rank needs, if there were no others. */
static sluice_status fewest(const struct sl_pair_total *pairs, size_t count, uint32_t world, uint32_t items_max,
                            struct sl_mem *mem, uint32_t *ret_blocks)
{
    uint32_t *items = sl_new_array(mem, world, sizeof(*items), "items of ranks");
    if (items == NULL) {
        return SLUICE_NOMEM;
    }
    uint32_t most = 1;
    for (size_t i = 0; i < count; i++) {
        SL_ASSERT(pairs[i].source < world && pairs[i].destination < world);
        SL_ASSERT(pairs[i].source != pairs[i].destination);
        if (pairs[i].units > 0) {
            uint32_t send = ++items[pairs[i].source];
            uint32_t recv = ++items[pairs[i].destination];
            most = send > most ? send : most;
            most = recv > most ? recv : most;
        }
    }
    sl_free(mem, items);
    *ret_blocks = (most - 1) / items_max + 1;
    return SLUICE_OK;
}

/* What the deal costs, in units at link rate. */
static uint64_t cost_of(const struct deal *deal, uint32_t world)
{
    uint64_t cost = (uint64_t)deal->blocks * GROUP_UNITS;
    for (uint32_t block = 0; block < deal->blocks; block++) {
        uint64_t most = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            const struct hand *hand = &deal->hands[(size_t)rank * deal->blocks + block];
            most = hand->send > most ? hand->send : most;
            most = hand->recv > most ? hand->recv : most;
        }
        cost = most > UINT64_MAX - cost ? UINT64_MAX : cost + most;
    }
    return cost;
}

/* One deal; *ret_cost is UINT64_MAX when it got stuck. */
static sluice_status try_deal(struct deal *deal, uint32_t world, struct sl_mem *mem, uint16_t *block_of_pair,
                              uint64_t *ret_cost)
{
    deal->hands = sl_new_array(mem, world, deal->blocks * sizeof(*deal->hands), "blocks of ranks");
    if (deal->hands == NULL) {
        return SLUICE_NOMEM;
    }
    *ret_cost = deal_all(deal, block_of_pair) ? cost_of(deal, world) : UINT64_MAX;
    sl_free(mem, deal->hands);
    return SLUICE_OK;
}

/* Keeps the cheapest of the first deals that end; `attempt` has room for a deal. */
static sluice_status deal_in_growing_blocks(struct deal *deal, uint32_t world, uint32_t at_least, struct sl_mem *mem,
                                            uint16_t *attempt, uint16_t *ret_block_of_pair, uint32_t *ret_blocks)
{
    uint32_t tries = at_least > 1 ? TRIES : 1;
    uint32_t best = 0;
    uint64_t best_cost = UINT64_MAX;
    for (deal->blocks = at_least; tries > 0 && deal->blocks <= BLOCKS_MAX; deal->blocks += 1 + deal->blocks / 32) {
        uint64_t cost = 0;
        sluice_status status = try_deal(deal, world, mem, attempt, &cost);
        if (status != SLUICE_OK) {
            return status;
        }
        SL_ASSERT(cost < UINT64_MAX || deal->blocks < 2 * at_least - 1);
        tries -= cost < UINT64_MAX;
        if (cost < best_cost) {
            best = deal->blocks;
            best_cost = cost;
            memcpy(ret_block_of_pair, attempt, deal->count * sizeof(*attempt));
        }
    }
    if (best == 0) {
        return sl_fail(SLUICE_LIMIT, "schedule",
                       "more than %u blocks of %" PRIu32 " messages a rank are needed; use fewer channels per peer",
                       BLOCKS_MAX, deal->items_max);
    }
    *ret_blocks = best;
    return SLUICE_OK;
}

sluice_status sl_deal_blocks(const struct sl_pair_total *pairs, size_t count, uint32_t world, uint32_t items_max,
                             struct sl_mem *mem, uint16_t *ret_block_of_pair, uint32_t *ret_blocks)
{
    if (items_max == 0) {
        return sl_fail(SLUICE_INVALID, "schedule", "a group must be allowed at least one message a rank");
    }
    uint32_t at_least = 0;
    sluice_status status = fewest(pairs, count, world, items_max, mem, &at_least);
    if (status != SLUICE_OK) {
        return status;
    }
    struct dealt *sorted = sl_new_array(mem, count, sizeof(*sorted), "pairs by size");
    uint16_t *attempt = sl_new_array(mem, count, sizeof(*attempt), "blocks of pairs");
    if (sorted == NULL || attempt == NULL) {
        sl_free(mem, sorted);
        sl_free(mem, attempt);
        return SLUICE_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = (struct dealt){.pair = pairs[i], .place = i};
    }
    qsort(sorted, count, sizeof(*sorted), largest_first);
    struct deal deal = {.pairs = sorted, .count = count, .items_max = items_max};
    status = deal_in_growing_blocks(&deal, world, at_least, mem, attempt, ret_block_of_pair, ret_blocks);
    sl_free(mem, attempt);
    sl_free(mem, sorted);
    return status;
}

/* Joins neighbours with the same ends; LIMIT names a pair that holds too much. */
static sluice_status join_pairs(struct sl_pair_total *pairs, size_t count, size_t *ret_count)
{
    size_t joined = 0;
    for (size_t i = 0; i < count; i++) {
        if (joined == 0 || by_ends(&pairs[joined - 1], &pairs[i]) != 0) {
            pairs[joined++] = pairs[i];
            continue;
        }
        if (pairs[i].units > UNITS_MAX - pairs[joined - 1].units) {
            return sl_fail(SLUICE_LIMIT, "schedule", "rank %" PRIu32 " sends rank %" PRIu32 " 2^63 bytes or more",
                           pairs[i].source, pairs[i].destination);
        }
        pairs[joined - 1].units += pairs[i].units;
    }
    *ret_count = joined;
    return SLUICE_OK;
}

sluice_status sl_pair_totals(const struct sl_plan *plan, struct sl_mem *mem, struct sl_pair_total **ret_pairs,
                             size_t *ret_count)
{
    struct sl_pair_total *pairs = sl_new_array(mem, plan->task_count, sizeof(*pairs), "pairs");
    if (pairs == NULL) {
        return SLUICE_NOMEM;
    }
    size_t count = 0;
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        if (task->source != task->destination) {
            uint64_t bytes = sl_task_bytes(task);
            pairs[count++] = (struct sl_pair_total){
                .source = task->source,
                .destination = task->destination,
                .units = bytes / SLUICE_UNIT + (bytes % SLUICE_UNIT != 0),
            };
        }
    }
    qsort(pairs, count, sizeof(*pairs), by_ends);
    sluice_status status = join_pairs(pairs, count, ret_count);
    if (status != SLUICE_OK) {
        sl_free(mem, pairs);
        return status;
    }
    *ret_pairs = pairs;
    return SLUICE_OK;
}

void sl_blocks_of_half(const struct sl_half *half, const struct sl_pair_total *pairs, const uint16_t *block_of_pair,
                       size_t count, uint16_t *ret_block_of_stream)
{
    for (uint32_t i = 0; i < half->stream_count; i++) {
        const struct sl_stream *stream = &half->streams[i];
        struct sl_pair_total key = {
            .source = stream->receive ? stream->peer : half->rank,
            .destination = stream->receive ? half->rank : stream->peer,
        };
        const struct sl_pair_total *found = bsearch(&key, pairs, count, sizeof(*pairs), by_ends);
        ret_block_of_stream[i] = found != NULL ? block_of_pair[found - pairs] : 0;
    }
}
