/*
 * delivery.c: the queue of sources and its consumer.
 *
 * Invariants: one consumer at a time (`draining`); `queued` is cleared before a source is drained, so an
 * event that is added meanwhile queues it again; `lock` is never held across a callback, `next` or
 * `after`; a stop request is sticky and looked at before every wait.
 */
#include "runtime/loop/delivery.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/loop/base_glue.h"

static void lock(struct sl_delivery *delivery)
{
    SL_ASSERT(pthread_mutex_lock(&delivery->lock) == 0);
}

static void unlock(struct sl_delivery *delivery)
{
    SL_ASSERT(pthread_mutex_unlock(&delivery->lock) == 0);
}

static void *callback_thread(void *context)
{
    struct sl_delivery *delivery = context;
    struct pollfd wait = {.fd = delivery->box.fd, .events = POLLIN};
    for (;;) {
        uint32_t delivered = sl_delivery_drain(delivery);
        /* After the drain, which may have cleared the wake-up that came with the request to stop. */
        if (atomic_load_explicit(&delivery->stop, memory_order_acquire))
            break;
        if (delivered == 0)
            SL_IGNORE(poll(&wait, 1, -1));
    }
    return NULL;
}

static sluice_status start_thread(struct sl_delivery *delivery)
{
    /* A library thread takes no signal of the application. */
    sigset_t all, before;
    sigfillset(&all);
    SL_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    int failed = pthread_create(&delivery->thread, NULL, callback_thread, delivery);
    SL_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, failed, "delivery",
                              "the callback thread could not be started");
    delivery->thread_started = 1;
    return SLUICE_OK;
}

static void init_lock(struct sl_delivery *delivery)
{
    pthread_condattr_t attributes;
    SL_ASSERT(pthread_condattr_init(&attributes) == 0);
    SL_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    SL_ASSERT(pthread_cond_init(&delivery->changed, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    SL_ASSERT(pthread_mutex_init(&delivery->lock, NULL) == 0);
}

void sl_delivery_drop(struct sl_delivery *delivery)
{
    pthread_mutex_destroy(&delivery->lock);
    pthread_cond_destroy(&delivery->changed);
}

sluice_status sl_delivery_open(struct sl_delivery *delivery, enum sluice_delivery kind, struct event_base *base)
{
    *delivery = (struct sl_delivery){.kind = kind};
    sluice_status status = sl_mailbox_open(&delivery->box);
    if (status != SLUICE_OK)
        return status;
    init_lock(delivery);
    if (kind == SLUICE_DELIVER_THREAD)
        status = start_thread(delivery);
    if (kind == SLUICE_DELIVER_EVENT_BASE)
        status = sl_base_join(delivery, base);
    if (status != SLUICE_OK) {
        sl_mailbox_close(&delivery->box);
        sl_delivery_drop(delivery);
    }
    return status;
}

void sl_delivery_stop(struct sl_delivery *delivery)
{
    atomic_store_explicit(&delivery->stop, 1, memory_order_release);
    if (delivery->thread_started) {
        sl_mailbox_wake(&delivery->box);
        SL_ASSERT(pthread_join(delivery->thread, NULL) == 0);
    }
    lock(delivery);
    while (delivery->draining || delivery->in_loop)
        SL_ASSERT(pthread_cond_wait(&delivery->changed, &delivery->lock) == 0);
    unlock(delivery);
    sl_base_leave(delivery);
    struct sl_mail *mail = sl_mailbox_take(&delivery->box);
    while (mail != NULL) {
        struct sl_source *source = (struct sl_source *)mail;
        mail = mail->next;
        source->ops->release(source);
    }
    sl_mailbox_close(&delivery->box);
    lock(delivery);
    delivery->stopped = 1;
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    unlock(delivery);
}

void sl_delivery_post(struct sl_delivery *delivery, struct sl_source *source)
{
    atomic_fetch_add_explicit(&delivery->posted, 1, memory_order_relaxed);
    if (atomic_exchange_explicit(&source->queued, 1, memory_order_acq_rel))
        return;
    source->ops->keep(source);
    sl_mailbox_post(&delivery->box, &source->mail);
}

/* Runs the callback unless the source is muted. */
static void deliver(struct sl_delivery *delivery, struct sl_source *source, const struct sluice_event *event)
{
    lock(delivery);
    _Bool listens = !source->muted && source->on_event != NULL;
    delivery->current = listens ? source : NULL;
    unlock(delivery);
    if (!listens)
        return;
    source->on_event(event, source->user);
    lock(delivery);
    delivery->current = NULL;
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    unlock(delivery);
}

static uint32_t drain_source(struct sl_delivery *delivery, struct sl_source *source)
{
    struct sluice_event event;
    uint32_t count = 0;
    atomic_exchange_explicit(&source->queued, 0, memory_order_acq_rel);
    while (source->ops->next(source, &event)) {
        deliver(delivery, source, &event);
        if (source->ops->after != NULL)
            source->ops->after(source, &event);
        atomic_fetch_add_explicit(&delivery->delivered, 1, memory_order_relaxed);
        count++;
    }
    source->ops->release(source);
    return count;
}

static _Bool begin_drain(struct sl_delivery *delivery)
{
    lock(delivery);
    _Bool mine = !delivery->draining;
    if (mine) {
        delivery->draining = 1;
        delivery->ever_drained = 1;
        delivery->drainer = pthread_self();
    }
    unlock(delivery);
    return mine;
}

uint32_t sl_delivery_drain(struct sl_delivery *delivery)
{
    if (!begin_drain(delivery))
        return 0;
    uint32_t count = 0;
    struct sl_mail *mail = sl_mailbox_take(&delivery->box);
    while (mail != NULL) {
        struct sl_source *source = (struct sl_source *)mail;
        mail = mail->next; /* before the source may be queued again */
        count += drain_source(delivery, source);
    }
    lock(delivery);
    delivery->draining = 0;
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    unlock(delivery);
    return count;
}

/* With the lock held. */
static _Bool is_drainer(const struct sl_delivery *delivery)
{
    return delivery->draining && pthread_equal(delivery->drainer, pthread_self());
}

_Bool sl_delivery_inside(struct sl_delivery *delivery)
{
    lock(delivery);
    _Bool inside = is_drainer(delivery);
    unlock(delivery);
    return inside;
}

void sl_delivery_mute(struct sl_delivery *delivery, struct sl_source *source)
{
    lock(delivery);
    source->muted = 1;
    while (delivery->current == source && !is_drainer(delivery))
        SL_ASSERT(pthread_cond_wait(&delivery->changed, &delivery->lock) == 0);
    unlock(delivery);
}

uint64_t sl_delivery_pending(const struct sl_delivery *delivery)
{
    /* Read in this order: a delivered event was posted before, so the difference is never negative. */
    uint64_t delivered = atomic_load_explicit(&delivery->delivered, memory_order_acquire);
    uint64_t posted = atomic_load_explicit(&delivery->posted, memory_order_acquire);
    return posted > delivered ? posted - delivered : 0;
}

void sl_delivery_signal(struct sl_delivery *delivery)
{
    lock(delivery);
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    unlock(delivery);
}

void sl_delivery_finish(struct sl_delivery *delivery)
{
    lock(delivery);
    delivery->closed = 1;
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    unlock(delivery);
}

/* Waits for a change with the lock held, at most until `deadline`; false when it passed. */
static _Bool wait_changed(struct sl_delivery *delivery, uint64_t deadline)
{
    if (deadline == UINT64_MAX)
        return pthread_cond_wait(&delivery->changed, &delivery->lock) == 0;
    struct timespec until = {.tv_sec = (time_t)(deadline / SLUICE_SECOND), .tv_nsec = (long)(deadline % SLUICE_SECOND)};
    return pthread_cond_timedwait(&delivery->changed, &delivery->lock, &until) != ETIMEDOUT;
}

/* While nothing is to be delivered: sleeps for a new event, or for the end of another thread's drain. */
static void wait_readable(struct sl_delivery *delivery, uint64_t now, uint64_t deadline)
{
    enum { SLICE_MS = 10 };
    struct pollfd wait = {.fd = delivery->box.fd, .events = POLLIN};
    uint64_t left = deadline > now ? (deadline - now) / SLUICE_MILLISECOND + 1 : 0;
    SL_IGNORE(poll(&wait, 1, left < SLICE_MS ? (int)left : SLICE_MS));
}

_Bool sl_delivery_wait(struct sl_delivery *delivery, enum sl_wait_mode mode, _Bool (*done)(void *context),
                       void *context, uint64_t deadline)
{
    _Bool in_time = 1;
    for (;;) {
        uint32_t delivered = mode == SL_WAIT_DRAIN ? sl_delivery_drain(delivery) : 0;
        lock(delivery);
        _Bool fulfilled = done(context) || delivery->stopped;
        while (mode == SL_WAIT_OTHERS && !fulfilled && in_time) {
            in_time = wait_changed(delivery, deadline);
            fulfilled = done(context) || delivery->stopped;
        }
        unlock(delivery);
        uint64_t now = sl_now(sl_clock_system());
        if (fulfilled || mode == SL_WAIT_OTHERS || now >= deadline)
            return fulfilled;
        if (delivered == 0)
            wait_readable(delivery, now, deadline);
    }
}
