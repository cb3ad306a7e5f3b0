/*
 * Packing runs beside the wire: read from the trace of a sender whose groups stay on the wire, because the
 * receiver posts each of its own late.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/core/trace.h"
#include "support/many.h"

enum { PARAMS = 20, BYTES = 1 << 20, WINDOWS = 20 };
#define HOLD (20 * SLUICE_MILLISECOND)

static struct many many;
static uint64_t held_since; /* by the receiver's scheduler thread alone */

/* The host backend, but every group is taken HOLD after it was first offered. */
static sluice_status submit_late(struct sluice_queue *queue, const struct sluice_op *op)
{
    uint64_t now = sl_now(sl_clock_system());
    if (op->kind != SLUICE_OP_GROUP)
        return sl_host_backend()->submit(queue, op);
    if (held_since == 0)
        held_since = now;
    if (now - held_since < HOLD)
        return SLUICE_AGAIN;
    sluice_status status = sl_host_backend()->submit(queue, op);
    if (status != SLUICE_AGAIN)
        held_since = 0;
    return status;
}

struct span {
    uint64_t begin, end;
};

/* The spans of a node, by window; every window has one. */
static void spans_of(const struct many_rank *rank, enum sl_trace_node node, struct span *ret)
{
    size_t count = 0, found = 0;
    const struct sl_trace_record *records = sl_runtime_trace(rank->runtime, &count);
    for (size_t i = 0; i < count; i++) {
        if (records[i].node != node)
            continue;
        cr_assert_lt(records[i].window, WINDOWS);
        ret[records[i].window] = (struct span){records[i].begin_ns, records[i].end_ns};
        found++;
    }
    cr_assert_eq(found, WINDOWS);
}

/* With S slots the packing that a group on the wire leaves room for is that of window k + S - 1. */
static void check_overlap(const struct many_rank *rank, uint32_t slots)
{
    struct span pack[WINDOWS], group[WINDOWS];
    uint32_t beside = 0, ready = 0, pairs = WINDOWS - (slots - 1);
    spans_of(rank, SL_TRACE_PACK, pack);
    spans_of(rank, SL_TRACE_GROUP, group);
    for (uint32_t k = 0; k + 1 < WINDOWS; k++)
        ready += pack[k + 1].end < group[k].end;
    for (uint32_t k = 0; k < pairs; k++) {
        const struct span *later = &pack[k + slots - 1];
        beside += later->begin < group[k].end && later->end > group[k].begin;
    }
    cr_expect_geq(ready * 100, (WINDOWS - 1) * 80, "pack(k+1) was done before group(k) for %u of %u", ready,
                  WINDOWS - 1);
    cr_expect_geq(beside * 100, pairs * 80, "pack(k+%u) ran beside group(k) for %u of %u", slots - 1, beside, pairs);
}

static void traced(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.slots = *(uint32_t *)rank->many->context;
    seal.window_bytes = BYTES;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 1);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_plan_windows(rank->plan), WINDOWS);
    struct sluice_transfer_options options = many_options(rank);
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 1));
    if (rank->rank == 0)
        check_overlap(rank, seal.slots);
    many_drop(rank);
}

static void run(uint32_t slots)
{
    struct sluice_backend_ops late = *sl_host_backend();
    late.submit = submit_late;
    many.backends[1] = &late;
    many.options.trace = 1;
    many.context = &slots;
    many_run(&many, 2, traced);
}

Test(overlap, packs_the_next_window_while_a_group_is_on_the_wire)
{
    run(2);
}

Test(overlap, packs_two_windows_ahead_with_three_slots)
{
    run(3);
}
