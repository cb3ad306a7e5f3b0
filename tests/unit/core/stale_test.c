/*
 * The stale copy: a producer is late, in time, and the transfer was submitted before it began. What arrives is
 * what it wrote, for single and packed messages and for local copies; and nothing arrives before the consumer
 * has let go of the old version.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/error.h"
#include "support/many.h"

enum { REMOTE = 0, LOCAL = 1, TASKS = 2, BYTES = 48 * 1024, OLD = 3, NEW = 7, UNTOUCHED = 0xee };

static struct many many;
static uint8_t source[TASKS][BYTES], remote[BYTES], local[BYTES];

struct late {
    sluice_gate *gate;
    const uint8_t *watched; /* a consumer's buffer, old until its gate opens; NULL: a producer */
};

static void *be_late(void *context)
{
    struct late *late = context;
    const struct timespec delay = {.tv_nsec = 50 * 1000 * 1000}; /* the application's own time */
    nanosleep(&delay, NULL);
    if (late->watched == NULL)
        memset(source, NEW, sizeof source);
    for (size_t i = 0; late->watched != NULL && i < BYTES; i++)
        cr_assert_eq(late->watched[i], UNTOUCHED, "byte %zu", i);
    cr_assert_eq(sluice_gate_open(late->gate), SLUICE_OK);
    return NULL;
}

/* Rank 0 sends one parameter to rank 1 and copies another to itself. */
static void make_plan(struct many_rank *rank)
{
    cr_assert_eq(sluice_plan_create(2, &rank->plan), SLUICE_OK);
    for (uint32_t p = 0; p < TASKS; p++) {
        const struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "weight"};
        const struct sluice_region whole = {.row_bytes = BYTES, .rows = 1, .pitch = BYTES};
        const struct sluice_task task = {.id = p,
                                         .destination = p == REMOTE,
                                         .param = p,
                                         .from = whole,
                                         .to = whole,
                                         .source_dtype = SLUICE_DTYPE_U8,
                                         .destination_dtype = SLUICE_DTYPE_U8};
        cr_assert_eq(sluice_plan_add_param(rank->plan, &param), SLUICE_OK);
        cr_assert_eq(sluice_plan_add_task(rank->plan, &task), SLUICE_OK);
    }
    for (uint32_t p = 0; p < TASKS && rank->rank == 0; p++)
        cr_assert_eq(sluice_plan_bind(rank->plan, p, SLUICE_ROLE_SOURCE, source[p], BYTES), SLUICE_OK);
    if (rank->rank == 0)
        cr_assert_eq(sluice_plan_bind(rank->plan, LOCAL, SLUICE_ROLE_DESTINATION, local, BYTES), SLUICE_OK);
    else
        cr_assert_eq(sluice_plan_bind(rank->plan, REMOTE, SLUICE_ROLE_DESTINATION, remote, BYTES), SLUICE_OK);
}

/* What a test varies. */
struct setup {
    uint64_t direct_min;
    _Bool late_consumer;
};

static void refit(struct many_rank *rank)
{
    const struct setup *setup = rank->many->context;
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_transfer_options options = many_options(rank);
    struct late late = {0};
    pthread_t thread;
    seal.window_bytes = BYTES / 4;
    seal.direct_min = setup->direct_min;
    make_plan(rank);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &late.gate), SLUICE_OK);
    uint8_t *destination = rank->rank == 0 ? local : remote;
    const _Bool gated = setup->late_consumer || rank->rank == 0;
    if (setup->late_consumer) {
        late.watched = destination;
        options.consumer_gate = late.gate;
    } else if (gated) {
        options.source_gate = late.gate;
    }
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    if (gated)
        cr_assert_eq(pthread_create(&thread, NULL, be_late, &late), 0);
    many_complete(transfer);
    for (size_t i = 0; i < BYTES; i++)
        cr_assert_eq(destination[i], 7, "rank %u: byte %zu is %u", rank->rank, i, destination[i]);
    if (gated)
        cr_assert_eq(pthread_join(thread, NULL), 0);
    sluice_gate_destroy(late.gate);
    sluice_plan_destroy(rank->plan);
}

static void run(uint64_t direct_min, _Bool late_consumer)
{
    struct setup setup = {direct_min, late_consumer};
    memset(source, late_consumer ? NEW : OLD, sizeof source);
    memset(remote, UNTOUCHED, sizeof remote);
    memset(local, UNTOUCHED, sizeof local);
    many.context = &setup;
    many_run(&many, 2, refit);
}

Test(stale, packed_messages_and_local_copies_wait_for_a_late_producer)
{
    run(0, 0);
}

Test(stale, single_messages_wait_for_a_late_producer)
{
    run(1, 0);
}

Test(stale, packed_messages_and_local_copies_wait_for_a_late_consumer)
{
    run(0, 1);
}

Test(stale, single_messages_wait_for_a_late_consumer)
{
    run(1, 1);
}
