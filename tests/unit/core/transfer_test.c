/* Runs of a world of one: order of events, gates before reading and writing, landing, cancel, limits. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "support/solo.h"

static struct solo solo;

static void expect_kinds(const uint32_t *kinds, uint32_t count)
{
    solo_await(&solo, count);
    for (uint32_t i = 0; i < count; i++)
        cr_expect_eq(solo.events[i].kind, kinds[i], "event %u is %u", i, solo.events[i].kind);
    cr_expect_eq(solo.count, count);
}

Test(transfer, delivers_seal_start_end_and_release_once_and_in_order)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    const uint32_t kinds[] = {SLUICE_EVENT_SEALED, SLUICE_EVENT_STARTED, SLUICE_EVENT_COMPLETED, SLUICE_EVENT_RELEASED};
    expect_kinds(kinds, 4);
    for (uint32_t p = 0; p < SOLO_PARAMS; p++)
        cr_expect(solo_all(solo.destination[p], SOLO_BYTES, (uint8_t)(p + 1)));
    cr_expect_eq(sluice_version(solo.plan), 1u);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, tells_windows_and_parameters_before_the_end)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    options.window_events = 1;
    options.param_events = 1;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    const uint32_t kinds[] = {SLUICE_EVENT_SEALED,    SLUICE_EVENT_STARTED, SLUICE_EVENT_PARAM, SLUICE_EVENT_PARAM,
                              SLUICE_EVENT_WINDOW,    SLUICE_EVENT_PARAM,   SLUICE_EVENT_PARAM, SLUICE_EVENT_WINDOW,
                              SLUICE_EVENT_COMPLETED, SLUICE_EVENT_RELEASED};
    expect_kinds(kinds, 10);
    cr_expect_eq(solo.events[2].param, 0u);
    cr_expect_eq(solo.events[4].window, 0u);
    cr_expect_eq(solo.events[6].param, 3u);
    cr_expect_eq(solo.events[7].window, 1u);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

static void *produce_late(void *gate)
{
    struct timespec delay = {.tv_nsec = 50 * 1000 * 1000}; /* the producer's own time */
    nanosleep(&delay, NULL);
    memset(solo.source, 7, sizeof solo.source);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    return NULL;
}

Test(transfer, reads_nothing_before_the_source_gate_opens)
{
    pthread_t producer;
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    memset(solo.source, 1, sizeof solo.source);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    options.source_gate = gate;
    pthread_create(&producer, NULL, produce_late, gate);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    pthread_join(producer, NULL);
    cr_expect(solo_all(&solo.destination[0][0], sizeof solo.destination, 7));
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, writes_nothing_before_the_consumer_gate_opens)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    options.consumer_gate = gate;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, 1000), SLUICE_TIMEOUT);
    const char *words = solo_explain(transfer);
    cr_expect_not_null(strstr(words, "consumer gate"), "%s", words);
    cr_expect_eq(atomic_load(&hand.submitted), 0u);
    cr_expect(solo_all(&solo.destination[0][0], sizeof solo.destination, 0xee));
    cr_expect_eq(sluice_gate_reset(gate), SLUICE_BUSY);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(sluice_gate_reset(gate), SLUICE_OK);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, launches_windows_up_to_the_first_that_needs_a_closed_gate)
{
    sluice_gate *gate = NULL;
    uint32_t first = 9;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    cr_assert_eq(sluice_plan_first_window(solo.plan, 2, SLUICE_ROLE_SOURCE, &first), SLUICE_OK);
    cr_assert_eq(first, 2u);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_param_gate late = {.param = 2, .role = SLUICE_ROLE_SOURCE, .gate = gate};
    struct sluice_transfer_options options = solo_options(&solo);
    options.param_gates = &late;
    options.param_gate_count = 1;
    options.window_events = 1;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    solo_await(&solo, 4); /* SEALED, STARTED, two windows */
    cr_expect_eq(atomic_load(&hand.submitted), 2u);
    cr_expect(solo_all(solo.destination[1], SOLO_BYTES, 2));
    cr_expect(solo_all(solo.destination[2], SOLO_BYTES, 0xee));
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect(solo_all(solo.destination[2], SOLO_BYTES, 3));
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, keeps_the_old_version_until_the_commit_with_shadow_landing)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, SOLO_PARAMS * SOLO_BYTES);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    options.landing = SLUICE_LANDING_SHADOW;
    options.consumer_gate = gate;
    options.version = 41;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    solo_await_kind(&solo, SLUICE_EVENT_STAGED);
    cr_expect(solo_all(&solo.destination[0][0], sizeof solo.destination, 0xee));
    cr_expect_eq(sluice_version(solo.plan), 0u);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    const uint32_t kinds[] = {SLUICE_EVENT_SEALED, SLUICE_EVENT_STARTED, SLUICE_EVENT_STAGED, SLUICE_EVENT_COMMITTED,
                              SLUICE_EVENT_RELEASED};
    expect_kinds(kinds, 5);
    for (uint32_t p = 0; p < SOLO_PARAMS; p++)
        cr_expect(solo_all(solo.destination[p], SOLO_BYTES, (uint8_t)(p + 1)));
    cr_expect_eq(sluice_version(solo.plan), 41u);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, refuses_a_version_that_could_be_torn_unless_allowed)
{
    sluice_transfer *transfer = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 2 * SOLO_BYTES);
    struct sluice_transfer_options options = solo_options(&solo);
    options.landing = SLUICE_LANDING_SHADOW;
    cr_assert_eq(sluice_submit(solo.plan, &options, &transfer), SLUICE_INVALID);
    cr_expect_not_null(strstr(sluice_last_error()->text, "0 of 4 windows"), "%s", sluice_last_error()->text);
    options.allow_torn = 1;
    transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
    for (uint32_t p = 0; p < SOLO_PARAMS; p++)
        cr_expect(solo_all(solo.destination[p], SOLO_BYTES, (uint8_t)(p + 1)));
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

/* Room for two parameters of four: after the decision their copies fail in the middle of the rest. */
Test(transfer, that_tears_after_the_decision_names_the_version_and_its_parameters)
{
    struct sluice_error error;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 2 * SOLO_BYTES);
    atomic_store(&hand.fail_at, 1);
    struct sluice_transfer_options options = solo_options(&solo);
    options.landing = SLUICE_LANDING_SHADOW;
    options.allow_torn = 1;
    options.version = 6;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_TORN);
    sluice_transfer_error(transfer, &error);
    cr_expect_not_null(strstr(error.text, "version 6 is torn on this rank"), "%s", error.text);
    cr_expect_not_null(strstr(error.text, "parameters hold bytes of both versions, the first is"), "%s", error.text);
    cr_expect_eq(sluice_version(solo.plan), 0u);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, stops_at_a_window_boundary_when_cancelled)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.allowed, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    solo_await_kind(&solo, SLUICE_EVENT_STARTED);
    sluice_transfer_cancel(transfer);
    sluice_transfer_cancel(transfer);
    solo_explain(transfer); /* the cancel has arrived */
    hand_allow(HAND_ALL);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_CANCELLED);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_CANCELLED), 1u);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), 0u);
    cr_expect_eq(solo.events[solo.count - 1].kind, (uint32_t)SLUICE_EVENT_RELEASED);
    cr_expect_eq(atomic_load(&hand.submitted), 3u, "three slots were in flight");
    cr_expect(solo_all(solo.destination[3], SOLO_BYTES, 0xee));
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, launches_nothing_when_a_gate_opens_after_the_cancel)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    options.source_gate = gate;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    sluice_transfer_cancel(transfer);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_CANCELLED);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    sluice_transfer *second = solo_submit(&solo, &(struct sluice_transfer_options){.size = sizeof options});
    cr_assert_eq(sluice_transfer_wait(second, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(atomic_load(&hand.submitted), 4u, "only the second transfer launched");
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    sluice_transfer_destroy(second);
    solo_close(&solo);
}

Test(transfer, fails_with_the_device_error_and_the_next_one_runs_or_is_refused)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.fail_at, 1);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_neq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    uint32_t failed = solo_await_kind(&solo, SLUICE_EVENT_FAILED);
    cr_expect_not_null(strstr(solo.events[failed].text, "a copy failed"), "%s", solo.events[failed].text);
    struct sluice_error error; /* window 0 was done, three were in flight: their parameters are torn */
    sluice_transfer_error(transfer, &error);
    cr_expect_not_null(
        strstr(error.text, "; 3 parameters hold bytes of both versions, the first is 1 (w), 1 are whole"), "%s",
        error.text);
    cr_expect_eq(sluice_version(solo.plan), 0u);
    sluice_transfer *second = NULL;
    sluice_status status = sluice_submit(solo.plan, &options, &second);
    cr_expect(status == SLUICE_OK || status == SLUICE_POISONED, "%d", status);
    if (second != NULL)
        cr_expect_neq(sluice_transfer_wait(second, 20 * SLUICE_SECOND), SLUICE_TIMEOUT);
    sluice_transfer_destroy(second);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, retries_operations_that_the_backend_cannot_take_now)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.refuse, 5);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect(solo_all(solo.destination[3], SOLO_BYTES, 4));
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, takes_and_gives_back_nothing_of_the_device_between_launch_and_completion)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, SOLO_PARAMS * SOLO_BYTES);
    unsigned calls = atomic_load(&hand.calls);
    struct sluice_transfer_options options = solo_options(&solo);
    options.landing = SLUICE_LANDING_SHADOW;
    for (int i = 0; i < 3; i++) {
        sluice_transfer *transfer = solo_submit(&solo, &options);
        cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
        sluice_transfer_destroy(transfer);
    }
    cr_expect_eq(atomic_load(&hand.calls), calls);
    solo_close(&solo);
}

Test(transfer, says_again_at_the_limit_and_takes_more_once_released)
{
    struct sluice_runtime_options runtime = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_transfer *transfers[4], *more = NULL;
    runtime.transfers_max = 4;
    solo_open(&solo, &runtime);
    solo_seal(&solo, 1, 0);
    atomic_store(&hand.allowed, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    for (int i = 0; i < 4; i++)
        transfers[i] = solo_submit(&solo, &options);
    cr_expect_eq(sluice_submit(solo.plan, &options, &more), SLUICE_AGAIN);
    cr_expect_null(more);
    hand_allow(HAND_ALL);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(sluice_transfer_wait(transfers[i], UINT64_MAX), SLUICE_OK);
    more = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(more, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(sluice_version(solo.plan), 5u);
    for (int i = 0; i < 4; i++)
        sluice_transfer_destroy(transfers[i]);
    sluice_transfer_destroy(more);
    solo_close(&solo);
}

Test(transfer, reports_progress_in_windows_parameters_and_bytes)
{
    struct sluice_progress progress = {.size = sizeof progress};
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.allowed, 3);
    struct sluice_transfer_options options = solo_options(&solo);
    options.window_events = 1;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    solo_await(&solo, 5); /* SEALED, STARTED, three windows */
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.windows_total, 4u);
    cr_expect_eq(progress.params_total, 4u);
    cr_expect_eq(progress.bytes_total, 4u * SOLO_BYTES);
    cr_expect_leq(progress.windows_done, 3u);
    hand_allow(HAND_ALL);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.state, (uint32_t)SLUICE_TRANSFER_DONE);
    cr_expect_eq(progress.windows_done, 4u);
    cr_expect_eq(progress.params_done, 4u);
    cr_expect_eq(progress.bytes_done, 4u * SOLO_BYTES);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(transfer, waits_for_the_plans_earlier_one_whose_shadow_it_would_overwrite)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, SOLO_PARAMS * SOLO_BYTES);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    options.landing = SLUICE_LANDING_SHADOW;
    options.consumer_gate = gate;
    sluice_transfer *first = solo_submit(&solo, &options);
    solo_await_kind(&solo, SLUICE_EVENT_STAGED);
    memset(solo.source, 9, sizeof solo.source);
    options.consumer_gate = NULL;
    sluice_transfer *cancelled = solo_submit(&solo, &options);
    sluice_transfer *last = solo_submit(&solo, &options);
    sluice_transfer_cancel(cancelled);
    cr_assert_eq(sluice_transfer_wait(cancelled, UINT64_MAX), SLUICE_CANCELLED);
    const char *words = solo_explain(last);
    cr_expect_not_null(strstr(words, "earlier transfer"), "%s", words);
    cr_expect_eq(atomic_load(&hand.submitted), 4u, "the first one's windows alone");
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(first, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(last, UINT64_MAX), SLUICE_OK);
    cr_expect(solo_all(&solo.destination[0][0], sizeof solo.destination, 9));
    cr_expect_eq(sluice_version(solo.plan), 3u);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(first);
    sluice_transfer_destroy(cancelled);
    sluice_transfer_destroy(last);
    solo_close(&solo);
}

Test(transfer, of_some_parameters_moves_those_alone)
{
    const uint64_t some = 1u << 1 | 1u << 3, outside = 1u << 7;
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, SOLO_PARAMS * SOLO_BYTES);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_param_gate absent = {.param = 0, .role = SLUICE_ROLE_SOURCE, .gate = gate};
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = NULL;
    options.param_events = 1;
    options.params = &outside;
    options.params_words = 1;
    cr_expect_eq(sluice_submit(solo.plan, &options, &transfer), SLUICE_INVALID);
    options.params = &some;
    options.param_gates = &absent; /* of a parameter that does not move: it holds nothing */
    options.param_gate_count = 1;
    for (options.landing = 0; options.landing <= SLUICE_LANDING_SHADOW; options.landing++) {
        memset(solo.destination, 0xee, sizeof solo.destination);
        transfer = solo_submit(&solo, &options);
        cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
        cr_expect(solo_all(solo.destination[0], SOLO_BYTES, 0xee));
        cr_expect(solo_all(solo.destination[1], SOLO_BYTES, 2));
        cr_expect(solo_all(solo.destination[2], SOLO_BYTES, 0xee));
        cr_expect(solo_all(solo.destination[3], SOLO_BYTES, 4));
        struct sluice_progress progress = {.size = sizeof progress};
        cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
        cr_expect_eq(progress.bytes_done, 2u * SOLO_BYTES);
        cr_expect_eq(progress.params_total, 2u);
        sluice_transfer_destroy(transfer);
    }
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_PARAM), 4u);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}
