/*
 * What a rank does after the loss of another (--recover): joins the next epoch and goes on at the first refit that not
 * all of its ranks had, at the first window of it that not all had.
 *
 * Invariants: a rank is in one epoch at a time; which refit comes next is read once all ranks of the epoch have
 * stopped what they did before, that is after they have sealed together; what goes wrong again and again ends the run.
 */
#include <time.h>

#include "run_rank.h"
#include "runtime/base/clock.h"

#define PATIENCE (30 * SLUICE_SECOND) /* to hear of a loss, and for the others to come */

_Bool run_recover_wanted(const struct rank *rank, sluice_status status)
{
    static const sluice_status follows[] = {SLUICE_PEER_LOST, SLUICE_PEER_FAILED, SLUICE_TRANSPORT,
                                            SLUICE_ABORTED,   SLUICE_UNDECIDED,   SLUICE_TORN,
                                            SLUICE_POISONED,  SLUICE_SYSTEM,      SLUICE_TIMEOUT};
    enum run_recover how = rank->job->options->recover;
    /* Behind a seal it is the deadline of a transfer, and a transfer that misses a rank names it. */
    if (status == SLUICE_TIMEOUT && atomic_load(&rank->sealed) == SEAL_DONE)
        return 0;
    if (rank->recoveries == RUN_EPOCHS - 1)
        return 0;
    if (how == RUN_RECOVER_NOT || (how == RUN_RECOVER_SURVIVORS && rank->runtime == NULL) ||
        run_board_stopped(rank->job->board) != RUN_GO)
        return 0;
    for (size_t i = 0; i < SL_COUNT(follows); i++)
        if (status == follows[i])
            return 1;
    return 0;
}

/* The parent starts the lost rank again, and that begins an epoch. */
static sluice_status await_epoch(struct rank *rank, uint32_t *ret_epoch)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct sluice_error error;
    sl_error_take(&error);
    uint64_t limit = sl_deadline(sl_now(sl_clock_system()), PATIENCE);
    uint32_t epoch;
    while ((epoch = atomic_load(&rank->job->board->epoch)) == rank->place.epoch) {
        sluice_status status = run_rank_stopped(rank);
        if (status != SLUICE_OK || sl_now(sl_clock_system()) > limit) {
            rank->recoveries = RUN_EPOCHS - 1; /* no rank was lost: there is nothing to wait for again */
            return sl_fail_copy(&error);
        }
        SL_IGNORE(nanosleep(&pause, NULL));
    }
    *ret_epoch = epoch;
    return SLUICE_OK;
}

static void leave(struct rank *rank)
{
    atomic_store(&rank->leaving, 1);
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = NULL;
    atomic_store(&rank->sealed, SEAL_PENDING);
    atomic_store(&rank->leaving, 0);
}

static sluice_status join_all(struct rank *rank)
{
    uint32_t epoch = 0;
    sluice_status status = await_epoch(rank, &epoch);
    if (status != SLUICE_OK)
        return status;
    leave(rank);
    rank->place.epoch = epoch;
    rank->place.gathers = 0;
    rank->place.late = 0;
    return run_rank_open(rank);
}

/* Ranks that are not in the new epoch, also those of whose loss this one has not heard. */
static void mark_left_out(const struct rank *rank)
{
    uint32_t member = 0;
    for (uint32_t r = 0; r < rank->job->board->world; r++) {
        if (r == sluice_runtime_origin(rank->runtime, member))
            member++;
        else
            atomic_store(&rank->job->board->seats[r].lost, 1);
    }
}

static sluice_status join_survivors(struct rank *rank)
{
    sluice_runtime *runtime = NULL;
    atomic_store(&rank->leaving, 1);
    sluice_status status = sluice_runtime_recover(rank->runtime, PATIENCE, &runtime);
    atomic_store(&rank->leaving, 0);
    if (status != SLUICE_OK)
        return status;
    leave(rank);
    rank->runtime = runtime;
    mark_left_out(rank);
    return SLUICE_OK;
}

static sluice_status replace_plan(struct rank *rank)
{
    sluice_plan *plan = NULL;
    sluice_status status = sluice_plan_recover(rank->whole, rank->runtime, &plan);
    if (status != SLUICE_OK)
        return status;
    if (rank->plan != rank->whole)
        sluice_plan_destroy(rank->plan);
    rank->plan = plan;
    return SLUICE_OK;
}

void run_recover_begin(struct rank *rank)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < sluice_runtime_world(rank->runtime); i++) {
        uint32_t done = atomic_load(&rank->job->board->seats[sluice_runtime_origin(rank->runtime, i)].done);
        next = done < next ? done : next;
    }
    rank->next = next;
    rank->resume = 1;
}

sluice_status run_recover(struct rank *rank)
{
    rank->recoveries++;
    sluice_status status = rank->job->options->recover == RUN_RECOVER_ALL ? join_all(rank) : join_survivors(rank);
    if (status == SLUICE_OK)
        status = replace_plan(rank);
    if (status == SLUICE_OK)
        status = run_rank_seal(rank);
    if (status == SLUICE_OK)
        run_recover_begin(rank);
    return status;
}
