/*
 * Staging through slots, with a device made of lists: it does what was enqueued at some later time, so a slot that is
 * used again too early brings wrong bytes.
 */
#include "runtime/backend/stage.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/strided.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"

enum { STREAMS = 4, ENTRIES = 4096, SLOT = 128 << 10, THREADS = 3 };

/* One chunk's device part in a stream. */
struct entry {
    const struct sl_stage_plan *plan;
    uint32_t chunk;
};

struct stream {
    struct entry entries[ENTRIES];
    uint32_t count, done;
    struct sl_stage_op op;
    _Bool ended, lost;
};

struct bench {
    struct sl_stage_slots slots;
    struct sl_crew *crew;
    struct sl_stage *stage;
    struct stream streams[STREAMS];
    uint32_t mark_stream[SL_STAGE_SLOTS_MAX], mark_entry[SL_STAGE_SLOTS_MAX];
    struct sl_random random;
    uint32_t fails_in; /* this enqueue fails; 0: none */
    _Bool broken;      /* `passed` says so */
};

static sluice_status enqueue(void *context, const struct sl_stage_op *op, uint32_t chunk)
{
    struct bench *bench = context;
    struct stream *stream = op->owner;
    uint32_t slot = op->plan->chunks[chunk].slot;
    if (bench->fails_in != 0 && --bench->fails_in == 0)
        return SLUICE_DEVICE;
    cr_assert_lt(stream->count, ENTRIES);
    stream->entries[stream->count++] = (struct entry){op->plan, chunk};
    bench->mark_stream[slot] = (uint32_t)(stream - bench->streams);
    bench->mark_entry[slot] = stream->count;
    return SLUICE_OK;
}

static sluice_status passed(void *context, uint32_t slot)
{
    const struct bench *bench = context;
    if (bench->broken)
        return SLUICE_DEVICE;
    return bench->streams[bench->mark_stream[slot]].done >= bench->mark_entry[slot] ? SLUICE_OK : SLUICE_AGAIN;
}

static void ended(void *context, struct sl_stage_op *op, _Bool lost)
{
    struct stream *stream = op->owner;
    (void)context;
    cr_assert_eq(op->working, 0);
    stream->ended = 1;
    stream->lost = lost;
}

static const struct sl_stage_ops ops = {enqueue, passed, ended};

static void open_bench(struct bench *bench, uint32_t slots)
{
    *bench = (struct bench){.slots = {.bytes = SLOT, .count = slots}, .random = {.state = 11}};
    for (uint32_t i = 0; i < slots; i++)
        bench->slots.memory[i] = sl_new_aligned(sl_mem_default(), SLOT, 64, "slot");
    cr_assert_eq(sl_crew_open(sl_mem_default(), THREADS, NULL, NULL, &bench->crew), SLUICE_OK);
    cr_assert_eq(sl_stage_open(sl_mem_default(), &ops, bench, bench->crew, &bench->stage), SLUICE_OK);
}

static void close_bench(struct bench *bench)
{
    sl_stage_close(bench->stage);
    sl_crew_close(bench->crew);
    for (uint32_t i = 0; i < bench->slots.count; i++)
        sl_free(sl_mem_default(), bench->slots.memory[i]);
}

/* The device does the next thing of a stream that has one. */
static void device_step(struct bench *bench)
{
    struct stream *stream = &bench->streams[sl_random_below(&bench->random, STREAMS)];
    if (stream->done == stream->count)
        return;
    const struct entry *entry = &stream->entries[stream->done];
    const struct sl_stage_chunk *chunk = &entry->plan->chunks[entry->chunk];
    for (size_t i = chunk[0].device; i < chunk[1].device; i++)
        sl_strided_copy(&entry->plan->device.copies[i], 0);
    stream->done++;
}

static void begin(struct bench *bench, uint32_t number, const struct sl_stage_plan *plan)
{
    struct stream *stream = &bench->streams[number];
    stream->op = (struct sl_stage_op){.plan = plan, .owner = stream};
    stream->ended = 0;
    sl_stage_begin(bench->stage, &stream->op);
}

static _Bool all_done(const struct bench *bench)
{
    for (uint32_t i = 0; i < STREAMS; i++)
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

/* `ends_of` 0: each piece as it happens. */
static void make_window(struct bench *bench, struct window *window, uint8_t ends)
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
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, window->pieces, window->ends, PIECES, &window->plan),
                 SLUICE_OK);
}

static void check_window(struct window *window)
{
    for (uint32_t i = 0; i < AREA; i++)
        cr_assert_eq(window->to[i], window->expected[i], "byte %u", i);
    sl_stage_plan_drop(&window->plan);
    sl_free(sl_mem_default(), window->from);
    sl_free(sl_mem_default(), window->to);
    sl_free(sl_mem_default(), window->expected);
}

/* One window a stream after the other, all streams side by side, over `slots` slots. */
static void run_windows(uint32_t slots, uint8_t ends)
{
    enum { ROUNDS = 10 };
    struct window windows[STREAMS];
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, slots);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < STREAMS; i++)
            make_window(bench, &windows[i], ends);
        for (uint32_t i = 0; i < STREAMS; i++)
            begin(bench, i, &windows[i].plan);
        while (!all_done(bench)) {
            if (!sl_stage_advance(bench->stage))
                sched_yield();
            device_step(bench);
        }
        for (uint32_t i = 0; i < STREAMS; i++) {
            cr_assert_not(bench->streams[i].lost);
            check_window(&windows[i]);
        }
    }
    close_bench(bench);
    free(bench);
}

Test(stage, sources_of_the_processor_arrive_over_many_windows)
{
    run_windows(4, SL_STAGE_FROM);
}

Test(stage, destinations_of_the_processor_are_whole_when_a_set_ends)
{
    run_windows(4, SL_STAGE_TO);
}

Test(stage, all_kinds_of_ends_mix_in_a_set)
{
    run_windows(5, 0);
}

Test(stage, two_slots_are_enough_for_four_queues)
{
    run_windows(2, 0);
}

/* --- order and failure --- */

static void flat_window(struct bench *bench, struct window *window, uint8_t value, uint64_t bytes)
{
    window->from = sl_new_aligned(sl_mem_default(), bytes, 64, "from");
    window->to = sl_new_aligned(sl_mem_default(), bytes, 64, "to");
    memset(window->from, value, bytes);
    memset(window->to, 0, bytes);
    window->pieces[0] = (struct sluice_copy){.from = at(window->from), .to = at(window->to), .bytes = bytes};
    window->ends[0] = SL_STAGE_FROM;
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, window->pieces, window->ends, 1, &window->plan),
                 SLUICE_OK);
}

static void drop_flat(struct window *window)
{
    sl_stage_plan_drop(&window->plan);
    sl_free(sl_mem_default(), window->from);
    sl_free(sl_mem_default(), window->to);
}

static void settle(struct bench *bench, uint32_t entered)
{
    while (bench->streams[0].op.entered + bench->streams[1].op.entered < entered)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    while (sl_stage_advance(bench->stage))
        ;
}

Test(stage, a_set_waits_until_all_chunks_of_those_before_it_have_slots)
{
    struct window before, first, second;
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, 4);
    flat_window(bench, &before, 5, SLOT);    /* slot 0 */
    flat_window(bench, &second, 9, SLOT);    /* slot 1, which stays free */
    flat_window(bench, &first, 7, 3 * SLOT); /* slots 2, 3 and 0 */
    begin(bench, 2, &before.plan);
    begin(bench, 0, &first.plan);
    begin(bench, 1, &second.plan);
    settle(bench, 2);
    cr_assert_eq(bench->streams[0].op.claimed, 2, "slot 0 is not free");
    cr_assert_eq(bench->streams[1].op.claimed, 0, "nobody overtakes");
    bench->streams[3].ended = 1;
    while (!all_done(bench)) {
        if (!sl_stage_advance(bench->stage))
            sched_yield();
        device_step(bench);
    }
    cr_assert_eq(first.to[3 * SLOT - 1], 7);
    cr_assert_eq(second.to[SLOT - 1], 9);
    drop_flat(&before);
    drop_flat(&first);
    drop_flat(&second);
    close_bench(bench);
    free(bench);
}

Test(stage, a_set_that_the_device_refuses_ends_as_lost_once_the_crew_has_let_go)
{
    struct window windows[2];
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, 4);
    for (int i = 0; i < 2; i++)
        flat_window(bench, &windows[i], 7, 8 * SLOT);
    bench->fails_in = 3;
    for (uint32_t i = 0; i < 2; i++)
        begin(bench, i, &windows[i].plan);
    while (!bench->streams[0].ended || !bench->streams[1].ended)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    cr_assert(bench->streams[0].lost && bench->streams[1].lost);
    for (int i = 0; i < 2; i++)
        drop_flat(&windows[i]);
    close_bench(bench);
    free(bench);
}

Test(stage, a_device_that_breaks_ends_what_waits_for_it)
{
    struct window window;
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, 2);
    flat_window(bench, &window, 7, 6 * SLOT);
    begin(bench, 0, &window.plan);
    settle(bench, 2);
    bench->broken = 1;
    while (!bench->streams[0].ended)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    cr_assert(bench->streams[0].lost);
    drop_flat(&window);
    close_bench(bench);
    free(bench);
}

Test(stage, a_set_that_is_cancelled_gives_its_slots_back)
{
    struct window first, second;
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, 2);
    flat_window(bench, &first, 7, 6 * SLOT);
    flat_window(bench, &second, 9, 2 * SLOT);
    begin(bench, 0, &first.plan);
    cr_assert(sl_stage_advance(bench->stage));
    sl_stage_cancel(bench->stage, &bench->streams[0].op);
    begin(bench, 1, &second.plan);
    while (!bench->streams[1].ended || bench->streams[1].done < bench->streams[1].count) {
        if (!sl_stage_advance(bench->stage))
            sched_yield();
        device_step(bench);
    }
    cr_assert_eq(second.to[2 * SLOT - 1], 9);
    drop_flat(&first);
    drop_flat(&second);
    close_bench(bench);
    free(bench);
}

/* --- contiguous copies of a chunk --- */

Test(stage, packed_pieces_of_a_chunk_are_one_copy_of_the_device)
{
    enum { BYTES = 1000, EACH = 1008 };
    static uint8_t from[64 * BYTES], to[64 * EACH] __attribute__((aligned(16)));
    struct sl_stage_run runs[8];
    struct sl_stage_plan plan;
    struct sluice_copy pieces[64];
    uint8_t ends[64];
    struct bench *bench = calloc(1, sizeof *bench);
    open_bench(bench, 2);
    for (size_t i = 0; i < 64; i++) {
        pieces[i] = (struct sluice_copy){.from = at(from + i * BYTES), .to = at(to + i * EACH), .bytes = BYTES};
        ends[i] = SL_STAGE_FROM;
    }
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, pieces, ends, 64, &plan), SLUICE_OK);
    cr_assert_eq(plan.count, 1);
    cr_assert_eq(sl_stage_runs(&plan, 0, 1, 8, runs), 1);
    cr_assert_eq(runs[0].bytes, 63 * EACH + BYTES);
    cr_assert_eq(runs[0].to, (uint64_t)(uintptr_t)to);
    cr_assert_eq(runs[0].from, (uint64_t)(uintptr_t)bench->slots.memory[0]);
    cr_assert_eq(sl_stage_runs(&plan, 0, 0, 8, runs), 0, "64 gaps of somebody else's memory");
    cr_assert_eq(sl_stage_runs(&plan, 0, 0, 64, (struct sl_stage_run[64]){{0}}), 64);
    sl_stage_plan_drop(&plan);
    pieces[3].to.row_bytes = 10;
    pieces[3].to.pitch = 12;
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, pieces, ends, 8, &plan), SLUICE_OK);
    cr_assert_eq(sl_stage_runs(&plan, 0, 1, 8, runs), 0, "rows are for the kernel");
    sl_stage_plan_drop(&plan);
    close_bench(bench);
    free(bench);
}

Test(stage, a_large_piece_is_cut_where_the_device_is_aligned)
{
    static uint8_t from[3 * SLOT], to[3 * SLOT] __attribute__((aligned(16)));
    struct sl_stage_plan plan;
    struct bench *bench = calloc(1, sizeof *bench);
    uint8_t ends = SL_STAGE_FROM;
    open_bench(bench, 4);
    struct sluice_copy piece = {.from = at(from + 1), .to = at(to + 5), .bytes = 2 * SLOT + 100};
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, &piece, &ends, 1, &plan), SLUICE_OK);
    cr_assert_eq(plan.count, 3);
    for (size_t i = 0; i < plan.device.count; i++) {
        const struct sluice_copy *copy = &plan.device.copies[i];
        cr_assert_eq((copy->from.address + copy->from.begin) % 16, (copy->to.address + copy->to.begin) % 16);
        cr_assert_eq((copy->to.address + copy->to.begin) % 16, i == 0 ? 5 : 0);
    }
    cr_assert_eq(bench->slots.next, 3, "the next set goes on with the next slot");
    sl_stage_plan_drop(&plan);
    close_bench(bench);
    free(bench);
}
