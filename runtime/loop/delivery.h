/*
 * delivery.h: from things that have events (sources) to the application's callbacks.
 *
 * - Producers post a source; one consumer at a time (callback thread, event_base loop or
 *   sluice_dispatch) pulls its events in order. A wake-up may stand for many events.
 * - A source is in the queue at most once and holds a reference of its owner while it is there.
 * - No lock is held while a callback runs, so callbacks may call everything but close_wait.
 * - After sl_delivery_mute has returned, no callback of that source runs or will run (inside one: after
 *   that one). A muted source is still drained, so that its owner's bookkeeping goes on.
 */
#ifndef SL_LOOP_DELIVERY_H
#define SL_LOOP_DELIVERY_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/mailbox.h"
#include "sluice/observe.h"
#include "sluice/runtime.h"

struct sl_source;

struct sl_source_ops {
    /* The next event in order; false when none is left now. Consumer only. */
    _Bool (*next)(struct sl_source *source, struct sluice_event *ret);
    /* The event was delivered, or skipped because the source is muted. Consumer only. May be NULL. */
    void (*after)(struct sl_source *source, const struct sluice_event *event);
    void (*keep)(struct sl_source *source);
    void (*release)(struct sl_source *source);
};

struct sl_source {
    struct sl_mail mail;
    const struct sl_source_ops *ops;
    sluice_event_fn on_event; /* NULL: nobody listens */
    void *user;
    atomic_bool queued;
    _Bool muted; /* under the delivery's lock */
};

struct event; /* libevent's */

struct sl_delivery {
    enum sluice_delivery kind;
    struct sl_mailbox box;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock: a callback ended, or an owner signalled */
    pthread_t thread;       /* THREAD */
    _Bool thread_started;
    atomic_bool stop;
    struct event *event; /* EVENT_BASE; gone once `closed` was seen on the loop */
    /* under lock */
    const struct sl_source *current; /* whose callback runs */
    _Bool draining;
    _Bool in_loop; /* the event_base's callback runs */
    _Bool ever_drained;
    pthread_t drainer; /* who drains, or drained last */
    _Bool closed;      /* the last event was delivered */
    _Bool stopped;     /* nothing will be delivered any more */
    /* counts of events */
    atomic_uint_fast64_t posted;
    atomic_uint_fast64_t delivered;
};

/* `base` for EVENT_BASE only: its event is added here, by the calling thread. NOMEM, SYSTEM, INVALID. */
sluice_status sl_delivery_open(struct sl_delivery *delivery, enum sluice_delivery kind, struct event_base *base);
/*
 * Stops the callback thread, or leaves the event_base; undelivered sources are dropped, waits end. No
 * post may follow; muting may. Not inside a callback.
 */
void sl_delivery_stop(struct sl_delivery *delivery);
/* Frees what is left of a stopped one. */
void sl_delivery_drop(struct sl_delivery *delivery);

/* One more event waits in `source`. Any thread; two producers of one source exclude each other. */
void sl_delivery_post(struct sl_delivery *delivery, struct sl_source *source);
/* Delivers what waits now on the calling thread; 0 inside a callback or while another thread does it. */
uint32_t sl_delivery_drain(struct sl_delivery *delivery);
void sl_delivery_mute(struct sl_delivery *delivery, struct sl_source *source);
/* Whether the calling thread is inside a callback of this delivery. */
_Bool sl_delivery_inside(struct sl_delivery *delivery);
/* Events posted and not yet delivered. Any thread. */
uint64_t sl_delivery_pending(const struct sl_delivery *delivery);

/* Wakes those in sl_delivery_wait. */
void sl_delivery_signal(struct sl_delivery *delivery);
/* Marks the last event as delivered: an event_base is left at the end of this drain. Consumer only. */
void sl_delivery_finish(struct sl_delivery *delivery);
/* How a waiting thread gets its condition fulfilled. */
enum sl_wait_mode {
    SL_WAIT_OTHERS = 0, /* another thread delivers */
    SL_WAIT_DRAIN = 1   /* this thread delivers meanwhile */
};
/*
 * Waits until `done(context)` is true or the delivery has stopped, at most until the monotonic time
 * `deadline` (UINT64_MAX: no limit); false when the deadline passed. `done` is called with the lock held, and must be quick.
 */
_Bool sl_delivery_wait(struct sl_delivery *delivery, enum sl_wait_mode mode, _Bool (*done)(void *context),
                       void *context, uint64_t deadline);

#endif
