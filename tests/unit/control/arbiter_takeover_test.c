/* An arbiter that takes the place of one whose rank was lost. */
#include <criterion/criterion.h>

#include "support/arbiter_bench.h"

/* A second arbiter, on rank 1 of 4; rank 0 is lost. */
static void take_over(void)
{
    struct sl_arbiter_config config = {.world = 4, .runs_max = 4, .mem = sl_mem_default(), .host = 1, .takeover = 1};
    arbiter = sl_arbiter_create(&config);
    arbiter_now = MS;
    cr_assert_str_eq(arbiter_lost(0), "LOST 0");
}

/* A run into shadow, 4 of 4 windows staged. */
static const char *stands(uint32_t rank, uint32_t run, uint64_t voted, uint64_t seen)
{
    return arbiter_told(
        (struct sl_note){.kind = SL_NOTE_STANDING, .rank = rank, .key = run, .a = 4, .c = voted, .d = seen, .f = 5});
}

static const char *stands_no_more(uint32_t rank)
{
    return arbiter_told((struct sl_note){.kind = SL_NOTE_STANDING, .rank = rank, .key = SL_KEY_NONE});
}

enum { VOTED_DECIDE = 1 << SL_PHASE_STAGED | 1 << SL_PHASE_DECIDE, VOTED_FINAL = VOTED_DECIDE | 1 << SL_PHASE_FINAL };

Test(arbiter_takeover, a_successor_commits_when_any_survivor_saw_the_decision)
{
    take_over();
    stands(1, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
    stands(2, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands(3, 1, VOTED_FINAL, VOTED_DECIDE);
    stands_no_more(1);
    stands_no_more(2);
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a DECIDE OK");
    arbiter_vote(1, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(arbiter_vote(2, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    cr_assert_str_eq(words_text, "rank 0 was lost after the decision: whether it holds the version is not known; "
                                 "all others do");
    arbiter_close_world();
}

Test(arbiter_takeover, a_successor_commits_nothing_when_no_survivor_saw_the_decision)
{
    take_over();
    for (uint32_t rank = 1; rank < 4; rank++) {
        stands(rank, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
        cr_assert_str_eq(rank < 3 ? stands_no_more(rank) : "", "");
    }
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a FINAL PEER_LOST");
    cr_assert_str_eq(words_text, "rank is gone: connection closed: the run cannot go on without it");
    arbiter_close_world();
}

Test(arbiter_takeover, a_survivor_that_failed_after_it_may_have_seen_the_decision_leaves_it_undecided)
{
    take_over();
    stands(1, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
    stands(2, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
    stands(1, 2, VOTED_DECIDE, VOTED_DECIDE);
    stands(1, 3, 1 << SL_PHASE_STAGED, 1 << SL_PHASE_STAGED);
    for (uint32_t rank = 1; rank < 3; rank++)
        stands_no_more(rank);
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a FINAL UNDECIDED; OUTCOME b FINAL TORN; OUTCOME c FINAL PEER_LOST");
    arbiter_close_world();
}

Test(arbiter_takeover, a_success_that_any_survivor_saw_is_everybodys)
{
    take_over();
    stands(1, 1, VOTED_FINAL, VOTED_DECIDE);
    stands(2, 1, VOTED_FINAL | 1 << SL_PHASE_RELEASED, VOTED_FINAL);
    stands(3, 1, VOTED_FINAL, VOTED_DECIDE);
    for (uint32_t rank = 1; rank < 3; rank++)
        stands_no_more(rank);
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a FINAL OK");
    arbiter_vote(1, 1, SL_PHASE_RELEASED);
    cr_assert_str_eq(arbiter_vote(3, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    arbiter_close_world();
}

Test(arbiter_takeover, a_survivor_lost_during_the_takeover_is_not_waited_for)
{
    take_over();
    stands(1, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands(2, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands_no_more(1);
    stands_no_more(2);
    cr_assert_str_eq(arbiter_vote(2, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(arbiter_lost(3), "LOST 3; OUTCOME a DECIDE OK");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    arbiter_close_world();
}
