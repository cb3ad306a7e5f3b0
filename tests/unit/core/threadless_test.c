/* A runtime without threads, in virtual time: what a simulation drives. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/core/runtime_object.h"
#include "support/hand.h"
#include "support/memory.h"

static uint64_t virtual_now = 1000;
static uint8_t source[64], destination[64];
static uint32_t kinds[16], kind_count;

static uint64_t now(void *context)
{
    (void)context;
    return virtual_now;
}

static void on_event(const struct sluice_event *event, void *user)
{
    (void)user;
    kinds[kind_count++] = event->kind;
}

static sluice_runtime *open_threadless(void)
{
    static const struct sl_clock clock = {.now = now};
    struct sl_runtime_hooks hooks = {.clock = &clock, .backend = hand_backend(), .threadless = 1};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    hand_reset();
    options.world = 1;
    options.delivery = SLUICE_DELIVER_FD;
    options.on_event = on_event;
    cr_assert_eq(sl_runtime_open_with(&options, &hooks, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    return runtime;
}

static sluice_plan *seal_with(sluice_runtime *runtime, const struct sluice_seal_options *options, uint32_t windows)
{
    struct sluice_region whole = {.row_bytes = 64, .rows = 1, .pitch = 64};
    sluice_plan *plan = NULL;
    cr_assert_eq(sluice_plan_create(1, &plan), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_send(plan, 0, 0, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_recv(plan, 0, 0, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, source, 64), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_DESTINATION, destination, 64), SLUICE_OK);
    cr_assert_eq(sluice_plan_seal(plan, runtime, options), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_plan_windows(plan), 0u, "nothing happens without a step");
    sl_runtime_step(runtime, virtual_now);
    cr_assert_eq(sluice_plan_windows(plan), windows);
    return plan;
}

static sluice_plan *seal_one(sluice_runtime *runtime)
{
    return seal_with(runtime, NULL, 1);
}

Test(threadless, runs_in_steps_of_virtual_time_and_names_the_next_one)
{
    sluice_runtime *runtime = open_threadless();
    sluice_plan *plan = seal_one(runtime);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    cr_assert_eq(sluice_gate_host(runtime, &gate), SLUICE_OK);
    memset(source, 7, sizeof source);
    options.source_gate = gate;
    options.gate_timeout_ns = 5 * SLUICE_SECOND;
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    cr_expect_eq(sl_runtime_step(runtime, virtual_now), virtual_now + 5 * SLUICE_SECOND, "the gate deadline");
    cr_expect_eq(atomic_load(&hand.submitted), 0u);
    virtual_now += 3 * SLUICE_SECOND;
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    sl_runtime_step(runtime, virtual_now);
    cr_expect_eq(destination[63], 7);
    struct sluice_progress progress = {.size = sizeof progress};
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.elapsed_ns, 3 * SLUICE_SECOND);
    cr_expect_eq(progress.stages.gate_ns, 3 * SLUICE_SECOND);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, virtual_now);
    while (sluice_dispatch(runtime) > 0)
        ;
    cr_expect_eq(kinds[kind_count - 1], (uint32_t)SLUICE_EVENT_CLOSED);
    sluice_runtime_destroy(runtime);
    cr_expect_eq(atomic_load(&hand.sets), 0u);
}

Test(threadless, tells_the_wait_for_consumers_and_the_commit_apart)
{
    sluice_runtime *runtime = open_threadless();
    const struct sluice_seal_options seal = {.size = sizeof seal, .shadow_bytes = 64};
    sluice_plan *plan = seal_with(runtime, &seal, 1);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    cr_assert_eq(sluice_gate_host(runtime, &gate), SLUICE_OK);
    memset(source, 7, sizeof source);
    options.landing = SLUICE_LANDING_SHADOW;
    options.consumer_gate = gate;
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    sl_runtime_step(runtime, virtual_now); /* staged */
    atomic_store(&hand.allowed, 0);
    virtual_now += 3 * SLUICE_SECOND;
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    sl_runtime_step(runtime, virtual_now); /* decided; the commit copy does not end yet */
    cr_expect_eq(destination[63], 0);
    virtual_now += 2 * SLUICE_SECOND;
    hand_allow(HAND_ALL);
    sl_runtime_step(runtime, virtual_now);
    cr_expect_eq(destination[63], 7);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.state, (uint32_t)SLUICE_TRANSFER_DONE);
    cr_expect_eq(progress.gate_wait_ns, 3 * SLUICE_SECOND);
    cr_expect_eq(progress.commit_ns, 2 * SLUICE_SECOND);
    cr_expect_eq(progress.elapsed_ns, 5 * SLUICE_SECOND);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, virtual_now);
    sluice_runtime_destroy(runtime);
}

Test(threadless, ends_a_gate_deadline_at_its_virtual_time)
{
    sluice_runtime *runtime = open_threadless();
    sluice_plan *plan = seal_one(runtime);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    struct sluice_error error;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    cr_assert_eq(sluice_gate_host(runtime, &gate), SLUICE_OK);
    options.consumer_gate = gate;
    options.gate_timeout_ns = 5 * SLUICE_SECOND;
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    virtual_now = sl_runtime_step(runtime, virtual_now);
    sl_runtime_step(runtime, virtual_now);
    sluice_transfer_error(transfer, &error);
    cr_expect_eq(error.status, SLUICE_GATE_TIMEOUT, "%s", error.text);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, virtual_now);
    sluice_runtime_destroy(runtime);
}

Test(threadless, copies_within_a_rank_keep_the_pace_in_windows_of_the_size_that_was_sealed)
{
    sluice_runtime *runtime = open_threadless();
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.local_window_bytes = 16;
    sluice_plan *plan = seal_with(runtime, &seal, 4);
    sluice_transfer *transfer = NULL;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.pace_bytes_per_second = 1600;
    memset(source, 7, sizeof source);
    memset(destination, 0, sizeof destination);
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    uint64_t begin = virtual_now;
    for (uint32_t done = 1; done <= 4; done++) {
        virtual_now = sl_runtime_step(runtime, virtual_now);
        cr_expect_eq(destination[16 * done - 1], 7, "window %u", done - 1);
        cr_expect(done == 4 || destination[16 * done] == 0, "window %u came too early", done);
        if (done < 4)
            cr_expect_eq(virtual_now, begin + done * 10 * SLUICE_MILLISECOND);
    }
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, begin + SLUICE_SECOND);
    sluice_runtime_destroy(runtime);
}

/* The process is stopped beyond the deadline of an abort, in which its device could not end anything either. */
Test(threadless, time_in_which_the_process_stood_still_is_no_waiting_for_an_abort)
{
    sluice_runtime *runtime = open_threadless();
    sluice_plan *plan = seal_one(runtime);
    sluice_transfer *transfer = NULL;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.on_event = on_event;
    atomic_store(&hand.allowed, 0);
    cr_assert_eq(sluice_submit(plan, &options, &transfer), SLUICE_OK);
    sl_runtime_step(runtime, virtual_now);
    virtual_now += 30 * SLUICE_SECOND;
    sl_runtime_step(runtime, virtual_now); /* it stalls: an abort begins */
    virtual_now += 5 * SLUICE_SECOND;
    sl_runtime_step(runtime, virtual_now);
    hand_allow(HAND_ALL);
    sl_runtime_step(runtime, virtual_now);
    while (sluice_dispatch(runtime) > 0)
        ;
    cr_expect_eq(kinds[kind_count - 2], (uint32_t)SLUICE_EVENT_FAILED);
    cr_expect_eq(kinds[kind_count - 1], (uint32_t)SLUICE_EVENT_RELEASED);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, virtual_now);
    sluice_runtime_destroy(runtime);
}

/* --- a world of two whose other rank is this test --- */

static struct {
    uint32_t kind;
    uint64_t id;
} given_round;

static sluice_status note_nothing(void *context, const struct sl_note *note)
{
    (void)context;
    (void)note;
    return SLUICE_OK;
}

static sluice_status keep_round(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                                uint64_t timeout_ns)
{
    (void)context;
    (void)data;
    (void)bytes;
    (void)timeout_ns;
    given_round.kind = kind;
    given_round.id = id;
    return SLUICE_OK;
}

static sluice_runtime *open_one_of_two(void)
{
    static const struct sl_clock clock = {.now = now};
    struct sl_runtime_hooks hooks = {
        .clock = &clock, .backend = hand_backend(), .link = {NULL, note_nothing, keep_round}, .threadless = 1};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    hand_reset();
    options.world = 2;
    options.address = "127.0.0.1";
    options.port = 1;
    options.delivery = SLUICE_DELIVER_FD;
    options.on_event = on_event;
    cr_assert_eq(sl_runtime_open_with(&options, &hooks, &runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    return runtime;
}

Test(threadless, lets_go_of_a_plan_once_that_is_destroyed_while_its_seal_fails)
{
    static struct test_memory memory;
    struct sluice_region whole = {.row_bytes = 64, .rows = 1, .pitch = 64};
    struct sluice_error error = {.status = SLUICE_PEER_LOST, .text = "rank 1 was lost"};
    sluice_plan *plan = NULL;
    test_memory_install(&memory);
    sluice_runtime *runtime = open_one_of_two();
    cr_assert_eq(sluice_plan_create(2, &plan), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_send(plan, 0, 0, SLUICE_DTYPE_U8, 1, &whole), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, source, 64), SLUICE_OK);
    cr_assert_eq(sluice_plan_seal(plan, runtime, NULL), SLUICE_OK, "%s", sluice_last_error()->text);
    sl_runtime_step(runtime, virtual_now);
    sl_runtime_on_round(runtime, given_round.kind, given_round.id, SLUICE_PEER_LOST, &error, NULL, 0);
    sluice_plan_destroy(plan);
    sl_runtime_step(runtime, virtual_now);
    sluice_runtime_close(runtime);
    sl_runtime_step(runtime, virtual_now);
    while (sluice_dispatch(runtime) > 0)
        ;
    sluice_runtime_destroy(runtime);
    cr_expect_eq(atomic_load(&memory.live), 0);
    cr_expect_eq(atomic_load(&hand.memory), 0u);
    test_memory_remove();
}
