/* Every allocation of open, seal, submit and run fails once: an error, no crash, no hang, nothing left over. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/core/runtime_object.h"
#include "sluice/transfer.h"
#include "support/hand.h"
#include "support/memory.h"

static struct test_memory memory;
static uint8_t source[256], destination[256];

static sluice_status make_plan(sluice_plan **ret)
{
    struct sluice_region whole = {.row_bytes = 256, .rows = 1, .pitch = 256};
    sluice_status status = sluice_plan_create(1, ret);
    if (status == SLUICE_OK)
        status = sluice_plan_add_send(*ret, 0, 0, SLUICE_DTYPE_U8, 0, &whole);
    if (status == SLUICE_OK)
        status = sluice_plan_add_recv(*ret, 0, 0, SLUICE_DTYPE_U8, 0, &whole);
    if (status == SLUICE_OK)
        status = sluice_plan_bind(*ret, 0, SLUICE_ROLE_SOURCE, source, 256);
    if (status == SLUICE_OK)
        status = sluice_plan_bind(*ret, 0, SLUICE_ROLE_DESTINATION, destination, 256);
    return status;
}

static sluice_status run(sluice_runtime *runtime, sluice_plan *plan)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    seal.shadow_bytes = 4096;
    sluice_status status = sluice_plan_seal_wait(plan, runtime, &seal, 0);
    if (status == SLUICE_OK)
        status = sluice_gate_host(runtime, &gate);
    if (status == SLUICE_OK)
        status = sluice_gate_open(gate);
    options.source_gate = gate;
    options.landing = SLUICE_LANDING_SHADOW;
    options.window_events = 1;
    if (status == SLUICE_OK)
        status = sluice_submit(plan, &options, &transfer);
    if (status == SLUICE_OK)
        status = sluice_transfer_wait(transfer, UINT64_MAX);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    return status;
}

static sluice_status whole_life(void)
{
    struct sl_runtime_hooks hooks = {.backend = hand_backend()};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    options.world = 1;
    sluice_status status = sl_runtime_open_with(&options, &hooks, &runtime);
    if (status == SLUICE_OK)
        status = make_plan(&plan);
    if (status == SLUICE_OK)
        status = run(runtime, plan);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    return status;
}

Test(memory, that_runs_out_anywhere_is_an_error_and_leaves_nothing_behind)
{
    uint64_t n = 1;
    hand_reset();
    test_memory_install(&memory);
    for (;; n++) {
        memset(source, 7, sizeof source);
        memset(destination, 0, sizeof destination);
        test_memory_fail_at(&memory, n);
        sluice_status status = whole_life();
        cr_assert_eq(atomic_load(&memory.live), 0, "after allocation %u failed", (unsigned)n);
        cr_assert_eq(atomic_load(&hand.memory), 0u);
        cr_assert_eq(atomic_load(&hand.sets), 0u);
        if (atomic_load(&memory.failed) == 0) {
            cr_assert_eq(status, SLUICE_OK);
            break;
        }
        cr_assert_eq(status, SLUICE_NOMEM, "allocation %u failed, the status is %d", (unsigned)n, status);
    }
    cr_expect_eq(destination[255], 7);
    cr_expect_gt(n, 30u);
}
