/*
 * layout_balance.c: the choice of sources that keeps the busiest one low.
 *
 * - A piece that the destination rank holds itself is local and costs nothing.
 * - First in bytes that may be divided at will: every set spreads its total over its ranks so that the
 *   lowest loads rise to one level (water filling), in turn, several rounds. Each turn lowers the sum of the
 *   squared loads, a convex problem, so the rounds approach the least possible busiest source.
 * - Then in whole pieces: sets of few ranks first, each with its water level renewed for the loads so far;
 *   large pieces first; a piece goes to a rank whose share has room for it, by preference in the
 *   destination's node, then where that destination's last piece came from (fewer peers).
 * - Last, pieces move into the destination's node where the busiest load stays what it is.
 * - Ties fall to the first rank in the set's order, so the result is a function of the inputs.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/int128.h"
#include "scheduler/layout_source.h"

#define ROUNDS     16
#define NODE_RANKS 8u

/* The pieces of one set, a run of the sorted order. */
struct batch {
    const struct sl_source_set *set;
    uint64_t *share; /* bytes planned for each rank of the set */
    size_t first, end;
    uint64_t bytes;
};

struct item {
    uint64_t bytes;
    uint32_t task;
    uint32_t set;
};

struct sticky {
    uint32_t batch; /* index + 1 */
    uint32_t place; /* in the set's ranks */
};

struct balance {
    struct sl_mem *mem;
    const struct sl_sources *sources;
    struct sluice_task *tasks;
    struct item *items;
    size_t item_count;
    struct batch *batches;
    size_t batch_count;
    uint64_t *shares;
    uint64_t *load;        /* by source rank */
    uint64_t *sorted;      /* scratch of one water filling */
    struct sticky *sticky; /* by destination rank */
};

static uint32_t node_of(const struct balance *balance, uint32_t source)
{
    return (balance->sources->layout->offset + source) / NODE_RANKS;
}

/* Local pieces are decided here; all others become items. */
static void collect(struct balance *balance, const struct sl_source_want *wants, size_t count)
{
    const struct sl_layout *layout = balance->sources->layout;
    for (size_t i = 0; i < count; i++) {
        struct sluice_task *task = &balance->tasks[i];
        const struct sl_source_key *key = &balance->sources->sets[wants[i].set].key;
        if (task->destination >= layout->offset && sl_source_has(layout, key, task->destination - layout->offset))
            task->source = task->destination;
        else
            balance->items[balance->item_count++] =
                (struct item){.bytes = wants[i].bytes, .task = (uint32_t)i, .set = wants[i].set};
    }
}

static int compare(uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

static int by_turn(const void *a, const void *b, void *context)
{
    const struct balance *balance = context;
    const struct item *left = a;
    const struct item *right = b;
    int order = compare(balance->sources->sets[left->set].count, balance->sources->sets[right->set].count);
    if (!order)
        order = compare(left->set, right->set);
    if (!order)
        order = compare(right->bytes, left->bytes);
    if (!order)
        order = compare(balance->tasks[left->task].destination, balance->tasks[right->task].destination);
    return order ? order : compare(left->task, right->task);
}

static void find_batches(struct balance *balance)
{
    uint64_t *share = balance->shares;
    for (size_t i = 0; i < balance->item_count; i++) {
        const struct item *item = &balance->items[i];
        if (i == 0 || item->set != item[-1].set) {
            struct batch *batch = &balance->batches[balance->batch_count++];
            *batch = (struct batch){.set = &balance->sources->sets[item->set], .share = share, .first = i};
            share += batch->set->count;
        }
        struct batch *batch = &balance->batches[balance->batch_count - 1];
        batch->end = i + 1;
        batch->bytes += item->bytes;
    }
}

static int by_value(const void *a, const void *b)
{
    return compare(*(const uint64_t *)a, *(const uint64_t *)b);
}

/* The level to which `bytes` raise the lowest of `count` ascending loads. */
static uint64_t level_of(const uint64_t *loads, uint32_t count, uint64_t bytes)
{
    sl_u128 sum = bytes;
    uint32_t under = 0;
    while (under < count && (under == 0 || (sl_u128)loads[under] * under < sum))
        sum += loads[under++];
    SL_ASSERT(under > 0);
    return (uint64_t)((sum + under - 1) / under);
}

/* Takes the batch's old shares out of the loads, computes them anew, and adds them. */
static void fill_water(struct balance *balance, struct batch *batch)
{
    const struct sl_source_set *set = batch->set;
    for (uint32_t i = 0; i < set->count; i++) {
        balance->load[set->ranks[i]] -= batch->share[i];
        balance->sorted[i] = balance->load[set->ranks[i]];
    }
    qsort(balance->sorted, set->count, sizeof *balance->sorted, by_value);
    uint64_t level = level_of(balance->sorted, set->count, batch->bytes);
    uint64_t left = batch->bytes;
    for (uint32_t i = 0; i < set->count; i++) {
        uint64_t *load = &balance->load[set->ranks[i]];
        uint64_t room = level > *load ? level - *load : 0;
        batch->share[i] = room < left ? room : left;
        left -= batch->share[i];
        *load += batch->share[i];
    }
    SL_ASSERT(left == 0);
}

/* Better places first: room in the share, the destination's node, its last source, most room. */
static _Bool is_better(const struct balance *balance, const struct batch *batch, uint32_t left, uint32_t right,
                       const struct item *item, uint32_t last)
{
    uint32_t node = balance->tasks[item->task].destination / NODE_RANKS;
    uint64_t room[2] = {batch->share[left], batch->share[right]};
    _Bool fits[2] = {room[0] >= item->bytes / 2, room[1] >= item->bytes / 2};
    if (fits[0] != fits[1])
        return fits[0];
    _Bool near[2] = {node_of(balance, batch->set->ranks[left]) == node,
                     node_of(balance, batch->set->ranks[right]) == node};
    if (fits[0] && near[0] != near[1])
        return near[0];
    if (fits[0] && (left == last || right == last))
        return left == last;
    return room[0] > room[1];
}

/* Deals the batch's pieces; its shares become what is left of them, its loads what was dealt. */
static void deal(struct balance *balance, struct batch *batch)
{
    const struct sl_source_set *set = batch->set;
    uint32_t number = (uint32_t)(batch - balance->batches) + 1;
    fill_water(balance, batch);
    for (uint32_t i = 0; i < set->count; i++)
        balance->load[set->ranks[i]] -= batch->share[i];
    for (size_t i = batch->first; i < batch->end; i++) {
        const struct item *item = &balance->items[i];
        struct sluice_task *task = &balance->tasks[item->task];
        struct sticky *sticky = &balance->sticky[task->destination];
        uint32_t last = sticky->batch == number ? sticky->place : UINT32_MAX;
        uint32_t best = 0;
        for (uint32_t place = 1; place < set->count; place++)
            if (is_better(balance, batch, place, best, item, last))
                best = place;
        *sticky = (struct sticky){.batch = number, .place = best};
        task->source = balance->sources->layout->offset + set->ranks[best];
        balance->load[set->ranks[best]] += item->bytes;
        batch->share[best] -= item->bytes < batch->share[best] ? item->bytes : batch->share[best];
    }
}

static uint64_t busiest(const struct balance *balance)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < balance->sources->layout->world; rank++)
        most = balance->load[rank] > most ? balance->load[rank] : most;
    return most;
}

static void move_near(struct balance *balance, const struct item *item, uint64_t most)
{
    const struct sl_source_set *set = &balance->sources->sets[item->set];
    struct sluice_task *task = &balance->tasks[item->task];
    uint32_t node = task->destination / NODE_RANKS;
    if (task->source / NODE_RANKS == node)
        return;
    for (uint32_t i = 0; i < set->count; i++) {
        uint64_t *load = &balance->load[set->ranks[i]];
        if (node_of(balance, set->ranks[i]) != node || most - *load < item->bytes)
            continue;
        balance->load[task->source - balance->sources->layout->offset] -= item->bytes;
        *load += item->bytes;
        task->source = balance->sources->layout->offset + set->ranks[i];
        return;
    }
}

static void choose(struct balance *balance)
{
    qsort_r(balance->items, balance->item_count, sizeof *balance->items, by_turn, balance);
    find_batches(balance);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < balance->batch_count; i++)
            fill_water(balance, &balance->batches[i]);
    for (size_t i = 0; i < balance->batch_count; i++)
        deal(balance, &balance->batches[i]);
    uint64_t most = busiest(balance);
    for (size_t i = 0; i < balance->item_count; i++)
        move_near(balance, &balance->items[i], most);
}

static sluice_status allocate(struct balance *balance, size_t count, uint32_t world)
{
    const struct sl_sources *sources = balance->sources;
    size_t places = 0;
    for (size_t i = 0; i < sources->count; i++)
        places += sources->sets[i].count;
    balance->items = sl_new_array(balance->mem, count, sizeof *balance->items, "choice of sources");
    balance->batches = sl_new_array(balance->mem, sources->count, sizeof *balance->batches, "choice of sources");
    balance->shares = sl_new_array(balance->mem, places, sizeof *balance->shares, "choice of sources");
    balance->load = sl_new_array(balance->mem, sources->layout->world, sizeof *balance->load, "choice of sources");
    balance->sorted = sl_new_array(balance->mem, sources->layout->world, sizeof *balance->sorted, "choice of sources");
    balance->sticky = sl_new_array(balance->mem, world, sizeof *balance->sticky, "choice of sources");
    return balance->items && balance->batches && balance->shares && balance->load && balance->sorted && balance->sticky
               ? SLUICE_OK
               : SLUICE_NOMEM;
}

sluice_status sl_source_balance(const struct sl_sources *sources, struct sluice_task *tasks,
                                const struct sl_source_want *wants, size_t count, uint32_t world)
{
    struct balance balance = {.mem = sources->mem, .sources = sources, .tasks = tasks};
    sluice_status status = allocate(&balance, count, world);
    if (status == SLUICE_OK) {
        collect(&balance, wants, count);
        choose(&balance);
    }
    sl_free(balance.mem, balance.items);
    sl_free(balance.mem, balance.batches);
    sl_free(balance.mem, balance.shares);
    sl_free(balance.mem, balance.load);
    sl_free(balance.mem, balance.sorted);
    sl_free(balance.mem, balance.sticky);
    return status;
}
