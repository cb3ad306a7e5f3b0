/*
 * driver.c: the loop body of a scheduler thread.
 *
 * Invariants: one thread; a step is bounded and never sleeps; actions of the engine are drained after
 * every event, without recursion into another event but for gates and refused operations; the end comes
 * in stages, each with a deadline: cancel runs and seals, then break what is left, then wait for no other rank,
 * then give up.
 */
#include "runtime/core/driver.h"

#include <stdio.h>

#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

/* While something is in flight a lost wake-up costs no more than this. */
#define BACKSTOP_NS   (2 * SLUICE_MILLISECOND)
#define STANDSTILL_NS SLUICE_SECOND
#define LOOK_LEAST_NS (40 * SLUICE_MICROSECOND)
#define LOOK_UP_TO_NS (10 * SLUICE_MILLISECOND)
#define BURST_NS      (100 * SLUICE_MILLISECOND)
/* While a communicator opens: nobody's weights wait, and hundreds of ranks may do it on one machine. */
#define BACKSTOP_OPENING_NS (20 * SLUICE_MILLISECOND)
/* A step that never runs dry gives way here, so that the owner sees time pass. */
enum { ROUNDS_MAX = 64 };

static void wake(void *context)
{
    sl_mailbox_wake(context);
}

static sluice_status open_engine(struct sl_driver *driver)
{
    const struct sl_driver_config *config = &driver->config;
    struct sl_engine_config engine = {
        .mem = config->mem, .rank = config->rank, .world = config->world, .runs_max = config->transfers_max};
    driver->launch_capacity = config->transfers_max * (SL_SLOTS_MAX + 1);
    driver->launches = sl_new_array(config->mem, driver->launch_capacity, sizeof *driver->launches, "launches");
    driver->runs = sl_new_array(config->mem, config->transfers_max, sizeof(struct sluice_transfer *), "runs");
    driver->engine = sl_engine_create(&engine);
    return driver->launches != NULL && driver->runs != NULL && driver->engine != NULL ? SLUICE_OK : SLUICE_NOMEM;
}

sluice_status sl_driver_open(struct sl_driver *driver, const struct sl_driver_config *config)
{
    *driver = (struct sl_driver){.config = *config, .marker_lane = SL_LANES, .stall_since = UINT64_MAX};
    driver->abort_at = driver->close_at = UINT64_MAX;
    sluice_status status = sl_mailbox_open(&driver->box);
    if (status != SLUICE_OK) {
        driver->box.fd = -1;
        return status;
    }
    driver->config.backend.wake = wake;
    driver->config.backend.wake_context = &driver->box;
    driver->info.size = sizeof driver->info;
    status = open_engine(driver);
    if (status == SLUICE_OK)
        status = config->ops->query(&driver->info);
    if (status == SLUICE_OK)
        status = config->ops->open(&driver->config.backend, &driver->device);
    if (status == SLUICE_OK && config->ops->describe != NULL)
        config->ops->describe(driver->device, &driver->info);
    if (status != SLUICE_OK)
        sl_driver_close(driver);
    return status;
}

static void close_device(struct sl_driver *driver)
{
    const struct sluice_backend_ops *ops = driver->config.ops;
    if (driver->group != NULL)
        ops->group_close(driver->group);
    for (uint32_t i = 0; i < SL_LANES; i++)
        if (driver->lanes[i] != NULL)
            ops->queue_close(driver->lanes[i]);
    if (driver->device != NULL)
        ops->close(driver->device);
}

void sl_driver_close(struct sl_driver *driver)
{
    /* What an abort could not end is in use by the device for ever: it is left as it is, and may still wake us. */
    driver->abandoned = driver->in_flight > 0;
    if (!driver->abandoned)
        close_device(driver);
    else
        SL_LOG(driver->config.log, SLUICE_LOG_ERROR, "runtime",
               "%u operations never ended: the device and its memory are left open", driver->in_flight);
    sl_engine_destroy(driver->engine);
    sl_free(driver->config.mem, driver->launches);
    sl_free(driver->config.mem, driver->runs);
    if (!driver->abandoned)
        sl_mailbox_close(&driver->box);
    driver->engine = NULL;
    driver->launches = NULL;
    driver->runs = NULL;
    driver->device = NULL;
    driver->group = NULL;
}

void sl_driver_post(struct sl_driver *driver, struct sl_order *order)
{
    sl_mailbox_post(&driver->box, &order->mail);
}

void sl_driver_missed(struct sl_driver *driver)
{
    atomic_store_explicit(&driver->missed, 1, memory_order_release);
    sl_mailbox_wake(&driver->box);
}

_Bool sl_driver_arm(struct sl_driver *driver)
{
    _Bool idle = driver->in_flight == 0 && driver->group_state != SL_GROUP_OPENING;
    return idle || driver->config.ops->arm(driver->device) == SLUICE_OK;
}

void sl_driver_lost(struct sl_driver *driver, const struct sluice_error *error)
{
    if (atomic_load_explicit(&driver->lost, memory_order_relaxed))
        return;
    driver->lost_error = *error;
    atomic_store_explicit(&driver->lost, 1, memory_order_release);
}

void sl_driver_poison(struct sl_driver *driver, const struct sluice_error *error)
{
    if (atomic_load_explicit(&driver->poisoned, memory_order_relaxed))
        return;
    driver->poison_error = *error;
    atomic_store_explicit(&driver->poisoned, 1, memory_order_release);
}

static void tell(struct sl_driver *driver, const struct sl_note *note)
{
    sluice_status status = driver->config.link.tell(driver->config.link.context, note);
    if (status == SLUICE_OK || driver->tell_failed || driver->closing)
        return;
    driver->tell_failed = 1;
    sl_error_take(&driver->tell_error);
}

static void begin_abort(struct sl_driver *driver)
{
    sl_launch_forget(driver);
    driver->aborting = 1;
    driver->abort_at = sl_deadline(driver->now, driver->config.abort_timeout_ns);
    if (driver->group != NULL)
        SL_IGNORE(driver->config.ops->abort(driver->group));
}

static void act_on(struct sl_driver *driver, const struct sl_action *action)
{
    switch (action->kind) {
    case SL_ACTION_TELL:
        tell(driver, &action->note);
        break;
    case SL_ACTION_ABORT:
        begin_abort(driver);
        break;
    case SL_ACTION_POISON:
        sl_driver_poison(driver, &action->error);
        SL_LOG(driver->config.log, SLUICE_LOG_ERROR, "runtime", "%s", action->error.text);
        break;
    case SL_ACTION_LAUNCH:
    case SL_ACTION_COMMIT:
    case SL_ACTION_EMIT:
    case SL_ACTION_RELEASE:
        sl_transfer_action(driver, action);
        break;
    }
}

static void drain_actions(struct sl_driver *driver)
{
    struct sl_action action;
    while (sl_engine_next(driver->engine, &action))
        act_on(driver, &action);
}

/* A run that waited for an earlier one of its plan and may go on; NULL: none. */
static struct sluice_transfer *take_turn(struct sl_driver *driver)
{
    for (uint32_t i = 0; driver->turn_came && i < driver->config.transfers_max; i++)
        if (driver->runs[i] != NULL && driver->runs[i]->turn_came) {
            driver->runs[i]->turn_came = 0;
            return driver->runs[i];
        }
    driver->turn_came = 0;
    return NULL;
}

void sl_driver_engine_drain(struct sl_driver *driver)
{
    struct sluice_transfer *turn = NULL;
    drain_actions(driver);
    while ((turn = take_turn(driver)) != NULL) {
        struct sl_engine_event event = {.kind = SL_EVENT_GATE, .run = turn->run, .index = turn->config.gate_count - 1};
        sl_engine_event(driver->engine, &event, driver->now);
        driver->chores |= driver->agreeing > 0; /* it may read its sources now */
        drain_actions(driver);
    }
}

void sl_driver_engine_event(struct sl_driver *driver, struct sl_engine_event event)
{
    sl_engine_event(driver->engine, &event, driver->now);
    driver->touched = 1;
    driver->chores |= driver->agreeing > 0;
    sl_driver_engine_drain(driver);
}

void sl_driver_broken(struct sl_driver *driver, const struct sluice_error *error)
{
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_BROKEN, .error = error});
}

static _Bool take_orders(struct sl_driver *driver)
{
    struct sl_mail *mail = sl_mailbox_take(&driver->box);
    _Bool any = mail != NULL;
    while (mail != NULL) {
        struct sl_order *order = (struct sl_order *)mail;
        mail = mail->next;
        order->act(driver, order);
    }
    return any;
}

static _Bool run_timer(struct sl_driver *driver)
{
    if (sl_engine_timer(driver->engine) > driver->now)
        return 0;
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_TIME});
    return sl_engine_timer(driver->engine) > driver->now;
}

static _Bool check_told(struct sl_driver *driver)
{
    if (!driver->tell_failed)
        return 0;
    driver->tell_failed = 0;
    sl_driver_broken(driver, &driver->tell_error);
    return 1;
}

static _Bool check_missed(struct sl_driver *driver)
{
    struct sluice_error error;
    if (!atomic_exchange_explicit(&driver->missed, 0, memory_order_acquire))
        return 0;
    SL_IGNORE(sl_error_set(&error, SLUICE_NOMEM, "control", "out of memory for a message of the other ranks"));
    sl_seal_fail_all(driver, &error, 1);
    sl_driver_broken(driver, &error);
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_ALONE, .value = 1, .error = &error});
    return 1;
}

static _Bool end_abort(struct sl_driver *driver)
{
    if (!driver->aborting || (driver->in_flight > 0 && driver->now < driver->abort_at))
        return 0;
    struct sluice_error error;
    _Bool late = driver->in_flight > 0;
    if (late)
        SL_IGNORE(sl_error_set(&error, SLUICE_POISONED, "transport",
                               "%u operations did not end within the abort "
                               "deadline: recreate the runtime and leave the buffers alone",
                               driver->in_flight));
    driver->aborting = 0;
    driver->abort_at = UINT64_MAX;
    sl_launch_forget(driver); /* what came since the abort began: the engine counts it no more either */
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_ABORTED, .error = late ? &error : NULL});
    return 1;
}

/* What a transfer left on the device does not end: neither will anything else there. */
static _Bool end_leaving(struct sl_driver *driver)
{
    struct sluice_error error;
    if (!sl_transfer_leave_late(driver, driver->now))
        return 0;
    SL_IGNORE(sl_error_set(&error, SLUICE_DEVICE, "device",
                           "an operation of a transfer that is over did not end within the stall deadline"));
    sl_driver_broken(driver, &error);
    return 1;
}

static void cancel_runs(struct sl_driver *driver)
{
    for (uint32_t i = 0; i < driver->config.transfers_max; i++)
        if (driver->runs[i] != NULL)
            sl_driver_engine_event(
                driver, (struct sl_engine_event){.kind = SL_EVENT_REQUEST, .run = i, .index = SL_REQUEST_CANCEL});
}

void sl_driver_begin_close(struct sl_driver *driver)
{
    struct sluice_error error;
    if (driver->closing)
        return;
    driver->closing = 1;
    driver->close_at = sl_deadline(driver->now, driver->config.abort_timeout_ns);
    SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "seal", "the runtime was closed before the seal ended"));
    sl_seal_fail_all(driver, &error, 0);
    cancel_runs(driver);
}

/* Runs that did not end by a cancel: their peers may be gone. */
static void break_runs(struct sl_driver *driver)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "runtime",
                           "the runtime was closed and the other ranks did not end the transfer in time"));
    driver->close_at = sl_deadline(driver->now, sl_deadline(driver->config.abort_timeout_ns, BACKSTOP_NS));
    sl_seal_fail_all(driver, &error, 1);
    if (driver->run_count > 0)
        sl_driver_broken(driver, &error);
}

/* Runs that wait for an outcome: they end as well as this rank alone can tell. */
static void leave_runs(struct sl_driver *driver)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "runtime",
                           "the runtime was closed before the other ranks said what became of the transfer"));
    driver->close_at = sl_deadline(driver->now, BACKSTOP_NS);
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_ALONE, .error = &error});
}

static _Bool advance_close(struct sl_driver *driver)
{
    if (!driver->closing || driver->finished)
        return 0;
    _Bool idle = driver->run_count == 0 && driver->sealing == 0 && driver->in_flight == 0 && !driver->aborting &&
                 driver->group_state != SL_GROUP_OPENING;
    if (!idle && driver->now < driver->close_at)
        return 0;
    if (!idle && driver->close_stage < 2) {
        if (driver->close_stage++ == 0)
            break_runs(driver);
        else
            leave_runs(driver);
        return 1;
    }
    driver->finished = 1;
    driver->close_at = UINT64_MAX;
    return 1;
}

static void publish(struct sl_driver *driver)
{
    for (uint32_t i = 0; driver->touched && i < driver->config.transfers_max; i++)
        if (driver->runs[i] != NULL)
            sl_transfer_publish(driver, driver->runs[i]);
    driver->touched = 0;
}

/* How long events may wait before a warning: above the limit of their number as long as a burst needs at most. */
static uint64_t patience(const struct sl_driver *driver)
{
    uint64_t stall = driver->config.stall_timeout_ns;
    _Bool many = sl_delivery_pending(driver->config.delivery) > driver->config.events_max;
    return many && stall > BURST_NS ? BURST_NS : stall;
}

/* Warns once when events wait and nobody takes any for that long. */
static void watch_delivery(struct sl_driver *driver)
{
    struct sl_delivery *delivery = driver->config.delivery;
    uint64_t pending = sl_delivery_pending(delivery);
    uint64_t delivered = atomic_load_explicit(&delivery->delivered, memory_order_relaxed);
    _Bool taken = delivered != driver->stall_delivered;
    if (pending == 0 || taken || driver->stall_since == UINT64_MAX) {
        driver->stall_since = pending == 0 ? UINT64_MAX : driver->now;
        driver->stall_delivered = delivered;
        driver->stall_warned = driver->stall_warned && pending > 0 && !taken;
        return;
    }
    if (driver->stall_warned || driver->now - driver->stall_since < patience(driver))
        return;
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_AGAIN, "delivery",
                           "%llu events wait and none was taken for %llu ms: run the loop, call sluice_dispatch, or "
                           "return from the callback",
                           (unsigned long long)pending,
                           (unsigned long long)((driver->now - driver->stall_since) / SLUICE_MILLISECOND)));
    driver->stall_warned = 1;
    SL_LOG(driver->config.log, SLUICE_LOG_WARN, "delivery", "%s", error.text);
    sl_notices_post(driver->config.notices, SLUICE_EVENT_STALLED, NULL, driver->config.rank, driver->now, &error);
}

static uint64_t stall_timer(const struct sl_driver *driver)
{
    if (driver->stall_since == UINT64_MAX || driver->stall_warned)
        return UINT64_MAX;
    return sl_deadline(driver->stall_since, patience(driver));
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/*
 * When to look at the device unasked. Where wake-ups come late, the last nodes of a run are looked for every 64th of the
 * time that they have taken so far, which is 1 % late on average. A look costs 15 us of the processor, and 0.3 ms late is
 * little for what takes long: then the wake-up will do.
 */
static uint64_t look_after(const struct sl_driver *driver)
{
    uint64_t since = driver->info.late_wake ? sl_engine_tail(driver->engine) : UINT64_MAX;
    if (since == UINT64_MAX || since > driver->now || driver->now - since > LOOK_UP_TO_NS)
        return BACKSTOP_NS;
    uint64_t span = (driver->now - since) / 64;
    return span < LOOK_LEAST_NS ? LOOK_LEAST_NS : span;
}

static uint64_t next_time(const struct sl_driver *driver)
{
    uint64_t next = earlier(sl_engine_timer(driver->engine), sl_gates_timer(driver));
    next = earlier(next, earlier(driver->abort_at, driver->close_at));
    next = earlier(next, sl_transfer_leave_timer(driver));
    next = earlier(next, earlier(sl_seal_timer(driver), stall_timer(driver)));
    if (driver->in_flight > 0 || driver->launch_count > 0)
        next = earlier(next, driver->now + look_after(driver));
    if (driver->group_state == SL_GROUP_OPENING)
        next = earlier(next, driver->now + BACKSTOP_OPENING_NS);
    return next;
}

/* A transfer that left outside of an event may have let another one of its plan go on. */
static _Bool pass_turns(struct sl_driver *driver)
{
    _Bool came = driver->turn_came;
    if (came)
        sl_driver_engine_drain(driver);
    return came;
}

static _Bool step_once(struct sl_driver *driver)
{
    _Bool moved = take_orders(driver);
    moved |= sl_gates_poll(driver);
    moved |= sl_launch_collect(driver);
    moved |= run_timer(driver);
    moved |= check_told(driver);
    moved |= check_missed(driver);
    moved |= end_abort(driver);
    moved |= end_leaving(driver);
    moved |= pass_turns(driver);
    moved |= sl_agree_advance(driver);
    moved |= sl_launch_advance(driver);
    moved |= sl_seal_advance(driver);
    moved |= advance_close(driver);
    return moved;
}

/*
 * A process that was stopped longer than an abort may take finds the deadline behind it before its device has had time
 * to end anything. While an abort waits, steps come at every look at the device: a much longer one is no waiting.
 */
static void forgive_standstill(struct sl_driver *driver, uint64_t now)
{
    if (driver->aborting && driver->in_flight > 0 && now > driver->now && now - driver->now > STANDSTILL_NS)
        driver->abort_at = sl_deadline(driver->abort_at, now - driver->now);
}

uint64_t sl_driver_step(struct sl_driver *driver, uint64_t now)
{
    _Bool moved = 1;
    forgive_standstill(driver, now);
    driver->now = now;
    for (int i = 0; i < ROUNDS_MAX && moved && !driver->finished; i++)
        moved = step_once(driver);
    publish(driver);
    watch_delivery(driver);
    return moved && !driver->finished ? now : next_time(driver);
}
