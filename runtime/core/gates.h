/*
 * gates.h: conditions of the application, observed by the scheduler thread.
 *
 * - `open` only ever goes from false to true while a transfer uses the gate (reset refuses then).
 * - Whether a gate is open is decided in one place, sl_gate_check; runs hear of it as SL_EVENT_GATE.
 * - Gates of kind value and query are polled only while a run waits for them.
 */
#ifndef SL_CORE_GATES_H
#define SL_CORE_GATES_H

#include "runtime/core/driver.h"
#include "sluice/transfer.h"

enum sl_gate_kind { SL_GATE_HOST = 0, SL_GATE_VALUE = 1, SL_GATE_QUERY = 2 };

/* How often polled gates are looked at while a run waits. */
#define SL_GATE_POLL_NS (50 * SLUICE_MICROSECOND)

struct sluice_transfer;

/* One run's interest in one gate. */
struct sl_gate_wait {
    struct sluice_gate *gate; /* a reference; NULL: not a gate of the application */
    struct sluice_transfer *transfer;
    uint32_t index;            /* of the run's gate */
    struct sl_gate_wait *next; /* of the same gate; scheduler thread */
    _Bool linked;
};

struct sluice_gate {
    atomic_uint references;
    struct sluice_runtime *runtime;
    enum sl_gate_kind kind;
    atomic_bool open;
    atomic_uint users; /* transfers from submit to their end */
    const uint64_t *word;
    uint64_t value;
    sluice_gate_query_fn query;
    sluice_gate_drop_fn drop;
    void *context;
    struct sl_order order;
    atomic_bool posted;
    /* scheduler thread */
    struct sl_gate_wait *waits;
    struct sluice_gate *next_polled;
    _Bool polled;
};

void sl_gate_keep(struct sluice_gate *gate);
void sl_gate_release(struct sluice_gate *gate);

/* Scheduler thread: OK (open), AGAIN (wait was linked), or the query's error in `ret_error`. */
sluice_status sl_gate_begin(struct sl_driver *driver, struct sl_gate_wait *wait, struct sluice_error *ret_error);
/* Scheduler thread: the run does not wait any more. */
void sl_gate_end(struct sl_driver *driver, struct sl_gate_wait *wait);
/* Scheduler thread: looks at the polled gates when their time has come; true when one opened. */
_Bool sl_gates_poll(struct sl_driver *driver);
/* When they want to be looked at; UINT64_MAX: never. */
uint64_t sl_gates_timer(const struct sl_driver *driver);

#endif
