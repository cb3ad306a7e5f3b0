/* Staging through slots: bytes, order, failure; and how pieces are cut. */
#include "runtime/backend/stage.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "runtime/backend/strided.h"
#include "support/stage_bench.h"

enum { SLOT = STAGE_SLOT, ROUNDS = 10 };

Test(stage, sources_of_the_processor_arrive_over_many_windows)
{
    stage_bench_windows(4, SL_STAGE_FROM, ROUNDS, 11);
}

Test(stage, destinations_of_the_processor_are_whole_when_a_set_ends)
{
    stage_bench_windows(4, SL_STAGE_TO, ROUNDS, 12);
}

Test(stage, all_kinds_of_ends_mix_in_a_set)
{
    stage_bench_windows(5, 0, ROUNDS, 13);
}

Test(stage, two_slots_are_enough_for_four_queues)
{
    stage_bench_windows(2, 0, ROUNDS, 14);
}

/* --- order and failure --- */

struct flat {
    uint8_t *from, *to;
    struct sl_stage_plan plan;
};

static struct sluice_strided at(const uint8_t *memory)
{
    return (struct sluice_strided){.address = (uint64_t)(uintptr_t)memory, .row_bytes = UINT64_MAX};
}

static void flat_window(struct stage_bench *bench, struct flat *window, uint8_t value, uint64_t bytes)
{
    window->from = sl_new_aligned(sl_mem_default(), bytes, 64, "from");
    window->to = sl_new_aligned(sl_mem_default(), bytes, 64, "to");
    memset(window->from, value, bytes);
    memset(window->to, 0, bytes);
    const struct sluice_copy piece = {.from = at(window->from), .to = at(window->to), .bytes = bytes};
    const uint8_t ends = SL_STAGE_FROM;
    cr_assert_eq(sl_stage_cut(sl_mem_default(), &bench->slots, &piece, &ends, 1, &window->plan), SLUICE_OK);
}

static void drop_flat(struct flat *window)
{
    sl_stage_plan_drop(&window->plan);
    sl_free(sl_mem_default(), window->from);
    sl_free(sl_mem_default(), window->to);
}

static void settle(struct stage_bench *bench, uint32_t entered)
{
    while (bench->streams[0].op.entered + bench->streams[1].op.entered < entered)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    while (sl_stage_advance(bench->stage))
        ;
}

Test(stage, a_set_waits_until_all_chunks_of_those_before_it_have_slots)
{
    struct flat before, first, second;
    struct stage_bench *bench = stage_bench_open(4, 1);
    flat_window(bench, &before, 5, SLOT);    /* slot 0 */
    flat_window(bench, &second, 9, SLOT);    /* slot 1, which stays free */
    flat_window(bench, &first, 7, 3 * SLOT); /* slots 2, 3 and 0 */
    stage_bench_begin(bench, 2, &before.plan);
    stage_bench_begin(bench, 0, &first.plan);
    stage_bench_begin(bench, 1, &second.plan);
    settle(bench, 2);
    cr_assert_eq(bench->streams[0].op.claimed, 2, "slot 0 is not free");
    cr_assert_eq(bench->streams[1].op.claimed, 0, "nobody overtakes");
    bench->streams[3].ended = 1;
    while (!stage_bench_done(bench))
        stage_bench_step(bench);
    cr_assert_eq(first.to[3 * SLOT - 1], 7);
    cr_assert_eq(second.to[SLOT - 1], 9);
    drop_flat(&before);
    drop_flat(&first);
    drop_flat(&second);
    stage_bench_close(bench);
}

Test(stage, a_set_that_the_device_refuses_ends_as_lost_once_the_crew_has_let_go)
{
    struct flat windows[2];
    struct stage_bench *bench = stage_bench_open(4, 1);
    for (int i = 0; i < 2; i++)
        flat_window(bench, &windows[i], 7, 8 * SLOT);
    bench->fails_in = 3;
    for (uint32_t i = 0; i < 2; i++)
        stage_bench_begin(bench, i, &windows[i].plan);
    while (!bench->streams[0].ended || !bench->streams[1].ended)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    cr_assert(bench->streams[0].lost && bench->streams[1].lost);
    for (int i = 0; i < 2; i++)
        drop_flat(&windows[i]);
    stage_bench_close(bench);
}

Test(stage, a_device_that_breaks_ends_what_waits_for_it)
{
    struct flat window;
    struct stage_bench *bench = stage_bench_open(2, 1);
    flat_window(bench, &window, 7, 6 * SLOT);
    stage_bench_begin(bench, 0, &window.plan);
    settle(bench, 2);
    bench->broken = 1;
    while (!bench->streams[0].ended)
        if (!sl_stage_advance(bench->stage))
            sched_yield();
    cr_assert(bench->streams[0].lost);
    drop_flat(&window);
    stage_bench_close(bench);
}

Test(stage, a_set_that_is_cancelled_gives_its_slots_back)
{
    struct flat first, second;
    struct stage_bench *bench = stage_bench_open(2, 1);
    flat_window(bench, &first, 7, 6 * SLOT);
    flat_window(bench, &second, 9, 2 * SLOT);
    stage_bench_begin(bench, 0, &first.plan);
    cr_assert(sl_stage_advance(bench->stage));
    sl_stage_cancel(bench->stage, &bench->streams[0].op);
    stage_bench_begin(bench, 1, &second.plan);
    while (!bench->streams[1].ended || bench->streams[1].done < bench->streams[1].count)
        stage_bench_step(bench);
    cr_assert_eq(second.to[2 * SLOT - 1], 9);
    drop_flat(&first);
    drop_flat(&second);
    stage_bench_close(bench);
}

Test(crew, takes_digests_without_copying)
{
    static const uint8_t bytes[100] = "digested in place";
    struct sluice_copy copies[2] = {{.from = at(bytes), .bytes = 100}, {.from = at(bytes + 1), .bytes = 7}};
    uint64_t digests[2] = {0, 0};
    struct sl_crew_job job = {.copies = copies, .count = 2, .digests = digests};
    struct sl_crew *crew = NULL;
    cr_assert_eq(sl_crew_open(sl_mem_default(), 2, NULL, NULL, &crew), SLUICE_OK);
    sl_crew_push(crew, &job);
    sl_crew_wait(crew, &job);
    sl_crew_close(crew);
    cr_assert_eq(digests[0], sl_strided_digest(&copies[0].from, 100));
    cr_assert_eq(digests[1], sl_strided_digest(&copies[1].from, 7));
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
    struct stage_bench *bench = stage_bench_open(2, 1);
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
    stage_bench_close(bench);
}

Test(stage, a_large_piece_is_cut_where_the_device_is_aligned)
{
    static uint8_t from[3 * SLOT], to[3 * SLOT] __attribute__((aligned(16)));
    struct sl_stage_plan plan;
    uint8_t ends = SL_STAGE_FROM;
    struct stage_bench *bench = stage_bench_open(4, 1);
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
    stage_bench_close(bench);
}
