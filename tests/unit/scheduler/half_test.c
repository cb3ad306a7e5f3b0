#include <criterion/criterion.h>

#include "scheduler/half.h"
#include "support/memory.h"
#include "support/taskplan.h"

/* Ranks 0 and 1 exchange, rank 2 only receives; task 12 has no bytes, 13 is local, 14 comes in two parts. */
static void make(struct sl_plan *plan)
{
    taskplan_open(plan, 3, 2);
    taskplan_add(plan, 10, 0, 0, 2, 100);
    taskplan_add(plan, 11, 0, 0, 1, 16);
    taskplan_add(plan, 12, 1, 0, 2, 0);
    taskplan_add(plan, 13, 1, 0, 0, 40);
    taskplan_add(plan, 14, 1, 0, 2, 1);
    taskplan_add(plan, 14, 1, 0, 2, 33);
    taskplan_add(plan, 15, 1, 1, 0, 17);
}

static struct sl_half half_of(const struct sl_plan *plan, uint32_t rank)
{
    struct sl_half half = {0};
    cr_assert_eq(sl_half_build(plan, rank, sl_mem_default(), &half), SLUICE_OK);
    return half;
}

Test(half, streams_are_sorted_with_sends_first_and_the_local_one_apart)
{
    struct sl_plan plan;
    make(&plan);
    struct sl_half half = half_of(&plan, 0);
    cr_assert_eq(half.stream_count, 3);
    cr_assert(!half.streams[0].receive && half.streams[0].peer == 1);
    cr_assert(!half.streams[1].receive && half.streams[1].peer == 2);
    cr_assert(half.streams[2].receive && half.streams[2].peer == 1);
    cr_assert_eq(half.entry_count, 7);
    cr_assert_eq(half.local.count, 1);
    cr_assert_eq(half.local.first, 6);
    cr_assert_eq(half.local.units, 3);
    cr_assert_eq(half.local.bytes, 40);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(half, every_task_is_rounded_up_to_units_in_its_stream)
{
    struct sl_plan plan;
    make(&plan);
    struct sl_half half = half_of(&plan, 0);
    const struct sl_stream *stream = sl_half_find(&half, 2, 0);
    cr_assert_not_null(stream);
    cr_assert_eq(stream->count, 4);
    cr_assert_eq(stream->units, 7 + 0 + 1 + 3);
    cr_assert_eq(stream->bytes, 134);
    const struct sl_entry *entries = &half.entries[stream->first];
    cr_assert_eq(entries[0].unit, 0);
    cr_assert_eq(entries[1].unit, 7);
    cr_assert_eq(entries[1].bytes, 0);
    cr_assert_eq(entries[2].unit, 7);
    cr_assert_eq(entries[3].unit, 8);
    cr_assert_eq(plan.tasks[entries[3].task].part, 1);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(half, find_knows_only_pairs_that_have_tasks)
{
    struct sl_plan plan;
    make(&plan);
    struct sl_half half = half_of(&plan, 2);
    cr_assert_null(sl_half_find(&half, 0, 0));
    cr_assert_null(sl_half_find(&half, 1, 1));
    cr_assert_null(sl_half_find(&half, 2, 1));
    cr_assert_eq(sl_half_find(&half, 0, 1), &half.streams[0]);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(half, a_rank_without_tasks_has_an_empty_half)
{
    struct sl_plan plan;
    taskplan_open(&plan, 2, 1);
    struct sl_half half = half_of(&plan, 1);
    cr_assert_eq(half.stream_count, 0);
    cr_assert_eq(half.entry_count, 0);
    cr_assert_eq(half.local.count, 0);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(half, a_task_of_two_to_the_62_bytes_is_legal_and_two_are_over_the_limit)
{
    struct sl_plan plan;
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 0, 1, SLUICE_BYTES_MAX);
    struct sl_half half = half_of(&plan, 0);
    cr_assert_eq(half.streams[0].units, UINT64_C(1) << 58);
    sl_half_drop(&half);
    taskplan_add(&plan, 1, 0, 0, 1, SLUICE_BYTES_MAX);
    cr_assert_eq(sl_half_build(&plan, 1, sl_mem_default(), &half), SLUICE_LIMIT);
    cr_assert_str_eq(sluice_last_error()->text, "rank 1 receives 2^63 bytes or more; split the plan");
    taskplan_drop(&plan);
}

static _Bool halves_equal(const struct sl_half *a, const struct sl_half *b)
{
    if (a->stream_count != b->stream_count || a->entry_count != b->entry_count || a->local.first != b->local.first ||
        a->local.count != b->local.count || a->local.units != b->local.units) {
        return 0;
    }
    for (uint32_t i = 0; i < a->stream_count; i++) {
        const struct sl_stream *x = &a->streams[i];
        const struct sl_stream *y = &b->streams[i];
        if (x->peer != y->peer || x->receive != y->receive || x->first != y->first || x->count != y->count ||
            x->units != y->units || x->bytes != y->bytes) {
            return 0;
        }
    }
    for (size_t i = 0; i < a->entry_count; i++) {
        if (a->entries[i].unit != b->entries[i].unit || a->entries[i].task != b->entries[i].task ||
            a->entries[i].bytes != b->entries[i].bytes) {
            return 0;
        }
    }
    return 1;
}

Test(half, an_index_gives_the_same_halves_as_a_scan)
{
    struct sl_random random = {1};
    for (uint32_t round = 0; round < 300; round++) {
        struct sl_plan plan;
        struct sl_plan_index index;
        taskplan_random(&plan, &random);
        cr_assert_eq(sl_plan_index_build(&plan, sl_mem_default(), &index), SLUICE_OK);
        for (uint32_t rank = 0; rank < plan.world; rank++) {
            struct sl_half scanned = half_of(&plan, rank);
            struct sl_half indexed;
            cr_assert_eq(sl_half_build_indexed(&plan, &index, rank, sl_mem_default(), &indexed), SLUICE_OK);
            cr_assert(halves_equal(&scanned, &indexed), "round %u rank %u", round, rank);
            sl_half_drop(&scanned);
            sl_half_drop(&indexed);
        }
        sl_plan_index_drop(&index);
        taskplan_drop(&plan);
    }
}

static uint64_t digest_of(const struct sl_plan *plan, uint32_t rank, uint32_t peer, _Bool receive)
{
    struct sl_half half = half_of(plan, rank);
    const struct sl_stream *stream = sl_half_find(&half, peer, receive);
    cr_assert_not_null(stream);
    uint64_t digest = sl_stream_digest(plan, &half, stream);
    sl_half_drop(&half);
    return digest;
}

Test(half, both_ends_have_the_same_digest_from_their_own_tasks_alone)
{
    struct sl_random random = {2};
    for (uint32_t round = 0; round < 200; round++) {
        struct sl_plan plan;
        taskplan_random(&plan, &random);
        for (size_t i = 0; i < plan.task_count; i++) {
            const struct sluice_task *task = &plan.tasks[i];
            if (task->source == task->destination) {
                continue;
            }
            struct sl_plan sender, receiver;
            taskplan_half(&plan, task->source, &sender);
            taskplan_half(&plan, task->destination, &receiver);
            cr_assert_eq(digest_of(&sender, task->source, task->destination, 0),
                         digest_of(&receiver, task->destination, task->source, 1));
            taskplan_drop(&sender);
            taskplan_drop(&receiver);
            break;
        }
        taskplan_drop(&plan);
    }
}

Test(half, the_digest_sees_ids_parts_bytes_dtypes_order_and_count)
{
    struct sl_plan plan;
    make(&plan);
    uint64_t before = digest_of(&plan, 0, 2, 0);
    struct sluice_task kept = plan.own_tasks[0];
    plan.own_tasks[0].id = 9;
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "id");
    plan.own_tasks[0] = kept;
    plan.own_tasks[0].part = 1;
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "part");
    plan.own_tasks[0] = kept;
    plan.own_tasks[0].from.row_bytes = 99;
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "bytes that round up alike");
    plan.own_tasks[0] = kept;
    plan.own_tasks[0].source_dtype = SLUICE_DTYPE_F16;
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "dtype");
    plan.own_tasks[0] = plan.own_tasks[4];
    plan.own_tasks[4] = kept;
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "order");
    plan.own_tasks[4] = plan.own_tasks[0];
    plan.own_tasks[0] = kept;
    cr_assert_eq(digest_of(&plan, 0, 2, 0), before);
    taskplan_add(&plan, 16, 0, 0, 2, 0);
    cr_assert_neq(digest_of(&plan, 0, 2, 0), before, "a task without bytes");
    taskplan_drop(&plan);
}

Test(half, digests_of_streams_longer_than_a_run_differ_in_their_last_task)
{
    struct sl_plan plan;
    taskplan_open(&plan, 2, 1);
    for (uint64_t id = 0; id < 129; id++) {
        taskplan_add(&plan, id, 0, 0, 1, 8);
    }
    uint64_t before = digest_of(&plan, 1, 0, 1);
    cr_assert_eq(before, digest_of(&plan, 0, 1, 0));
    plan.own_tasks[128].id = 200;
    cr_assert_neq(before, digest_of(&plan, 1, 0, 1));
    taskplan_drop(&plan);
}
