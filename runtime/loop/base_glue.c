/*
 * base_glue.c: the only file that touches a user's event_base.
 *
 * Invariants: the base is touched where the user opened the runtime (event_add) and on its own loop
 * (event_del, once the last event was delivered there), never from a library thread; wake-ups come
 * through the descriptor, so a base made without thread support works.
 */
#include "runtime/loop/base_glue.h"

#include <event2/event.h>

#include "runtime/base/error.h"

static void on_readable(evutil_socket_t fd, short what, void *context)
{
    struct sl_delivery *delivery = context;
    (void)fd;
    (void)what;
    SL_ASSERT(pthread_mutex_lock(&delivery->lock) == 0);
    delivery->in_loop = 1;
    SL_ASSERT(pthread_mutex_unlock(&delivery->lock) == 0);
    SL_IGNORE(sl_delivery_drain(delivery));
    SL_ASSERT(pthread_mutex_lock(&delivery->lock) == 0);
    struct event *event = delivery->closed ? delivery->event : NULL;
    if (event != NULL) {
        event_free(event);
        delivery->event = NULL;
    }
    /* Whoever waits to stop the delivery may do so once this lock is open: the last touch. */
    delivery->in_loop = 0;
    SL_ASSERT(pthread_cond_broadcast(&delivery->changed) == 0);
    SL_ASSERT(pthread_mutex_unlock(&delivery->lock) == 0);
}

sluice_status sl_base_join(struct sl_delivery *delivery, struct event_base *base)
{
    if (base == NULL)
        return sl_fail(SLUICE_INVALID, "delivery", "delivery on an event_base needs the option event_base");
    struct event *event = event_new(base, delivery->box.fd, EV_READ | EV_PERSIST, on_readable, delivery);
    if (event == NULL)
        return sl_fail(SLUICE_NOMEM, "delivery", "out of memory for the event on the event_base");
    if (event_add(event, NULL) != 0) {
        event_free(event);
        return sl_fail(SLUICE_SYSTEM, "delivery", "the event could not be added to the event_base");
    }
    delivery->event = event;
    return SLUICE_OK;
}

void sl_base_leave(struct sl_delivery *delivery)
{
    if (delivery->event != NULL)
        event_free(delivery->event);
    delivery->event = NULL;
}
