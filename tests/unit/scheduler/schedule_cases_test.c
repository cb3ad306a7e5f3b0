/* Faults that others met in public, as small cases. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/check_schedule.h"
#include "support/taskplan.h"

/* Builds one rank's end; `window_of_task` for policies that assign. The plan must live on. */
static void open_end(struct check_end *end, const struct sl_plan *plan, uint32_t rank, struct sl_rule rule)
{
    struct sl_mem *mem = sl_mem_default();
    uint32_t *window_of_task = NULL;
    uint32_t windows = 0;
    rule.slots = 3;
    rule.blocks = 1;
    if (rule.policy != SLUICE_POLICY_BALANCED) {
        cr_assert_eq(sl_assign_windows(plan, rule.policy, rule.window_bytes, mem, &window_of_task, &windows),
                     SLUICE_OK);
        rule.windows = windows > rule.windows ? windows : rule.windows;
    }
    end->plan = plan;
    cr_assert_eq(sl_half_build(plan, rank, mem, &end->half), SLUICE_OK);
    cr_assert_eq(sl_schedule_build(plan, &end->half, &rule, NULL, window_of_task, mem, &end->schedule), SLUICE_OK);
    sl_free(mem, window_of_task);
    const char *wrong = check_whole(end);
    cr_assert_null(wrong, "rank %u: %s", rank, wrong);
}

static void close_end(struct check_end *end)
{
    sl_schedule_drop(&end->schedule);
    sl_half_drop(&end->half);
}

static void expect_pair(const struct check_end *sender, const struct check_end *receiver)
{
    const char *wrong = check_pair(sender, receiver);
    cr_assert_null(wrong, "%s", wrong);
}

static uint32_t most_messages(const struct check_end *end)
{
    uint32_t most = 0;
    for (uint32_t w = 0; w < end->schedule.rule.windows; w++) {
        uint32_t own = end->schedule.windows[w].message_count;
        most = own > most ? own : most;
    }
    return most;
}

/* 24,000 tasks in one group hang: no group may hold more than the policy's share, and both ends must agree. */
static void expect_bounded_groups(struct sl_rule rule, uint32_t most)
{
    struct sl_random random = {41};
    struct sl_plan plan, halves[2];
    struct check_end ends[2];
    taskplan_open(&plan, 2, 1);
    for (uint32_t id = 0; id < 24000; id++) {
        uint32_t source = taskplan_below(&random, 2);
        taskplan_add(&plan, id, 0, source, 1 - source, 4 + sl_random_below(&random, 262141));
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        taskplan_half(&plan, rank, &halves[rank]);
        open_end(&ends[rank], &halves[rank], rank, rule);
        cr_assert(most_messages(&ends[rank]) <= most);
    }
    expect_pair(&ends[0], &ends[1]);
    expect_pair(&ends[1], &ends[0]);
    for (uint32_t rank = 0; rank < 2; rank++) {
        close_end(&ends[rank]);
        taskplan_drop(&halves[rank]);
    }
    taskplan_drop(&plan);
}

Test(schedule_cases, groups_of_24000_tasks_are_bounded_and_numbered_alike_on_both_ends)
{
    expect_bounded_groups((struct sl_rule){.policy = SLUICE_POLICY_BALANCED, .windows = 375}, 2);
    expect_bounded_groups((struct sl_rule){.policy = SLUICE_POLICY_WINDOWS}, 2);
    expect_bounded_groups((struct sl_rule){.policy = SLUICE_POLICY_WINDOWS, .direct_min = 1}, 256);
}

Test(schedule_cases, the_windows_of_a_pair_do_not_depend_on_other_pairs)
{
    struct sl_plan alone, crowd;
    struct check_end sender, receiver;
    taskplan_open(&alone, 3, 1);
    taskplan_open(&crowd, 3, 1);
    for (uint32_t id = 0; id < 600; id++) {
        taskplan_add(id % 3 == 0 ? &alone : &crowd, id, 0, 0, id % 3 == 0 ? 1 : 2, 10 + id);
        if (id % 3 == 0) {
            taskplan_add(&crowd, id, 0, 0, 1, 10 + id);
        }
    }
    static const struct sl_rule rules[2] = {{.windows = 7}, {.policy = SLUICE_POLICY_WINDOWS}};
    for (uint32_t i = 0; i < 2; i++) {
        open_end(&sender, &crowd, 0, rules[i]);
        open_end(&receiver, &alone, 1, rules[i]);
        expect_pair(&sender, &receiver);
        close_end(&sender);
        close_end(&receiver);
    }
    taskplan_drop(&alone);
    taskplan_drop(&crowd);
}

/* Packing back to back would put 4 bytes at offset 6. */
Test(schedule_cases, every_piece_begins_at_a_multiple_of_16_and_the_padding_is_counted)
{
    static const uint64_t bytes[7] = {2, 2, 2, 4, 1, 8, 8};
    struct sl_plan plan;
    struct check_end end;
    taskplan_open(&plan, 2, 1);
    for (uint32_t id = 0; id < 7; id++) {
        taskplan_add(&plan, id, 0, 0, 1, bytes[id]);
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        open_end(&end, &plan, rank, (struct sl_rule){.windows = 1});
        cr_assert_eq(end.schedule.message_count, 1);
        cr_assert_eq(end.schedule.messages[0].bytes, 112);
        for (uint32_t i = 0; i < 7; i++) {
            cr_assert_eq(end.schedule.pieces[i].offset, 16 * i);
        }
        uint32_t windows = 0;
        cr_assert_eq(sl_propose_windows(&end.half, 112, 1, NULL, 0, &windows), SLUICE_OK);
        cr_assert_eq(windows, 1);
        cr_assert_eq(sl_propose_windows(&end.half, 111, 1, NULL, 0, &windows), SLUICE_OK);
        cr_assert_eq(windows, 2);
        close_end(&end);
    }
    taskplan_drop(&plan);
}

static void add_halves(struct sl_plan *plan, uint32_t rank, const uint64_t *ids)
{
    sl_plan_init(plan, sl_mem_default(), 2);
    for (uint32_t i = 0; i < 3; i++) {
        struct sluice_region region = {.offset = ids[i] * 64, .row_bytes = 64, .rows = 1, .pitch = 64};
        cr_assert_eq(sl_plan_add_half(plan, ids[i], 0, SLUICE_DTYPE_U8, 1 - rank, rank == 1, &region), SLUICE_OK);
    }
    cr_assert_eq(sl_plan_set_rank(plan, rank, 2), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(plan), SLUICE_OK);
}

/* Equal sizes in another order would land under wrong names without a sound. */
Test(schedule_cases, the_order_is_the_task_ids_whatever_the_order_of_the_calls)
{
    struct sl_plan sender, receiver;
    struct check_end ends[2];
    add_halves(&sender, 0, (uint64_t[]){1, 2, 3});
    add_halves(&receiver, 1, (uint64_t[]){3, 1, 2});
    open_end(&ends[0], &sender, 0, (struct sl_rule){.windows = 1});
    open_end(&ends[1], &receiver, 1, (struct sl_rule){.windows = 1});
    expect_pair(&ends[0], &ends[1]);
    cr_assert_eq(sl_stream_digest(&sender, &ends[0].half, &ends[0].half.streams[0]),
                 sl_stream_digest(&receiver, &ends[1].half, &ends[1].half.streams[0]));
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_piece *piece = &ends[1].schedule.pieces[i];
        cr_assert_eq(piece->offset, 64 * i);
        cr_assert_eq(receiver.tasks[ends[1].half.entries[piece->entry].task].to.offset, 64 * (i + 1));
    }
    close_end(&ends[0]);
    close_end(&ends[1]);
    sl_plan_drop(&sender);
    sl_plan_drop(&receiver);
}

/* Tasks just under, at and over a window of 64 KiB: exact, in order, the last piece short, complete once. */
Test(schedule_cases, tasks_around_the_window_size_are_cut_exactly)
{
    const uint64_t window = 65536;
    struct sl_plan plan;
    struct check_end end;
    taskplan_open(&plan, 2, 4);
    taskplan_add(&plan, 0, 0, 0, 1, window - 1);
    taskplan_add(&plan, 1, 1, 0, 1, window);
    taskplan_add(&plan, 2, 2, 0, 1, window + 1);
    taskplan_add(&plan, 3, 3, 0, 1, 3 * window + 7);
    struct sl_half half;
    uint32_t windows = 0;
    cr_assert_eq(sl_half_build(&plan, 1, sl_mem_default(), &half), SLUICE_OK);
    cr_assert_eq(sl_propose_windows(&half, window, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 7);
    cr_assert_eq(sl_propose_windows(&half, 1, 1, NULL, 0, &windows), SLUICE_CONFIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, "window_bytes 1 "));
    cr_assert_eq(sl_propose_windows(&half, 0, 1, NULL, 0, &windows), SLUICE_CONFIG);
    sl_half_drop(&half);
    open_end(&end, &plan, 1, (struct sl_rule){.windows = 7});
    for (uint32_t w = 0; w < 7; w++) {
        cr_assert(end.schedule.windows[w].recv_bytes <= window);
    }
    const struct sl_piece *last = &end.schedule.pieces[end.schedule.piece_count - 1];
    cr_assert_eq(last->end, 3 * window + 7);
    uint32_t complete[4];
    sl_schedule_last_windows(&plan, &end.half, &end.schedule, complete);
    cr_assert_arr_eq(complete, ((uint32_t[]){1, 2, 3, 6}), sizeof(complete));
    close_end(&end);
    taskplan_drop(&plan);
}

/* A rank whose tasks of a window have no bytes must not run ahead: its numbering stays. */
Test(schedule_cases, a_window_without_bytes_on_a_rank_does_not_shift_its_numbering)
{
    struct sl_plan plan;
    struct check_end ends[3];
    taskplan_open(&plan, 3, 1);
    for (uint32_t window = 0; window < 3; window++) {
        taskplan_add(&plan, window * 256, 0, 0, 1, 100);
        taskplan_add(&plan, window * 256 + 1, 0, 0, 2, window == 1 ? 0 : 100);
        taskplan_add(&plan, window * 256 + 2, 0, 2, 1, window == 1 ? 0 : 50);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        open_end(&ends[rank], &plan, rank, (struct sl_rule){.policy = SLUICE_POLICY_WINDOWS});
        cr_assert_eq(ends[rank].schedule.rule.windows, 3);
    }
    cr_assert_eq(ends[2].schedule.windows[0].message_count, 2);
    cr_assert_eq(ends[2].schedule.windows[1].message_count, 0);
    cr_assert_eq(ends[2].schedule.windows[2].message_count, 2);
    cr_assert_eq(ends[2].schedule.empty_count, 2);
    cr_assert_eq(ends[2].schedule.empties[0].window, 1);
    expect_pair(&ends[0], &ends[2]);
    expect_pair(&ends[2], &ends[1]);
    for (uint32_t rank = 0; rank < 3; rank++) {
        close_end(&ends[rank]);
    }
    taskplan_drop(&plan);
}

/* One rank's groups in order. */
struct queue {
    uint32_t peers[64]; /* the ranks that a group exchanges with, a bitmap */
    uint32_t key[64];   /* groups that exchange with each other have the same: their window */
    uint32_t count, at;
};

/* Blocking groups: one ends only when all its partners are in the group that matches it. False: circular wait. */
static _Bool drains(struct queue *queues, uint32_t ranks)
{
    for (_Bool moved = 1; moved;) {
        _Bool ends[8] = {0};
        moved = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const struct queue *own = &queues[rank];
            ends[rank] = own->at < own->count;
            for (uint32_t peer = 0; ends[rank] && peer < ranks; peer++) {
                const struct queue *other = &queues[peer];
                _Bool open = other->at < other->count && other->key[other->at] == own->key[own->at];
                ends[rank] = (own->peers[own->at] >> peer & 1) == 0 || open;
            }
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            queues[rank].at += ends[rank];
            moved |= ends[rank];
        }
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (queues[rank].at < queues[rank].count) {
            return 0;
        }
    }
    return 1;
}

static void add_group(struct queue *queue, uint32_t key, uint32_t peers)
{
    queue->key[queue->count] = key;
    queue->peers[queue->count++] = peers;
}

Test(schedule_cases, the_rendezvous_finds_the_circular_wait_of_a_rotated_ring)
{
    struct queue queues[3] = {0};
    for (uint32_t rank = 0; rank < 3; rank++) { /* first the send to the next, then the receive from the last */
        add_group(&queues[rank], rank, 1u << ((rank + 1) % 3));
        add_group(&queues[rank], (rank + 2) % 3, 1u << ((rank + 2) % 3));
    }
    cr_assert(!drains(queues, 3));
}

/* Chunking one's own rotated peer list makes a circular wait of three ranks; windows of both ends do not. */
static void expect_ring_drains(struct sl_rule rule)
{
    struct sl_plan plan;
    struct check_end ends[3];
    struct queue queues[3] = {0};
    taskplan_open(&plan, 3, 1);
    for (uint32_t id = 0; id < 30; id++) {
        taskplan_add(&plan, id * 100, 0, id % 3, (id + 1) % 3, 100 + id);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        open_end(&ends[rank], &plan, rank, rule);
        const struct sl_schedule *schedule = &ends[rank].schedule;
        for (uint32_t w = 0; w < schedule->rule.windows; w++) {
            uint32_t peers = 0;
            for (uint32_t i = 0; i < schedule->windows[w].message_count; i++) {
                peers |= 1u << schedule->messages[schedule->windows[w].first_message + i].peer;
            }
            if (peers != 0) {
                add_group(&queues[rank], w, peers);
            }
        }
    }
    cr_assert(drains(queues, 3));
    for (uint32_t rank = 0; rank < 3; rank++) {
        expect_pair(&ends[rank], &ends[(rank + 1) % 3]);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        close_end(&ends[rank]);
    }
    taskplan_drop(&plan);
}

Test(schedule_cases, a_ring_of_three_drains_under_blocking_groups)
{
    expect_ring_drains((struct sl_rule){.windows = 10});
    expect_ring_drains((struct sl_rule){.windows = 10, .direct_min = 1});
    expect_ring_drains((struct sl_rule){.policy = SLUICE_POLICY_WINDOWS});
    expect_ring_drains((struct sl_rule){.policy = SLUICE_POLICY_LOCKSTEP, .window_bytes = 100});
    expect_ring_drains((struct sl_rule){.policy = SLUICE_POLICY_SINGLE});
}
