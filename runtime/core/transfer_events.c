/*
 * transfer_events.c: a transfer as a source of events.
 *
 * Invariants: the scheduler thread pushes, the delivery's consumer pulls. Events of windows and
 * parameters are not stored: they follow from `windows` (the done prefix) and the consumer's cursors,
 * so their number needs no limit. An entry's `windows` says what comes before it.
 */
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

static struct sluice_transfer *transfer_of(struct sl_source *source)
{
    return (struct sluice_transfer *)source;
}

/* Windows that are done after the prefix grew by the window at its end: those that finished earlier too. */
static uint32_t grow_prefix(struct sluice_transfer *transfer, uint32_t prefix)
{
    while (prefix < transfer->config.windows && transfer->window_done[prefix])
        prefix++;
    return prefix;
}

void sl_transfer_window_done(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window)
{
    const struct sl_view *view = transfer->view;
    SL_ASSERT(window < transfer->config.windows);
    if (transfer->window_done[window])
        return;
    transfer->window_done[window] = 1;
    if (transfer->window_time != NULL)
        transfer->window_time[window] = driver->now;
    transfer->bytes_done += window < transfer->skipped ? 0 : view->window_bytes[window];
    uint32_t before = (uint32_t)atomic_load_explicit(&transfer->windows, memory_order_relaxed);
    uint32_t prefix = grow_prefix(transfer, before);
    uint32_t arrived = transfer->arrived;
    while (arrived < view->arrival_count && view->arrivals[arrived].window < prefix)
        arrived++;
    uint32_t events =
        (transfer->window_events ? prefix - before : 0) + (transfer->param_events ? arrived - transfer->arrived : 0);
    transfer->arrived = arrived;
    atomic_store_explicit(&transfer->windows, prefix, memory_order_release);
    for (uint32_t i = 0; i < events; i++)
        sl_delivery_post(driver->config.delivery, &transfer->source);
}

void sl_transfer_push(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t kind)
{
    uint_fast32_t tail = atomic_load_explicit(&transfer->event_tail, memory_order_relaxed);
    SL_ASSERT(tail < SL_TRANSFER_EVENTS);
    transfer->events[tail] = (struct sl_transfer_event){
        .kind = kind,
        .windows = (uint32_t)atomic_load_explicit(&transfer->windows, memory_order_relaxed),
        .time_ns = driver->now,
    };
    atomic_store_explicit(&transfer->event_tail, tail + 1, memory_order_release);
    sl_delivery_post(driver->config.delivery, &transfer->source);
}

static void fill(const struct sluice_transfer *transfer, uint32_t kind, uint64_t time_ns, struct sluice_event *ret)
{
    *ret = (struct sluice_event){
        .size = sizeof *ret,
        .kind = kind,
        .runtime = transfer->runtime,
        .plan = transfer->plan,
        .transfer = (struct sluice_transfer *)(uintptr_t)transfer,
        .version = transfer->config.version,
        .rank = transfer->runtime->identity.rank,
        .time_ns = time_ns,
        .error = kind == SLUICE_EVENT_FAILED ? &transfer->error : NULL,
    };
}

/* The next event of a window or parameter among the first `limit` windows; false when there is none. */
static _Bool next_window_event(struct sluice_transfer *transfer, uint32_t limit, struct sluice_event *ret)
{
    while (transfer->window_cursor < limit) {
        const struct sl_view *view = transfer->view; /* it may change until the first window is done */
        uint32_t window = transfer->window_cursor;
        uint64_t time_ns = transfer->window_time != NULL ? transfer->window_time[window] : 0;
        const struct sl_arrival *arrival = &view->arrivals[transfer->arrival_cursor];
        if (transfer->param_events && transfer->arrival_cursor < view->arrival_count && arrival->window <= window) {
            transfer->arrival_cursor++;
            fill(transfer, SLUICE_EVENT_PARAM, time_ns, ret);
            ret->window = window;
            ret->param = arrival->param;
            return 1;
        }
        transfer->window_cursor++;
        if (transfer->window_events) {
            fill(transfer, SLUICE_EVENT_WINDOW, time_ns, ret);
            ret->window = window;
            return 1;
        }
    }
    return 0;
}

static _Bool next(struct sl_source *source, struct sluice_event *ret)
{
    struct sluice_transfer *transfer = transfer_of(source);
    /* The prefix first: an entry that was pushed before it grew is then seen below. */
    uint32_t limit = (uint32_t)atomic_load_explicit(&transfer->windows, memory_order_acquire);
    uint_fast32_t tail = atomic_load_explicit(&transfer->event_tail, memory_order_acquire);
    const struct sl_transfer_event *entry =
        transfer->event_head < tail ? &transfer->events[transfer->event_head] : NULL;
    if (next_window_event(transfer, entry != NULL ? entry->windows : limit, ret))
        return 1;
    if (entry == NULL)
        return 0;
    fill(transfer, entry->kind, entry->time_ns, ret);
    ret->window = entry->windows;
    transfer->event_head++;
    return 1;
}

static void after(struct sl_source *source, const struct sluice_event *event)
{
    struct sluice_transfer *transfer = transfer_of(source);
    if (event->kind != SLUICE_EVENT_RELEASED)
        return;
    atomic_fetch_sub_explicit(&transfer->runtime->live, 1, memory_order_acq_rel);
    atomic_store_explicit(&transfer->delivered, 1, memory_order_release);
    sl_delivery_signal(&transfer->runtime->delivery);
}

static void keep(struct sl_source *source)
{
    sl_transfer_keep(transfer_of(source));
}

static void release(struct sl_source *source)
{
    sl_transfer_release(transfer_of(source));
}

const struct sl_source_ops sl_transfer_source_ops = {.next = next, .after = after, .keep = keep, .release = release};
