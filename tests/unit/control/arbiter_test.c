/* The arbiter, told note by note, and what it answers. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/arbiter_bench.h"
#include "support/memory.h"

/* Both ranks have run a with 4 windows, all granted. */
static void start_pair(void)
{
    arbiter_open_world(2);
    cr_assert_str_eq(arbiter_join(0, 1, 4), "");
    cr_assert_str_eq(arbiter_join(1, 1, 4), "");
    cr_assert_str_eq(arbiter_ready(0, 1, 4), "");
    cr_assert_str_eq(arbiter_ready(1, 1, 4), "GRANT a:4 #1");
}

Test(arbiter, grants_the_least_ready_once_all_ranks_joined)
{
    arbiter_open_world(3);
    cr_assert_str_eq(arbiter_join(0, 1, 8), "");
    cr_assert_str_eq(arbiter_ready(0, 1, 8), "");
    cr_assert_str_eq(arbiter_join(1, 1, 8), "");
    cr_assert_str_eq(arbiter_ready(1, 1, 3), "");
    cr_assert_str_eq(arbiter_join(2, 1, 8), "");
    cr_assert_str_eq(arbiter_ready(2, 1, 5), "GRANT a:3 #1");
    cr_assert_str_eq(arbiter_ready(1, 1, 4), "GRANT a:4 #2");
    cr_assert_str_eq(arbiter_ready(1, 1, 8), "GRANT a:5 #3");
    cr_assert_str_eq(arbiter_ready(2, 1, 8), "GRANT a:8 #4");
    arbiter_close_world();
}

Test(arbiter, readiness_that_shrinks_or_exceeds_the_run_is_ignored)
{
    start_pair();
    cr_assert_str_eq(arbiter_ready(0, 1, 2), "");
    cr_assert_str_eq(arbiter_ready(0, 1, 9), "");
    cr_assert_str_eq(arbiter_ready(0, 9, 1), "");
    cr_assert_str_eq(arbiter_ready(7, 1, 1), "");
    arbiter_close_world();
}

Test(arbiter, different_options_fail_the_run_for_all_and_name_the_rank)
{
    arbiter_open_world(2);
    cr_assert_str_eq(arbiter_join(0, 1, 8), "");
    cr_assert_str_eq(arbiter_join(1, 1, 9), "OUTCOME a FINAL MISMATCH");
    cr_assert_str_eq(words_text, "rank 1 runs 9 windows, others 8: submit alike on all ranks");
    cr_assert_str_eq(arbiter_join(0, 2, 8), "");
    cr_assert_str_eq(arbiter_join_shadow(1, 2, 8, 4), "OUTCOME b FINAL MISMATCH");
    arbiter_close_world();
}

Test(arbiter, a_run_alone_gets_all_and_equals_take_turns_after_the_higher_priority)
{
    arbiter_open_world(1);
    struct sl_note note = {.kind = SL_NOTE_JOIN, .a = 2};
    for (uint32_t run = 1; run <= 3; run++) {
        note.key = run;
        note.c = run == 3 ? 7 : 0;
        arbiter_told(note);
        arbiter_asked(0, run, SL_REQUEST_PAUSE);
        arbiter_ready(0, run, 2);
    }
    note = (struct sl_note){.kind = SL_NOTE_REQUEST, .a = SL_REQUEST_RESUME};
    for (uint32_t run = 1; run <= 3; run++) {
        note.key = run;
        sl_arbiter_note(arbiter, &note, arbiter_now);
    }
    cr_assert_str_eq(arbiter_words(arbiter), "RESUME a; RESUME b; RESUME c; GRANT c:2 #1; GRANT a:1 #2; GRANT b:1 #3; "
                                             "GRANT a:2 #4; GRANT b:2 #5");
    arbiter_close_world();
}

Test(arbiter, grants_within_200_microseconds_are_gathered)
{
    arbiter_open_world(1);
    arbiter_join(0, 1, 8);
    cr_assert_str_eq(arbiter_ready(0, 1, 1), "GRANT a:1 #1");
    struct sl_note note = {.kind = SL_NOTE_READY, .key = 1};
    for (note.a = 2; note.a < 6; note.a++)
        sl_arbiter_note(arbiter, &note, arbiter_now + 1000);
    cr_assert_str_eq(arbiter_words(arbiter), "");
    cr_assert_eq(sl_arbiter_timer(arbiter), arbiter_now + 200000);
    sl_arbiter_tick(arbiter, arbiter_now + 200000);
    cr_assert_str_eq(arbiter_words(arbiter), "GRANT a:5 #2");
    cr_assert_eq(sl_arbiter_timer(arbiter), UINT64_MAX);
    arbiter_close_world();
}

Test(arbiter, a_paced_run_gets_a_window_per_interval_at_the_rate_of_rank_0)
{
    arbiter_open_world(2);
    struct sl_note note = {.kind = SL_NOTE_JOIN, .key = 1, .a = 3, .d = 1000000, .e = 500000};
    arbiter_told(note);
    note = (struct sl_note){.kind = SL_NOTE_JOIN, .rank = 1, .key = 1, .a = 3, .d = 7, .e = 1000000};
    arbiter_told(note);
    arbiter_ready(0, 1, 3);
    cr_assert_str_eq(arbiter_ready(1, 1, 3), "GRANT a:1 #1");
    uint64_t start = arbiter_now;
    cr_assert_eq(sl_arbiter_timer(arbiter), start + 1000 * (uint64_t)MS);
    sl_arbiter_tick(arbiter, start + 999 * (uint64_t)MS);
    cr_assert_str_eq(arbiter_words(arbiter), "");
    sl_arbiter_tick(arbiter, start + 1000 * (uint64_t)MS);
    cr_assert_str_eq(arbiter_words(arbiter), "GRANT a:2 #2");
    arbiter_now = start + 1000 * (uint64_t)MS;
    cr_assert_str_eq(arbiter_told((struct sl_note){.kind = SL_NOTE_REQUEST, .rank = 1, .key = 1, .a = SL_REQUEST_PACE}),
                     "");
    cr_assert_str_eq(arbiter_told((struct sl_note){.kind = SL_NOTE_REQUEST, .key = 1, .a = SL_REQUEST_PACE}),
                     "GRANT a:3 #3");
    arbiter_close_world();
}

Test(arbiter, all_ranks_stop_at_the_furthest)
{
    start_pair();
    cr_assert_str_eq(arbiter_asked(1, 1, SL_REQUEST_CANCEL), "FREEZE a CANCEL");
    cr_assert_str_eq(arbiter_launched(0, 1, 1, 1), "");
    cr_assert_str_eq(arbiter_launched(1, 1, 3, 1), "STOP_AT a:3 CANCEL");
    cr_assert_str_eq(words_text, "cancelled by rank 1");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_RELEASED), "");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    arbiter_close_world();
}

Test(arbiter, an_answer_to_a_freeze_that_was_taken_back_does_not_count)
{
    start_pair();
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_RESUME), "RESUME a");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(arbiter_launched(0, 1, 1, 1), "");
    cr_assert_str_eq(arbiter_launched(1, 1, 1, 1), "");
    cr_assert_str_eq(arbiter_launched(0, 1, 2, 2), "");
    cr_assert_str_eq(arbiter_launched(1, 1, 3, 2), "STOP_AT a:3 PAUSE");
    arbiter_close_world();
}

Test(arbiter, resume_grants_again_what_the_pause_cut_off)
{
    start_pair();
    arbiter_asked(0, 1, SL_REQUEST_PAUSE);
    arbiter_launched(0, 1, 1, 1);
    cr_assert_str_eq(arbiter_launched(1, 1, 2, 1), "STOP_AT a:2 PAUSE");
    cr_assert_eq(sl_arbiter_timer(arbiter), UINT64_MAX);
    cr_assert_str_eq(arbiter_asked(1, 1, SL_REQUEST_RESUME), "RESUME a; GRANT a:4 #2");
    arbiter_close_world();
}

Test(arbiter, cancel_beats_pause_and_a_failure_beats_both)
{
    start_pair();
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(arbiter_failed(1, 1, SL_NOTE_REQUEST, SLUICE_CORRUPT), "");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_RESUME), "");
    arbiter_launched(0, 1, 4, 1);
    cr_assert_str_eq(arbiter_launched(1, 1, 4, 1), "STOP_AT a:4 FAIL");
    cr_assert_str_eq(words_text, "rank 1: a reason");
    arbiter_close_world();
}

Test(arbiter, completed_wins_over_a_cancel_when_all_voted)
{
    start_pair();
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_CANCEL), "FREEZE a CANCEL");
    arbiter_launched(0, 1, 4, 1);
    cr_assert_str_eq(arbiter_launched(1, 1, 4, 1), "STOP_AT a:4 CANCEL");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    arbiter_close_world();
}

Test(arbiter, a_cancel_before_all_joined_ends_the_run_and_late_ranks_hear_it)
{
    arbiter_open_world(2);
    arbiter_join(0, 1, 4);
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_CANCEL), "OUTCOME a FINAL CANCELLED");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(arbiter_join(1, 1, 4), "OUTCOME a FINAL CANCELLED");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_RELEASED), "");
    arbiter_close_world();
}

Test(arbiter, a_rank_that_cannot_begin_fails_the_run_for_those_before_and_after_it)
{
    arbiter_open_world(3);
    arbiter_join(0, 1, 4);
    cr_assert_str_eq(arbiter_failed(1, 1, SL_NOTE_REQUEST, SLUICE_NOMEM), "OUTCOME a FINAL NOMEM");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(arbiter_join(2, 1, 4), "OUTCOME a FINAL NOMEM");
    cr_assert_str_eq(arbiter_vote(2, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(arbiter_failed(1, 2, SL_NOTE_REQUEST, SLUICE_NOMEM),
                     "OUTCOME b FINAL NOMEM; OUTCOME b RELEASED OK", "before any rank joined");
    cr_assert_str_eq(arbiter_join(0, 2, 4), "OUTCOME b FINAL NOMEM");
    arbiter_close_world();
}

Test(arbiter, a_gate_timeout_names_the_ranks_that_are_not_ready)
{
    arbiter_open_world(4);
    for (uint32_t rank = 0; rank < 4; rank++)
        arbiter_join(rank, 1, 8);
    arbiter_ready(0, 1, 8);
    arbiter_ready(1, 1, 3);
    arbiter_ready(2, 1, 8);
    cr_assert_str_eq(arbiter_ready(3, 1, 3), "GRANT a:3 #1");
    cr_assert_str_eq(arbiter_failed(1, 1, SL_NOTE_REQUEST, SLUICE_GATE_TIMEOUT), "FREEZE a FAIL");
    for (uint32_t rank = 0; rank < 4; rank++)
        arbiter_launched(rank, 1, 3, 1);
    cr_assert_str_eq(words_text, "rank 1: a reason; ranks not ready: 1, 3");
    arbiter_close_world();
}

Test(arbiter, an_outcome_needs_every_vote_and_is_given_once)
{
    arbiter_open_world(2);
    arbiter_join_shadow(0, 1, 4, 4);
    arbiter_join_shadow(1, 1, 4, 4);
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_STAGED), "");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_STAGED), "");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_STAGED), "OUTCOME a STAGED OK");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_DECIDE), "OUTCOME a DECIDE OK");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_PAUSE), "");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    cr_assert_str_eq(arbiter_failed(1, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "");
    arbiter_close_world();
}

Test(arbiter, a_pause_holds_the_decision_back)
{
    arbiter_open_world(2);
    arbiter_join_shadow(0, 1, 4, 4);
    arbiter_join_shadow(1, 1, 4, 4);
    arbiter_vote(0, 1, SL_PHASE_STAGED);
    arbiter_vote(1, 1, SL_PHASE_STAGED);
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_PAUSE), "STOP_AT a:0 PAUSE");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(arbiter_asked(0, 1, SL_REQUEST_RESUME), "RESUME a; OUTCOME a DECIDE OK");
    arbiter_close_world();
}

Test(arbiter, an_error_vote_fails_the_run_at_once)
{
    start_pair();
    cr_assert_str_eq(arbiter_failed(1, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "OUTCOME a FINAL DEVICE");
    cr_assert_str_eq(words_text, "rank 1: a reason");
    cr_assert_str_eq(arbiter_failed(0, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "");
    arbiter_close_world();
}

Test(arbiter, a_loss_before_the_decision_fails_all_runs_and_those_to_come)
{
    start_pair();
    arbiter_join(0, 2, 4);
    cr_assert_str_eq(arbiter_lost(1), "LOST 1; OUTCOME a FINAL PEER_LOST; OUTCOME b FINAL PEER_LOST");
    cr_assert_str_eq(words_text, "rank is gone: connection closed");
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(arbiter_join(0, 3, 4), "OUTCOME c FINAL PEER_LOST");
    cr_assert_str_eq(arbiter_lost(1), "");
    arbiter_close_world();
}

static void decide_three(void)
{
    arbiter_open_world(3);
    for (uint32_t rank = 0; rank < 3; rank++)
        arbiter_join_shadow(rank, 1, 4, 4);
    for (uint32_t rank = 0; rank < 3; rank++)
        arbiter_vote(rank, 1, SL_PHASE_STAGED);
    arbiter_vote(0, 1, SL_PHASE_DECIDE);
    arbiter_vote(1, 1, SL_PHASE_DECIDE);
    cr_assert_str_eq(arbiter_vote(2, 1, SL_PHASE_DECIDE), "OUTCOME a DECIDE OK");
}

Test(arbiter, survivors_commit_after_the_decision_and_the_lost_rank_is_undecided)
{
    decide_three();
    cr_assert_str_eq(arbiter_vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(arbiter_lost(2), "LOST 2");
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    cr_assert_str_eq(words_text, "rank 2 was lost after the decision: whether it holds the version is not known; "
                                 "all others do");
    arbiter_close_world();
}

Test(arbiter, a_rank_lost_after_its_last_vote_changes_nothing)
{
    decide_three();
    arbiter_vote(2, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(arbiter_lost(2), "LOST 2");
    arbiter_vote(0, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(arbiter_vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    arbiter_close_world();
}

Test(arbiter, a_version_not_staged_whole_is_torn_by_a_loss_after_the_decision)
{
    arbiter_open_world(2);
    arbiter_join_shadow(0, 1, 4, 2);
    arbiter_join_shadow(1, 1, 4, 2);
    arbiter_vote(0, 1, SL_PHASE_STAGED);
    arbiter_vote(1, 1, SL_PHASE_STAGED);
    arbiter_vote(0, 1, SL_PHASE_DECIDE);
    arbiter_vote(1, 1, SL_PHASE_DECIDE);
    cr_assert_str_eq(arbiter_lost(1), "LOST 1; OUTCOME a FINAL PEER_LOST");
    arbiter_close_world();
}

Test(arbiter, a_broken_communicator_is_everybodys)
{
    start_pair();
    struct sl_note note = {.kind = SL_NOTE_BROKEN, .rank = 1, .status = SLUICE_POISONED, .text = "rank 1: aborted"};
    cr_assert_str_eq(arbiter_told(note), "POISON 1; OUTCOME a FINAL POISONED");
    note.rank = 0;
    cr_assert_str_eq(arbiter_told(note), "");
    cr_assert_str_eq(arbiter_join(0, 2, 4), "OUTCOME b FINAL POISONED");
    arbiter_close_world();
}

Test(arbiter, runs_that_only_one_rank_submits_are_bounded)
{
    arbiter_open_world(2);
    uint32_t run = 1;
    for (; run <= 4 * 8 + 64; run++)
        cr_assert_str_eq(arbiter_join(0, run, 1), "");
    arbiter_join(0, run, 1);
    cr_assert(strstr(words_text, "submit alike on all ranks"));
    arbiter_close_world();
}

Test(arbiter, no_memory_for_a_run_fails_that_run)
{
    struct test_memory memory = {0};
    test_memory_install(&memory);
    arbiter_open_world(2);
    test_memory_fail_at(&memory, 1);
    cr_assert_str_eq(arbiter_join(0, 1, 4), "OUTCOME a FINAL NOMEM");
    test_memory_fail_at(&memory, 0);
    cr_assert_str_eq(arbiter_join(0, 2, 4), "");
    arbiter_close_world();
    cr_assert_eq(memory.live, 0);
    test_memory_remove();
}
