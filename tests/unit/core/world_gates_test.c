/* Gates of several ranks against each other: they open in opposite order, or one of them fails. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/core/trace.h"
#include "support/many.h"

static struct many many;

enum { WINDOWS = 4, BYTES = 32 * 1024 };

/* A parameter a window, from rank 0 to rank 1. */
static void seal(struct many_rank *rank, uint64_t seed)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = BYTES;
    options.slots = 4;
    many_plan(rank, 1, WINDOWS, BYTES);
    many_fill(rank, seed);
    many_seal(rank, &options);
    cr_assert_eq(sluice_plan_windows(rank->plan), WINDOWS);
}

static void open_gate(sluice_gate *gate)
{
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
}

static void await_windows(struct many_rank *rank, uint32_t count)
{
    while (many_count(rank, SLUICE_EVENT_WINDOW) < count)
        sched_yield();
}

/* Groups began in the order of their windows. */
static void check_order(const struct many_rank *rank)
{
    size_t count = 0;
    uint32_t next = 0;
    const struct sl_trace_record *records = sl_runtime_trace(rank->runtime, &count);
    for (size_t i = 0; i < count; i++)
        if (records[i].node == SL_TRACE_GROUP)
            cr_expect_eq(records[i].window, next++);
    cr_expect_eq(next, WINDOWS);
}

/* Rank 0's gate for window 0 opens last, rank 1's for window 1. */
static void opposite(struct many_rank *rank)
{
    struct sluice_param_gate gates[WINDOWS];
    seal(rank, 3);
    struct sluice_transfer_options options = many_options(rank);
    options.window_events = 1;
    options.param_gates = gates;
    options.param_gate_count = WINDOWS;
    for (uint32_t p = 0; p < WINDOWS; p++) {
        gates[p] = (struct sluice_param_gate){.param = p, .role = rank->rank};
        cr_assert_eq(sluice_gate_host(rank->runtime, &gates[p].gate), SLUICE_OK);
    }
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    for (uint32_t p = WINDOWS; p-- > 0;)
        if (p != rank->rank)
            open_gate(gates[p].gate);
    many_meet(rank);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_STARTED), 0u);
    cr_expect(many_untouched(rank));
    many_meet(rank);
    if (rank->rank == 0)
        open_gate(gates[0].gate);
    await_windows(rank, 1);
    many_meet(rank);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_WINDOW), 1u);
    many_meet(rank);
    if (rank->rank == 1)
        open_gate(gates[1].gate);
    many_complete(transfer);
    cr_expect(many_holds(rank, 3));
    check_order(rank);
    for (uint32_t p = 0; p < WINDOWS; p++)
        sluice_gate_destroy(gates[p].gate);
    many_drop(rank);
}

Test(world_gates, that_open_in_opposite_order_delay_windows_and_never_reorder_them)
{
    many.options.trace = 1;
    many_run(&many, 2, opposite);
}

static sluice_status broken(void *context, struct sluice_error *error)
{
    (void)context;
    error->status = SLUICE_DEVICE;
    strcpy(error->text, "illegal address");
    return SLUICE_DEVICE;
}

/* Rank 1's consumer fails; rank 0 hears which rank and why, and the next transfer runs. */
static void fails_on_one(struct many_rank *rank)
{
    sluice_gate *gate = NULL;
    seal(rank, 4);
    cr_assert_eq(sluice_gate_query(rank->runtime, broken, NULL, NULL, &gate), SLUICE_OK);
    struct sluice_transfer_options options = many_options(rank);
    options.consumer_gate = rank->rank == 1 ? gate : NULL;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    sluice_status status = sluice_transfer_wait(transfer, UINT64_MAX);
    cr_expect_eq(status, rank->rank == 1 ? SLUICE_DEVICE : SLUICE_PEER_FAILED, "rank %u: %s: %s", rank->rank,
                 sluice_status_name(status), rank->error);
    cr_expect_not_null(strstr(rank->error, "rank 1"), "%s", rank->error);
    cr_expect_not_null(strstr(rank->error, "illegal address"), "%s", rank->error);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_FAILED), 1u);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_RELEASED), 1u);
    cr_expect(many_untouched(rank));
    sluice_transfer_destroy(transfer);
    options.consumer_gate = NULL;
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 4));
    sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(world_gates, that_fail_on_one_rank_are_told_to_all_and_nothing_moves)
{
    many_run(&many, 2, fails_on_one);
}
