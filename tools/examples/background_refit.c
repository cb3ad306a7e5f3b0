/*
 * background_refit.c: a generator goes on with its steps while new weights arrive.
 *
 * A trainer process changes its weights and refits them, version after version. The generator reads all its weights in
 * every step. A new version lands in shadow memory beside them; between two steps the generator opens its gate, waits
 * for the commit and goes on. Every step checks that all it read is of exactly one version.
 */
#include <poll.h>

#include "local.h"

enum { TRAINER = 0, GENERATOR = 1, WORLD = 2 };
enum { PARAMS = 8, WORDS = 64 * 1024, VERSIONS = 6, STEPS_ALONE = 60 };

static uint64_t weights[PARAMS][WORDS];

static uint64_t word(uint64_t version, uint64_t param, uint64_t index)
{
    return version * UINT64_C(0x9e3779b97f4a7c15) + param * WORDS + index;
}

/* Each rank says what it sends or receives; the seal compares both halves. */
static sluice_plan *make_plan(sluice_runtime *runtime, uint32_t rank)
{
    struct sluice_region whole = {.row_bytes = sizeof weights[0], .rows = 1, .pitch = sizeof weights[0]};
    enum sluice_role role = rank == TRAINER ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION;
    sluice_plan *plan = NULL;
    CHECK(sluice_plan_create(WORLD, &plan));
    for (uint32_t p = 0; p < PARAMS; p++) {
        if (rank == TRAINER)
            CHECK(sluice_plan_add_send(plan, p, p, SLUICE_DTYPE_U64, GENERATOR, &whole));
        else
            CHECK(sluice_plan_add_recv(plan, p, p, SLUICE_DTYPE_U64, TRAINER, &whole));
        CHECK(sluice_plan_bind(plan, p, role, weights[p], sizeof weights[p]));
    }
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.window_bytes = sizeof weights / 16;
    seal.shadow_bytes = rank == GENERATOR ? sizeof weights + 65536 : 0;
    CHECK(sluice_plan_seal_wait(plan, runtime, &seal, 0));
    return plan;
}

static void train(uint32_t port)
{
    struct sluice_runtime_options options = local_rank(TRAINER, WORLD, port);
    sluice_runtime *runtime = NULL;
    CHECK(sluice_runtime_open(&options, &runtime));
    sluice_plan *plan = make_plan(runtime, TRAINER);
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        for (uint64_t p = 0; p < PARAMS; p++)
            for (uint64_t i = 0; i < WORDS; i++)
                weights[p][i] = word(version, p, i);
        struct sluice_transfer_options refit = SLUICE_TRANSFER_OPTIONS_INIT;
        sluice_transfer *transfer = NULL;
        refit.landing = SLUICE_LANDING_SHADOW;
        refit.version = version;
        CHECK(sluice_submit(plan, &refit, &transfer));
        CHECK(sluice_transfer_wait(transfer, UINT64_MAX)); /* from here on the weights may change again */
        sluice_transfer_destroy(transfer);
    }
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
}

struct generator {
    sluice_runtime *runtime;
    int staged, over, failed;
    uint64_t version; /* that the next step must see */
    uint64_t steps, bytes;
};

static void on_event(const struct sluice_event *event, void *user)
{
    struct generator *generator = user;
    if (event->kind == SLUICE_EVENT_STAGED)
        generator->staged = 1; /* let it in at the next step */
    if (event->kind == SLUICE_EVENT_COMMITTED)
        generator->version = event->version;
    if (event->kind == SLUICE_EVENT_FAILED)
        fprintf(stderr, "%s\n", event->error->text);
    if (event->kind == SLUICE_EVENT_FAILED || event->kind == SLUICE_EVENT_CANCELLED)
        generator->failed = 1;
    if (event->kind == SLUICE_EVENT_RELEASED)
        generator->over = 1;
}

/* Stands for one token: reads every weight. Returns its time. */
static double step(struct generator *generator)
{
    double begin = seconds();
    for (uint64_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < WORDS; i++)
            if (weights[p][i] != word(generator->version, p, i)) {
                fprintf(stderr, "parameter %u holds a word that is not of version %u\n", (unsigned)p,
                        (unsigned)generator->version);
                exit(1);
            }
    generator->steps++;
    generator->bytes += sizeof weights;
    return seconds() - begin;
}

static void take_events(struct generator *generator, int wait_ms)
{
    struct pollfd ready = {.fd = sluice_runtime_fd(generator->runtime), .events = POLLIN};
    if (poll(&ready, 1, wait_ms) > 0)
        sluice_dispatch(generator->runtime);
}

/* Steps until one version has arrived; returns how long the steps were held up for it. */
static double refit(struct generator *generator, sluice_plan *plan, double *step_seconds, uint64_t *steps)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    double pause = 0;
    generator->staged = generator->over = 0;
    options.landing = SLUICE_LANDING_SHADOW;
    options.version = generator->version + 1;
    options.on_event = on_event;
    options.user = generator;
    CHECK(sluice_gate_host(generator->runtime, &options.consumer_gate));
    CHECK(sluice_submit(plan, &options, &transfer));
    while (!generator->over && !generator->failed) {
        if (generator->staged) {
            double begin = seconds();
            CHECK(sluice_gate_open(options.consumer_gate)); /* nobody reads the weights now */
            while (generator->version != options.version && !generator->failed)
                take_events(generator, 1000);
            pause = seconds() - begin;
            generator->staged = 0;
        }
        *step_seconds += step(generator);
        (*steps)++;
        take_events(generator, 0);
    }
    sluice_gate_destroy(options.consumer_gate);
    sluice_transfer_destroy(transfer);
    return pause;
}

static void generate(uint32_t port, struct generator *generator)
{
    struct sluice_runtime_options options = local_rank(GENERATOR, WORLD, port);
    double alone = 0, beside = 0, pause = 0;
    uint64_t steps_beside = 0;
    options.delivery = SLUICE_DELIVER_FD;
    for (uint64_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < WORDS; i++)
            weights[p][i] = word(0, p, i);
    CHECK(sluice_runtime_open(&options, &generator->runtime));
    sluice_plan *plan = make_plan(generator->runtime, GENERATOR);
    for (int i = 0; i < STEPS_ALONE; i++)
        alone += step(generator);
    while (generator->version < VERSIONS && !generator->failed)
        pause += refit(generator, plan, &beside, &steps_beside);
    printf("token step alone        %.3f ms\n", alone / STEPS_ALONE * 1e3);
    printf("token step beside refit %.3f ms\n", beside / (double)steps_beside * 1e3);
    printf("pause for a version     %.3f ms\n", pause / VERSIONS * 1e3);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(generator->runtime);
}

int main(void)
{
    struct generator generator = {0};
    uint32_t port = free_port();
    pid_t trainer = fork();
    if (trainer == 0) {
        train(port);
        return 0;
    }
    generate(port, &generator);
    if (!ended_well(trainer) || generator.failed || sizeof weights * generator.steps != generator.bytes)
        return 1;
    printf("verified %llu bytes in %llu steps over %d versions, each step of exactly one version\n",
           (unsigned long long)generator.bytes, (unsigned long long)generator.steps, VERSIONS);
    return 0;
}
