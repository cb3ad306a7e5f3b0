/*
 * delivery_stress.c: handles destroyed while callbacks run, and a hundred thousand events beside the timers of a
 * user's loop. For the thread sanitizer.
 *
 * - Part one: a thread submits and destroys at once, callbacks call back into the library; after destroy has returned
 *   no callback of that transfer runs.
 * - Part two: window events on an event_base whose loop also runs a 1 ms timer: none is lost, all in order.
 */
#include <event2/event.h>
#include <stdio.h>
#include <sys/time.h>

#include "runtime/core/runtime_object.h"
#include "sluice/transfer.h"
#include "support/hand.h"

enum { ROUNDS = 10000, WINDOWS = 1000, RUNS = 100, IDS_PER_WINDOW = 256, BYTES = WINDOWS };

static uint8_t source[BYTES], destination[BYTES];

static void ok(sluice_status status)
{
    if (status != SLUICE_OK)
        fprintf(stderr, "%s\n", sluice_last_error()->text);
    SL_ASSERT(status == SLUICE_OK);
}

static sluice_runtime *open_runtime(enum sluice_delivery delivery, struct event_base *base)
{
    struct sl_runtime_hooks hooks = {.backend = hand_backend()};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    hand_reset();
    options.world = 1;
    options.delivery = delivery;
    options.event_base = base;
    options.transfers_max = 64;
    ok(sl_runtime_open_with(&options, &hooks, &runtime));
    return runtime;
}

/* One byte a window. */
static sluice_plan *seal(sluice_runtime *runtime, uint32_t windows)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    sluice_plan *plan = NULL;
    struct sluice_param param = {.dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "w"};
    ok(sluice_plan_create(1, &plan));
    ok(sluice_plan_add_param(plan, &param));
    for (uint32_t w = 0; w < windows; w++) {
        struct sluice_region byte = {.offset = w, .row_bytes = 1, .rows = 1, .pitch = 1};
        struct sluice_task task = {.id = (uint64_t)w * IDS_PER_WINDOW,
                                   .from = byte,
                                   .to = byte,
                                   .source_dtype = SLUICE_DTYPE_U8,
                                   .destination_dtype = SLUICE_DTYPE_U8};
        ok(sluice_plan_add_task(plan, &task));
    }
    ok(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, source, BYTES));
    ok(sluice_plan_bind(plan, 0, SLUICE_ROLE_DESTINATION, destination, BYTES));
    options.policy = SLUICE_POLICY_WINDOWS;
    ok(sluice_plan_seal_wait(plan, runtime, &options, 0));
    return plan;
}

/* --- part one --- */

static atomic_bool destroyed[ROUNDS];
static atomic_uint callbacks;

static void call_back(const struct sluice_event *event, void *user)
{
    struct sluice_progress progress = {.size = sizeof progress};
    SL_ASSERT(!atomic_load((atomic_bool *)user));
    ok(sluice_transfer_progress(event->transfer, &progress));
    ok(sluice_runtime_status(event->runtime));
    sluice_transfer_cancel(event->transfer);
    SL_ASSERT(!atomic_load((atomic_bool *)user));
    atomic_fetch_add(&callbacks, 1);
}

static void destroy_at_once(void)
{
    sluice_runtime *runtime = open_runtime(SLUICE_DELIVER_THREAD, NULL);
    sluice_plan *plan = seal(runtime, 3);
    for (int i = 0; i < ROUNDS; i++) {
        struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
        sluice_transfer *transfer = NULL;
        sluice_status status = SLUICE_AGAIN;
        options.on_event = call_back;
        options.user = &destroyed[i];
        options.window_events = 1;
        while ((status = sluice_submit(plan, &options, &transfer)) == SLUICE_AGAIN)
            sched_yield();
        ok(status);
        for (int k = 0; k < i % 50; k++)
            sched_yield();
        sluice_transfer_destroy(transfer);
        atomic_store(&destroyed[i], 1);
    }
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    printf("%d handles destroyed at once, %u callbacks\n", ROUNDS, atomic_load(&callbacks));
}

/* --- part two --- */

struct counter {
    struct event_base *base;
    sluice_plan *plan;
    uint32_t windows, runs, ticks, expected;
};

static void submit(struct counter *counter);

static void count(const struct sluice_event *event, void *user)
{
    struct counter *counter = user;
    if (event->kind == SLUICE_EVENT_STARTED)
        counter->expected = 0;
    if (event->kind == SLUICE_EVENT_WINDOW) {
        SL_ASSERT(event->window == counter->expected++);
        counter->windows++;
    }
    if (event->kind != SLUICE_EVENT_RELEASED)
        return;
    SL_ASSERT(counter->expected == WINDOWS);
    sluice_transfer_destroy(event->transfer);
    if (++counter->runs == RUNS)
        event_base_loopbreak(counter->base);
    else
        submit(counter);
}

static void submit(struct counter *counter)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    options.on_event = count;
    options.user = counter;
    options.window_events = 1;
    ok(sluice_submit(counter->plan, &options, &transfer));
}

static void tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    ((struct counter *)user)->ticks++;
}

static void count_beside_timers(void)
{
    struct counter counter = {.base = event_base_new()};
    struct timeval millisecond = {.tv_usec = 1000};
    struct event *timer = event_new(counter.base, -1, EV_PERSIST, tick, &counter);
    sluice_runtime *runtime = open_runtime(SLUICE_DELIVER_EVENT_BASE, counter.base);
    counter.plan = seal(runtime, WINDOWS);
    event_add(timer, &millisecond);
    submit(&counter);
    event_base_dispatch(counter.base);
    SL_ASSERT(counter.windows == (uint32_t)WINDOWS * RUNS);
    event_free(timer);
    sluice_plan_destroy(counter.plan);
    sluice_runtime_close_wait(runtime);
    event_base_free(counter.base);
    printf("%u window events beside %u timer ticks\n", counter.windows, counter.ticks);
}

int main(void)
{
    destroy_at_once();
    count_beside_timers();
    return 0;
}
