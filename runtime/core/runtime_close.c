/*
 * runtime_close.c: the end of a runtime, and what can be asked of one.
 *
 * Invariants: closing is asked once and goes its way on the scheduler thread, with deadlines; whoever
 * waits for it delivers events itself where nobody else would; in the child of a fork nothing is
 * touched.
 */
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/core/runtime_object.h"

/* How long a loop on another thread has to deliver CLOSED before the waiting thread does it. */
#define LOOP_GRACE SLUICE_SECOND

static void act_close(struct sl_driver *driver, struct sl_order *order)
{
    (void)order;
    sl_driver_begin_close(driver);
}

void sluice_runtime_close(sluice_runtime *runtime)
{
    if (runtime == NULL || sl_runtime_check(runtime, "runtime") != SLUICE_OK)
        return;
    if (atomic_exchange_explicit(&runtime->closing, 1, memory_order_acq_rel))
        return;
    runtime->close_order.act = act_close;
    SL_IGNORE(sl_runtime_post(runtime, &runtime->close_order));
}

void sluice_runtime_destroy(sluice_runtime *runtime)
{
    if (runtime == NULL || sl_runtime_check(runtime, "runtime") != SLUICE_OK)
        return;
    if (sl_delivery_inside(&runtime->delivery)) {
        SL_LOG(&runtime->log, SLUICE_LOG_ERROR, "runtime", "destroy inside a callback was ignored");
        return;
    }
    sluice_runtime_close(runtime);
    sl_scheduler_join(runtime);
    sl_delivery_stop(&runtime->delivery);
    sl_notices_drop(&runtime->notices);
    sl_runtime_release(runtime);
}

static _Bool is_closed(void *context)
{
    return ((struct sl_delivery *)context)->closed;
}

/* Whether the events of an event_base are delivered by a thread that is not this one. */
static _Bool loop_elsewhere(struct sl_delivery *delivery)
{
    SL_ASSERT(pthread_mutex_lock(&delivery->lock) == 0);
    _Bool elsewhere = delivery->ever_drained && !pthread_equal(delivery->drainer, pthread_self());
    SL_ASSERT(pthread_mutex_unlock(&delivery->lock) == 0);
    return elsewhere;
}

static void wait_closed(struct sluice_runtime *runtime)
{
    struct sl_delivery *delivery = &runtime->delivery;
    /* The scheduler thread ends within two abort deadlines; a callback that never returns is not waited for. */
    uint64_t limit = sl_deadline(2 * runtime->options.abort_timeout_ns, 10 * SLUICE_SECOND);
    uint64_t now = sl_now(sl_clock_system());
    enum sl_wait_mode mode = delivery->kind == SLUICE_DELIVER_THREAD ? SL_WAIT_OTHERS : SL_WAIT_DRAIN;
    if (delivery->kind == SLUICE_DELIVER_EVENT_BASE && loop_elsewhere(delivery) &&
        sl_delivery_wait(delivery, SL_WAIT_OTHERS, is_closed, delivery, sl_deadline(now, LOOP_GRACE)))
        return;
    SL_IGNORE(sl_delivery_wait(delivery, mode, is_closed, delivery, sl_deadline(now, limit)));
}

void sluice_runtime_close_wait(sluice_runtime *runtime)
{
    if (runtime == NULL || sl_runtime_check(runtime, "runtime") != SLUICE_OK)
        return;
    sluice_runtime_close(runtime);
    if (sl_delivery_inside(&runtime->delivery)) {
        SL_LOG(&runtime->log, SLUICE_LOG_ERROR, "runtime", "close_wait inside a callback only starts the closing");
        return;
    }
    wait_closed(runtime);
    sluice_runtime_destroy(runtime);
}

uint32_t sluice_runtime_rank(const sluice_runtime *runtime)
{
    return runtime == NULL ? 0 : runtime->identity.rank;
}

uint32_t sluice_runtime_world(const sluice_runtime *runtime)
{
    return runtime == NULL ? 0 : runtime->identity.world;
}

sluice_status sluice_runtime_status(const sluice_runtime *runtime)
{
    return sl_runtime_check_live(runtime, "runtime");
}

int sluice_runtime_fd(const sluice_runtime *runtime)
{
    return runtime != NULL && runtime->delivery.kind == SLUICE_DELIVER_FD ? runtime->delivery.box.fd : -1;
}

uint32_t sluice_dispatch(sluice_runtime *runtime)
{
    if (runtime == NULL || runtime->delivery.kind != SLUICE_DELIVER_FD ||
        sl_runtime_check(runtime, "runtime") != SLUICE_OK)
        return 0;
    return sl_delivery_drain(&runtime->delivery);
}

const struct sl_trace_record *sl_runtime_trace(const sluice_runtime *runtime, size_t *ret_count)
{
    *ret_count = atomic_load_explicit(&runtime->trace.count, memory_order_acquire);
    return runtime->trace.records;
}

sluice_status sluice_runtime_trace_write(sluice_runtime *runtime, const char *path)
{
    sluice_status status = sl_runtime_check(runtime, "trace");
    if (status != SLUICE_OK)
        return status;
    if (path == NULL)
        return sl_fail(SLUICE_INVALID, "trace", "no path given");
    if (!runtime->options.trace)
        return sl_fail(SLUICE_STATE, "trace", "the runtime was opened without the option trace");
    struct sl_out out;
    size_t count = 0;
    const struct sl_trace_record *records = sl_runtime_trace(runtime, &count);
    status = sl_out_open(path, &out);
    if (status != SLUICE_OK)
        return status;
    return sl_out_end(&out, sl_trace_write(records, count, atomic_load(&runtime->trace.dropped), out.file));
}
