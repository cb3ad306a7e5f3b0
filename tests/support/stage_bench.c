/* See stage_bench.h. */
#include "support/stage_bench.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/strided.h"
#include "runtime/base/error.h"

enum { THREADS = 3 };

static sluice_status enqueue(void *context, const struct sl_stage_op *op, uint32_t chunk)
{
    struct stage_bench *bench = context;
    struct stage_stream *stream = op->owner;
    uint32_t slot = op->plan->chunks[chunk].slot;
    if (bench->fails_in != 0 && --bench->fails_in == 0)
        return SLUICE_DEVICE;
    SL_ASSERT(stream->count - stream->done < STAGE_ENTRIES);
    stream->entries[stream->count++ % STAGE_ENTRIES] = (struct stage_entry){op->plan, chunk};
    bench->mark_stream[slot] = (uint32_t)(stream - bench->streams);
    bench->mark_entry[slot] = stream->count;
    return SLUICE_OK;
}

static sluice_status passed(void *context, uint32_t slot)
{
    const struct stage_bench *bench = context;
    if (bench->broken)
        return SLUICE_DEVICE;
    return bench->streams[bench->mark_stream[slot]].done >= bench->mark_entry[slot] ? SLUICE_OK : SLUICE_AGAIN;
}

static void ended(void *context, struct sl_stage_op *op, _Bool lost)
{
    struct stage_stream *stream = op->owner;
    (void)context;
    SL_ASSERT(op->working == 0);
    stream->ended = 1;
    stream->lost = lost;
}

static const struct sl_stage_ops ops = {enqueue, passed, ended};

struct stage_bench *stage_bench_open(uint32_t slots, uint64_t seed)
{
    struct stage_bench *bench = calloc(1, sizeof *bench);
    SL_ASSERT(bench != NULL);
    bench->slots = (struct sl_stage_slots){.bytes = STAGE_SLOT, .count = slots};
    bench->random.state = seed;
    for (uint32_t i = 0; i < slots; i++)
        bench->slots.memory[i] = sl_new_aligned(sl_mem_default(), STAGE_SLOT, 64, "slot");
    sluice_status status = sl_crew_open(sl_mem_default(), THREADS, NULL, NULL, &bench->crew);
    SL_ASSERT(status == SLUICE_OK);
    status = sl_stage_open(sl_mem_default(), &ops, bench, bench->crew, &bench->stage);
    SL_ASSERT(status == SLUICE_OK);
    return bench;
}

void stage_bench_close(struct stage_bench *bench)
{
    sl_stage_close(bench->stage);
    sl_crew_close(bench->crew);
    for (uint32_t i = 0; i < bench->slots.count; i++)
        sl_free(sl_mem_default(), bench->slots.memory[i]);
    free(bench);
}

/* The device does the next thing of a stream that has one. */
static void device_step(struct stage_bench *bench)
{
    struct stage_stream *stream = &bench->streams[sl_random_below(&bench->random, STAGE_STREAMS)];
    if (stream->done == stream->count)
        return;
    const struct stage_entry *entry = &stream->entries[stream->done % STAGE_ENTRIES];
    const struct sl_stage_chunk *chunk = &entry->plan->chunks[entry->chunk];
    for (size_t i = chunk[0].device; i < chunk[1].device; i++)
        sl_strided_copy(&entry->plan->device.copies[i], 0);
    stream->done++;
}

void stage_bench_begin(struct stage_bench *bench, uint32_t number, const struct sl_stage_plan *plan)
{
    struct stage_stream *stream = &bench->streams[number];
    stream->op = (struct sl_stage_op){.plan = plan, .owner = stream};
    stream->ended = 0;
    sl_stage_begin(bench->stage, &stream->op);
}

void stage_bench_step(struct stage_bench *bench)
{
    if (!sl_stage_advance(bench->stage))
        sched_yield();
    device_step(bench);
}

_Bool stage_bench_done(const struct stage_bench *bench)
{
    for (uint32_t i = 0; i < STAGE_STREAMS; i++)
        if (!bench->streams[i].ended || bench->streams[i].done < bench->streams[i].count)
            return 0;
    return 1;
}

static struct sluice_strided at(const uint8_t *memory)
{
    return (struct sluice_strided){.address = (uint64_t)(uintptr_t)memory, .row_bytes = UINT64_MAX};
}

/* --- windows of pieces --- */

enum { PIECES = 40, CELL = 48 << 10, AREA = PIECES * CELL, CANARY = 0xa5 };

struct window {
    uint8_t *from, *to, *expected;
    struct sluice_copy pieces[PIECES];
    uint8_t ends[PIECES];
    struct sl_stage_plan plan;
};

static struct sluice_strided place(struct sl_random *random, const uint8_t *cell, uint64_t bytes)
{
    struct sluice_strided place = at(cell + sl_random_below(random, 19));
    if (sl_random_below(random, 3) != 0)
        return place;
    place.row_bytes = 1 + sl_random_below(random, 700);
    place.pitch = place.row_bytes + sl_random_below(random, 20);
    place.begin = sl_random_below(random, place.row_bytes);
    uint64_t rows = (place.begin + bytes) / place.row_bytes + 1;
    return rows * place.pitch + 19 <= CELL ? place : at(cell);
}

static void make_window(struct stage_bench *bench, struct window *window, uint8_t ends)
{
    window->from = sl_new_aligned(sl_mem_default(), AREA, 64, "from");
    window->to = sl_new_aligned(sl_mem_default(), AREA, 64, "to");
    window->expected = sl_new_aligned(sl_mem_default(), AREA, 64, "expected");
    for (uint32_t i = 0; i < AREA; i++)
        window->from[i] = (uint8_t)sl_random_next(&bench->random);
    memset(window->to, CANARY, AREA);
    memset(window->expected, CANARY, AREA);
    for (uint32_t i = 0; i < PIECES; i++) {
        uint64_t most = sl_random_below(&bench->random, 3) == 0 ? 40 : CELL / 2;
        struct sluice_copy *piece = &window->pieces[i];
        *piece = (struct sluice_copy){.bytes = 1 + sl_random_below(&bench->random, most), .param = i};
        piece->from = place(&bench->random, window->from + (size_t)i * CELL, piece->bytes);
        piece->to = place(&bench->random, window->to + (size_t)(PIECES - 1 - i) * CELL, piece->bytes);
        struct sluice_copy direct = *piece;
        direct.to.address += (uint64_t)(uintptr_t)window->expected - (uint64_t)(uintptr_t)window->to;
        window->ends[i] = ends != 0 ? ends : (uint8_t)(1 + sl_random_below(&bench->random, 3));
        sl_strided_copy(&direct, 0);
    }
    sluice_status status =
        sl_stage_cut(sl_mem_default(), &bench->slots, window->pieces, window->ends, PIECES, &window->plan);
    SL_ASSERT(status == SLUICE_OK);
}

static void check_window(struct window *window)
{
    SL_ASSERT(memcmp(window->to, window->expected, AREA) == 0);
    sl_stage_plan_drop(&window->plan);
    sl_free(sl_mem_default(), window->from);
    sl_free(sl_mem_default(), window->to);
    sl_free(sl_mem_default(), window->expected);
}

void stage_bench_windows(uint32_t slots, uint8_t ends, uint32_t rounds, uint64_t seed)
{
    struct window windows[STAGE_STREAMS];
    struct stage_bench *bench = stage_bench_open(slots, seed);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < STAGE_STREAMS; i++)
            make_window(bench, &windows[i], ends);
        for (uint32_t i = 0; i < STAGE_STREAMS; i++)
            stage_bench_begin(bench, i, &windows[i].plan);
        while (!stage_bench_done(bench))
            stage_bench_step(bench);
        for (uint32_t i = 0; i < STAGE_STREAMS; i++) {
            SL_ASSERT(!bench->streams[i].lost);
            check_window(&windows[i]);
        }
    }
    stage_bench_close(bench);
}
