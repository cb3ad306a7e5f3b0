/*
 * Two runtimes in one process over the same devices, on every rank, which starts their transfers in another
 * order than the other: neither waits for the other for ever, and each moves its own bytes.
 */
#include <criterion/criterion.h>
#include <pthread.h>

#include "support/many.h"

enum { RANKS = 2, RUNTIMES = 2, PLANS = 50, PARAMS = 4, BYTES = 16 * 1024 };

static struct many many[RUNTIMES];
static pthread_barrier_t turns[RANKS];

static void meet(pthread_barrier_t *barrier)
{
    int code = pthread_barrier_wait(barrier);
    cr_assert(code == 0 || code == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* On rank 0 runtime 0 submits first, on rank 1 runtime 1 does; then both run. */
static sluice_transfer *submit_in_turn(struct many_rank *rank, uint32_t runtime)
{
    struct sluice_transfer_options options = many_options(rank);
    if (runtime != rank->rank)
        meet(&turns[rank->rank]);
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    if (runtime == rank->rank)
        meet(&turns[rank->rank]);
    return transfer;
}

static void refit(struct many_rank *rank)
{
    const uint32_t runtime = rank->many == &many[1];
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.window_bytes = BYTES;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    for (uint64_t i = 0; i < PLANS; i++) {
        many_fill(rank, 100 * i + runtime);
        many_meet(rank);
        sluice_transfer *transfer = submit_in_turn(rank, runtime);
        cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
        cr_expect(many_holds(rank, 100 * i + runtime), "transfer %u of runtime %u", (unsigned)i, runtime);
        sluice_transfer_destroy(transfer);
    }
    cr_expect_eq(sluice_version(rank->plan), (uint64_t)PLANS);
    many_drop(rank);
}

static void *run(void *context)
{
    many_run(context, RANKS, refit);
    return NULL;
}

Test(side_by_side, runtimes_that_are_used_in_opposite_order_both_finish)
{
    pthread_t threads[RUNTIMES];
    for (uint32_t r = 0; r < RANKS; r++)
        cr_assert_eq(pthread_barrier_init(&turns[r], NULL, RUNTIMES), 0);
    for (uint32_t i = 0; i < RUNTIMES; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run, &many[i]), 0);
    for (uint32_t i = 0; i < RUNTIMES; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_barrier_destroy(&turns[r]);
}
