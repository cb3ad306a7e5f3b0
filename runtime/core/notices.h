/*
 * notices.h: events of plans and of the runtime itself (SEALED, a seal's FAILED, PEER_LOST, STALLED, CLOSED).
 *
 * One producer, the scheduler thread; one consumer, the delivery. Bounded: warnings that find the ring
 * full are dropped and logged; room for the ends of SL_SEALS_MAX seals and for CLOSED is kept.
 */
#ifndef SL_CORE_NOTICES_H
#define SL_CORE_NOTICES_H

#include "runtime/base/log.h"
#include "runtime/loop/delivery.h"

enum { SL_NOTICES_MAX = 64, SL_SEALS_MAX = 31, SL_WARNINGS_MAX = SL_NOTICES_MAX - SL_SEALS_MAX - 1 };

struct sl_notice {
    uint32_t kind; /* enum sluice_event_kind */
    uint32_t rank;
    uint64_t time_ns;
    struct sluice_plan *plan; /* a reference of its own; NULL: none */
    struct sluice_error error;
};

struct sl_notices {
    struct sl_source source;
    struct sl_delivery *delivery;
    struct sluice_runtime *runtime;
    const struct sl_log *log;
    atomic_uint_fast32_t seals; /* begun, and their end not yet delivered */
    atomic_uint_fast32_t head;  /* next to deliver */
    atomic_uint_fast32_t tail;  /* next to write */
    struct sl_notice ring[SL_NOTICES_MAX];
};

/* `runtime` is kept by its own functions while the source is queued. */
void sl_notices_init(struct sl_notices *notices, struct sl_delivery *delivery, struct sluice_runtime *runtime,
                     const struct sl_log *log, sluice_event_fn on_event, void *user);
/* Room for the end of one more seal; false: SL_SEALS_MAX are under way. Any thread. */
_Bool sl_notices_reserve(struct sl_notices *notices);
/* Gives the room back when there will be no such event. Any thread. */
void sl_notices_unreserve(struct sl_notices *notices);
/* Lets go of what was never delivered, after the delivery has stopped. */
void sl_notices_drop(struct sl_notices *notices);
/* `plan` and `error` may be NULL; `error` is copied. Scheduler thread. */
void sl_notices_post(struct sl_notices *notices, uint32_t kind, struct sluice_plan *plan, uint32_t rank,
                     uint64_t time_ns, const struct sluice_error *error);

#endif
