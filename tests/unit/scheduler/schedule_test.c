/* Small schedules with literal windows, messages and slots. */
#include <criterion/criterion.h>

#include "scheduler/schedule.h"
#include "support/taskplan.h"

static struct sl_plan plan;
static struct sl_half half;
static struct sl_schedule schedule;

static void build(uint32_t rank, struct sl_rule rule, const uint16_t *block_of_stream, const uint32_t *window_of_task)
{
    rule.slots = 3;
    rule.blocks = rule.blocks == 0 ? 1 : rule.blocks;
    cr_assert_eq(sl_half_build(&plan, rank, sl_mem_default(), &half), SLUICE_OK);
    cr_assert_eq(sl_schedule_build(&plan, &half, &rule, block_of_stream, window_of_task, sl_mem_default(), &schedule),
                 SLUICE_OK);
}

static void drop(void)
{
    sl_schedule_drop(&schedule);
    sl_half_drop(&half);
}

static const struct sl_message *message_of(uint32_t window, uint32_t index)
{
    cr_assert(index < schedule.windows[window].message_count);
    return &schedule.messages[schedule.windows[window].first_message + index];
}

static void expect_message(uint32_t window, uint32_t index, uint32_t peer, _Bool receive, uint64_t bytes,
                           uint32_t pieces)
{
    const struct sl_message *message = message_of(window, index);
    cr_assert_eq(message->peer, peer);
    cr_assert_eq(message->receive, receive);
    cr_assert_eq(message->bytes, bytes, "window %u message %u has %lu bytes", window, index, message->bytes);
    cr_assert_eq(message->piece_count, pieces);
}

static void expect_piece(uint32_t window, uint32_t index, uint32_t nth, uint64_t id, uint64_t begin, uint64_t end,
                         uint64_t offset)
{
    const struct sl_message *message = message_of(window, index);
    cr_assert(nth < message->piece_count);
    const struct sl_piece *piece = &schedule.pieces[message->first_piece + nth];
    cr_assert_eq(plan.tasks[half.entries[piece->entry].task].id, id);
    cr_assert_eq(piece->begin, begin);
    cr_assert_eq(piece->end, end);
    cr_assert_eq(piece->offset, offset);
    cr_assert_eq(piece->message, index);
}

/* The example of docs/scheduling.md: 40, 16, 0 and 100 bytes are 3 + 1 + 0 + 7 units. */
static void make_example(void)
{
    taskplan_open(&plan, 2, 4);
    taskplan_add(&plan, 0, 0, 0, 1, 40);
    taskplan_add(&plan, 1, 1, 0, 1, 16);
    taskplan_add(&plan, 2, 2, 0, 1, 0);
    taskplan_add(&plan, 3, 3, 0, 1, 100);
}

Test(schedule, the_documented_example_is_cut_as_documented)
{
    make_example();
    cr_assert_eq(sl_half_build(&plan, 0, sl_mem_default(), &half), SLUICE_OK);
    uint32_t windows = 0;
    cr_assert_eq(sl_propose_windows(&half, 64, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 3);
    sl_half_drop(&half);
    build(0, (struct sl_rule){.windows = 3}, NULL, NULL);
    cr_assert_eq(schedule.message_count, 3);
    expect_message(0, 0, 1, 0, 48, 1);
    expect_piece(0, 0, 0, 0, 0, 40, 0);
    expect_message(1, 0, 1, 0, 64, 2);
    expect_piece(1, 0, 0, 1, 0, 16, 0);
    expect_piece(1, 0, 1, 3, 0, 48, 16);
    expect_message(2, 0, 1, 0, 64, 1);
    expect_piece(2, 0, 0, 3, 48, 100, 0);
    cr_assert_eq(schedule.empty_count, 1);
    cr_assert_eq(schedule.empties[0].window, 1);
    cr_assert_eq(schedule.slot_send_bytes, 256);
    cr_assert_eq(schedule.slot_recv_bytes, 0);
    cr_assert_eq(schedule.send_bytes, 176);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, direct_min_makes_large_pieces_messages_of_their_own)
{
    make_example();
    build(1, (struct sl_rule){.windows = 3, .direct_min = 48}, NULL, NULL);
    expect_message(0, 0, 0, 1, 48, 1);
    cr_assert(!message_of(0, 0)->single);
    expect_message(1, 0, 0, 1, 48, 1);
    cr_assert(message_of(1, 0)->single);
    expect_piece(1, 0, 0, 3, 0, 48, 0);
    cr_assert_eq(message_of(1, 0)->offset, SL_NO_SLOT);
    expect_message(1, 1, 0, 1, 16, 1);
    cr_assert_eq(message_of(1, 1)->offset, 0);
    expect_message(2, 0, 0, 1, 52, 1);
    cr_assert_eq(schedule.recv_bytes, 48 + 48 + 16 + 52);
    cr_assert_eq(schedule.slot_recv_bytes, 256);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, singles_come_largest_first_and_equal_ones_in_stream_order_before_the_packed)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 1, 0, 0, 1, 500);
    taskplan_add(&plan, 2, 0, 0, 1, 7);
    taskplan_add(&plan, 3, 0, 0, 1, 900);
    taskplan_add(&plan, 4, 0, 0, 1, 500);
    taskplan_add(&plan, 5, 0, 0, 1, 499);
    build(0, (struct sl_rule){.windows = 1, .direct_min = 500}, NULL, NULL);
    cr_assert_eq(schedule.message_count, 4);
    expect_piece(0, 0, 0, 3, 0, 900, 0);
    expect_piece(0, 1, 0, 1, 0, 500, 0);
    expect_piece(0, 2, 0, 4, 0, 500, 0);
    expect_message(0, 3, 1, 0, 16 + 512, 2);
    expect_piece(0, 3, 0, 2, 0, 7, 0);
    expect_piece(0, 3, 1, 5, 0, 499, 16);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, messages_to_several_peers_are_256_aligned_in_the_slot)
{
    taskplan_open(&plan, 4, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 100);
    taskplan_add(&plan, 1, 0, 0, 2, 300);
    taskplan_add(&plan, 2, 0, 3, 0, 256);
    taskplan_add(&plan, 3, 0, 0, 3, 5);
    build(0, (struct sl_rule){.windows = 1}, NULL, NULL);
    cr_assert_eq(message_of(0, 0)->offset, 0);
    cr_assert_eq(message_of(0, 1)->offset, 256);
    cr_assert_eq(message_of(0, 2)->offset, 256 + 512);
    expect_message(0, 3, 3, 1, 256, 1);
    cr_assert_eq(message_of(0, 3)->offset, 0, "the receive part is a part of its own");
    cr_assert_eq(schedule.slot_send_bytes, 256 + 512 + 256);
    cr_assert_eq(schedule.slot_recv_bytes, 256);
    cr_assert_eq(schedule.windows[0].send_bytes, 112 + 304 + 16);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, a_single_that_is_strided_here_is_staged_here_only)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add_rows(&plan, 0, 0, 0, 1, 64, 4, 0, 1);
    build(0, (struct sl_rule){.windows = 1, .direct_min = 1}, NULL, NULL);
    cr_assert_eq(message_of(0, 0)->offset, SL_NO_SLOT);
    cr_assert_eq(schedule.slot_send_bytes, 0);
    drop();
    build(1, (struct sl_rule){.windows = 1, .direct_min = 1}, NULL, NULL);
    cr_assert_eq(message_of(0, 0)->offset, 0);
    cr_assert_eq(schedule.slot_recv_bytes, 256);
    drop();
    build(1, (struct sl_rule){.windows = 4, .direct_min = 1}, NULL, NULL);
    cr_assert_eq(message_of(0, 0)->offset, SL_NO_SLOT, "one row is one run");
    drop();
    taskplan_drop(&plan);
}

Test(schedule, an_end_can_ask_for_singles_to_be_staged)
{
    make_example();
    build(0, (struct sl_rule){.windows = 1, .direct_min = 40}, NULL, NULL);
    cr_assert_eq(schedule.message_count, 3); /* 100, 40, packed 16 */
    cr_assert_eq(schedule.slot_send_bytes, 256);
    _Bool stage[3] = {0, 1, 0};
    sl_schedule_place(&plan, &half, stage, &schedule);
    cr_assert_eq(message_of(0, 0)->offset, SL_NO_SLOT);
    cr_assert_eq(message_of(0, 1)->offset, 0);
    cr_assert_eq(message_of(0, 2)->offset, 256);
    cr_assert_eq(schedule.slot_send_bytes, 512);
    sl_schedule_place(&plan, &half, NULL, &schedule);
    cr_assert_eq(schedule.slot_send_bytes, 256);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, local_tasks_are_cut_into_the_windows_without_messages)
{
    taskplan_open(&plan, 1, 1);
    taskplan_add(&plan, 0, 0, 0, 0, 50); /* 4 units */
    build(0, (struct sl_rule){.windows = 2}, NULL, NULL);
    cr_assert_eq(schedule.message_count, 0);
    cr_assert_eq(schedule.windows[0].local_count, 1);
    cr_assert_eq(schedule.windows[0].local_bytes, 32);
    cr_assert_eq(schedule.windows[1].local_bytes, 18);
    cr_assert_eq(schedule.pieces[1].begin, 32);
    cr_assert_eq(schedule.pieces[1].end, 50);
    cr_assert_eq(schedule.local_bytes, 50);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, blocks_take_turns_with_shares_of_their_own)
{
    taskplan_open(&plan, 3, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 64);
    taskplan_add(&plan, 1, 0, 0, 2, 64);
    uint16_t blocks[2] = {1, 0};
    build(0, (struct sl_rule){.windows = 4, .blocks = 2}, blocks, NULL);
    expect_message(0, 0, 2, 0, 32, 1);
    expect_message(1, 0, 1, 0, 32, 1);
    expect_message(2, 0, 2, 0, 32, 1);
    expect_piece(2, 0, 0, 1, 32, 64, 0);
    expect_message(3, 0, 1, 0, 32, 1);
    cr_assert_eq(schedule.message_count, 4);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, assigned_tasks_stay_whole_in_their_windows)
{
    make_example();
    static const uint32_t windows[4] = {2, 0, 1, 0};
    build(0, (struct sl_rule){.policy = SLUICE_POLICY_ORDERED, .windows = 3}, NULL, windows);
    expect_message(0, 0, 1, 0, 16 + 112, 2);
    expect_piece(0, 0, 0, 1, 0, 16, 0);
    expect_piece(0, 0, 1, 3, 0, 100, 16);
    cr_assert_eq(schedule.windows[1].message_count, 0);
    cr_assert_eq(schedule.empties[0].window, 1);
    expect_message(2, 0, 1, 0, 48, 1);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, first_and_last_windows_of_parameters_count_tasks_without_bytes)
{
    make_example();
    taskplan_add(&plan, 4, 3, 1, 0, 0);
    uint32_t source[4], destination[4], last[4];
    build(0, (struct sl_rule){.windows = 3}, NULL, NULL);
    sl_schedule_first_windows(&plan, &half, &schedule, source, destination);
    sl_schedule_last_windows(&plan, &half, &schedule, last);
    static const uint32_t expected_source[4] = {0, 1, 1, 1};
    cr_assert_arr_eq(source, expected_source, sizeof(source));
    static const uint32_t expected_none[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 2};
    cr_assert_arr_eq(destination, expected_none, sizeof(destination), "a stream without bytes ends in the last window");
    cr_assert_arr_eq(last, expected_none, sizeof(last));
    drop();
    build(1, (struct sl_rule){.windows = 3}, NULL, NULL);
    sl_schedule_first_windows(&plan, &half, &schedule, source, destination);
    sl_schedule_last_windows(&plan, &half, &schedule, last);
    cr_assert_arr_eq(destination, expected_source, sizeof(destination));
    static const uint32_t expected_last[4] = {0, 1, 1, 2};
    cr_assert_arr_eq(last, expected_last, sizeof(last));
    cr_assert_eq(source[3], 2);
    drop();
    taskplan_drop(&plan);
}

Test(schedule, an_empty_plan_has_windows_without_work)
{
    taskplan_open(&plan, 2, 1);
    build(1, (struct sl_rule){.windows = 2}, NULL, NULL);
    cr_assert_eq(schedule.message_count, 0);
    cr_assert_eq(schedule.windows[1].local_count, 0);
    cr_assert_eq(schedule.slot_send_bytes, 0);
    drop();
    taskplan_drop(&plan);
}
