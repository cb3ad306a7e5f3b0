/* The arbiter, told note by note, and what it answers. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "runtime/base/random.h"
#include "support/memory.h"
#include "support/words.h"

enum { MS = 1000000 };

static struct sl_arbiter *arbiter;
static uint64_t now;

static void open_world(uint32_t world)
{
    struct sl_arbiter_config config = {.world = world, .runs_max = 4, .mem = sl_mem_default()};
    arbiter = sl_arbiter_create(&config);
    now = MS;
    cr_assert(arbiter);
}

static void close_world(void)
{
    sl_arbiter_destroy(arbiter);
}

static const char *told(struct sl_note note)
{
    now += MS;
    sl_arbiter_note(arbiter, &note, now);
    return arbiter_words(arbiter);
}

static const char *join(uint32_t rank, uint32_t run, uint32_t windows)
{
    return told((struct sl_note){.kind = SL_NOTE_JOIN, .rank = rank, .key = run, .a = windows, .b = 5});
}

static const char *join_shadow(uint32_t rank, uint32_t run, uint32_t windows, uint32_t staged)
{
    return told(
        (struct sl_note){.kind = SL_NOTE_JOIN, .rank = rank, .key = run, .a = windows, .b = 5, .f = staged + 1u});
}

static const char *ready(uint32_t rank, uint32_t run, uint32_t windows)
{
    return told((struct sl_note){.kind = SL_NOTE_READY, .rank = rank, .key = run, .a = windows});
}

static const char *launched(uint32_t rank, uint32_t run, uint32_t windows, uint32_t freeze)
{
    return told((struct sl_note){.kind = SL_NOTE_LAUNCHED, .rank = rank, .key = run, .a = windows, .b = freeze});
}

static const char *vote(uint32_t rank, uint32_t run, enum sl_phase phase)
{
    return told((struct sl_note){.kind = SL_NOTE_VOTE, .rank = rank, .key = run, .a = phase});
}

static const char *asked(uint32_t rank, uint32_t run, enum sl_request request)
{
    return told((struct sl_note){.kind = SL_NOTE_REQUEST, .rank = rank, .key = run, .a = request});
}

static const char *failed(uint32_t rank, uint32_t run, uint32_t kind, sluice_status status)
{
    struct sl_note note = {.kind = kind, .rank = rank, .key = run, .status = status};
    note.a = kind == SL_NOTE_VOTE ? (uint32_t)SL_PHASE_FINAL : (uint32_t)SL_REQUEST_FAIL;
    snprintf(note.text, sizeof note.text, "rank %u: a reason", rank);
    return told(note);
}

static const char *lost(uint32_t rank)
{
    sl_arbiter_lost(arbiter, rank, "rank is gone: connection closed", now);
    return arbiter_words(arbiter);
}

/* Both ranks have run a with 4 windows, all granted. */
static void start_pair(void)
{
    open_world(2);
    cr_assert_str_eq(join(0, 1, 4), "");
    cr_assert_str_eq(join(1, 1, 4), "");
    cr_assert_str_eq(ready(0, 1, 4), "");
    cr_assert_str_eq(ready(1, 1, 4), "GRANT a:4 #1");
}

Test(arbiter, grants_the_least_ready_once_all_ranks_joined)
{
    open_world(3);
    cr_assert_str_eq(join(0, 1, 8), "");
    cr_assert_str_eq(ready(0, 1, 8), "");
    cr_assert_str_eq(join(1, 1, 8), "");
    cr_assert_str_eq(ready(1, 1, 3), "");
    cr_assert_str_eq(join(2, 1, 8), "");
    cr_assert_str_eq(ready(2, 1, 5), "GRANT a:3 #1");
    cr_assert_str_eq(ready(1, 1, 4), "GRANT a:4 #2");
    cr_assert_str_eq(ready(1, 1, 8), "GRANT a:5 #3");
    cr_assert_str_eq(ready(2, 1, 8), "GRANT a:8 #4");
    close_world();
}

Test(arbiter, readiness_that_shrinks_or_exceeds_the_run_is_ignored)
{
    start_pair();
    cr_assert_str_eq(ready(0, 1, 2), "");
    cr_assert_str_eq(ready(0, 1, 9), "");
    cr_assert_str_eq(ready(0, 9, 1), "");
    cr_assert_str_eq(ready(7, 1, 1), "");
    close_world();
}

Test(arbiter, different_options_fail_the_run_for_all_and_name_the_rank)
{
    open_world(2);
    cr_assert_str_eq(join(0, 1, 8), "");
    cr_assert_str_eq(join(1, 1, 9), "OUTCOME a FINAL MISMATCH");
    cr_assert_str_eq(words_text, "rank 1 runs 9 windows, others 8: submit alike on all ranks");
    cr_assert_str_eq(join(0, 2, 8), "");
    cr_assert_str_eq(join_shadow(1, 2, 8, 4), "OUTCOME b FINAL MISMATCH");
    close_world();
}

Test(arbiter, a_run_alone_gets_all_and_equals_take_turns_after_the_higher_priority)
{
    open_world(1);
    struct sl_note note = {.kind = SL_NOTE_JOIN, .a = 2};
    for (uint32_t run = 1; run <= 3; run++) {
        note.key = run;
        note.c = run == 3 ? 7 : 0;
        told(note);
        asked(0, run, SL_REQUEST_PAUSE);
        ready(0, run, 2);
    }
    note = (struct sl_note){.kind = SL_NOTE_REQUEST, .a = SL_REQUEST_RESUME};
    for (uint32_t run = 1; run <= 3; run++) {
        note.key = run;
        sl_arbiter_note(arbiter, &note, now);
    }
    cr_assert_str_eq(arbiter_words(arbiter), "RESUME a; RESUME b; RESUME c; GRANT c:2 #1; GRANT a:1 #2; GRANT b:1 #3; "
                                             "GRANT a:2 #4; GRANT b:2 #5");
    close_world();
}

Test(arbiter, grants_within_200_microseconds_are_gathered)
{
    open_world(1);
    join(0, 1, 8);
    cr_assert_str_eq(ready(0, 1, 1), "GRANT a:1 #1");
    struct sl_note note = {.kind = SL_NOTE_READY, .key = 1};
    for (note.a = 2; note.a < 6; note.a++)
        sl_arbiter_note(arbiter, &note, now + 1000);
    cr_assert_str_eq(arbiter_words(arbiter), "");
    cr_assert_eq(sl_arbiter_timer(arbiter), now + 200000);
    sl_arbiter_tick(arbiter, now + 200000);
    cr_assert_str_eq(arbiter_words(arbiter), "GRANT a:5 #2");
    cr_assert_eq(sl_arbiter_timer(arbiter), UINT64_MAX);
    close_world();
}

Test(arbiter, a_paced_run_gets_a_window_per_interval_at_the_rate_of_rank_0)
{
    open_world(2);
    struct sl_note note = {.kind = SL_NOTE_JOIN, .key = 1, .a = 3, .d = 1000000, .e = 500000};
    told(note);
    note = (struct sl_note){.kind = SL_NOTE_JOIN, .rank = 1, .key = 1, .a = 3, .d = 7, .e = 1000000};
    told(note);
    ready(0, 1, 3);
    cr_assert_str_eq(ready(1, 1, 3), "GRANT a:1 #1");
    uint64_t start = now;
    cr_assert_eq(sl_arbiter_timer(arbiter), start + 1000 * (uint64_t)MS);
    sl_arbiter_tick(arbiter, start + 999 * (uint64_t)MS);
    cr_assert_str_eq(arbiter_words(arbiter), "");
    sl_arbiter_tick(arbiter, start + 1000 * (uint64_t)MS);
    cr_assert_str_eq(arbiter_words(arbiter), "GRANT a:2 #2");
    now = start + 1000 * (uint64_t)MS;
    cr_assert_str_eq(told((struct sl_note){.kind = SL_NOTE_REQUEST, .rank = 1, .key = 1, .a = SL_REQUEST_PACE}), "");
    cr_assert_str_eq(told((struct sl_note){.kind = SL_NOTE_REQUEST, .key = 1, .a = SL_REQUEST_PACE}), "GRANT a:3 #3");
    close_world();
}

Test(arbiter, all_ranks_stop_at_the_furthest)
{
    start_pair();
    cr_assert_str_eq(asked(1, 1, SL_REQUEST_CANCEL), "FREEZE a CANCEL");
    cr_assert_str_eq(launched(0, 1, 1, 1), "");
    cr_assert_str_eq(launched(1, 1, 3, 1), "STOP_AT a:3 CANCEL");
    cr_assert_str_eq(words_text, "cancelled by rank 1");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_RELEASED), "");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    close_world();
}

Test(arbiter, an_answer_to_a_freeze_that_was_taken_back_does_not_count)
{
    start_pair();
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_RESUME), "RESUME a");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(launched(0, 1, 1, 1), "");
    cr_assert_str_eq(launched(1, 1, 1, 1), "");
    cr_assert_str_eq(launched(0, 1, 2, 2), "");
    cr_assert_str_eq(launched(1, 1, 3, 2), "STOP_AT a:3 PAUSE");
    close_world();
}

Test(arbiter, resume_grants_again_what_the_pause_cut_off)
{
    start_pair();
    asked(0, 1, SL_REQUEST_PAUSE);
    launched(0, 1, 1, 1);
    cr_assert_str_eq(launched(1, 1, 2, 1), "STOP_AT a:2 PAUSE");
    cr_assert_eq(sl_arbiter_timer(arbiter), UINT64_MAX);
    cr_assert_str_eq(asked(1, 1, SL_REQUEST_RESUME), "RESUME a; GRANT a:4 #2");
    close_world();
}

Test(arbiter, cancel_beats_pause_and_a_failure_beats_both)
{
    start_pair();
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_PAUSE), "FREEZE a PAUSE");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(failed(1, 1, SL_NOTE_REQUEST, SLUICE_CORRUPT), "");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_RESUME), "");
    launched(0, 1, 4, 1);
    cr_assert_str_eq(launched(1, 1, 4, 1), "STOP_AT a:4 FAIL");
    cr_assert_str_eq(words_text, "rank 1: a reason");
    close_world();
}

Test(arbiter, completed_wins_over_a_cancel_when_all_voted)
{
    start_pair();
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_CANCEL), "FREEZE a CANCEL");
    launched(0, 1, 4, 1);
    cr_assert_str_eq(launched(1, 1, 4, 1), "STOP_AT a:4 CANCEL");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    close_world();
}

Test(arbiter, a_cancel_before_all_joined_ends_the_run_and_late_ranks_hear_it)
{
    open_world(2);
    join(0, 1, 4);
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_CANCEL), "OUTCOME a FINAL CANCELLED");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(join(1, 1, 4), "OUTCOME a FINAL CANCELLED");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_RELEASED), "");
    close_world();
}

Test(arbiter, a_rank_that_cannot_begin_fails_the_run_for_those_before_and_after_it)
{
    open_world(3);
    join(0, 1, 4);
    cr_assert_str_eq(failed(1, 1, SL_NOTE_REQUEST, SLUICE_NOMEM), "OUTCOME a FINAL NOMEM");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(join(2, 1, 4), "OUTCOME a FINAL NOMEM");
    cr_assert_str_eq(vote(2, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(failed(1, 2, SL_NOTE_REQUEST, SLUICE_NOMEM), "OUTCOME b FINAL NOMEM; OUTCOME b RELEASED OK",
                     "before any rank joined");
    cr_assert_str_eq(join(0, 2, 4), "OUTCOME b FINAL NOMEM");
    close_world();
}

Test(arbiter, a_gate_timeout_names_the_ranks_that_are_not_ready)
{
    open_world(4);
    for (uint32_t rank = 0; rank < 4; rank++)
        join(rank, 1, 8);
    ready(0, 1, 8);
    ready(1, 1, 3);
    ready(2, 1, 8);
    cr_assert_str_eq(ready(3, 1, 3), "GRANT a:3 #1");
    cr_assert_str_eq(failed(1, 1, SL_NOTE_REQUEST, SLUICE_GATE_TIMEOUT), "FREEZE a FAIL");
    for (uint32_t rank = 0; rank < 4; rank++)
        launched(rank, 1, 3, 1);
    cr_assert_str_eq(words_text, "rank 1: a reason; ranks not ready: 1, 3");
    close_world();
}

Test(arbiter, an_outcome_needs_every_vote_and_is_given_once)
{
    open_world(2);
    join_shadow(0, 1, 4, 4);
    join_shadow(1, 1, 4, 4);
    cr_assert_str_eq(vote(0, 1, SL_PHASE_STAGED), "");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_STAGED), "");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_STAGED), "OUTCOME a STAGED OK");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_DECIDE), "OUTCOME a DECIDE OK");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_PAUSE), "");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    cr_assert_str_eq(failed(1, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "");
    close_world();
}

Test(arbiter, a_pause_holds_the_decision_back)
{
    open_world(2);
    join_shadow(0, 1, 4, 4);
    join_shadow(1, 1, 4, 4);
    vote(0, 1, SL_PHASE_STAGED);
    vote(1, 1, SL_PHASE_STAGED);
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_PAUSE), "STOP_AT a:0 PAUSE");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_DECIDE), "");
    cr_assert_str_eq(asked(0, 1, SL_REQUEST_RESUME), "RESUME a; OUTCOME a DECIDE OK");
    close_world();
}

Test(arbiter, an_error_vote_fails_the_run_at_once)
{
    start_pair();
    cr_assert_str_eq(failed(1, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "OUTCOME a FINAL DEVICE");
    cr_assert_str_eq(words_text, "rank 1: a reason");
    cr_assert_str_eq(failed(0, 1, SL_NOTE_VOTE, SLUICE_DEVICE), "");
    close_world();
}

Test(arbiter, a_loss_before_the_decision_fails_all_runs_and_those_to_come)
{
    start_pair();
    join(0, 2, 4);
    cr_assert_str_eq(lost(1), "LOST 1; OUTCOME a FINAL PEER_LOST; OUTCOME b FINAL PEER_LOST");
    cr_assert_str_eq(words_text, "rank is gone: connection closed");
    cr_assert_str_eq(vote(0, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    cr_assert_str_eq(join(0, 3, 4), "OUTCOME c FINAL PEER_LOST");
    cr_assert_str_eq(lost(1), "");
    close_world();
}

static void decide_three(void)
{
    open_world(3);
    for (uint32_t rank = 0; rank < 3; rank++)
        join_shadow(rank, 1, 4, 4);
    for (uint32_t rank = 0; rank < 3; rank++)
        vote(rank, 1, SL_PHASE_STAGED);
    vote(0, 1, SL_PHASE_DECIDE);
    vote(1, 1, SL_PHASE_DECIDE);
    cr_assert_str_eq(vote(2, 1, SL_PHASE_DECIDE), "OUTCOME a DECIDE OK");
}

Test(arbiter, survivors_commit_after_the_decision_and_the_lost_rank_is_undecided)
{
    decide_three();
    cr_assert_str_eq(vote(0, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(lost(2), "LOST 2");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    cr_assert_str_eq(words_text, "rank 2 was lost after the decision: whether it holds the version is not known; "
                                 "all others do");
    close_world();
}

Test(arbiter, a_rank_lost_after_its_last_vote_changes_nothing)
{
    decide_three();
    vote(2, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(lost(2), "LOST 2");
    vote(0, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL OK");
    close_world();
}

Test(arbiter, a_version_not_staged_whole_is_torn_by_a_loss_after_the_decision)
{
    open_world(2);
    join_shadow(0, 1, 4, 2);
    join_shadow(1, 1, 4, 2);
    vote(0, 1, SL_PHASE_STAGED);
    vote(1, 1, SL_PHASE_STAGED);
    vote(0, 1, SL_PHASE_DECIDE);
    vote(1, 1, SL_PHASE_DECIDE);
    cr_assert_str_eq(lost(1), "LOST 1; OUTCOME a FINAL PEER_LOST");
    close_world();
}

/* A second arbiter, on rank 1 of 4; rank 0 is lost. */
static void take_over(void)
{
    struct sl_arbiter_config config = {.world = 4, .runs_max = 4, .mem = sl_mem_default(), .host = 1, .takeover = 1};
    arbiter = sl_arbiter_create(&config);
    now = MS;
    cr_assert_str_eq(lost(0), "LOST 0");
}

/* A run into shadow, 4 of 4 windows staged. */
static const char *stands(uint32_t rank, uint32_t run, uint64_t voted, uint64_t seen)
{
    return told(
        (struct sl_note){.kind = SL_NOTE_STANDING, .rank = rank, .key = run, .a = 4, .c = voted, .d = seen, .f = 5});
}

static const char *stands_no_more(uint32_t rank)
{
    return told((struct sl_note){.kind = SL_NOTE_STANDING, .rank = rank});
}

enum { VOTED_DECIDE = 1 << SL_PHASE_STAGED | 1 << SL_PHASE_DECIDE, VOTED_FINAL = VOTED_DECIDE | 1 << SL_PHASE_FINAL };

Test(arbiter, a_successor_commits_when_any_survivor_saw_the_decision)
{
    take_over();
    stands(1, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
    stands(2, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands(3, 1, VOTED_FINAL, VOTED_DECIDE);
    stands_no_more(1);
    stands_no_more(2);
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a DECIDE OK");
    vote(1, 1, SL_PHASE_FINAL);
    cr_assert_str_eq(vote(2, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    cr_assert_str_eq(words_text, "rank 0 was lost after the decision: whether it holds the version is not known; "
                                 "all others do");
    close_world();
}

Test(arbiter, a_successor_commits_nothing_when_no_survivor_saw_the_decision)
{
    take_over();
    for (uint32_t rank = 1; rank < 4; rank++) {
        stands(rank, 1, VOTED_DECIDE, 1 << SL_PHASE_STAGED);
        cr_assert_str_eq(rank < 3 ? stands_no_more(rank) : "", "");
    }
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a FINAL PEER_LOST");
    cr_assert_str_eq(words_text, "rank is gone: connection closed: the run cannot go on without it");
    close_world();
}

Test(arbiter, a_success_that_any_survivor_saw_is_everybodys)
{
    take_over();
    stands(1, 1, VOTED_FINAL, VOTED_DECIDE);
    stands(2, 1, VOTED_FINAL | 1 << SL_PHASE_RELEASED, VOTED_FINAL);
    stands(3, 1, VOTED_FINAL, VOTED_DECIDE);
    for (uint32_t rank = 1; rank < 3; rank++)
        stands_no_more(rank);
    cr_assert_str_eq(stands_no_more(3), "OUTCOME a FINAL OK");
    vote(1, 1, SL_PHASE_RELEASED);
    cr_assert_str_eq(vote(3, 1, SL_PHASE_RELEASED), "OUTCOME a RELEASED OK");
    close_world();
}

Test(arbiter, a_survivor_lost_during_the_takeover_is_not_waited_for)
{
    take_over();
    stands(1, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands(2, 1, VOTED_DECIDE, VOTED_DECIDE);
    stands_no_more(1);
    stands_no_more(2);
    cr_assert_str_eq(vote(2, 1, SL_PHASE_FINAL), "");
    cr_assert_str_eq(lost(3), "LOST 3; OUTCOME a DECIDE OK");
    cr_assert_str_eq(vote(1, 1, SL_PHASE_FINAL), "OUTCOME a FINAL UNDECIDED");
    close_world();
}

Test(arbiter, a_broken_communicator_is_everybodys)
{
    start_pair();
    struct sl_note note = {.kind = SL_NOTE_BROKEN, .rank = 1, .status = SLUICE_POISONED, .text = "rank 1: aborted"};
    cr_assert_str_eq(told(note), "POISON 1; OUTCOME a FINAL POISONED");
    note.rank = 0;
    cr_assert_str_eq(told(note), "");
    cr_assert_str_eq(join(0, 2, 4), "OUTCOME b FINAL POISONED");
    close_world();
}

Test(arbiter, runs_that_only_one_rank_submits_are_bounded)
{
    open_world(2);
    uint32_t run = 1;
    for (; run <= 4 * 8 + 64; run++)
        cr_assert_str_eq(join(0, run, 1), "");
    join(0, run, 1);
    cr_assert(strstr(words_text, "submit alike on all ranks"));
    close_world();
}

Test(arbiter, no_memory_for_a_run_fails_that_run)
{
    struct test_memory memory = {0};
    test_memory_install(&memory);
    open_world(2);
    test_memory_fail_at(&memory, 1);
    cr_assert_str_eq(join(0, 1, 4), "OUTCOME a FINAL NOMEM");
    test_memory_fail_at(&memory, 0);
    cr_assert_str_eq(join(0, 2, 4), "");
    close_world();
    cr_assert_eq(memory.live, 0);
    test_memory_remove();
}
