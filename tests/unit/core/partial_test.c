/* Transfers of a part of the parameters: by list, by what changed; and digests that catch a byte lost on the way. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/hash.h"
#include "support/many.h"

static struct many many;

enum { PARAMS = 6, BYTES = 48 * 1024 };

static struct sluice_seal_options small_windows(uint64_t shadow_bytes)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = 32 * 1024;
    options.shadow_bytes = shadow_bytes;
    return options;
}

static struct sluice_progress run(struct many_rank *rank, const struct sluice_transfer_options *options,
                                  sluice_status expected)
{
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    cr_assert_eq(sluice_submit(rank->plan, options, &transfer), SLUICE_OK, "%s", sluice_last_error()->text);
    sluice_status status = sluice_transfer_wait(transfer, 20 * SLUICE_SECOND);
    cr_assert_eq(status, expected, "%s", status == SLUICE_OK ? "it ended well" : sluice_last_error()->text);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    return progress;
}

/* Whether a destination holds the content that many_fill gives it, or the poison. */
static _Bool is_poison(const struct many_rank *rank, uint32_t param)
{
    const uint8_t *bytes = rank->buffers[2 * param + 1];
    for (uint64_t i = 0; bytes != NULL && i < rank->bytes[2 * param + 1]; i++)
        if (bytes[i] != 0xee)
            return 0;
    return 1;
}

static void take_two(struct many_rank *rank)
{
    static const uint64_t wanted = 1u << 1 | 1u << 4;
    struct sluice_seal_options seal = small_windows(0);
    many_plan(rank, 2, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.params = &wanted;
    options.params_words = 1;
    options.param_events = 1;
    struct sluice_progress progress = run(rank, &options, SLUICE_OK);
    cr_expect_eq(progress.bytes_total, 2u * BYTES, "%llu", (unsigned long long)progress.bytes_total);
    cr_expect_eq(progress.bytes_done, progress.bytes_total);
    cr_expect_eq(progress.windows_done, sluice_plan_windows(rank->plan));
    for (uint32_t p = 0; p < PARAMS && rank->rank >= 2; p++)
        cr_expect_eq(is_poison(rank, p), !(wanted >> p & 1u), "parameter %u", p);
    cr_expect_eq(progress.params_total, rank->rank < 2 ? 0u : 2u);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_PARAM), rank->rank < 2 ? 0u : 2u);
    options.params = NULL; /* the whole plan again: nothing of the cut is left behind */
    options.param_events = 0;
    run(rank, &options, SLUICE_OK);
    cr_expect(many_holds(rank, 5));
    many_drop(rank);
}

Test(partial, list_moves_its_parameters_and_leaves_the_others)
{
    many_run(&many, 4, take_two);
}

static void take_in_shadow(struct many_rank *rank)
{
    static const uint64_t wanted = 1u << 2;
    struct sluice_seal_options seal = small_windows(2 * PARAMS * BYTES);
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.params = &wanted;
    options.params_words = 1;
    options.version = 7;
    run(rank, &options, SLUICE_OK);
    cr_expect_eq(sluice_version(rank->plan), 7u);
    for (uint32_t p = 0; p < PARAMS && rank->rank >= 1; p++)
        cr_expect_eq(is_poison(rank, p), p != 2, "parameter %u", p);
    many_drop(rank);
}

Test(partial, list_commits_from_shadow)
{
    many_run(&many, 3, take_in_shadow);
}

static void nothing(struct many_rank *rank)
{
    static const uint64_t wanted = 0;
    struct sluice_seal_options seal = small_windows(2 * PARAMS * BYTES);
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.params = &wanted;
    options.params_words = 1;
    struct sluice_progress progress = run(rank, &options, SLUICE_OK);
    cr_expect_eq(progress.bytes_done, 0u);
    cr_expect(many_untouched(rank));
    options.params_words = 0;
    sluice_transfer *transfer = NULL;
    cr_expect_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_INVALID);
    many_drop(rank);
}

Test(partial, list_may_be_empty_but_not_too_short)
{
    many_run(&many, 2, nothing);
}

static void lists_differ(struct many_rank *rank)
{
    uint64_t wanted = rank->rank + 1;
    struct sluice_seal_options seal = small_windows(0);
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.params = &wanted;
    options.params_words = 1;
    run(rank, &options, SLUICE_MISMATCH);
    cr_expect(many_untouched(rank));
    many_drop(rank);
}

Test(partial, lists_that_differ_between_ranks_move_nothing)
{
    many_run(&many, 2, lists_differ);
}

/* --- what changed: two sources send half a parameter to each of two destinations, so BYTES a rank --- */

static void change(struct many_rank *rank, uint32_t source, uint32_t param)
{
    if (rank->rank == source)
        rank->buffers[2 * param][77] ^= 0x5a;
}

static void only_changed(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(0);
    many_plan(rank, 2, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.changed_only = 1;
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, (uint64_t)PARAMS * BYTES); /* nothing is known yet */
    cr_expect(many_holds(rank, 5));
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, 0u);
    change(rank, 1, 3); /* one source of two */
    many_meet(rank);
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, (uint64_t)BYTES);
    if (rank->rank >= 2)
        cr_expect(!many_holds(rank, 5));
    change(rank, 1, 3);
    change(rank, 0, 0);
    change(rank, 0, 0);
    many_meet(rank);
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, (uint64_t)BYTES);
    cr_expect(many_holds(rank, 5));
    cr_expect_eq(sluice_version(rank->plan), 4u);
    many_drop(rank);
}

Test(partial, changed_only_sends_what_differs_on_any_rank)
{
    many_run(&many, 4, only_changed);
}

static void after_a_rebind(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(0);
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.changed_only = 1;
    run(rank, &options, SLUICE_OK);
    if (rank->rank == 1) {
        uint8_t *fresh = malloc(BYTES);
        cr_assert_not_null(fresh);
        memset(fresh, 0xee, BYTES);
        cr_assert_eq(sluice_plan_rebind(rank->plan, 2, SLUICE_ROLE_DESTINATION, fresh, BYTES), SLUICE_OK);
        free(rank->buffers[2 * 2 + 1]);
        rank->buffers[2 * 2 + 1] = fresh;
    }
    many_meet(rank);
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, (uint64_t)BYTES);
    cr_expect(many_holds(rank, 5));
    many_drop(rank);
}

Test(partial, changed_only_sends_what_a_rebound_destination_lacks)
{
    many_run(&many, 2, after_a_rebind);
}

/* Rank 0's source may not be read until its gate opens; a cancel meanwhile ends all, and the next one sends all. */
static void cancelled_early(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(0);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = many_options(rank);
    options.changed_only = 1;
    options.source_gate = gate;
    cr_assert_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_OK);
    cr_expect_eq(sluice_transfer_wait(transfer, 20 * SLUICE_MILLISECOND), SLUICE_TIMEOUT);
    many_meet(rank);
    if (rank->rank == 1)
        sluice_transfer_cancel(transfer);
    cr_assert_eq(sluice_transfer_wait(transfer, 20 * SLUICE_SECOND), SLUICE_CANCELLED);
    sluice_transfer_destroy(transfer);
    cr_expect(many_untouched(rank));
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_expect_eq(run(rank, &options, SLUICE_OK).bytes_done, (uint64_t)PARAMS * BYTES);
    cr_expect(many_holds(rank, 5));
    sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(partial, changed_only_may_be_cancelled_before_its_sources_are_read)
{
    many_run(&many, 2, cancelled_early);
}

/* Nothing is staged ahead of the decision, so STAGED is told before it is known what changed. */
static void torn_changes(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(1);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 5);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.allow_torn = options.changed_only = options.window_events = options.param_events = 1;
    options.source_gate = gate;
    cr_assert_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_OK);
    cr_expect_eq(sluice_transfer_wait(transfer, 20 * SLUICE_MILLISECOND), SLUICE_TIMEOUT);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    sluice_gate_destroy(gate);
    many_complete(transfer);
    cr_expect(many_holds(rank, 5));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_STAGED), 1u);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_WINDOW), sluice_plan_windows(rank->plan));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_PARAM), rank->rank == 0 ? 0u : (uint32_t)PARAMS);
    many_drop(rank);
}

Test(partial, changed_only_tells_all_events_where_nothing_is_staged)
{
    many_run(&many, 2, torn_changes);
}

/* --- digests --- */

static void verified(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(many.context != NULL ? 2 * PARAMS * BYTES : 0);
    seal.direct_min = 8192;
    many_plan(rank, 2, PARAMS, BYTES);
    many_fill(rank, 6);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.verify = 1;
    options.landing = many.context != NULL ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    for (int i = 0; i < 3; i++)
        run(rank, &options, SLUICE_OK);
    cr_expect(many_holds(rank, 6));
    cr_expect_eq(sluice_version(rank->plan), 3u);
    many_drop(rank);
}

Test(digests, of_what_arrived_whole_add_up_in_place)
{
    many.context = NULL;
    many_run(&many, 4, verified);
}

Test(digests, of_what_arrived_whole_add_up_in_shadow)
{
    many.context = &many;
    many_run(&many, 4, verified);
}

/* --- memory that groups do not take --- */

static struct sluice_backend_ops choosy;
static _Atomic uint32_t direct_messages, staged_messages;
static _Atomic int takes_all;

static uint32_t choosy_is_direct(struct sluice_device *device, uint64_t address)
{
    (void)device, (void)address;
    return (uint32_t)takes_all;
}

static sluice_status choosy_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    for (uint32_t i = 0; op->kind == SLUICE_OP_GROUP && i < op->message_count; i++)
        if (op->messages[i].staged)
            staged_messages++;
        else
            direct_messages++;
    return sl_host_backend()->submit(queue, op);
}

static void choosy_ranks(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(2 * PARAMS * BYTES);
    seal.direct_min = 1;
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 6);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = many.context != NULL ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    run(rank, &options, SLUICE_OK);
    cr_expect(many_holds(rank, 6));
    many_drop(rank);
}

static void run_choosy(uint32_t rank, int all)
{
    choosy = *sl_host_backend();
    choosy.is_direct = choosy_is_direct;
    choosy.submit = choosy_submit;
    takes_all = all;
    direct_messages = staged_messages = 0;
    many.backends[rank] = &choosy;
    many_run(&many, 2, choosy_ranks);
}

Test(direct, pieces_in_memory_that_groups_do_not_take_are_staged_at_that_end)
{
    run_choosy(0, 1);
    uint32_t all = direct_messages;
    cr_assert_gt(all, 0);
    cr_assert_eq(staged_messages, 0);
    run_choosy(0, 0);
    cr_assert_eq(direct_messages, 0);
    cr_assert_eq(staged_messages, all);
}

Test(direct, they_are_received_through_staging_into_shadow_too)
{
    many.context = &many;
    run_choosy(1, 0);
    cr_assert_eq(direct_messages, 0);
    cr_assert_gt(staged_messages, 0);
}

/* A wire that loses one byte: the last byte of a message's first piece becomes its first. */
static struct sluice_backend_ops faulty;
static _Atomic int faults;

static sluice_status faulty_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                                     const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    if (kind != SLUICE_COPY_UNPACK || pieces[0].param != 3 || faults-- <= 0)
        return sl_host_backend()->set_open(device, kind, pieces, count, ret);
    struct sluice_copy *copy = calloc(count + 1, sizeof *copy);
    cr_assert_not_null(copy);
    memcpy(copy, pieces, count * sizeof *copy);
    copy[0].bytes--;
    copy[count] = pieces[0];
    copy[count].bytes = 1;
    copy[count].to.begin += pieces[0].bytes - 1;
    sluice_status status = sl_host_backend()->set_open(device, kind, copy, count + 1, ret);
    free(copy);
    return status;
}

static void faulty_wire(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows(2 * PARAMS * BYTES);
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 6);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.verify = 1;
    options.version = 9;
    run(rank, &options, SLUICE_CORRUPT);
    cr_expect_not_null(strstr(rank->error, "parameter 3 (weight)"), "%s", rank->error);
    cr_expect(many_untouched(rank));
    cr_expect_eq(sluice_version(rank->plan), 0u);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_STAGED), 0u);
    many_drop(rank);
}

Test(digests, catch_one_byte_lost_on_the_wire_and_name_its_parameter)
{
    faulty = *sl_host_backend();
    faulty.set_open = faulty_set_open;
    many.backends[0] = many.backends[1] = &faulty;
    faults = 100;
    many_run(&many, 2, faulty_wire);
}
