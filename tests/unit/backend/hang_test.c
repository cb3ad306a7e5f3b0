/*
 * The deadlock of large groups, without a GPU: a list that made NCCL 2.28.9 hang, on a wire with NCCL's semantics.
 * The sizes are a 64th of the list's; which plan an operation falls into depends on counts alone here.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "scheduler/messages.h"
#include "scheduler/schedule.h"
#include "support/nccl_wire.h"
#include "support/taskplan.h"

enum { CUT = 8, SCALE = 64, LIST = 134, RANKS = 4 };

/* Source and destination bytes of every task. */
static uint8_t *sources[LIST], *destinations[LIST];

static uint8_t byte_of(uint64_t task, uint64_t at)
{
    return (uint8_t)(sl_mix64(task * 1000003 + at / 8) >> 8 * (at % 8));
}

static void load(struct sl_plan *plan)
{
    struct sl_map map;
    struct sl_plan list;
    cr_assert_eq(sl_map_open(SLUICE_TEST_DATA "/hang-4ranks.json", &map), SLUICE_OK);
    cr_assert_eq(sl_messages_read((const char *)map.data, map.bytes, "list", sl_mem_default(), &list), SLUICE_OK);
    sl_map_close(&map);
    cr_assert_eq(list.task_count, LIST);
    cr_assert_eq(list.world, RANKS);
    taskplan_open(plan, RANKS, LIST);
    for (uint32_t i = 0; i < LIST; i++) {
        uint64_t bytes = sl_task_bytes(&list.tasks[i]) / SCALE;
        taskplan_add(plan, i, i, list.tasks[i].source, list.tasks[i].destination, bytes);
        sources[i] = malloc(bytes);
        destinations[i] = calloc(bytes, 1);
        for (uint64_t at = 0; at < bytes; at++)
            sources[i][at] = byte_of(i, at);
    }
    sl_plan_drop(&list);
}

static void check_every_byte(const struct sl_plan *plan)
{
    for (uint32_t i = 0; i < LIST; i++)
        for (uint64_t at = 0; at < sl_task_bytes(&plan->tasks[i]); at++)
            cr_assert_eq(destinations[i][at], byte_of(i, at), "task %u byte %lu", i, (unsigned long)at);
}

static void drop(struct sl_plan *plan)
{
    for (uint32_t i = 0; i < LIST; i++) {
        free(sources[i]);
        free(destinations[i]);
    }
    taskplan_drop(plan);
}

/* The whole list as one group on every rank. */
static _Bool one_group_finishes(const struct sl_plan *plan, _Bool restart, uint32_t cut)
{
    struct wire wire;
    wire_open(&wire, RANKS, cut, restart);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct wire_message messages[LIST];
        uint32_t count = 0;
        for (uint32_t i = 0; i < LIST; i++) {
            const struct sluice_task *task = &plan->tasks[i];
            if (task->source != rank && task->destination != rank)
                continue;
            _Bool receive = task->destination == rank;
            messages[count++] = (struct wire_message){.data = receive ? destinations[i] : sources[i],
                                                      .bytes = sl_task_bytes(task),
                                                      .peer = receive ? task->source : task->destination,
                                                      .receive = receive};
        }
        wire_group(&wire, rank, messages, count);
    }
    _Bool finished = wire_run(&wire);
    cr_assert_eq(finished, wire_left(&wire) == 0);
    wire_close(&wire);
    return finished;
}

Test(hang, list_as_one_group_never_ends_when_the_walk_restarts_after_each_cut)
{
    struct sl_plan plan;
    load(&plan);
    cr_assert_not(one_group_finishes(&plan, 1, CUT));
    drop(&plan);
}

Test(hang, list_as_one_group_ends_with_every_byte_right_when_the_walk_goes_on)
{
    struct sl_plan plan;
    load(&plan);
    cr_assert(one_group_finishes(&plan, 0, CUT));
    check_every_byte(&plan);
    drop(&plan);
}

Test(hang, list_as_one_group_ends_when_nothing_is_cut)
{
    struct sl_plan plan;
    load(&plan);
    cr_assert(one_group_finishes(&plan, 1, 2 * LIST));
    check_every_byte(&plan);
    drop(&plan);
}

/* --- the same list by the balanced policy --- */

struct end {
    struct sl_half half;
    struct sl_schedule schedule;
    uint8_t **staging; /* one a message */
};

static void build(const struct sl_plan *plan, uint64_t window_bytes, struct end *ends, uint32_t *ret_windows)
{
    uint32_t windows = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_assert_eq(sl_half_build(plan, r, sl_mem_default(), &ends[r].half), SLUICE_OK);
        cr_assert_eq(sl_propose_windows(&ends[r].half, window_bytes, 1, NULL, windows, &windows), SLUICE_OK);
    }
    const struct sl_rule rule = {
        .policy = SLUICE_POLICY_BALANCED, .window_bytes = window_bytes, .slots = 3, .windows = windows, .blocks = 1};
    for (uint32_t r = 0; r < RANKS; r++) {
        struct end *end = &ends[r];
        cr_assert_eq(sl_schedule_build(plan, &end->half, &rule, NULL, NULL, sl_mem_default(), &end->schedule),
                     SLUICE_OK);
        end->staging = calloc(end->schedule.message_count + 1, sizeof(*end->staging));
        for (size_t m = 0; m < end->schedule.message_count; m++)
            end->staging[m] = malloc(end->schedule.messages[m].bytes);
    }
    *ret_windows = windows;
}

/* Packs a send, or unpacks a receive. */
static void copy_message(const struct end *end, size_t index)
{
    const struct sl_message *message = &end->schedule.messages[index];
    for (uint32_t i = 0; i < message->piece_count; i++) {
        const struct sl_piece *piece = &end->schedule.pieces[message->first_piece + i];
        uint32_t task = end->half.entries[piece->entry].task;
        uint8_t *slot = end->staging[index] + piece->offset;
        if (message->receive)
            memcpy(destinations[task] + piece->begin, slot, piece->end - piece->begin);
        else
            memcpy(slot, sources[task] + piece->begin, piece->end - piece->begin);
    }
}

static void copy_all(const struct end *end, _Bool receive)
{
    for (size_t m = 0; m < end->schedule.message_count; m++)
        if (end->schedule.messages[m].receive == receive)
            copy_message(end, m);
}

static void add_windows(struct wire *wire, uint32_t rank, const struct end *end, uint32_t windows)
{
    for (uint32_t w = 0; w < windows; w++) {
        const struct sl_window *window = &end->schedule.windows[w];
        struct wire_message messages[2 * RANKS];
        cr_assert_leq(window->message_count, 2 * RANKS);
        for (uint32_t i = 0; i < window->message_count; i++) {
            size_t index = window->first_message + i;
            const struct sl_message *message = &end->schedule.messages[index];
            messages[i] = (struct wire_message){.data = end->staging[index],
                                                .bytes = message->bytes,
                                                .peer = message->peer,
                                                .receive = message->receive};
        }
        wire_group(wire, rank, messages, window->message_count);
    }
}

static void drop_ends(struct end *ends)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        for (size_t m = 0; m < ends[r].schedule.message_count; m++)
            free(ends[r].staging[m]);
        free(ends[r].staging);
        sl_schedule_drop(&ends[r].schedule);
        sl_half_drop(&ends[r].half);
    }
}

static void balanced(uint64_t window_bytes, uint32_t least_windows)
{
    struct sl_plan plan;
    struct end ends[RANKS] = {0};
    struct wire wire;
    uint32_t windows = 0;
    load(&plan);
    build(&plan, window_bytes, ends, &windows);
    cr_assert_geq(windows, least_windows);
    wire_open(&wire, RANKS, CUT, 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        copy_all(&ends[r], 0);
        add_windows(&wire, r, &ends[r], windows);
    }
    cr_assert(wire_run(&wire), "%u operations wait for each other", wire_left(&wire));
    for (uint32_t r = 0; r < RANKS; r++)
        copy_all(&ends[r], 1);
    check_every_byte(&plan);
    wire_close(&wire);
    drop_ends(ends);
    drop(&plan);
}

Test(hang, balanced_windows_of_the_list_end_with_every_byte_right)
{
    balanced(UINT64_C(1) << 20, 8);
}

Test(hang, one_balanced_window_of_the_list_ends_with_every_byte_right)
{
    balanced(UINT64_C(1) << 30, 1);
}
