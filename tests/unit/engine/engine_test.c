/* A rank's engine without faults: gates, grants, order, slots, landing, versions. */
#include <criterion/criterion.h>

#include "support/engine_bench.h"
#include "support/memory.h"

static struct bench bench;

static void open_bench(void)
{
    bench_open(&bench);
}

static void close_bench(void)
{
    bench_close(&bench);
}

TestSuite(engine, .init = open_bench, .fini = close_bench);

Test(engine, a_run_in_place_from_join_to_release)
{
    struct sl_run_config run = bench_run(&bench, 2);
    run.window_events = 1;
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 2; READY 2");
    cr_assert_str_eq(bench_grant(&bench, 0, 2, 1), "launch 0; STARTED; launch 1");
    cr_assert_eq(sl_engine_in_flight(bench.engine), 2);
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "WINDOW 0");
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "VOTE FINAL; WINDOW 1");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_OK), "COMPLETED; VOTE RELEASED");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_RELEASED, SLUICE_OK), "RELEASED; release");
    cr_assert_eq(sl_engine_in_flight(bench.engine), 0);
    cr_assert_eq(sl_engine_timer(bench.engine), UINT64_MAX);
}

Test(engine, a_run_is_at_its_tail_from_its_last_launch_or_completion_while_something_is_in_flight)
{
    struct sl_run_config run = bench_run(&bench, 2);
    bench.now = 1000;
    bench_add(&bench, &run);
    bench_grant(&bench, 0, 1, 1);
    cr_assert_eq(sl_engine_tail(bench.engine), UINT64_MAX);
    bench_time(&bench, 500);
    bench_grant(&bench, 0, 2, 2);
    cr_assert_eq(sl_engine_tail(bench.engine), 1500);
    bench_time(&bench, 500);
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    cr_assert_eq(sl_engine_tail(bench.engine), 2000);
    bench_done(&bench, 0, 1, SL_NODE_GROUP);
    cr_assert_eq(sl_engine_tail(bench.engine), UINT64_MAX);
}

Test(engine, a_window_is_done_when_all_its_nodes_are)
{
    bench.flags[0] = SL_WINDOW_PACK | SL_WINDOW_GROUP | SL_WINDOW_UNPACK | SL_WINDOW_LOCAL;
    struct sl_run_config run = bench_run(&bench, 1);
    bench_add(&bench, &run);
    bench_grant(&bench, 0, 1, 1);
    cr_assert_eq(sl_engine_in_flight(bench.engine), 4);
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_PACK), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_LOCAL), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_LOCAL), "");
    cr_assert_eq(sl_engine_stray(bench.engine), 1);
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_UNPACK), "VOTE FINAL");
}

Test(engine, nothing_launches_before_the_gate_opens_however_often_time_passes)
{
    struct sl_run_gate gates[] = {{.first_window = 0}, {.first_window = 2, .consumer = 1}};
    struct sl_run_config run = bench_run(&bench, 3);
    run.gates = gates;
    run.gate_count = 2;
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 3");
    for (int tick = 0; tick < 100; tick++)
        cr_assert_str_eq(bench_time(&bench, SLUICE_MILLISECOND), "");
    cr_assert_str_eq(bench_grant(&bench, 0, 3, 1), "", "not even a grant opens a gate");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "READY 2; launch 0; STARTED; launch 1");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "");
    bench_time(&bench, SLUICE_MILLISECOND);
    cr_assert_str_eq(bench_gate(&bench, 0, 1), "READY 3; launch 2");
}

Test(engine, a_late_gate_of_an_early_window_delays_but_never_reorders)
{
    struct sl_run_gate gates[] = {{.first_window = 0}, {.first_window = 1}, {.first_window = 2}, {.first_window = 3}};
    struct sl_run_config run = bench_run(&bench, 4);
    run.slots = 4;
    run.gates = gates;
    run.gate_count = 4;
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_gate(&bench, 0, 3), "");
    cr_assert_str_eq(bench_gate(&bench, 0, 1), "");
    cr_assert_str_eq(bench_gate(&bench, 0, 2), "");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "READY 4");
    cr_assert_str_eq(bench_grant(&bench, 0, 4, 1), "launch 0; STARTED; launch 1; launch 2; launch 3");
}

Test(engine, readiness_is_told_at_most_every_200_microseconds)
{
    struct sl_run_gate gates[] = {{.first_window = 1}, {.first_window = 2}, {.first_window = 3}};
    struct sl_run_config run = bench_run(&bench, 4);
    run.gates = gates;
    run.gate_count = 3;
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 4; READY 1");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "");
    cr_assert_str_eq(bench_gate(&bench, 0, 1), "");
    cr_assert_eq(sl_engine_timer(bench.engine), bench.now + 200000);
    cr_assert_str_eq(bench_time(&bench, 200000), "READY 3");
    cr_assert_eq(sl_engine_timer(bench.engine), UINT64_MAX);
}

Test(engine, at_most_slots_windows_are_in_flight)
{
    struct sl_run_config run = bench_run(&bench, 6);
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_grant(&bench, 0, 6, 1), "launch 0; STARTED; launch 1; launch 2");
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "", "window 3 needs the slot of window 0");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "launch 3; launch 4");
}

Test(engine, runs_launch_in_the_order_of_the_grants_and_share_the_slots)
{
    struct sl_run_config first = bench_run(&bench, 4), second = bench_run(&bench, 2);
    second.key++;
    bench_add(&bench, &first);
    bench_add(&bench, &second);
    cr_assert_str_eq(bench_grant(&bench, 1, 1, 1), "b:launch 0; b:STARTED");
    cr_assert_str_eq(bench_grant(&bench, 0, 4, 2), "launch 0; STARTED; launch 1");
    cr_assert_str_eq(bench_grant(&bench, 1, 2, 3), "");
    cr_assert_str_eq(bench_done(&bench, 1, 0, SL_NODE_GROUP), "launch 2");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "launch 3");
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "b:launch 1");
}

Test(engine, empty_windows_are_counted_and_never_launched)
{
    bench.flags[1] = 0;
    struct sl_run_config run = bench_run(&bench, 3);
    run.window_events = 1;
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_grant(&bench, 0, 3, 1), "launch 0; STARTED; launch 2");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "WINDOW 0; WINDOW 1");
    cr_assert_str_eq(bench_done(&bench, 0, 2, SL_NODE_GROUP), "VOTE FINAL; WINDOW 2");
}

Test(engine, a_rank_with_nothing_to_do_votes_at_once_and_ends_with_the_others)
{
    bench.flags[0] = bench.flags[1] = 0;
    struct sl_run_config run = bench_run(&bench, 2);
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_grant(&bench, 0, 2, 1), "VOTE FINAL; STARTED");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_OK), "COMPLETED; VOTE RELEASED");
}

Test(engine, a_thousand_empty_plans_end_once_each)
{
    struct sl_run_config run = bench_run(&bench, 0);
    for (int i = 0; i < 1000; i++) {
        cr_assert_str_eq(bench_add(&bench, &run), "JOIN 0; VOTE FINAL");
        struct sluice_progress progress = {.size = sizeof progress};
        sl_engine_progress(bench.engine, 0, bench.now, &progress);
        cr_assert_eq(progress.windows_done, 0);
        cr_assert_eq(progress.windows_total, 0);
        cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_OK), "COMPLETED; VOTE RELEASED");
        cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_RELEASED, SLUICE_OK), "RELEASED; release");
    }
}

Test(engine, shadow_stages_waits_for_consumers_decides_and_commits)
{
    struct sl_run_gate gates[] = {{.first_window = 0, .consumer = 1, .name = "the consumer gate of parameter 'w'"}};
    struct sl_run_config run = bench_run(&bench, 3);
    run.staged = 2;
    run.shadow = run.commit = 1;
    run.gates = gates;
    run.gate_count = 1;
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 3; READY 2");
    bench_grant(&bench, 0, 2, 1);
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "VOTE STAGED");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_STAGED, SLUICE_OK), "STAGED");
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: staged on all ranks, waits for the "
                                               "consumer gate of parameter 'w'");
    bench_time(&bench, 3 * SLUICE_MILLISECOND);
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "VOTE DECIDE");
    bench_time(&bench, SLUICE_MILLISECOND);
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_DECIDE, SLUICE_OK), "READY 3");
    cr_assert_str_eq(bench_grant(&bench, 0, 3, 2), "launch 2");
    cr_assert_str_eq(bench_done(&bench, 0, 2, SL_NODE_GROUP), "commit");
    bench_time(&bench, 2 * SLUICE_MILLISECOND);
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_COMMIT), "VOTE FINAL");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_OK), "COMMITTED; VOTE RELEASED");
    struct sluice_progress progress = {.size = sizeof progress};
    sl_engine_progress(bench.engine, 0, bench.now, &progress);
    cr_assert_eq(progress.state, SLUICE_TRANSFER_DONE);
    cr_assert_eq(progress.gate_wait_ns, 4 * SLUICE_MILLISECOND);
    cr_assert_eq(progress.commit_ns, 2 * SLUICE_MILLISECOND);
}

Test(engine, pause_stops_where_all_ranks_stop_and_resume_goes_on)
{
    struct sl_run_config run = bench_run(&bench, 5);
    bench_add(&bench, &run);
    bench_grant(&bench, 0, 5, 1);
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_PAUSE, 0), "REQUEST PAUSE");
    cr_assert_str_eq(bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_PAUSE, 1), "LAUNCHED 3");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_stop(&bench, 0, 4, SL_REQUEST_PAUSE), "launch 3");
    for (uint32_t window = 1; window < 4; window++)
        cr_assert_str_eq(bench_done(&bench, 0, window, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: paused before window 4 of 5");
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_RESUME, 0), "REQUEST RESUME");
    cr_assert_str_eq(bench_note(&bench, 0, SL_NOTE_RESUME, 0, 0), "");
    cr_assert_str_eq(bench_grant(&bench, 0, 5, 2), "launch 4");
}

Test(engine, a_frozen_run_holds_back_grants_behind_it_until_the_stop_is_known)
{
    struct sl_run_config first = bench_run(&bench, 9), second = bench_run(&bench, 1);
    second.key++;
    bench_add(&bench, &first);
    bench_add(&bench, &second);
    bench_grant(&bench, 0, 9, 1);
    bench_grant(&bench, 1, 1, 2);
    bench_note(&bench, 0, SL_NOTE_FREEZE, SL_REQUEST_PAUSE, 1);
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_stop(&bench, 0, 4, SL_REQUEST_PAUSE), "launch 3");
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "b:launch 0; b:STARTED");
}

Test(engine, a_world_of_one_answers_itself)
{
    struct sl_run_gate gates[] = {{.first_window = 1}};
    struct sl_run_config run = bench_run(&bench, 2);
    run.world_of_one = 1;
    run.gates = gates;
    run.gate_count = 1;
    cr_assert_str_eq(bench_add(&bench, &run), "launch 0; STARTED");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_gate(&bench, 0, 0), "launch 1");
    cr_assert_str_eq(bench_done(&bench, 0, 1, SL_NODE_GROUP), "COMPLETED; RELEASED; release");
}

Test(engine, a_world_of_one_keeps_its_pace)
{
    struct sl_run_config run = bench_run(&bench, 3);
    run.world_of_one = 1;
    run.pace = 1000000;
    run.window_bytes = 1000000;
    uint64_t start = bench.now;
    cr_assert_str_eq(bench_add(&bench, &run), "launch 0; STARTED");
    cr_assert_eq(sl_engine_timer(bench.engine), start + SLUICE_SECOND);
    cr_assert_str_eq(bench_time(&bench, SLUICE_SECOND - 1), "");
    cr_assert_str_eq(bench_done(&bench, 0, 0, SL_NODE_GROUP), "");
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 1.000 s: window 1 of 3 is ready here, waits for "
                                               "its pace; granted 1");
    cr_assert_str_eq(bench_time(&bench, 1), "launch 1");
    cr_assert_str_eq(bench_request(&bench, 0, SL_REQUEST_PACE, 0), "launch 2");
}

Test(engine, notes_about_runs_that_are_not_here_are_ignored)
{
    cr_assert_str_eq(bench_grant(&bench, 0, 4, 1), "");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_FINAL, SLUICE_PEER_LOST), "");
    struct sl_run_config run = bench_run(&bench, 2);
    cr_assert_str_eq(bench_add(&bench, &run), "JOIN 2; READY 2");
    cr_assert_str_eq(bench_outcome(&bench, 0, SL_PHASE_DECIDE, SLUICE_OK), "");
    cr_assert_str_eq(bench_grant(&bench, 0, 3, 1), "");
    cr_assert_str_eq(bench_grant(&bench, 0, 1, 2), "launch 0; STARTED");
}

Test(engine, a_full_table_takes_nothing)
{
    struct sl_run_config run = bench_run(&bench, 1);
    for (int i = 0; i < 3; i++, run.key++)
        bench_add(&bench, &run);
    cr_assert_str_eq(bench_add(&bench, &run), "SLUICE_AGAIN");
}

Test(engine, waiting_times_are_told_apart)
{
    struct sl_run_gate gates[] = {{.first_window = 0}};
    struct sl_run_config run = bench_run(&bench, 1);
    run.gates = gates;
    run.gate_count = 1;
    bench_add(&bench, &run);
    bench_time(&bench, 5 * SLUICE_MILLISECOND);
    bench_gate(&bench, 0, 0);
    bench_time(&bench, 2 * SLUICE_MILLISECOND);
    bench_grant(&bench, 0, 1, 1);
    bench_time(&bench, SLUICE_MILLISECOND);
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    struct sluice_progress progress = {.size = sizeof progress};
    sl_engine_progress(bench.engine, 0, bench.now, &progress);
    cr_assert_eq(progress.stages.gate_ns, 5 * SLUICE_MILLISECOND);
    cr_assert_eq(progress.stages.grant_ns, 2 * SLUICE_MILLISECOND);
    cr_assert_eq(progress.stages.group_ns, 1000);
    cr_assert_eq(progress.elapsed_ns, 8 * SLUICE_MILLISECOND);
}

Test(engine, words_for_what_a_run_waits_for)
{
    struct sl_run_gate gates[] = {{.first_window = 1, .name = "the source gate of parameter 'w'"}, {.first_window = 1}};
    struct sl_run_config run = bench_run(&bench, 4);
    run.gates = gates;
    run.gate_count = 2;
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: window 0 of 4 is ready here, waits for "
                                               "other ranks; granted 0");
    bench_grant(&bench, 0, 1, 1);
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: window 0 of 4 is running (not done: "
                                               "group), launched 1, granted 1");
    bench_done(&bench, 0, 0, SL_NODE_GROUP);
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: window 1 of 4 is gated: waits for the "
                                               "source gate of parameter 'w' and 1 more; granted 1");
    bench_gate(&bench, 0, 0);
    bench_gate(&bench, 0, 1);
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: window 1 of 4 is ready here, waits for "
                                               "other ranks; granted 1; rank 3 was not ready");
    char text[8];
    cr_assert_eq(sl_engine_explain(bench.engine, 0, bench.now, text, sizeof text), strlen(bench_explain(&bench, 0)));
    cr_assert_str_eq(text, "rank 2,");
}

Test(engine, a_run_with_a_pace_says_that_it_may_wait_for_it)
{
    struct sl_run_config run = bench_run(&bench, 4);
    run.pace = 1000000;
    run.window_bytes = 1000000;
    bench_add(&bench, &run);
    cr_assert_str_eq(bench_explain(&bench, 0), "rank 2, plan 1 run 1, 0.000 s: window 0 of 4 is ready here, waits for "
                                               "other ranks or its pace; granted 0");
}

Test(engine_memory, a_run_that_finds_no_memory_leaves_the_engine_as_it_was)
{
    struct test_memory memory = {0};
    test_memory_install(&memory);
    bench_open(&bench);
    struct sl_run_config run = bench_run(&bench, 4);
    uint64_t failing = 1;
    for (;; failing++) {
        test_memory_fail_at(&memory, failing);
        const char *words = bench_add(&bench, &run);
        if (memory.failed == 0) {
            cr_assert_str_eq(words, "JOIN 4; READY 4");
            break;
        }
        cr_assert_str_eq(words, "SLUICE_NOMEM");
    }
    cr_assert_eq(failing, 4);
    bench_close(&bench);
    cr_assert_eq(memory.live, 0);
    test_memory_remove();
}
