/*
 * notices.c: the ring of the runtime's own events.
 *
 * Invariants: tail - head <= SL_NOTICES_MAX; only the scheduler thread writes tail, only the consumer
 * writes head; a notice keeps its plan until it was delivered.
 */
#include "runtime/core/notices.h"

#include "runtime/core/plan_object.h"
#include "runtime/core/runtime_object.h"

static struct sl_notices *notices_of(struct sl_source *source)
{
    return (struct sl_notices *)source;
}

static uint32_t used(const struct sl_notices *notices)
{
    return (uint32_t)(atomic_load_explicit(&notices->tail, memory_order_relaxed) -
                      atomic_load_explicit(&notices->head, memory_order_acquire));
}

static _Bool next(struct sl_source *source, struct sluice_event *ret)
{
    struct sl_notices *notices = notices_of(source);
    uint_fast32_t head = atomic_load_explicit(&notices->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&notices->tail, memory_order_acquire))
        return 0;
    const struct sl_notice *notice = &notices->ring[head % SL_NOTICES_MAX];
    *ret = (struct sluice_event){
        .size = sizeof *ret,
        .kind = notice->kind,
        .runtime = notices->runtime,
        .plan = notice->plan,
        .rank = notice->rank,
        .time_ns = notice->time_ns,
        .error = notice->error.status != SLUICE_OK ? &notice->error : NULL,
    };
    return 1;
}

static void after(struct sl_source *source, const struct sluice_event *event)
{
    struct sl_notices *notices = notices_of(source);
    uint_fast32_t head = atomic_load_explicit(&notices->head, memory_order_relaxed);
    if (event->plan != NULL)
        sl_notices_unreserve(notices);
    sl_plan_release(notices->ring[head % SL_NOTICES_MAX].plan);
    atomic_store_explicit(&notices->head, head + 1, memory_order_release);
    if (event->kind == SLUICE_EVENT_CLOSED)
        sl_delivery_finish(notices->delivery);
}

static void keep(struct sl_source *source)
{
    sl_runtime_keep(notices_of(source)->runtime);
}

static void release(struct sl_source *source)
{
    sl_runtime_release(notices_of(source)->runtime);
}

static const struct sl_source_ops notice_ops = {.next = next, .after = after, .keep = keep, .release = release};

void sl_notices_init(struct sl_notices *notices, struct sl_delivery *delivery, struct sluice_runtime *runtime,
                     const struct sl_log *log, sluice_event_fn on_event, void *user)
{
    notices->source = (struct sl_source){.ops = &notice_ops, .on_event = on_event, .user = user};
    notices->delivery = delivery;
    notices->runtime = runtime;
    notices->log = log;
}

void sl_notices_drop(struct sl_notices *notices)
{
    uint_fast32_t tail = atomic_load(&notices->tail);
    for (uint_fast32_t head = atomic_load(&notices->head); head != tail; head++) {
        sl_plan_release(notices->ring[head % SL_NOTICES_MAX].plan);
        notices->ring[head % SL_NOTICES_MAX].plan = NULL;
    }
    atomic_store(&notices->head, tail);
}

_Bool sl_notices_reserve(struct sl_notices *notices)
{
    if (atomic_fetch_add(&notices->seals, 1) < SL_SEALS_MAX)
        return 1;
    sl_notices_unreserve(notices);
    return 0;
}

void sl_notices_unreserve(struct sl_notices *notices)
{
    atomic_fetch_sub(&notices->seals, 1);
}

void sl_notices_post(struct sl_notices *notices, uint32_t kind, struct sluice_plan *plan, uint32_t rank,
                     uint64_t time_ns, const struct sluice_error *error)
{
    _Bool warning = kind == SLUICE_EVENT_STALLED || kind == SLUICE_EVENT_PEER_LOST;
    if (used(notices) >= (warning ? SL_WARNINGS_MAX : SL_NOTICES_MAX)) {
        SL_ASSERT(warning); /* seals are bounded by sl_notices_reserve */
        SL_LOG(notices->log, SLUICE_LOG_WARN, "runtime", "an event was dropped, nobody takes events: %s",
               error != NULL ? error->text : "no detail");
        return;
    }
    uint_fast32_t tail = atomic_load_explicit(&notices->tail, memory_order_relaxed);
    struct sl_notice *notice = &notices->ring[tail % SL_NOTICES_MAX];
    *notice = (struct sl_notice){.kind = kind, .rank = rank, .time_ns = time_ns, .plan = plan};
    if (error != NULL)
        notice->error = *error;
    if (plan != NULL)
        sl_plan_keep(plan);
    atomic_store_explicit(&notices->tail, tail + 1, memory_order_release);
    sl_delivery_post(notices->delivery, &notices->source);
}
