/* A rank's engine when things fail: cancel, deadlines, errors, losses, aborts. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/engine_bench.h"

static struct bench bench;

static void open_bench(void)
{
    bench_open(&bench);
}

static void close_bench(void)
{
    bench_close(&bench);
}

TestSuite(engine_failure, .init = open_bench, .fini = close_bench);

/* A run of `windows` windows in place, granted up to `granted`, with `done` of them done. */
static void start(uint32_t windows, uint32_t granted, uint32_t finished)
{
    struct sl_run_config run = bench_run(&bench, windows);
    run.stall_timeout_ns = 30 * SLUICE_SECOND;
    bench_add(&bench, &run);
    bench_grant(&bench, 0, granted, 1);
    for (uint32_t i = 0; i < finished; i++)
        bench_done(&bench, 0, i, SL_NODE_GROUP);
}

/* A run of 4 windows into shadow, `staged` of them before the decision, voted for up to there. */
static void start_shadow(uint32_t staged)
{
    struct sl_run_config run = bench_run(&bench, 4);
    run.staged = staged;
    run.slots = 4;
    run.shadow = run.commit = 1;
    run.stall_timeout_ns = 30 * SLUICE_SECOND;
    bench_add(&bench, &run);
    bench_grant(&bench, 0, staged, 1);
    for (uint32_t i = 0; i < staged; i++)
        bench_done(&bench, 0, i, SL_NODE_GROUP);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_STAGED, SLUICE_OK), "VOTE DECIDE; STAGED");
}

Test(engine_failure, cancel_runs_to_the_common_stop_and_releases_with_all)
{
    start(9, 9, 0);
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_CANCEL, 0), "REQUEST CANCEL");
    cr_assert_str_eq(bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_CANCEL, 1), "LAUNCHED 3");
    cr_assert_str_eq(bench_stop(&bench, 0, 4, SL_REQUEST_CANCEL), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "launch 3");
    bench_done(&bench, 0, 1, SL_NODE_GROUP);
    bench_done(&bench, 0, 2, SL_NODE_GROUP);
    cr_assert_str_eq(bench_done(&bench, 0, 3, SL_NODE_GROUP), "CANCELLED; VOTE RELEASED");
    cr_assert_str_eq(words_error.text, "cancelled by rank 1; windows 0-3 done, 4-8 untouched");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_RELEASED, SLUICE_OK), "RELEASED; release");
}

Test(engine_failure, a_cancel_that_another_arbiter_ends_aborts_what_is_in_flight)
{
    start(9, 9, 0);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_CANCELLED), "FAILED CANCELLED; abort");
}

Test(engine_failure, completed_wins_when_everything_was_launched)
{
    start(3, 3, 1);
    bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_CANCEL, 1);
    cr_assert_str_eq(bench_stop(&bench, 0, 3, SL_REQUEST_CANCEL), "");
    bench_done(&bench, 0, 1, SL_NODE_GROUP);
    cr_assert_str_eq(bench_done(&bench, 0, 2, SL_NODE_GROUP), "VOTE FINAL");
}

Test(engine_failure, a_staged_version_that_is_cancelled_leaves_the_old_one)
{
    start_shadow(4);
    bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_CANCEL, 1);
    cr_assert_str_eq(bench_stop(&bench, 0, 4, SL_REQUEST_CANCEL), "CANCELLED; VOTE RELEASED");
    cr_assert_str_eq(words_error.text, "cancelled by rank 1; the old version is untouched");
}

Test(engine_failure, a_gate_that_opens_after_the_cancel_launches_nothing)
{
    struct sl_run_gate gates[] = {{.first_window = 1}};
    struct sl_run_config run = bench_run(&bench, 3);
    run.gates = gates;
    run.gate_count = 1;
    bench_add(&bench, &run);
    bench_grant(&bench, 0, 1, 1);
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_CANCEL, 1);
    cr_assert_str_eq(bench_stop(&bench, 0, 1, SL_REQUEST_CANCEL), "CANCELLED; VOTE RELEASED");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "");
    cr_assert_str_eq(bench_grant(&bench, 0, 3, 2), "");
}

Test(engine_failure, a_failed_node_names_its_window_and_what_was_moved)
{
    start(10, 10, 5);
    cr_assert_str_eq(bench_failed(&bench, 0, 5, SL_NODE_GROUP), "VOTE FINAL DEVICE; FAILED DEVICE; BROKEN; abort");
    cr_assert_str_eq(words_error.text, "rank 2: window 5 of 10: group failed: illegal address; windows 0-4 done, "
                                       "5-7 unknown, 8-9 untouched");
    cr_assert_str_eq(bench_done(&bench, 0, 6, SL_NODE_GROUP), "");
    cr_assert_eq(sl_engine_stray(bench.engine), 1);
    cr_assert_str_eq(bench_aborted(&bench, 0), "VOTE RELEASED; RELEASED; release; poison");
    struct sl_run_config next = bench_run(&bench, 1);
    cr_assert_str_eq(bench_add(&bench, &next), "SLUICE_POISONED");
    cr_assert(strstr(sluice_last_error()->text, "recreate the runtime"));
}

Test(engine_failure, a_peer_that_left_a_group_is_not_blamed_when_the_arbiter_knows_the_cause)
{
    start(10, 4, 1);
    cr_assert_str_eq(bench_deserted(&bench, 0, 1), "");
    cr_assert_str_eq(bench_done(&bench, 0, 2, SL_NODE_GROUP), "", "no window is launched on what is broken");
    cr_assert_str_eq(
        bench_explain(&bench, 0),
        "rank 2, plan 1 run 1, 0.000 s: a peer left a group of window 1 of 10 or later, waits to hear why");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST), "FAILED PEER_LOST; BROKEN; abort");
    cr_assert_str_eq(words_error.text, "rank 1: a reason; windows 0 done, 1-3 unknown, 4-9 untouched");
    cr_assert_str_eq(bench_aborted(&bench, 0), "VOTE RELEASED; RELEASED; release; poison");
}

Test(engine_failure, a_peer_that_left_the_last_group_poisons_without_an_abort)
{
    start(2, 2, 1);
    cr_assert_str_eq(bench_deserted(&bench, 0, 1), "");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_DEVICE),
                     "FAILED PEER_FAILED; VOTE RELEASED; RELEASED; release; BROKEN; poison");
}

Test(engine_failure, a_peer_that_left_a_group_is_blamed_when_nobody_gives_a_reason_in_time)
{
    start(2, 2, 1);
    cr_assert_str_eq(bench_deserted(&bench, 0, 1), "");
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + 10 * SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, 10 * SLUICE_SECOND - 1), "");
    cr_assert_str_eq(bench_time(&bench, 1), "VOTE FINAL PEER_FAILED; FAILED PEER_FAILED; VOTE RELEASED; RELEASED; "
                                            "release; BROKEN; poison");
    cr_assert_str_eq(words_error.text, "rank 2: window 1 of 2: group failed: rank 3 left a group with rank 2: aborted");
}

Test(engine_failure, a_loss_that_this_rank_saw_itself_is_told_at_once_whatever_followed_from_it_before)
{
    start(4, 3, 0);
    cr_assert_str_eq(bench_deserted(&bench, 0, 1), "");
    cr_assert_str_eq(bench_failed(&bench, 0, 0, SL_NODE_GROUP), "VOTE FINAL DEVICE; FAILED DEVICE; BROKEN; abort");
    cr_assert_str_eq(words_error.text,
                     "rank 2: window 0 of 4: group failed: illegal address; windows 0-2 unknown, 3 untouched");
}

Test(engine_failure, a_peer_that_left_a_group_with_the_arbiter_s_rank_lost_is_not_blamed)
{
    start(3, 3, 1);
    cr_assert_str_eq(bench_deserted(&bench, 0, 1), "");
    cr_assert_str_eq(bench_lost(&bench, 0), "VOTE FINAL PEER_LOST; FAILED PEER_LOST; BROKEN; abort");
    cr_assert_str_eq(words_error.text, "a rank is gone; windows 0 done, 1-2 unknown");
}

Test(engine_failure, a_failed_gate_before_the_first_window_moved_nothing)
{
    struct sl_run_gate gates[] = {{.first_window = 0, .name = "the source gate of parameter 'w'"}};
    struct sl_run_config run = bench_run(&bench, 10);
    run.gates = gates;
    run.gate_count = 1;
    bench_add(&bench, &run);
    struct sluice_error error;
    sl_error_set(&error, SLUICE_DEVICE, "cuda", "the event was never recorded");
    struct sl_engine_event event = {.kind = SL_EVENT_GATE, .error = &error};
    sl_engine_event(bench.engine, &event, bench.now);
    cr_assert_str_eq(engine_words(bench.engine), "REQUEST FAIL DEVICE");
    cr_assert_str_eq(bench_stop(&bench, 0, 0, SL_REQUEST_FAIL),
                     "FAILED GATE_TIMEOUT; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "a reason; nothing was moved");
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 10", "the next run is taken");
}

Test(engine_failure, a_soft_failure_votes_for_nothing_any_more)
{
    start(3, 3, 2);
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_FAIL, 0), "REQUEST FAIL CORRUPT");
    cr_assert_str_eq(bench_done(&bench, 0, 2, SL_NODE_GROUP), "");
    bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_FAIL, 1);
    cr_assert_str_eq(bench_stop(&bench, 0, 3, SL_REQUEST_FAIL),
                     "FAILED GATE_TIMEOUT; VOTE RELEASED; RELEASED; release");
}

Test(engine_failure, a_gate_timeout_names_the_gate_and_is_asked_for_once)
{
    struct sl_run_gate gates[] = {{.first_window = 2, .name = "the source gate of parameter 'w'"}, {.first_window = 2}};
    struct sl_run_config run = bench_run(&bench, 40);
    run.gates = gates;
    run.gate_count = 2;
    run.gate_timeout_ns = 5 * SLUICE_SECOND;
    run.stall_timeout_ns = SLUICE_SECOND;
    bench_add(&bench, &run);
    bench_grant(&bench, 0, 2, 1);
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    bench_done(&bench, 0, 1, SL_NODE_GROUP);
    cr_assert_str_eq(bench_time(&bench, 4 * SLUICE_SECOND), "", "waiting at a gate is no stall");
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, SLUICE_SECOND), "REQUEST FAIL GATE_TIMEOUT");
    cr_assert_str_eq(bench_explain(&bench, 0),
                     "rank 2, plan 1 run 1, 5.000 s: window 2 of 40 is gated: waits for the source gate of parameter "
                     "'w' and 1 more; granted 2; failing: rank 2, plan 1 run 1: closed gate after 5.000 s (limit "
                     "5.000 s): window 2 of 40 waits for the source gate of parameter 'w' and 1 more; granted 2, "
                     "launched 2, done 2");
    cr_assert_str_eq(bench_time(&bench, 1), "");
}

Test(engine_failure, the_gate_deadline_starts_when_the_earlier_run_has_ended)
{
    struct sl_run_gate gates[] = {{.first_window = 0, .turn = 1}, {.first_window = 0}};
    struct sl_run_config run = bench_run(&bench, 2);
    run.gates = gates;
    run.gate_count = 2;
    run.gate_timeout_ns = SLUICE_SECOND;
    bench_add(&bench, &run);
    cr_assert_eq(sl_engine_timer(bench.engine), UINT64_MAX);
    bench_time(&bench, 10 * SLUICE_SECOND);
    bench_gate(&bench, 0, 0);
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, SLUICE_SECOND), "REQUEST FAIL GATE_TIMEOUT");
}

Test(engine_failure, waiting_for_a_word_of_other_ranks_has_no_gate_deadline)
{
    struct sl_run_gate gates[] = {{.first_window = 0, .word = 1}, {.first_window = 0}};
    struct sl_run_config run = bench_run(&bench, 2);
    run.gates = gates;
    run.gate_count = 2;
    run.gate_timeout_ns = SLUICE_SECOND;
    bench_add(&bench, &run);
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + SLUICE_SECOND);
    bench_gate(&bench, 0, 1);
    cr_assert_eq(sl_engine_timer(bench.engine), UINT64_MAX, "only the ranks' word is missing");
    cr_assert_str_eq(bench_time(&bench, 10 * SLUICE_SECOND), "");
}

Test(engine_failure, a_stall_names_window_and_stage_and_aborts)
{
    start(40, 8, 5);
    cr_assert_str_eq(bench_time(&bench, 30 * SLUICE_SECOND), "VOTE FINAL TIMEOUT; FAILED TIMEOUT; abort");
    cr_assert_str_eq(words_error.text,
                     "rank 2, plan 1 run 1: no progress after 30.000 s (limit 30.000 s): window 5 of 40 is running "
                     "(not done: group), launched 8, granted 8; windows 0-4 done, 5-7 unknown, 8-39 untouched");
    cr_assert_str_eq(bench_aborted(&bench, 0), "VOTE RELEASED; RELEASED; release; BROKEN; poison");
}

Test(engine_failure, the_deadline_of_the_whole_transfer_is_soft)
{
    struct sl_run_config run = bench_run(&bench, 2);
    run.timeout_ns = SLUICE_SECOND;
    bench_add(&bench, &run);
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, SLUICE_SECOND), "REQUEST FAIL TIMEOUT");
    cr_assert_eq(sl_engine_timer(bench.engine), UINT64_MAX);
}

Test(engine_failure, an_arbiter_that_does_not_answer_is_given_up)
{
    start(4, 1, 1);
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_CANCEL, 0), "REQUEST CANCEL");
    cr_assert_str_eq(bench_time(&bench, 30 * SLUICE_SECOND),
                     "VOTE FINAL TIMEOUT; FAILED TIMEOUT; VOTE RELEASED; RELEASED; release");
}

Test(engine_failure, a_failure_elsewhere_with_nothing_in_flight_releases_at_once)
{
    start(4, 2, 2);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_DEVICE),
                     "FAILED PEER_FAILED; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "rank 1: a reason; windows 0-1 done, 2-3 untouched");
}

Test(engine_failure, a_failure_elsewhere_aborts_groups_that_cannot_finish)
{
    start(4, 2, 1);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST), "FAILED PEER_LOST; abort");
    cr_assert_str_eq(bench_aborted(&bench, 0), "VOTE RELEASED; RELEASED; release; BROKEN; poison");
}

Test(engine_failure, an_abort_ends_other_runs_too)
{
    struct sl_run_config second = bench_run(&bench, 2);
    second.key++;
    start(4, 1, 0);
    bench_add(&bench, &second);
    bench_grant(&bench, 1, 1, 2);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_DEVICE), "FAILED PEER_FAILED; abort");
    cr_assert_str_eq(bench_aborted(&bench, 0),
                     "VOTE RELEASED; RELEASED; release; b:VOTE FINAL POISONED; b:FAILED POISONED; b:VOTE RELEASED; "
                     "b:RELEASED; b:release; BROKEN; poison");
}

Test(engine_failure, a_failed_abort_gives_no_buffer_back)
{
    start(4, 1, 0);
    bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST);
    cr_assert_str_eq(bench_aborted(&bench, 1), "VOTE RELEASED; release; BROKEN; poison");
    cr_assert_str_eq(words_error.text, "rank 2: the abort failed, buffers stay in use: ncclCommAbort has not returned; "
                                       "recreate the runtime");
}

Test(engine_failure, a_broken_transport_ends_all_runs)
{
    start(4, 1, 1);
    cr_assert_str_eq(bench_broken(&bench), "VOTE FINAL POISONED; FAILED POISONED; VOTE RELEASED; RELEASED; release; "
                                           "BROKEN; poison");
    cr_assert_str_eq(bench_broken(&bench), "");
}

Test(engine_failure, the_poison_of_a_peer_is_ours)
{
    start(4, 1, 0);
    cr_assert_str_eq(bench_note(&bench, 0, SL_NOTE_POISON, 0, 0), "");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_POISONED), "FAILED POISONED; abort");
    cr_assert_str_eq(bench_aborted(&bench, 0), "VOTE RELEASED; RELEASED; release; poison");
}

Test(engine_failure, after_the_decision_a_failure_tears_the_version)
{
    start_shadow(2);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_DECIDE, SLUICE_OK), "");
    bench_time(&bench, SLUICE_MILLISECOND);
    bench_grant(&bench, 0, 4, 2);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST), "FAILED TORN; abort");
    cr_assert_str_eq(words_error.text, "rank 1: a reason; version 7 is torn on this rank");
}

Test(engine_failure, before_the_decision_the_old_version_stays)
{
    start_shadow(4);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST),
                     "FAILED PEER_LOST; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "rank 1: a reason; the old version is untouched");
}

Test(engine_failure, the_survivor_of_a_decided_version_says_that_it_holds_it)
{
    start_shadow(4);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_DECIDE, SLUICE_OK), "commit");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_COMMIT), "VOTE FINAL");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_UNDECIDED),
                     "FAILED UNDECIDED; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "rank 1: a reason; version 7 is in place on this rank");
}

Test(engine_failure, without_rank_0_a_run_that_has_not_voted_fails)
{
    start(4, 2, 1);
    cr_assert_str_eq(bench_lost(&bench, 0), "VOTE FINAL PEER_LOST; FAILED PEER_LOST; abort");
    struct sl_run_config next = bench_run(&bench, 1);
    next.key++;
    cr_assert_str_eq(bench_add(&bench, &next), "SLUICE_PEER_LOST");
}

Test(engine_failure, without_rank_0_a_vote_for_the_decision_leaves_it_undecided)
{
    start_shadow(4);
    cr_assert_str_eq(bench_lost(&bench, 0), "VOTE FINAL PEER_LOST; FAILED UNDECIDED; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "a rank is gone; it had not said the outcome; the old version is "
                                       "untouched");
}

Test(engine_failure, without_rank_0_a_decided_version_is_committed)
{
    start_shadow(4);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_DECIDE, SLUICE_OK), "commit");
    cr_assert_str_eq(bench_lost(&bench, 0), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_COMMIT),
                     "VOTE FINAL PEER_LOST; FAILED UNDECIDED; VOTE RELEASED; RELEASED; release");
    cr_assert_str_eq(words_error.text, "a rank is gone; it had not said the outcome; version 7 is in "
                                       "place on this rank");
}

Test(engine_failure, the_loss_of_another_rank_waits_for_the_arbiters_word)
{
    start(4, 2, 1);
    cr_assert_str_eq(bench_lost(&bench, 3), "");
}

Test(engine_failure, a_successor_of_the_arbiter_is_told_how_far_every_run_is)
{
    start_shadow(4);
    struct sl_note note = {.kind = SL_NOTE_LOST, .rank = 0, .a = 2, .text = "rank 0 is gone"};
    struct sl_engine_event event = {.kind = SL_EVENT_NOTE, .run = UINT32_MAX, .note = &note};
    sl_engine_event(bench.engine, &event, bench.now);
    cr_assert_str_eq(engine_words(bench.engine), "STANDING voted 0x6 seen 0x2; STANDING end");
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + 30 * SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, 30 * SLUICE_SECOND),
                     "VOTE FINAL TIMEOUT; FAILED UNDECIDED; VOTE RELEASED; RELEASED; release");
}
