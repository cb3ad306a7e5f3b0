/*
 * half.c: one rank's tasks as pair streams.
 *
 * Invariants
 * - Streams are sorted by (receive, peer); entries lie stream by stream in this order, the local ones last.
 * - Within a stream, entries keep the order of plan->tasks, which is (id, part), and entry.unit never falls.
 * - The padded bytes of all sends, of all receives and of all local tasks stay below 2^63 each, so that later
 *   sums and products with SLUICE_UNIT cannot overflow.
 */
#include "scheduler/half.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/hash.h"

#define UNITS_MAX  ((UINT64_C(1) << 63) / SLUICE_UNIT - 1)
#define NO_STREAM  UINT32_MAX
#define DIGEST_RUN 64

/* The tasks to look at: those of the rank when there is an index, else all. */
struct walk {
    const struct sl_plan *plan;
    const uint32_t *list;
    size_t count;
    uint32_t rank;
};

static struct walk walk_of(const struct sl_plan *plan, const struct sl_plan_index *index, uint32_t rank)
{
    struct walk walk = {.plan = plan, .count = plan->task_count, .rank = rank};
    if (index != NULL) {
        walk.list = index->tasks + index->first[rank];
        walk.count = index->first[rank + 1] - index->first[rank];
    }
    return walk;
}

static uint32_t walk_task(const struct walk *walk, size_t i)
{
    return walk->list != NULL ? walk->list[i] : (uint32_t)i;
}

/* Streams before they are compacted: sends by peer, receives by peer, local. */
static size_t lane_of(const struct walk *walk, const struct sluice_task *task)
{
    size_t world = walk->plan->world;
    if (task->source == task->destination) {
        return 2 * world;
    }
    return task->source == walk->rank ? task->destination : world + task->source;
}

static _Bool is_mine(const struct walk *walk, const struct sluice_task *task)
{
    return task->source == walk->rank || task->destination == walk->rank;
}

static size_t count_lanes(const struct walk *walk, uint32_t *lanes)
{
    size_t mine = 0;
    for (size_t i = 0; i < walk->count; i++) {
        const struct sluice_task *task = &walk->plan->tasks[walk_task(walk, i)];
        if (is_mine(walk, task)) {
            lanes[lane_of(walk, task)]++;
            mine++;
        }
    }
    return mine;
}

/* Replaces each lane's count by the number of its stream; the streams' counts start at 0 and grow as they fill. */
static void lay_streams(uint32_t *lanes, struct sl_half *half)
{
    uint32_t first = 0;
    for (uint32_t lane = 0; lane < 2 * half->world; lane++) {
        uint32_t count = lanes[lane];
        lanes[lane] = count == 0 ? NO_STREAM : half->stream_count;
        if (count != 0) {
            _Bool receive = lane >= half->world;
            half->streams[half->stream_count++] = (struct sl_stream){
                .peer = receive ? lane - half->world : lane,
                .receive = receive,
                .first = first,
            };
            first += count;
        }
    }
    half->local = (struct sl_stream){.peer = half->rank, .first = first};
}

static uint64_t units_of(uint64_t bytes)
{
    return bytes / SLUICE_UNIT + (bytes % SLUICE_UNIT != 0);
}

static sluice_status add_entry(struct sl_half *half, struct sl_stream *stream, uint32_t task, uint64_t bytes,
                               uint64_t *total)
{
    SL_ASSERT(bytes <= SLUICE_BYTES_MAX);
    uint64_t units = units_of(bytes);
    if (units > UNITS_MAX - *total) {
        return sl_fail(SLUICE_LIMIT, "schedule", "rank %" PRIu32 " %s 2^63 bytes or more; split the plan", half->rank,
                       stream == &half->local ? "copies" : (stream->receive ? "receives" : "sends"));
    }
    half->entries[stream->first + stream->count++] =
        (struct sl_entry){.unit = stream->units, .bytes = bytes, .task = task};
    stream->units += units;
    stream->bytes += bytes;
    *total += units;
    return SLUICE_OK;
}

static sluice_status fill(const struct walk *walk, const uint32_t *lanes, struct sl_half *half)
{
    uint64_t totals[3] = {0, 0, 0}; /* send, receive, local */
    for (size_t i = 0; i < walk->count; i++) {
        uint32_t index = walk_task(walk, i);
        const struct sluice_task *task = &walk->plan->tasks[index];
        if (!is_mine(walk, task)) {
            continue;
        }
        size_t lane = lane_of(walk, task);
        _Bool local = lane == 2 * (size_t)half->world;
        struct sl_stream *stream = local ? &half->local : &half->streams[lanes[lane]];
        sluice_status status =
            add_entry(half, stream, index, sl_task_bytes(task), &totals[local ? 2 : (stream->receive ? 1 : 0)]);
        if (status != SLUICE_OK) {
            return status;
        }
    }
    return SLUICE_OK;
}

static uint32_t used_lanes(const uint32_t *lanes, size_t count)
{
    uint32_t used = 0;
    for (size_t i = 0; i < count; i++) {
        used += lanes[i] != 0;
    }
    return used;
}

static sluice_status build(const struct walk *walk, uint32_t *lanes, struct sl_half *half)
{
    half->entry_count = count_lanes(walk, lanes);
    half->entries = sl_new_array(half->mem, half->entry_count, sizeof(*half->entries), "entries of a half");
    half->streams = sl_new_array(half->mem, used_lanes(lanes, 2 * (size_t)half->world), sizeof(*half->streams),
                                 "streams of a half");
    if (half->entries == NULL || half->streams == NULL) {
        return SLUICE_NOMEM;
    }
    lay_streams(lanes, half);
    return fill(walk, lanes, half);
}

sluice_status sl_half_build_indexed(const struct sl_plan *plan, const struct sl_plan_index *index, uint32_t rank,
                                    struct sl_mem *mem, struct sl_half *ret)
{
    SL_ASSERT(rank < plan->world);
    if (plan->task_count >= UINT32_MAX) {
        return sl_fail(SLUICE_LIMIT, "schedule", "%zu tasks; a plan may have fewer than 2^32", plan->task_count);
    }
    struct walk walk = walk_of(plan, index, rank);
    struct sl_half half = {.mem = mem, .rank = rank, .world = plan->world};
    uint32_t *lanes = sl_new_array(mem, 2 * (size_t)plan->world + 1, sizeof(*lanes), "streams by peer");
    if (lanes == NULL) {
        return SLUICE_NOMEM;
    }
    sluice_status status = build(&walk, lanes, &half);
    sl_free(mem, lanes);
    if (status != SLUICE_OK) {
        sl_half_drop(&half);
        return status;
    }
    *ret = half;
    return SLUICE_OK;
}

sluice_status sl_half_build(const struct sl_plan *plan, uint32_t rank, struct sl_mem *mem, struct sl_half *ret)
{
    return sl_half_build_indexed(plan, NULL, rank, mem, ret);
}

void sl_half_drop(struct sl_half *half)
{
    if (half == NULL || half->mem == NULL) {
        return;
    }
    sl_free(half->mem, half->streams);
    sl_free(half->mem, half->entries);
    *half = (struct sl_half){0};
}

const struct sl_stream *sl_half_find(const struct sl_half *half, uint32_t peer, _Bool receive)
{
    uint32_t low = 0;
    uint32_t high = half->stream_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sl_stream *stream = &half->streams[middle];
        _Bool before = stream->receive != receive ? receive : stream->peer < peer;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    const struct sl_stream *found = low < half->stream_count ? &half->streams[low] : NULL;
    return found != NULL && found->receive == receive && found->peer == peer ? found : NULL;
}

/* What both ends must agree on, without padding: it is hashed as memory. */
struct digest_record {
    uint64_t id;
    uint64_t bytes;
    uint32_t part;
    uint32_t dtype;
};
_Static_assert(sizeof(struct digest_record) == 24, "hashed as memory");

uint64_t sl_stream_digest(const struct sl_plan *plan, const struct sl_half *half, const struct sl_stream *stream)
{
    struct digest_record run[DIGEST_RUN];
    uint64_t digest = sl_mix64(stream->count + UINT64_C(1));
    for (uint32_t done = 0; done < stream->count;) {
        uint32_t n = 0;
        for (; n < DIGEST_RUN && done < stream->count; n++, done++) {
            const struct sl_entry *entry = &half->entries[stream->first + done];
            const struct sluice_task *task = &plan->tasks[entry->task];
            run[n] = (struct digest_record){
                .id = task->id,
                .bytes = entry->bytes,
                .part = task->part,
                .dtype = stream->receive ? task->destination_dtype : task->source_dtype,
            };
        }
        digest = sl_hash64(run, n * sizeof(run[0]), digest);
    }
    return digest;
}

/* Counts each rank's tasks into first[rank + 1], then sums, so that first[rank] is where they begin. */
static void index_count(const struct sl_plan *plan, size_t *first)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        first[task->source + 1]++;
        if (task->destination != task->source) {
            first[task->destination + 1]++;
        }
    }
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        first[rank + 1] += first[rank];
    }
}

/* Fills by moving first[rank] along; shifting back afterwards saves a second array. */
static void index_fill(const struct sl_plan *plan, size_t *first, uint32_t *tasks)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        tasks[first[task->source]++] = (uint32_t)i;
        if (task->destination != task->source) {
            tasks[first[task->destination]++] = (uint32_t)i;
        }
    }
    memmove(first + 1, first, plan->world * sizeof(*first));
    first[0] = 0;
}

sluice_status sl_plan_index_build(const struct sl_plan *plan, struct sl_mem *mem, struct sl_plan_index *ret)
{
    if (plan->task_count >= UINT32_MAX) {
        return sl_fail(SLUICE_LIMIT, "schedule", "%zu tasks; a plan may have fewer than 2^32", plan->task_count);
    }
    struct sl_plan_index index = {.mem = mem};
    index.first = sl_new_array(mem, (size_t)plan->world + 1, sizeof(*index.first), "index of tasks");
    if (index.first == NULL) {
        return SLUICE_NOMEM;
    }
    index_count(plan, index.first);
    index.tasks = sl_new_array(mem, index.first[plan->world], sizeof(*index.tasks), "index of tasks");
    if (index.tasks == NULL) {
        sl_plan_index_drop(&index);
        return SLUICE_NOMEM;
    }
    index_fill(plan, index.first, index.tasks);
    *ret = index;
    return SLUICE_OK;
}

void sl_plan_index_drop(struct sl_plan_index *index)
{
    if (index == NULL || index->mem == NULL) {
        return;
    }
    sl_free(index->mem, index->first);
    sl_free(index->mem, index->tasks);
    *index = (struct sl_plan_index){0};
}
