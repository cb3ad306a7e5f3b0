/* control_test.c: rounds, notes, losses and goodbyes between ranks of one process on loopback. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "support/ranks.h"

#define LONG (30 * SLUICE_SECOND)

static struct test_ranks *opened(uint32_t world)
{
    struct test_ranks *ranks = test_ranks_new(world, LONG);
    test_ranks_open(ranks, (1u << world) - 1);
    for (uint32_t i = 0; i < world; i++)
        cr_assert_eq(ranks->rank[i].opened, SLUICE_OK, "rank %u: %s", i, ranks->rank[i].error.text);
    return ranks;
}

static void failed(struct test_ranks *ranks, uint32_t rank, uint32_t rounds, sluice_status status, const char *part)
{
    struct test_rank *r = &ranks->rank[rank];
    cr_assert(test_wait_rounds(r, rounds));
    cr_assert_eq(r->round_status, status, "rank %u: %s", rank, r->round_error.text);
    cr_assert_not_null(strstr(r->round_error.text, part), "\"%s\" lacks \"%s\"", r->round_error.text, part);
}

/* --- rounds --- */

Test(control, reduces_the_parts_of_all_ranks_in_rank_order)
{
    struct test_ranks *ranks = opened(3);
    test_give(ranks, 2, 1, 7, "c", LONG);
    test_give(ranks, 0, 1, 7, "a", LONG);
    test_give(ranks, 1, 1, 7, "b", LONG);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(test_wait_rounds(&ranks->rank[i], 1));
        cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK);
        cr_assert_eq(ranks->rank[i].round_id, 7);
        cr_assert_eq(ranks->rank[i].round_bytes, 3);
        cr_assert_eq(memcmp(ranks->rank[i].round_data, "abc", 3), 0);
    }
    test_ranks_end(ranks);
}

Test(control, reduces_locally_in_a_world_of_one)
{
    struct test_ranks *ranks = opened(1);
    test_give(ranks, 0, 1, 1, "a", LONG);
    cr_assert(test_wait_rounds(&ranks->rank[0], 1));
    cr_assert_eq(ranks->rank[0].round_bytes, 1);
    test_give(ranks, 0, 1, 2, "!", LONG);
    failed(ranks, 0, 2, SLUICE_MISMATCH, "rank 0 disagrees");
    test_ranks_end(ranks);
}

Test(control, carries_parts_without_bytes)
{
    struct test_ranks *ranks = opened(2);
    test_give(ranks, 0, 1, 1, "", LONG);
    test_give(ranks, 1, 1, 1, "", LONG);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(test_wait_rounds(&ranks->rank[i], 1));
        cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK);
        cr_assert_eq(ranks->rank[i].round_bytes, 0);
    }
    test_ranks_end(ranks);
}

Test(control, gives_every_rank_the_error_of_the_reduction)
{
    struct test_ranks *ranks = opened(3);
    test_give(ranks, 0, 1, 1, "a", LONG);
    test_give(ranks, 1, 1, 1, "!", LONG);
    test_give(ranks, 2, 1, 1, "c", LONG);
    for (uint32_t i = 0; i < 3; i++)
        failed(ranks, i, 1, SLUICE_MISMATCH, "rank 1 disagrees in a round of kind 1");
    test_ranks_end(ranks);
}

Test(control, carries_a_part_of_64_mib_and_refuses_a_larger_one)
{
    const size_t bytes = (size_t)64 << 20;
    char *part = sl_new_aligned(sl_mem_default(), bytes + 1, 16, "a part");
    memset(part, 'x', bytes);
    struct test_ranks *ranks = opened(2);
    cr_assert_eq(sl_control_round(ranks->rank[1].control, 1, 1, part, bytes + 1, LONG), SLUICE_LIMIT);
    cr_assert_eq(sl_control_round(ranks->rank[1].control, 1, 1, part, bytes, LONG), SLUICE_OK);
    test_give(ranks, 0, 1, 1, "", LONG);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(test_wait_rounds(&ranks->rank[i], 1));
        cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK, "%s", ranks->rank[i].round_error.text);
        cr_assert_eq(ranks->rank[i].round_bytes, bytes);
    }
    sl_free(sl_mem_default(), part);
    test_ranks_end(ranks);
}

Test(control, names_the_ranks_that_did_not_take_part_in_time_also_to_those_that_come_late)
{
    struct test_ranks *ranks = opened(4);
    test_give(ranks, 2, 1, 1, "c", SLUICE_SECOND); /* its part is there long before rank 0's time has passed */
    test_give(ranks, 0, 1, 1, "a", SLUICE_SECOND);
    failed(ranks, 0, 1, SLUICE_TIMEOUT, "missing: 1, 3");
    failed(ranks, 2, 1, SLUICE_TIMEOUT, "missing: 1, 3");
    test_give(ranks, 1, 1, 1, "b", LONG);
    failed(ranks, 1, 1, SLUICE_TIMEOUT, "missing: 1, 3");
    test_give(ranks, 0, 1, 2, "a", LONG); /* the next round is not touched by it */
    test_give(ranks, 1, 1, 2, "b", LONG);
    test_give(ranks, 2, 1, 2, "c", LONG);
    test_give(ranks, 3, 1, 2, "d", LONG);
    cr_assert(test_wait_rounds(&ranks->rank[3], 1));
    cr_assert_eq(ranks->rank[3].round_status, SLUICE_OK);
    test_ranks_end(ranks);
}

Test(control, ends_open_rounds_when_it_is_closed)
{
    struct test_ranks *ranks = opened(2);
    test_give(ranks, 0, 1, 1, "a", LONG);
    test_ranks_close(ranks, 1);
    failed(ranks, 0, 1, SLUICE_CLOSED, "closed");
    test_ranks_end(ranks);
}

/* --- notes --- */

static void join(struct test_ranks *ranks, uint32_t rank, uint64_t key, uint64_t windows)
{
    struct sl_note note = {.kind = SL_NOTE_JOIN, .key = key, .a = windows, .b = 1};
    cr_assert_eq(sl_control_tell(ranks->rank[rank].control, &note), SLUICE_OK);
}

static uint64_t granted(struct test_ranks *ranks, uint32_t rank, uint64_t key)
{
    struct sl_note note;
    cr_assert(test_wait_note(&ranks->rank[rank], SL_NOTE_GRANT, key, &note), "rank %u has no grant", rank);
    return note.a;
}

Test(control, grants_to_all_ranks_what_all_are_ready_for)
{
    struct test_ranks *ranks = opened(3);
    for (uint32_t i = 0; i < 3; i++)
        join(ranks, i, 5, 4);
    for (uint32_t i = 0; i < 3; i++)
        test_tell(ranks, i, SL_NOTE_READY, 5, 4, 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_note note;
        do
            cr_assert(test_wait_note(&ranks->rank[i], SL_NOTE_GRANT, 5, &note));
        while (note.a < 4);
        cr_assert_eq(note.a, 4);
    }
    test_ranks_end(ranks);
}

Test(control, sends_the_newest_of_many_ready_notes)
{
    struct test_ranks *ranks = opened(2);
    enum { WINDOWS = 5000 };
    for (uint32_t i = 0; i < 2; i++)
        join(ranks, i, 5, WINDOWS);
    for (uint64_t w = 1; w <= WINDOWS; w++)
        for (uint32_t i = 0; i < 2; i++)
            test_tell(ranks, i, SL_NOTE_READY, 5, w, 0);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t have = 0;
        while (have < WINDOWS)
            have = granted(ranks, i, 5);
        cr_assert_eq(have, WINDOWS);
        cr_assert_lt(ranks->rank[i].notes, WINDOWS, "%u notes", ranks->rank[i].notes);
    }
    test_ranks_end(ranks);
}

Test(control, works_in_a_world_of_one_without_sockets)
{
    struct test_ranks *ranks = opened(1);
    join(ranks, 0, 9, 2);
    test_tell(ranks, 0, SL_NOTE_READY, 9, 2, 0);
    uint64_t have = 0;
    while (have < 2)
        have = granted(ranks, 0, 9);
    test_ranks_end(ranks);
}

/* --- losses --- */

Test(control, notices_a_killed_rank_at_once_and_tells_all)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    int ready = -1;
    for (uint32_t i = 0; i < 3; i++)
        ranks->rank[i].config.heartbeat_ns = 60 * SLUICE_SECOND; /* not by silence */
    pid_t child = test_rank_fork(ranks, 1, &ready);
    test_ranks_open(ranks, 1 | 4);
    test_rank_await(ready);
    test_give(ranks, 0, 1, 1, "a", LONG);
    test_give(ranks, 2, 1, 1, "c", LONG);
    test_rank_kill(child);
    for (uint32_t i = 0; i < 3; i += 2) {
        struct sl_note note;
        cr_assert(test_wait_lost(&ranks->rank[i], 1, &note), "rank %u", i);
        cr_assert_eq(note.status, SLUICE_PEER_LOST);
        cr_assert_not_null(strstr(note.text, "rank 1 was lost"), "%s", note.text);
        failed(ranks, i, 1, SLUICE_PEER_LOST, "rank 1");
        test_give(ranks, i, 1, 2, "x", LONG);
        failed(ranks, i, 2, SLUICE_PEER_LOST, "rank 1");
    }
    test_ranks_end(ranks);
}

Test(control, notices_a_stopped_rank_by_its_silence)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    int ready = -1;
    for (uint32_t i = 0; i < 3; i++)
        ranks->rank[i].config.heartbeat_ns = 200 * SLUICE_MILLISECOND;
    pid_t child = test_rank_fork(ranks, 1, &ready);
    test_ranks_open(ranks, 1 | 4);
    test_rank_await(ready);
    kill(child, SIGSTOP);
    for (uint32_t i = 0; i < 3; i += 2) {
        struct sl_note note;
        cr_assert(test_wait_lost(&ranks->rank[i], 1, &note), "rank %u", i);
        cr_assert_not_null(strstr(note.text, "no sign of life in 5 heartbeats of 200 ms"), "%s", note.text);
    }
    test_rank_kill(child);
    test_ranks_end(ranks);
}

Test(control, tells_the_others_when_rank_0_is_killed)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    int ready = -1;
    struct sl_control_config zero = ranks->rank[0].config;
    ranks->rank[0].config = ranks->rank[1].config;
    ranks->rank[1].config = zero; /* the child opens the second place, which now is rank 0 */
    pid_t child = test_rank_fork(ranks, 1, &ready);
    test_ranks_open(ranks, 1 | 4);
    test_rank_await(ready);
    test_give(ranks, 2, 1, 1, "c", LONG);
    test_rank_kill(child);
    struct sl_note note;
    cr_assert(test_wait_lost(&ranks->rank[1], 0, &note)); /* the first place reports as rank 1 */
    cr_assert(test_wait_lost(&ranks->rank[2], 0, &note));
    cr_assert_eq(note.status, SLUICE_PEER_LOST);
    failed(ranks, 2, 1, SLUICE_PEER_LOST, "rank 0 was lost");
    test_give(ranks, 2, 1, 2, "c", LONG);
    failed(ranks, 2, 2, SLUICE_PEER_LOST, "rank 0 was lost");
    test_ranks_end(ranks);
}

Test(control, takes_a_goodbye_for_no_loss_until_a_round_needs_the_rank)
{
    struct test_ranks *ranks = opened(3);
    test_ranks_close(ranks, 2);
    struct sl_note note;
    for (uint32_t i = 0; i < 3; i += 2) {
        cr_assert(test_wait_lost(&ranks->rank[i], 1, &note));
        cr_assert_eq(note.status, SLUICE_CLOSED);
    }
    cr_assert(!test_log_has(&ranks->log, "was lost"));
    test_give(ranks, 0, 1, 1, "a", LONG);
    test_give(ranks, 2, 1, 1, "c", LONG);
    failed(ranks, 0, 1, SLUICE_PEER_LOST, "rank 1 is gone");
    failed(ranks, 2, 1, SLUICE_PEER_LOST, "rank 1 is gone");
    test_ranks_end(ranks);
}

Test(control, closes_in_any_order_without_a_loss)
{
    for (uint32_t first = 0; first < 3; first++) {
        struct test_ranks *ranks = opened(3);
        test_ranks_close(ranks, 1u << first);
        test_ranks_close(ranks, 7);
        cr_assert(!test_log_has(&ranks->log, "was lost"), "rank %u first: %s", first, ranks->log.text);
        test_ranks_end(ranks);
    }
}
