/*
 * runtime_stress.c: two ranks in one process, two plans each that are submitted in opposite order, and a
 * thread beside each rank that watches, pauses, cancels and opens gates. For the thread sanitizer.
 *
 * Every transfer ends in success or in a cancel, alike on both ranks; after success every byte is right;
 * no event comes after destroy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "support/many.h"

enum { ROUNDS = 60, PARAMS = 4, BYTES = 24 * 1024, PLANS = 2 };

/* What a rank's own thread and the one beside it share. */
struct shared {
    struct many_rank *rank;
    pthread_mutex_t lock;
    sluice_transfer *transfers[PLANS];
    sluice_gate *gates[PLANS];
    _Bool stop;
    uint64_t seed;
};

static struct many many;
static uint32_t outcomes[MANY_RANKS][ROUNDS][PLANS];

static void meddle(struct shared *shared, struct sl_random *random)
{
    uint32_t which = (uint32_t)sl_random_below(random, PLANS);
    sluice_transfer *transfer = shared->transfers[which];
    struct sluice_progress progress = {.size = sizeof progress};
    char words[512];
    if (transfer == NULL)
        return;
    switch (sl_random_below(random, 8)) {
    case 0:
        SL_IGNORE(sluice_transfer_explain(transfer, words, sizeof words) == 0);
        break;
    case 1:
        sluice_transfer_pause(transfer);
        sluice_transfer_resume(transfer);
        break;
    case 2:
        if (sl_random_below(random, 16) == 0)
            sluice_transfer_cancel(transfer);
        break;
    case 3:
        sluice_transfer_set_pace(transfer, 0);
        break;
    case 4:
    case 5:
        SL_ASSERT(sluice_gate_open(shared->gates[which]) == SLUICE_OK);
        break;
    default:
        SL_ASSERT(sluice_transfer_progress(transfer, &progress) == SLUICE_OK);
        SL_ASSERT(progress.windows_done <= progress.windows_total);
    }
}

static void *beside(void *context)
{
    struct shared *shared = context;
    struct sl_random random = {shared->seed};
    _Bool stop = 0;
    while (!stop) {
        pthread_mutex_lock(&shared->lock);
        stop = shared->stop;
        meddle(shared, &random);
        pthread_mutex_unlock(&shared->lock);
        sched_yield();
    }
    return NULL;
}

static void submit_one(struct shared *shared, struct many_rank *plan, uint32_t which)
{
    struct sluice_transfer_options options = many_options(shared->rank);
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    SL_ASSERT(sluice_gate_host(shared->rank->runtime, &gate) == SLUICE_OK);
    options.source_gate = gate;
    options.consumer_gate = gate;
    options.window_events = options.param_events = 1;
    /* The second plan lands after a decision that nothing was staged for, and asks what changed: everything. */
    options.landing = which == 1 ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    options.allow_torn = options.changed_only = which == 1;
    SL_ASSERT(sluice_submit(plan->plan, &options, &transfer) == SLUICE_OK);
    pthread_mutex_lock(&shared->lock);
    shared->transfers[which] = transfer;
    shared->gates[which] = gate;
    pthread_mutex_unlock(&shared->lock);
}

static uint32_t finish_one(struct shared *shared, uint32_t which)
{
    sluice_transfer *transfer = shared->transfers[which];
    sluice_status status = sluice_transfer_wait(transfer, UINT64_MAX);
    if (status != SLUICE_OK && status != SLUICE_CANCELLED)
        fprintf(stderr, "rank %u: %s\n", shared->rank->rank, sluice_last_error()->text);
    SL_ASSERT(status == SLUICE_OK || status == SLUICE_CANCELLED);
    pthread_mutex_lock(&shared->lock);
    shared->transfers[which] = NULL;
    pthread_mutex_unlock(&shared->lock);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(shared->gates[which]);
    return status == SLUICE_OK ? 1 : 2;
}

static void one_round(struct shared *shared, struct many_rank *const *plans, uint32_t round)
{
    uint32_t rank = shared->rank->rank;
    for (uint32_t i = 0; i < PLANS; i++)
        many_fill(plans[i], round * PLANS + i);
    many_meet(shared->rank);
    for (uint32_t i = 0; i < PLANS; i++) {
        uint32_t which = rank % 2 == 0 ? i : PLANS - 1 - i;
        submit_one(shared, plans[which], which);
    }
    for (uint32_t i = 0; i < PLANS; i++) {
        outcomes[rank][round][i] = finish_one(shared, i);
        SL_ASSERT(outcomes[rank][round][i] == 2 || many_holds(plans[i], round * PLANS + i));
    }
}

static void work(struct many_rank *rank)
{
    struct shared shared = {.rank = rank, .lock = PTHREAD_MUTEX_INITIALIZER, .seed = rank->rank + 1};
    struct many_rank second = {.many = rank->many, .rank = rank->rank, .runtime = rank->runtime};
    struct many_rank *const plans[PLANS] = {rank, &second};
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    pthread_t thread;
    seal.window_bytes = 16 * 1024;
    for (uint32_t i = 0; i < PLANS; i++) {
        seal.shadow_bytes = i;
        many_plan(plans[i], 1, PARAMS, BYTES);
        many_seal(plans[i], &seal);
    }
    SL_ASSERT(pthread_create(&thread, NULL, beside, &shared) == 0);
    for (uint32_t round = 0; round < ROUNDS; round++)
        one_round(&shared, plans, round);
    pthread_mutex_lock(&shared.lock);
    shared.stop = 1;
    pthread_mutex_unlock(&shared.lock);
    SL_ASSERT(pthread_join(thread, NULL) == 0);
    many_drop(&second);
    many_drop(rank);
}

int main(void)
{
    uint32_t completed = 0;
    many_run(&many, 2, work);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < PLANS; i++) {
            SL_ASSERT(outcomes[0][round][i] == outcomes[1][round][i]);
            completed += outcomes[0][round][i] == 1;
        }
    printf("%u of %d transfers completed, the others were cancelled\n", completed, ROUNDS * PLANS);
    return 0;
}
