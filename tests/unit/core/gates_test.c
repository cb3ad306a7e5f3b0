/* The kinds of gates, and what they do to a run. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/solo.h"

static struct solo solo;

static sluice_transfer *submit_with(sluice_gate *source, sluice_gate *consumer, uint64_t timeout_ns)
{
    struct sluice_transfer_options options = solo_options(&solo);
    options.source_gate = source;
    options.consumer_gate = consumer;
    options.gate_timeout_ns = timeout_ns;
    return solo_submit(&solo, &options);
}

Test(gates, of_kind_value_open_when_the_word_reaches_the_value)
{
    static _Alignas(8) uint64_t word = 4;
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_value(solo.runtime, &word, 5, &gate), SLUICE_OK);
    sluice_transfer *transfer = submit_with(gate, NULL, 0);
    cr_expect_eq(sluice_transfer_wait(transfer, SLUICE_MILLISECOND), SLUICE_TIMEOUT);
    cr_expect_eq(atomic_load(&hand.submitted), 0u);
    __atomic_store_n(&word, 6, __ATOMIC_RELEASE);
    sluice_gate_poke(gate);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

struct query {
    atomic_uint asked;
    atomic_uint open_after;
    atomic_int fails;
    atomic_uint dropped;
};

static sluice_status ask(void *context, struct sluice_error *error)
{
    struct query *query = context;
    if (atomic_load(&query->fails)) {
        error->status = SLUICE_DEVICE;
        strcpy(error->text, "illegal address");
        return SLUICE_DEVICE;
    }
    return atomic_fetch_add(&query->asked, 1) + 1 >= atomic_load(&query->open_after) ? SLUICE_OK : SLUICE_AGAIN;
}

static void drop(void *context)
{
    atomic_fetch_add(&((struct query *)context)->dropped, 1);
}

Test(gates, of_kind_query_are_asked_until_open_and_never_again)
{
    struct query query = {.open_after = 100};
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_query(solo.runtime, ask, drop, &query, &gate), SLUICE_OK);
    sluice_transfer *transfer = submit_with(gate, gate, 0);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(atomic_load(&query.asked), 100u);
    sluice_transfer_destroy(transfer);
    cr_expect_eq(atomic_load(&query.dropped), 0u);
    sluice_gate_destroy(gate);
    cr_expect_eq(atomic_load(&query.dropped), 1u);
    solo_close(&solo);
}

Test(gates, whose_query_fails_fail_the_transfer_with_its_words_and_move_nothing)
{
    struct query query = {.fails = 1};
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_query(solo.runtime, ask, NULL, &query, &gate), SLUICE_OK);
    sluice_transfer *transfer = submit_with(gate, NULL, 0);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_DEVICE);
    cr_expect_not_null(strstr(sluice_last_error()->text, "illegal address"), "%s", sluice_last_error()->text);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_FAILED), 1u);
    cr_expect_eq(atomic_load(&hand.submitted), 0u);
    sluice_transfer_destroy(transfer);
    transfer = submit_with(NULL, NULL, 0);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "the next one runs");
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

Test(gates, that_stay_closed_end_in_a_timeout_that_names_them)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_param_gate late = {.param = 3, .role = SLUICE_ROLE_DESTINATION, .gate = gate};
    struct sluice_transfer_options options = solo_options(&solo);
    options.param_gates = &late;
    options.param_gate_count = 1;
    options.gate_timeout_ns = 5 * SLUICE_MILLISECOND;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_GATE_TIMEOUT);
    cr_expect_not_null(strstr(sluice_last_error()->text, "parameter 3"), "%s", sluice_last_error()->text);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

Test(gates, may_be_used_again_after_a_reset)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    for (unsigned round = 1; round <= 3; round++) {
        sluice_transfer *transfer = submit_with(gate, NULL, 0);
        cr_expect_eq(sluice_transfer_wait(transfer, SLUICE_MILLISECOND), SLUICE_TIMEOUT);
        cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
        cr_assert_eq(sluice_gate_open(gate), SLUICE_OK, "opening twice is opening once");
        cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
        cr_assert_eq(sluice_gate_reset(gate), SLUICE_OK);
        sluice_transfer_destroy(transfer);
    }
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

Test(gates, of_buffers_that_no_task_touches_hold_nothing)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 1, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_param_gate wrong = {.param = 99, .gate = gate};
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = NULL;
    options.param_gates = &wrong;
    options.param_gate_count = 1;
    cr_expect_eq(sluice_submit(solo.plan, &options, &transfer), SLUICE_INVALID);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

Test(gates, of_another_runtime_are_refused)
{
    sluice_gate *gate = NULL;
    sluice_transfer *transfer = NULL;
    sluice_runtime *other = NULL;
    struct sluice_runtime_options world_of_one = SLUICE_RUNTIME_OPTIONS_INIT;
    world_of_one.backend = "host";
    world_of_one.world = 1;
    solo_open(&solo, NULL);
    solo_seal(&solo, 1, 0);
    cr_assert_eq(sluice_runtime_open(&world_of_one, &other), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_gate_host(other, &gate), SLUICE_OK);
    const struct sluice_param_gate one = {.param = 1, .role = SLUICE_ROLE_SOURCE, .gate = gate};
    for (int place = 0; place < 3; place++) {
        struct sluice_transfer_options options = solo_options(&solo);
        options.source_gate = place == 0 ? gate : NULL;
        options.consumer_gate = place == 1 ? gate : NULL;
        options.param_gates = &one;
        options.param_gate_count = place == 2;
        cr_expect_eq(sluice_submit(solo.plan, &options, &transfer), SLUICE_INVALID, "place %d", place);
        cr_expect_not_null(strstr(sluice_last_error()->text, "another runtime"), "%s", sluice_last_error()->text);
    }
    cr_expect_eq(sluice_gate_reset(gate), SLUICE_OK, "no transfer uses it");
    sluice_gate_destroy(gate);
    sluice_runtime_close_wait(other);
    solo_close(&solo);
}
