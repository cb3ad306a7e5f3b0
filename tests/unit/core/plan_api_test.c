/* Plans by calls: what is refused before and after the seal, buffers that overlap or are too small, rebinding. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/solo.h"

static struct solo solo;
static uint8_t buffer[4 * SOLO_BYTES];

static sluice_plan *new_plan(uint32_t params)
{
    sluice_plan *plan = NULL;
    struct sluice_region whole = {.row_bytes = SOLO_BYTES, .rows = 1, .pitch = SOLO_BYTES};
    cr_assert_eq(sluice_plan_create(1, &plan), SLUICE_OK);
    for (uint32_t p = 0; p < params; p++) {
        struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = SOLO_BYTES, .name = "layer.weight"};
        cr_assert_eq(sluice_plan_add_param(plan, &param), SLUICE_OK);
        cr_assert_eq(sluice_plan_add_send(plan, p, p, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
        cr_assert_eq(sluice_plan_add_recv(plan, p, p, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    }
    return plan;
}

static void bind_at(sluice_plan *plan, uint32_t param, enum sluice_role role, size_t offset, uint64_t bytes)
{
    cr_assert_eq(sluice_plan_bind(plan, param, role, buffer + offset, bytes), SLUICE_OK);
}

static void expect_seal(sluice_plan *plan, sluice_status expected, const char *words)
{
    sluice_status status = sluice_plan_seal_wait(plan, solo.runtime, NULL, 0);
    cr_expect_eq(status, expected, "%s", sluice_last_error()->text);
    if (words != NULL)
        cr_expect_not_null(strstr(sluice_last_error()->text, words), "%s", sluice_last_error()->text);
}

static struct sluice_progress run(sluice_plan *plan)
{
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    cr_assert_eq(sluice_submit(plan, NULL, &transfer), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    return progress;
}

Test(plan_api, seals_halves_of_local_tasks_and_moves_them)
{
    solo_open(&solo, NULL);
    sluice_plan *plan = new_plan(1);
    memset(buffer, 9, SOLO_BYTES);
    bind_at(plan, 0, SLUICE_ROLE_SOURCE, 0, SOLO_BYTES);
    bind_at(plan, 0, SLUICE_ROLE_DESTINATION, SOLO_BYTES, SOLO_BYTES);
    cr_expect_eq(sluice_plan_windows(plan), 0u);
    expect_seal(plan, SLUICE_OK, NULL);
    cr_expect_eq(run(plan).windows_done, 1u);
    cr_expect(solo_all(buffer + SOLO_BYTES, SOLO_BYTES, 9));
    struct sluice_param param = {.id = 1};
    cr_expect_eq(sluice_plan_add_param(plan, &param), SLUICE_STATE);
    cr_expect_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, buffer, SOLO_BYTES), SLUICE_STATE);
    expect_seal(plan, SLUICE_STATE, NULL);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, names_the_parameter_without_a_buffer_and_can_be_sealed_later)
{
    solo_open(&solo, NULL);
    sluice_plan *plan = new_plan(1);
    bind_at(plan, 0, SLUICE_ROLE_SOURCE, 0, SOLO_BYTES);
    expect_seal(plan, SLUICE_PLAN, "parameter 0 (layer.weight) has no destination buffer");
    bind_at(plan, 0, SLUICE_ROLE_DESTINATION, SOLO_BYTES, SOLO_BYTES - 1);
    expect_seal(plan, SLUICE_PLAN, "4095 bytes");
    bind_at(plan, 0, SLUICE_ROLE_DESTINATION, SOLO_BYTES, SOLO_BYTES);
    expect_seal(plan, SLUICE_OK, NULL);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, refuses_destinations_that_overlap_and_allows_tied_sources)
{
    solo_open(&solo, NULL);
    sluice_plan *plan = new_plan(2);
    bind_at(plan, 0, SLUICE_ROLE_SOURCE, 0, SOLO_BYTES);
    bind_at(plan, 1, SLUICE_ROLE_SOURCE, 0, SOLO_BYTES);
    bind_at(plan, 0, SLUICE_ROLE_DESTINATION, SOLO_BYTES, SOLO_BYTES);
    bind_at(plan, 1, SLUICE_ROLE_DESTINATION, 2 * SOLO_BYTES - 1, SOLO_BYTES);
    expect_seal(plan, SLUICE_PLAN, "destination buffer of parameter 0");
    bind_at(plan, 1, SLUICE_ROLE_DESTINATION, SOLO_BYTES / 2, SOLO_BYTES);
    expect_seal(plan, SLUICE_PLAN, "overlaps");
    bind_at(plan, 1, SLUICE_ROLE_DESTINATION, 2 * SOLO_BYTES, SOLO_BYTES);
    expect_seal(plan, SLUICE_OK, NULL);
    memset(buffer, 7, SOLO_BYTES);
    cr_expect_eq(run(plan).params_done, 2u);
    cr_expect(solo_all(buffer + SOLO_BYTES, 2 * SOLO_BYTES, 7), "both destinations hold the one source");
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, refuses_null_and_wrapping_buffers)
{
    sluice_plan *plan = new_plan(1);
    cr_expect_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, NULL, 8), SLUICE_INVALID);
    cr_expect_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, NULL, 0), SLUICE_OK);
    cr_expect_eq(sluice_plan_bind(plan, 7, SLUICE_ROLE_SOURCE, buffer, 8), SLUICE_INVALID);
    cr_expect_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, (void *)(UINTPTR_MAX - 3), 8), SLUICE_INVALID);
    cr_expect_eq(sluice_plan_bind(NULL, 0, SLUICE_ROLE_SOURCE, buffer, 8), SLUICE_INVALID);
    sluice_plan_destroy(plan);
}

Test(plan_api, refuses_a_plan_for_another_world)
{
    sluice_plan *plan = NULL;
    solo_open(&solo, NULL);
    cr_assert_eq(sluice_plan_create(3, &plan), SLUICE_OK);
    expect_seal(plan, SLUICE_PLAN, "3 ranks");
    cr_expect_eq(sluice_plan_create(0, &plan), SLUICE_INVALID);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

/* Task 1 without bytes and without buffers, task 2 with bytes, task 3 without bytes but with buffers. */
Test(plan_api, of_tasks_with_and_without_bytes_counts_each_once)
{
    sluice_plan *plan = NULL;
    solo_open(&solo, NULL);
    cr_assert_eq(sluice_plan_create(1, &plan), SLUICE_OK);
    for (uint32_t p = 0; p < 3; p++) {
        const uint64_t bytes = p == 1 ? SOLO_BYTES : 0;
        struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
        struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "w"};
        cr_assert_eq(sluice_plan_add_param(plan, &param), SLUICE_OK);
        cr_assert_eq(sluice_plan_add_send(plan, p + 1, p, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
        cr_assert_eq(sluice_plan_add_recv(plan, p + 1, p, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    }
    cr_assert_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, NULL, 0), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_DESTINATION, NULL, 0), SLUICE_OK);
    for (uint32_t p = 1; p < 3; p++) {
        bind_at(plan, p, SLUICE_ROLE_SOURCE, 0, p == 1 ? SOLO_BYTES : 0);
        bind_at(plan, p, SLUICE_ROLE_DESTINATION, p * SOLO_BYTES, p == 1 ? SOLO_BYTES : 0);
    }
    memset(buffer, 5, SOLO_BYTES);
    expect_seal(plan, SLUICE_OK, NULL);
    struct sluice_progress progress = run(plan);
    cr_expect_eq(progress.params_total, 3u);
    cr_expect_eq(progress.params_done, 3u);
    cr_expect_eq(progress.bytes_total, (uint64_t)SOLO_BYTES);
    cr_expect_eq(progress.bytes_done, (uint64_t)SOLO_BYTES);
    cr_expect_eq(atomic_load(&hand.submitted), 1u, "nothing is copied for a task without bytes");
    cr_expect(solo_all(buffer + SOLO_BYTES, SOLO_BYTES, 5));
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, of_no_tasks_runs_and_completes_at_once)
{
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_plan *plan = NULL;
    sluice_transfer *transfer = NULL;
    solo_open(&solo, NULL);
    cr_assert_eq(sluice_plan_create(1, &plan), SLUICE_OK);
    expect_seal(plan, SLUICE_OK, NULL);
    struct sluice_transfer_options options = solo_options(&solo);
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.bytes_total, 0u);
    cr_expect_eq(progress.state, (uint32_t)SLUICE_TRANSFER_DONE);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), 1u);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, rebinds_without_a_seal_and_refuses_while_it_runs)
{
    static uint8_t moved[SOLO_BYTES];
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, SOLO_PARAMS * SOLO_BYTES);
    struct sluice_transfer_options options = solo_options(&solo);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    options.source_gate = gate;
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_expect_eq(sluice_plan_rebind(solo.plan, 1, SLUICE_ROLE_DESTINATION, moved, SOLO_BYTES), SLUICE_STATE);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    cr_expect_eq(sluice_plan_rebind(solo.plan, 1, SLUICE_ROLE_DESTINATION, moved, SOLO_BYTES - 1), SLUICE_PLAN);
    cr_expect_eq(sluice_plan_rebind(solo.plan, 1, SLUICE_ROLE_DESTINATION, solo.destination[0], SOLO_BYTES),
                 SLUICE_PLAN);
    cr_assert_eq(sluice_plan_rebind(solo.plan, 1, SLUICE_ROLE_DESTINATION, moved, SOLO_BYTES), SLUICE_OK);
    memset(solo.destination, 0xee, sizeof solo.destination);
    options.source_gate = NULL;
    options.landing = SLUICE_LANDING_SHADOW;
    transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect(solo_all(moved, SOLO_BYTES, 2));
    cr_expect(solo_all(solo.destination[0], SOLO_BYTES, 1));
    cr_expect(solo_all(solo.destination[1], SOLO_BYTES, 0xee));
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    solo_close(&solo);
}

Test(plan_api, tells_parameters_by_id_and_the_sizes_of_buffers)
{
    struct sluice_param param = {.id = 99};
    uint64_t bytes = 99;
    sluice_plan *plan = new_plan(2);
    cr_assert_eq(sluice_plan_param(plan, 1, &param), SLUICE_OK);
    cr_expect_eq(param.id, 1u);
    cr_expect_eq(param.dtype, SLUICE_DTYPE_U8);
    cr_expect_eq(param.bytes, (uint64_t)SOLO_BYTES);
    cr_expect_str_eq(param.name, "layer.weight");
    cr_expect_eq(sluice_plan_param(plan, 2, &param), SLUICE_NOT_FOUND);
    cr_expect_eq(param.id, 1u, "outputs are set on success only");
    cr_assert_eq(sluice_plan_add_buffer(plan, 0, 0, SLUICE_ROLE_SOURCE, SOLO_BYTES), SLUICE_OK);
    cr_expect_eq(sluice_plan_buffer(plan, 0, 0, SLUICE_ROLE_SOURCE, &bytes), SLUICE_STATE);
    cr_assert_eq(sluice_plan_validate(plan), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_plan_buffer(plan, 0, 0, SLUICE_ROLE_SOURCE, &bytes), SLUICE_OK);
    cr_expect_eq(bytes, (uint64_t)SOLO_BYTES);
    cr_expect_eq(sluice_plan_buffer(plan, 0, 0, SLUICE_ROLE_DESTINATION, &bytes), SLUICE_NOT_FOUND);
    cr_expect_eq(sluice_plan_buffer(plan, 0, 7, SLUICE_ROLE_SOURCE, &bytes), SLUICE_NOT_FOUND);
    cr_expect_eq(sluice_plan_buffer(NULL, 0, 0, SLUICE_ROLE_SOURCE, &bytes), SLUICE_INVALID);
    sluice_plan_destroy(plan);
}

Test(plan_api, refuses_windows_of_less_than_a_unit_within_a_rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    solo_open(&solo, NULL);
    sluice_plan *plan = new_plan(1);
    bind_at(plan, 0, SLUICE_ROLE_SOURCE, 0, SOLO_BYTES);
    bind_at(plan, 0, SLUICE_ROLE_DESTINATION, SOLO_BYTES, SOLO_BYTES);
    seal.local_window_bytes = 15;
    cr_expect_eq(sluice_plan_seal_wait(plan, solo.runtime, &seal, 0), SLUICE_INVALID);
    cr_expect_not_null(strstr(sluice_last_error()->text, "local_window_bytes = 15 is less than 16"), "%s",
                       sluice_last_error()->text);
    seal.local_window_bytes = SOLO_BYTES / 4;
    cr_expect_eq(sluice_plan_seal_wait(plan, solo.runtime, &seal, 0), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_expect_eq(sluice_plan_windows(plan), 4u);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}

Test(plan_api, names_a_parameter_without_a_name_by_its_number)
{
    struct sluice_region whole = {.row_bytes = 8, .rows = 1, .pitch = 8};
    sluice_plan *plan = NULL;
    solo_open(&solo, NULL);
    cr_assert_eq(sluice_plan_create(1, &plan), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_send(plan, 1, 0, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_recv(plan, 1, 0, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    expect_seal(plan, SLUICE_PLAN, "parameter 0 has no source buffer");
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(solo.runtime);
}
