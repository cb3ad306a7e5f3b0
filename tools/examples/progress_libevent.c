/*
 * progress_libevent.c: progress in a program that has its own event loop.
 *
 * The receiving process runs libevent for its own work (here a timer). With SLUICE_DELIVER_EVENT_BASE callbacks come
 * from that loop, on its thread, between its other events: no callback thread, no locks. The runtime's end is an event
 * as well; after CLOSED nothing of the library is left in the base.
 */
#include <event2/event.h>
#include <pthread.h>

#include "local.h"

enum { SENDER = 0, RECEIVER = 1, WORLD = 2 };
enum { PARAMS = 6, WORDS = 64 * 1024 };

static uint64_t weights[PARAMS][WORDS];

struct app {
    struct event_base *base;
    struct event *tick;
    pthread_t thread;
    sluice_runtime *runtime;
    sluice_plan *plan;
    sluice_transfer *transfer;
    unsigned ticks, windows, params;
    int completed, elsewhere;
};

static uint64_t word(uint64_t param, uint64_t index)
{
    return (param * WORDS + index) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static sluice_plan *make_plan(sluice_runtime *runtime, uint32_t rank)
{
    struct sluice_region whole = {.row_bytes = sizeof weights[0], .rows = 1, .pitch = sizeof weights[0]};
    enum sluice_role role = rank == SENDER ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION;
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    sluice_plan *plan = NULL;
    CHECK(sluice_plan_create(WORLD, &plan));
    for (uint32_t p = 0; p < PARAMS; p++) {
        if (rank == SENDER)
            CHECK(sluice_plan_add_send(plan, p, p, SLUICE_DTYPE_U64, RECEIVER, &whole));
        else
            CHECK(sluice_plan_add_recv(plan, p, p, SLUICE_DTYPE_U64, SENDER, &whole));
        CHECK(sluice_plan_bind(plan, p, role, weights[p], sizeof weights[p]));
    }
    seal.window_bytes = sizeof weights / 8;
    CHECK(sluice_plan_seal_wait(plan, runtime, &seal, 0));
    return plan;
}

static void send_weights(uint32_t port)
{
    struct sluice_runtime_options options = local_rank(SENDER, WORLD, port);
    sluice_runtime *runtime = NULL;
    sluice_transfer *transfer = NULL;
    for (uint64_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < WORDS; i++)
            weights[p][i] = word(p, i);
    CHECK(sluice_runtime_open(&options, &runtime));
    sluice_plan *plan = make_plan(runtime, SENDER);
    CHECK(sluice_submit(plan, NULL, &transfer));
    CHECK(sluice_transfer_wait(transfer, UINT64_MAX));
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
}

static void show(const struct app *app)
{
    struct sluice_progress progress = SLUICE_PROGRESS_INIT;
    CHECK(sluice_transfer_progress(app->transfer, &progress));
    printf("window %u of %u, %u of %u parameters, %.1f MB\n", progress.windows_done, progress.windows_total,
           progress.params_done, progress.params_total, (double)progress.bytes_done / 1e6);
}

static void on_event(const struct sluice_event *event, void *user)
{
    struct app *app = user;
    app->elsewhere |= !pthread_equal(app->thread, pthread_self());
    switch (event->kind) {
    case SLUICE_EVENT_WINDOW:
        app->windows++;
        show(app);
        break;
    case SLUICE_EVENT_PARAM:
        app->params++;
        break;
    case SLUICE_EVENT_COMPLETED:
        app->completed = 1;
        break;
    case SLUICE_EVENT_FAILED:
        fprintf(stderr, "%s\n", event->error->text);
        break;
    case SLUICE_EVENT_RELEASED:
        sluice_transfer_destroy(app->transfer);
        sluice_runtime_close(app->runtime);
        break;
    case SLUICE_EVENT_CLOSED:
        event_del(app->tick); /* the loop ends when nothing is left in it */
        break;
    default:
        break;
    }
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
    (void)fd;
    (void)what;
    ((struct app *)user)->ticks++;
}

static void receive_weights(uint32_t port, struct app *app)
{
    struct sluice_runtime_options options = local_rank(RECEIVER, WORLD, port);
    struct sluice_transfer_options refit = SLUICE_TRANSFER_OPTIONS_INIT;
    struct timeval interval = {.tv_usec = 1000};
    app->thread = pthread_self();
    app->base = event_base_new();
    app->tick = event_new(app->base, -1, EV_PERSIST, on_tick, app);
    event_add(app->tick, &interval);
    options.delivery = SLUICE_DELIVER_EVENT_BASE;
    options.event_base = app->base;
    options.on_event = on_event;
    options.user = app;
    CHECK(sluice_runtime_open(&options, &app->runtime));
    app->plan = make_plan(app->runtime, RECEIVER);
    refit.window_events = refit.param_events = 1;
    refit.on_event = on_event;
    refit.user = app;
    CHECK(sluice_submit(app->plan, &refit, &app->transfer));
    event_base_dispatch(app->base);
    sluice_plan_destroy(app->plan);
    sluice_runtime_destroy(app->runtime);
    event_free(app->tick);
    event_base_free(app->base);
}

static int holds_all(void)
{
    for (uint64_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < WORDS; i++)
            if (weights[p][i] != word(p, i))
                return 0;
    return 1;
}

int main(void)
{
    struct app app = {0};
    uint32_t port = free_port();
    pid_t sender = fork();
    if (sender == 0) {
        send_weights(port);
        return 0;
    }
    receive_weights(port, &app);
    if (!ended_well(sender) || !app.completed || app.elsewhere || app.params != PARAMS || !holds_all())
        return 1;
    printf("verified %zu bytes; %u windows seen and %u ticks counted on one thread\n", sizeof weights, app.windows,
           app.ticks);
    return 0;
}
