/*
 * transfer.c: the public functions of a transfer.
 *
 * Invariants: submit allocates all that the run needs and blocks on nothing but the plan's short lock;
 * what an application asks of a running transfer goes to the scheduler thread as bits, so that asking
 * twice is asking once; the caller's handle is one reference, the driver's another.
 */
#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

/* A place among the live transfers, or AGAIN. */
static sluice_status take_place(struct sluice_runtime *runtime)
{
    uint_fast32_t most = runtime->options.transfers_max;
    if (atomic_fetch_add_explicit(&runtime->live, 1, memory_order_acq_rel) < most)
        return SLUICE_OK;
    atomic_fetch_sub_explicit(&runtime->live, 1, memory_order_acq_rel);
    return sl_fail(SLUICE_AGAIN, "submit",
                   "%u transfers are pending: submit again when a RELEASED event was delivered, or raise "
                   "transfers_max",
                   runtime->options.transfers_max);
}

static void give_place(struct sluice_runtime *runtime)
{
    atomic_fetch_sub_explicit(&runtime->live, 1, memory_order_acq_rel);
}

/* With a place taken and the plan's lock held. */
static sluice_status start(struct sluice_plan *plan, struct sl_sealed *sealed,
                           const struct sluice_transfer_options *options, void *const *stream,
                           struct sluice_transfer **ret)
{
    struct sluice_transfer *transfer = NULL;
    sluice_status status = stream != NULL ? sl_direct_check(sealed, options) : SLUICE_OK;
    if (status == SLUICE_OK)
        status = sl_transfer_prepare(plan, sealed, options, &transfer);
    if (status != SLUICE_OK)
        return status;
    if (stream != NULL && (status = sl_direct_enqueue(transfer, *stream)) != SLUICE_OK) {
        sl_transfer_release(transfer);
        return status;
    }
    transfer->submitted_ns = sl_now(sealed->runtime->clock);
    sl_transfer_keep(transfer); /* the driver's */
    /* Only now: a submit that was refused takes no number, so that the ranks go on numbering alike. */
    sealed->next_run++;
    sealed->last_version = transfer->config.version;
    sealed->live++;
    sealed->direct += transfer->after != NULL;
    struct sluice_transfer *before = *ret;
    *ret = transfer; /* before a callback can run */
    if (sl_runtime_post(sealed->runtime, &transfer->submit))
        return SLUICE_OK;
    *ret = before;
    sealed->live--;
    sealed->direct -= transfer->after != NULL;
    sl_transfer_drop_gates(transfer);
    sl_transfer_release(transfer);
    sl_transfer_release(transfer);
    return sl_fail(SLUICE_CLOSED, "submit", "the runtime is closed");
}

static sluice_status submit_locked(struct sluice_plan *plan, const struct sluice_transfer_options *options,
                                   void *const *stream, struct sluice_transfer **ret)
{
    struct sl_sealed *sealed = plan->sealed;
    if (sealed == NULL || atomic_load(&plan->state) != SL_PLAN_SEALED)
        return sl_fail(SLUICE_STATE, "submit", "the plan is not sealed, or its runtime has closed");
    struct sluice_runtime *runtime = sealed->runtime;
    sluice_status status = sl_runtime_check_live(runtime, "submit");
    if (status == SLUICE_OK)
        status = take_place(runtime);
    if (status != SLUICE_OK)
        return status;
    status = start(plan, sealed, options, stream, ret);
    if (status != SLUICE_OK)
        give_place(runtime);
    return status;
}

sluice_status sl_submit(struct sluice_plan *plan, const struct sluice_transfer_options *options, void *const *stream,
                        struct sluice_transfer **ret_transfer)
{
    static const struct sluice_transfer_options none = SLUICE_TRANSFER_OPTIONS_INIT;
    if (plan == NULL || ret_transfer == NULL)
        return sl_fail(SLUICE_INVALID, "submit", "a plan and a place for the transfer are needed");
    sluice_status status = sl_plan_check(plan, "submit");
    if (status != SLUICE_OK)
        return status;
    pthread_mutex_lock(&plan->lock);
    status = submit_locked(plan, options != NULL ? options : &none, stream, ret_transfer);
    pthread_mutex_unlock(&plan->lock);
    return status;
}

sluice_status sluice_submit(sluice_plan *plan, const struct sluice_transfer_options *options,
                            sluice_transfer **ret_transfer)
{
    return sl_submit(plan, options, NULL, ret_transfer);
}

/* Sets bits and clears others, and wakes the scheduler thread. */
static void ask(struct sluice_transfer *transfer, unsigned set, unsigned clear)
{
    if (transfer == NULL || sl_runtime_check(transfer->runtime, "transfer") != SLUICE_OK)
        return;
    unsigned asked = atomic_load_explicit(&transfer->asked, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&transfer->asked, &asked, (asked & ~clear) | set,
                                                  memory_order_acq_rel, memory_order_relaxed))
        ;
    if (atomic_exchange_explicit(&transfer->ask_posted, 1, memory_order_acq_rel))
        return;
    sl_transfer_keep(transfer);
    if (!sl_runtime_post(transfer->runtime, &transfer->ask))
        sl_transfer_release(transfer);
}

void sluice_transfer_cancel(sluice_transfer *transfer)
{
    if (transfer != NULL && transfer->after != NULL)
        return; /* its copies are in the caller's stream already */
    ask(transfer, SL_ASKED_CANCEL, 0);
}

void sluice_transfer_pause(sluice_transfer *transfer)
{
    ask(transfer, SL_ASKED_PAUSE, SL_ASKED_RESUME);
}

void sluice_transfer_resume(sluice_transfer *transfer)
{
    ask(transfer, SL_ASKED_RESUME, SL_ASKED_PAUSE);
}

void sluice_transfer_set_pace(sluice_transfer *transfer, uint64_t bytes_per_second)
{
    if (transfer == NULL)
        return;
    atomic_store(&transfer->asked_pace, bytes_per_second);
    ask(transfer, SL_ASKED_PACE, 0);
}

static _Bool is_delivered(void *context)
{
    return atomic_load_explicit(&((struct sluice_transfer *)context)->delivered, memory_order_acquire);
}

static _Bool is_over(void *context)
{
    return atomic_load_explicit(&((struct sluice_transfer *)context)->over, memory_order_acquire);
}

/* How the transfer ended; OK for success. */
static sluice_status outcome(const struct sluice_transfer *transfer)
{
    switch (atomic_load_explicit(&transfer->ended, memory_order_acquire)) {
    case SLUICE_EVENT_COMPLETED:
    case SLUICE_EVENT_COMMITTED:
        return SLUICE_OK;
    case SLUICE_EVENT_FAILED:
    case SLUICE_EVENT_CANCELLED:
        return sl_fail_copy(&transfer->error);
    default:
        return sl_fail(SLUICE_CLOSED, "transfer", "the runtime ended before the transfer");
    }
}

sluice_status sluice_transfer_wait(sluice_transfer *transfer, uint64_t timeout_ns)
{
    if (transfer == NULL)
        return sl_fail(SLUICE_INVALID, "transfer", "no transfer given");
    struct sl_delivery *delivery = &transfer->runtime->delivery;
    sluice_status status = sl_runtime_check(transfer->runtime, "transfer");
    if (status != SLUICE_OK)
        return status;
    if (sl_delivery_inside(delivery))
        return sl_fail(SLUICE_STATE, "transfer", "a callback must not wait: take the RELEASED event instead");
    uint64_t deadline = sl_deadline(sl_now(sl_clock_system()), timeout_ns);
    enum sl_wait_mode mode = delivery->kind == SLUICE_DELIVER_FD ? SL_WAIT_DRAIN : SL_WAIT_OTHERS;
    /* The loop of an event_base may be this thread's own: then its events come after this call. */
    _Bool (*done)(void *) = delivery->kind == SLUICE_DELIVER_EVENT_BASE ? is_over : is_delivered;
    if (!sl_delivery_wait(delivery, mode, done, transfer, deadline))
        return sl_fail(SLUICE_TIMEOUT, "transfer", "the transfer still runs");
    return outcome(transfer);
}

void sluice_transfer_error(const sluice_transfer *transfer, struct sluice_error *ret_error)
{
    if (ret_error == NULL)
        return;
    *ret_error = (struct sluice_error){0};
    if (transfer == NULL)
        return;
    unsigned ended = atomic_load_explicit(&transfer->ended, memory_order_acquire);
    if (ended == SLUICE_EVENT_FAILED || ended == SLUICE_EVENT_CANCELLED)
        *ret_error = transfer->error;
}

void sluice_transfer_destroy(sluice_transfer *transfer)
{
    if (transfer == NULL || sl_runtime_check(transfer->runtime, "transfer") != SLUICE_OK)
        return;
    sl_delivery_mute(&transfer->runtime->delivery, &transfer->source);
    sl_transfer_release(transfer);
}
