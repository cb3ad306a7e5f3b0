/*
 * Packing runs beside the wire: the receiver takes its group of a window only when the sender has packed as many
 * windows ahead as its slots allow, so that every group is on the wire until then. A sender that does not pack ahead
 * is waited for in vain, and that is counted.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/core/trace.h"
#include "support/many.h"

enum { PARAMS = 20, BYTES = 1 << 20, WINDOWS = 20 };
#define LIMIT (10 * SLUICE_SECOND)

static struct many many;
static uint32_t slots;

/* The sender's copies are packs. By its scheduler thread alone, but for `packed`. */
static struct {
    uint64_t cookies[WINDOWS];
    uint32_t submitted;
    atomic_uint packed;
} sender;

/* By the receiver's scheduler thread alone. */
static struct {
    uint64_t offered; /* when its next group was, first */
    uint32_t taken;   /* groups */
    uint32_t in_vain; /* groups that were taken though the sender did not pack ahead */
} receiver;

static sluice_status submit_and_note(struct sluice_queue *queue, const struct sluice_op *op)
{
    sluice_status status = sl_host_backend()->submit(queue, op);
    if (status == SLUICE_OK && op->kind == SLUICE_OP_COPY && sender.submitted < WINDOWS)
        sender.cookies[sender.submitted++] = op->cookie;
    return status;
}

static sluice_status poll_and_count(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                                    uint32_t *ret_count)
{
    sluice_status status = sl_host_backend()->poll(device, ret, max, ret_count);
    for (uint32_t i = 0; status == SLUICE_OK && i < *ret_count; i++)
        for (uint32_t k = 0; k < sender.submitted; k++)
            if (ret[i].cookie == sender.cookies[k])
                atomic_fetch_add(&sender.packed, 1);
    return status;
}

/* The host backend, but a group is taken when the sender has packed ahead. */
static sluice_status submit_late(struct sluice_queue *queue, const struct sluice_op *op)
{
    if (op->kind != SLUICE_OP_GROUP)
        return sl_host_backend()->submit(queue, op);
    uint64_t now = sl_now(sl_clock_system());
    uint32_t ahead = receiver.taken + slots < WINDOWS ? receiver.taken + slots : WINDOWS;
    receiver.offered = receiver.offered != 0 ? receiver.offered : now;
    _Bool packed = atomic_load(&sender.packed) >= ahead;
    if (!packed && receiver.in_vain == 0 && now - receiver.offered < LIMIT)
        return SLUICE_AGAIN;
    sluice_status status = sl_host_backend()->submit(queue, op);
    if (status != SLUICE_OK)
        return status;
    receiver.in_vain += !packed;
    receiver.taken++;
    receiver.offered = 0;
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

/* With S slots, window k + S - 1 is packed before group k has left the wire. */
static void check_overlap(const struct many_rank *rank)
{
    struct span pack[WINDOWS], group[WINDOWS];
    spans_of(rank, SL_TRACE_PACK, pack);
    spans_of(rank, SL_TRACE_GROUP, group);
    for (uint32_t k = 0; k + slots - 1 < WINDOWS; k++)
        cr_expect_lt(pack[k + slots - 1].end, group[k].end, "window %u", k);
    cr_expect_eq(receiver.in_vain, 0u, "%u groups of %u were waited for in vain", receiver.in_vain, WINDOWS);
}

static void traced(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.slots = slots;
    seal.window_bytes = BYTES;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 1);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_plan_windows(rank->plan), WINDOWS);
    struct sluice_transfer_options options = many_options(rank);
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 1));
    if (rank->rank == 0)
        check_overlap(rank);
    many_drop(rank);
}

static void run(uint32_t count)
{
    struct sluice_backend_ops noted = *sl_host_backend(), late = *sl_host_backend();
    noted.submit = submit_and_note;
    noted.poll = poll_and_count;
    late.submit = submit_late;
    slots = count;
    many.backends[0] = &noted;
    many.backends[1] = &late;
    many.options.trace = 1;
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
