/* The three ways in which events reach a program, and what callbacks may do. */
#include <criterion/criterion.h>
#include <event2/event.h>
#include <poll.h>
#include <string.h>

#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"
#include "support/solo.h"

static struct solo solo;

static void open_with(enum sluice_delivery delivery, struct event_base *base)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.delivery = delivery;
    options.event_base = base;
    solo_open(&solo, &options);
}

static void dispatch_until(uint32_t kind)
{
    while (solo_count_kind(&solo, kind) == 0) {
        struct pollfd wait = {.fd = sluice_runtime_fd(solo.runtime), .events = POLLIN};
        cr_assert_eq(poll(&wait, 1, 20000), 1, "the descriptor never became readable");
        sluice_dispatch(solo.runtime);
    }
}

Test(delivery, by_descriptor_runs_callbacks_in_dispatch_alone)
{
    open_with(SLUICE_DELIVER_FD, NULL);
    cr_assert_geq(sluice_runtime_fd(solo.runtime), 0);
    solo_seal(&solo, 2, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    struct pollfd wait = {.fd = sluice_runtime_fd(solo.runtime), .events = POLLIN};
    cr_assert_eq(poll(&wait, 1, 20000), 1);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_STARTED), 0u);
    dispatch_until(SLUICE_EVENT_RELEASED);
    cr_expect_eq(sluice_transfer_wait(transfer, 0), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_CLOSED), 1u);
}

Test(delivery, waits_dispatch_themselves_where_delivery_is_by_descriptor)
{
    open_with(SLUICE_DELIVER_FD, NULL);
    solo_seal(&solo, 2, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_RELEASED), 1u);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

static void leave_loop(struct solo *s, const struct sluice_event *event)
{
    if (event->kind == SLUICE_EVENT_RELEASED || event->kind == SLUICE_EVENT_CLOSED)
        event_base_loopbreak(s->context);
}

Test(delivery, on_a_base_made_without_thread_support_wakes_an_idle_loop)
{
    struct event_base *base = event_base_new();
    open_with(SLUICE_DELIVER_EVENT_BASE, base);
    solo.react = leave_loop;
    solo.context = base;
    solo_seal(&solo, 2, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(event_base_dispatch(base), 0);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_RELEASED), 1u);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(solo.plan);
    sluice_runtime_close(solo.runtime);
    cr_assert_eq(event_base_dispatch(base), 0);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_CLOSED), 1u);
    sluice_runtime_destroy(solo.runtime);
    cr_expect_eq(event_base_get_num_events(base, EVENT_BASE_COUNT_ADDED), 0);
    event_base_free(base);
}

static void *run_loop(void *base)
{
    event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

Test(delivery, leaves_a_base_whose_loop_runs_on_another_thread)
{
    pthread_t loop;
    struct event_base *base = event_base_new();
    open_with(SLUICE_DELIVER_EVENT_BASE, base);
    pthread_create(&loop, NULL, run_loop, base);
    solo_seal(&solo, 2, 0);
    solo_await_kind(&solo, SLUICE_EVENT_SEALED);
    solo.context = base;
    solo.react = leave_loop;
    solo_close(&solo);
    pthread_join(loop, NULL);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_CLOSED), 1u);
    event_base_free(base);
}

enum { DEEP = 1000 };

/* Submits the next one and destroys the old one, inside the callback of its last event. */
static void submit_again(struct solo *s, const struct sluice_event *event)
{
    uint32_t *left = s->context;
    if (event->kind != SLUICE_EVENT_RELEASED)
        return;
    sluice_transfer_destroy(event->transfer);
    if (*left == 0)
        return;
    --*left;
    struct sluice_transfer_options options = solo_options(s);
    solo_submit(s, &options);
}

Test(delivery, allows_submit_and_destroy_inside_a_callback_a_thousand_deep)
{
    uint32_t left = DEEP;
    open_with(SLUICE_DELIVER_THREAD, NULL);
    solo_seal(&solo, 1, 0);
    solo.react = submit_again;
    solo.context = &left;
    struct sluice_transfer_options options = solo_options(&solo);
    solo_submit(&solo, &options);
    solo_await(&solo, 1 + 3 * (DEEP + 1));
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), DEEP + 1u);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_RELEASED), DEEP + 1u);
    solo_close(&solo);
}

/* Cancels the run from inside its first callback. */
static void cancel_at_start(struct solo *s, const struct sluice_event *event)
{
    (void)s;
    if (event->kind == SLUICE_EVENT_STARTED) {
        sluice_transfer_cancel(event->transfer);
        sluice_transfer_cancel(event->transfer);
        hand_allow(HAND_ALL);
    }
}

Test(delivery, allows_cancel_inside_a_callback_and_ends_once)
{
    open_with(SLUICE_DELIVER_THREAD, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.allowed, 0);
    solo.react = cancel_at_start;
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    sluice_status status = sluice_transfer_wait(transfer, UINT64_MAX);
    uint32_t cancelled = solo_count_kind(&solo, SLUICE_EVENT_CANCELLED);
    cr_expect_eq(status, cancelled ? SLUICE_CANCELLED : SLUICE_OK, "everything may have been launched before");
    cr_expect_eq(cancelled + solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), 1u, "one terminal event");
    cr_expect_eq(solo.count, 4u, "SEALED, STARTED, the end and");
    cr_expect_eq(solo.events[3].kind, (uint32_t)SLUICE_EVENT_RELEASED);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

struct blocker {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Bool entered, may_leave;
};

static void block(struct solo *s, const struct sluice_event *event)
{
    struct blocker *blocker = s->context;
    if (event->kind != SLUICE_EVENT_STARTED)
        return;
    pthread_mutex_lock(&blocker->lock);
    blocker->entered = 1;
    pthread_cond_broadcast(&blocker->changed);
    while (!blocker->may_leave)
        pthread_cond_wait(&blocker->changed, &blocker->lock);
    pthread_mutex_unlock(&blocker->lock);
}

static void await_entered(struct blocker *blocker)
{
    pthread_mutex_lock(&blocker->lock);
    while (!blocker->entered)
        pthread_cond_wait(&blocker->changed, &blocker->lock);
    pthread_mutex_unlock(&blocker->lock);
}

static void let_leave(struct blocker *blocker)
{
    pthread_mutex_lock(&blocker->lock);
    blocker->may_leave = 1;
    pthread_cond_broadcast(&blocker->changed);
    pthread_mutex_unlock(&blocker->lock);
}

Test(delivery, of_a_slow_callback_delays_no_launch)
{
    struct blocker blocker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    struct sluice_progress progress = {.size = sizeof progress};
    open_with(SLUICE_DELIVER_THREAD, NULL);
    solo_seal(&solo, 4, 0);
    solo.react = block;
    solo.context = &blocker;
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    await_entered(&blocker);
    do /* the run ends while the callback is still inside STARTED */
        cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    while (progress.state != SLUICE_TRANSFER_DONE);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), 0u);
    cr_expect_eq(sluice_transfer_wait(transfer, 1000), SLUICE_TIMEOUT);
    let_leave(&blocker);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

struct destroyer {
    struct blocker *blocker;
    sluice_transfer *transfer;
    atomic_bool returned;
};

static void *destroy_elsewhere(void *context)
{
    struct destroyer *destroyer = context;
    sluice_transfer_destroy(destroyer->transfer);
    atomic_store(&destroyer->returned, 1);
    return NULL;
}

/* Whether destroy has come as far as to wait for the callback. */
static _Bool is_muted(sluice_transfer *transfer)
{
    struct sl_delivery *queue = &solo.runtime->delivery;
    pthread_mutex_lock(&queue->lock);
    _Bool muted = transfer->source.muted;
    pthread_mutex_unlock(&queue->lock);
    return muted;
}

Test(delivery, ends_when_destroy_returns_on_another_thread)
{
    struct blocker blocker = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    pthread_t thread;
    open_with(SLUICE_DELIVER_THREAD, NULL);
    solo_seal(&solo, 4, 0);
    solo.react = block;
    solo.context = &blocker;
    struct sluice_transfer_options options = solo_options(&solo);
    struct destroyer destroyer = {.blocker = &blocker, .transfer = solo_submit(&solo, &options)};
    await_entered(&blocker);
    pthread_create(&thread, NULL, destroy_elsewhere, &destroyer);
    while (!is_muted(destroyer.transfer))
        sched_yield();
    cr_expect_not(atomic_load(&destroyer.returned));
    let_leave(&blocker);
    pthread_join(thread, NULL);
    uint32_t seen = solo.count;
    solo_close(&solo);
    cr_expect_eq(solo.count, seen + 1, "CLOSED alone came after destroy");
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_COMPLETED), 0u);
}

static void wait_inside(struct solo *s, const struct sluice_event *event)
{
    sluice_status *status = s->context;
    if (event->kind == SLUICE_EVENT_STARTED)
        *status = sluice_transfer_wait(event->transfer, UINT64_MAX);
}

Test(delivery, refuses_to_wait_inside_a_callback)
{
    sluice_status status = SLUICE_OK;
    open_with(SLUICE_DELIVER_THREAD, NULL);
    solo_seal(&solo, 1, 0);
    solo.react = wait_inside;
    solo.context = &status;
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(status, SLUICE_STATE);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

static atomic_uint warnings;

static void count_warnings(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    (void)user;
    if (level == SLUICE_LOG_WARN && strcmp(topic, "delivery") == 0 && strstr(text, "sluice_dispatch") != NULL)
        atomic_fetch_add(&warnings, 1);
}

Test(delivery, warns_at_the_limit_of_undelivered_events_and_loses_none)
{
    struct sluice_runtime_options runtime = SLUICE_RUNTIME_OPTIONS_INIT;
    runtime.delivery = SLUICE_DELIVER_FD;
    runtime.events_max = 8;
    runtime.stall_timeout_ns = UINT64_MAX; /* not by time */
    runtime.on_log = count_warnings;
    solo_open(&solo, &runtime);
    solo_seal(&solo, 4, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    options.window_events = 1;
    sluice_transfer *first = solo_submit(&solo, &options); /* seven events, and one of the seal was drained */
    sluice_transfer *second = solo_submit(&solo, &options);
    while (atomic_load(&warnings) == 0)
        sched_yield();
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_STARTED), 0u, "nothing was delivered yet");
    cr_assert_eq(sluice_transfer_wait(first, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_transfer_wait(second, UINT64_MAX), SLUICE_OK);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_STALLED), 1u);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_WINDOW), 8u);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_RELEASED), 2u);
    sluice_transfer_destroy(first);
    sluice_transfer_destroy(second);
    solo_close(&solo);
}

Test(delivery, that_nobody_drains_refuses_more_and_warns)
{
    struct sluice_runtime_options runtime = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    uint32_t taken = 0;
    runtime.delivery = SLUICE_DELIVER_FD;
    runtime.transfers_max = 4;
    runtime.stall_timeout_ns = 20 * SLUICE_MILLISECOND;
    runtime.on_log = count_warnings;
    solo_open(&solo, &runtime);
    solo_seal(&solo, 1, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    for (int i = 0; i < 10; i++) {
        sluice_status status = sluice_submit(solo.plan, &options, &transfer);
        taken += status == SLUICE_OK;
        cr_assert_eq(status, i < 4 ? SLUICE_OK : SLUICE_AGAIN);
        if (status == SLUICE_OK)
            sluice_transfer_destroy(transfer);
    }
    cr_expect_eq(taken, 4u);
    while (atomic_load(&warnings) == 0)
        ;
    dispatch_until(SLUICE_EVENT_STALLED);
    sluice_dispatch(solo.runtime);
    cr_expect_eq(sluice_submit(solo.plan, &options, &transfer), SLUICE_OK);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}
