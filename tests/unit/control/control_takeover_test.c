/* control_takeover_test.c: another rank in the place of rank 0, whose process is killed or stopped. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "runtime/base/error.h"
#include "support/ranks.h"

#define LONG (30 * SLUICE_SECOND)

static void round_fails(struct test_rank *rank, sluice_status status, const char *part)
{
    cr_assert(test_wait_rounds(rank, 1));
    cr_assert_eq(rank->round_status, status, "%s", rank->round_error.text);
    cr_assert_not_null(strstr(rank->round_error.text, part), "\"%s\" lacks \"%s\"", rank->round_error.text, part);
}

/* Ranks of the bit mask `children` in processes of their own, the others here. */
static struct test_ranks *opened_with_children(uint32_t world, uint32_t children, uint64_t heartbeat_ns, pid_t *pids)
{
    struct test_ranks *ranks = test_ranks_new(world, LONG);
    int ready[TEST_RANKS_MAX];
    for (uint32_t i = 0; i < world; i++)
        ranks->rank[i].config.heartbeat_ns = heartbeat_ns;
    for (uint32_t i = 0; i < world; i++)
        if (children >> i & 1u)
            pids[i] = test_rank_fork(ranks, i, &ready[i]);
    test_ranks_open(ranks, ((1u << world) - 1) & ~children);
    for (uint32_t i = 0; i < world; i++)
        if (children >> i & 1u)
            test_rank_await(ready[i]);
    return ranks;
}

/* Every rank of [first, world) hears that `lost` is gone and that the arbiter is on rank `host`. */
static void all_hear(struct test_ranks *ranks, uint32_t first, uint32_t lost, uint32_t host)
{
    for (uint32_t i = first; i < ranks->world; i++) {
        struct sl_note note;
        do /* an earlier arbiter may have said it too */
            cr_assert(test_wait_lost(&ranks->rank[i], lost, &note), "rank %u", i);
        while (note.a != host + 1);
        cr_assert_eq(note.status, SLUICE_PEER_LOST);
    }
}

/* The first run of the first plan. */
enum { FIRST_RUN = 0 };

/* All stand with a version staged whole for whose decision they voted; one has seen the decision. */
static void stand(struct test_ranks *ranks, uint32_t first, uint32_t saw)
{
    enum { VOTED = 1 << SL_PHASE_STAGED | 1 << SL_PHASE_DECIDE };
    for (uint32_t i = first; i < ranks->world; i++) {
        struct sl_note note = {.kind = SL_NOTE_STANDING, .key = FIRST_RUN, .a = 4, .c = VOTED, .f = 5};
        note.d = i == saw ? VOTED : 1 << SL_PHASE_STAGED;
        cr_assert_eq(sl_control_tell(ranks->rank[i].control, &note), SLUICE_OK);
        test_tell(ranks, i, SL_NOTE_STANDING, SL_KEY_NONE, 0, 0);
    }
}

static void all_have_outcome(struct test_ranks *ranks, uint32_t first, sluice_status status)
{
    for (uint32_t i = first; i < ranks->world; i++) {
        struct sl_note note;
        cr_assert(test_wait_note(&ranks->rank[i], SL_NOTE_OUTCOME, FIRST_RUN, &note), "rank %u", i);
        cr_assert_eq(note.status, status, "rank %u: %s", i, note.text);
    }
}

Test(control_takeover, lets_the_lowest_survivor_end_runs_when_rank_0_is_killed)
{
    pid_t pids[1];
    struct test_ranks *ranks = opened_with_children(4, 1 << 0, 60 * SLUICE_SECOND, pids);
    test_give(ranks, 2, 1, 1, "c", LONG);
    test_rank_kill(pids[0]);
    all_hear(ranks, 1, 0, 1);
    round_fails(&ranks->rank[2], SLUICE_PEER_LOST, "rank 0 was lost");
    stand(ranks, 1, 3);
    all_have_outcome(ranks, 1, SLUICE_OK); /* the decision that rank 3 saw holds for all */
    test_give(ranks, 3, 1, 2, "c", LONG);  /* a round needs every rank */
    round_fails(&ranks->rank[3], SLUICE_PEER_LOST, "rank 0 was lost");
    test_ranks_end(ranks);
}

Test(control_takeover, lets_the_lowest_survivor_end_runs_when_rank_0_is_silent)
{
    pid_t pids[1];
    struct test_ranks *ranks = opened_with_children(3, 1 << 0, 200 * SLUICE_MILLISECOND, pids);
    kill(pids[0], SIGSTOP);
    all_hear(ranks, 1, 0, 1);
    stand(ranks, 1, UINT32_MAX);
    all_have_outcome(ranks, 1, SLUICE_PEER_LOST); /* nobody saw a decision */
    test_rank_kill(pids[0]);
    test_ranks_end(ranks);
}

Test(control_takeover, goes_on_to_the_next_survivor_when_the_successor_is_killed_too)
{
    pid_t pids[2];
    struct test_ranks *ranks = opened_with_children(5, 1 << 0 | 1 << 1, 60 * SLUICE_SECOND, pids);
    test_rank_kill(pids[0]);
    all_hear(ranks, 2, 0, 1);
    test_rank_kill(pids[1]);
    all_hear(ranks, 2, 1, 2);
    stand(ranks, 2, 4);
    all_have_outcome(ranks, 2, SLUICE_OK);
    test_ranks_end(ranks);
}

Test(control_takeover, passes_over_a_successor_that_was_killed_together_with_rank_0)
{
    pid_t pids[2];
    struct test_ranks *ranks = opened_with_children(5, 1 << 0 | 1 << 1, 60 * SLUICE_SECOND, pids);
    test_rank_kill(pids[1]);
    test_rank_kill(pids[0]);
    all_hear(ranks, 2, 1, 2); /* the last of the losses that it says */
    test_ranks_end(ranks);
}

Test(control_takeover, does_not_wait_for_a_rank_that_was_killed_right_after_rank_0)
{
    pid_t pids[4];
    struct test_ranks *ranks = opened_with_children(5, 1 << 0 | 1 << 3, 60 * SLUICE_SECOND, pids);
    kill(pids[3], SIGSTOP); /* so that it goes nowhere before it is killed */
    test_rank_kill(pids[0]);
    test_rank_kill(pids[3]);
    for (uint32_t i = 1; i < 5; i += i == 2 ? 2 : 1) {
        struct sl_note note;
        cr_assert(test_wait_lost(&ranks->rank[i], 3, &note), "rank %u", i);
        cr_assert_eq(note.a, 2, "the arbiter is on rank 1");
    }
    test_ranks_end(ranks);
}

Test(control_takeover, passes_over_a_successor_that_is_silent_too)
{
    pid_t pids[2];
    struct test_ranks *ranks = opened_with_children(5, 1 << 0 | 1 << 1, 200 * SLUICE_MILLISECOND, pids);
    kill(pids[1], SIGSTOP); /* its listener still takes connections */
    kill(pids[0], SIGSTOP);
    all_hear(ranks, 2, 1, 2);
    stand(ranks, 2, UINT32_MAX);
    all_have_outcome(ranks, 2, SLUICE_PEER_LOST);
    test_rank_kill(pids[0]);
    test_rank_kill(pids[1]);
    test_ranks_end(ranks);
}

Test(control_takeover, leaves_every_rank_alone_without_a_majority)
{
    pid_t pids[2];
    struct test_ranks *ranks = opened_with_children(4, 1 << 0 | 1 << 1, 200 * SLUICE_MILLISECOND, pids);
    test_rank_kill(pids[1]);
    test_rank_kill(pids[0]);
    for (uint32_t i = 2; i < 4; i++) {
        struct sl_note note;
        do
            cr_assert(test_wait_lost(&ranks->rank[i], 1, &note), "rank %u", i);
        while (note.a != 0);
        cr_assert_eq(sl_control_round(ranks->rank[i].control, SL_ROUND_SURVIVORS, 1, "a", 1, LONG), SLUICE_OK);
        round_fails(&ranks->rank[i], SLUICE_STATE, "no other rank of the 4 has taken its place with a majority");
    }
    test_ranks_end(ranks);
}

Test(control_takeover, ends_rounds_of_survivors_without_the_part_of_a_rank_that_is_gone)
{
    pid_t pids[1];
    struct test_ranks *ranks = opened_with_children(4, 1 << 0, 60 * SLUICE_SECOND, pids);
    static const char *const texts[] = {"a", "b", "c", "d"};
    test_rank_kill(pids[0]);
    all_hear(ranks, 1, 0, 1);
    for (uint32_t round = 1; round <= 2; round++) {
        for (uint32_t i = 1; i < 4; i++)
            cr_assert_eq(sl_control_round(ranks->rank[i].control, SL_ROUND_SURVIVORS, 9, texts[i], 1, LONG), SLUICE_OK);
        for (uint32_t i = 1; i < 4; i++) {
            cr_assert(test_wait_rounds(&ranks->rank[i], round));
            cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK, "%s", ranks->rank[i].round_error.text);
            cr_assert_eq(ranks->rank[i].round_bytes, 3);
            cr_assert_eq(memcmp(ranks->rank[i].round_data, "bcd", 3), 0);
        }
    }
    test_ranks_end(ranks);
}
