/*
 * refit.c: what a refit costs beside its bytes, on the host backend: bench_refit [REFITS [MIB]].
 *
 * Two source and two destination processes; every refit lands in shadow memory whole. Printed for a destination: the
 * commit beside a memcpy of the same bytes in turn, from a gate's opening to the first launch, from the end on the
 * device to the callback, and resident memory from the first to the last refit.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "tools/examples/local.h"

enum { SIDES = 2, WORLD = 2 * SIDES, REFITS_MAX = 1000, WARM = 5, PARAMS = 16 };

struct rank {
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t *weights, *copy;
    uint64_t bytes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t kinds[32];
    uint64_t started_ns, end_ns, told_ns;
    double commit[REFITS_MAX], bare[REFITS_MAX], launch[REFITS_MAX], callback[REFITS_MAX];
};

static pthread_barrier_t *meeting; /* of all ranks, in shared memory */

static uint64_t now_ns(void)
{
    return sl_now(sl_clock_system());
}

static void on_event(const struct sluice_event *event, void *user)
{
    struct rank *rank = user;
    uint64_t now = now_ns();
    pthread_mutex_lock(&rank->lock);
    rank->kinds[event->kind]++;
    if (event->kind == SLUICE_EVENT_STARTED)
        rank->started_ns = event->time_ns;
    if (event->kind == SLUICE_EVENT_COMMITTED) {
        rank->end_ns = event->time_ns;
        rank->told_ns = now;
    }
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->lock);
}

static void await(struct rank *rank, uint32_t kind, uint32_t count)
{
    pthread_mutex_lock(&rank->lock);
    while (rank->kinds[kind] < count)
        pthread_cond_wait(&rank->changed, &rank->lock);
    pthread_mutex_unlock(&rank->lock);
}

/* Every source holds half of each parameter; every destination gets all of it. */
static void make_plan(struct rank *rank, uint32_t me, uint64_t param_bytes)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    uint64_t half = param_bytes / SIDES;
    CHECK(sluice_plan_create(WORLD, &rank->plan));
    for (uint32_t p = 0; p < PARAMS; p++) {
        for (uint32_t other = 0; other < SIDES; other++) {
            struct sluice_region from = {.row_bytes = half, .rows = 1, .pitch = half};
            struct sluice_region to = {.offset = other * half, .row_bytes = half, .rows = 1, .pitch = half};
            if (me < SIDES)
                CHECK(sluice_plan_add_send(rank->plan, p, p, SLUICE_DTYPE_U8, SIDES + other, &from));
            else
                CHECK(sluice_plan_add_recv(rank->plan, p, p, SLUICE_DTYPE_U8, other, &to));
        }
        uint64_t bytes = me < SIDES ? half : param_bytes;
        CHECK(sluice_plan_bind(rank->plan, p, me < SIDES ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION,
                               rank->weights + p * bytes, bytes));
    }
    seal.window_bytes = param_bytes * PARAMS / 8;
    seal.shadow_bytes = me < SIDES ? 0 : param_bytes * PARAMS + 65536;
    CHECK(sluice_plan_seal_wait(rank->plan, rank->runtime, &seal, 0));
}

/* One refit; a destination's consumer gate and a source's source gate are opened by hand. */
static void refit(struct rank *rank, uint32_t me, uint32_t i)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    struct timespec settle = {.tv_nsec = 2000000};
    CHECK(sluice_gate_host(rank->runtime, &gate));
    options.landing = SLUICE_LANDING_SHADOW;
    options.source_gate = me == 0 ? gate : NULL;
    options.on_event = on_event;
    options.user = rank;
    CHECK(sluice_submit(rank->plan, &options, &transfer));
    pthread_barrier_wait(meeting);
    nanosleep(&settle, NULL); /* so that the gate is what all wait for */
    uint64_t opened = now_ns();
    CHECK(sluice_gate_open(gate));
    await(rank, SLUICE_EVENT_RELEASED, i + 1);
    CHECK(sluice_transfer_wait(transfer, UINT64_MAX));
    CHECK(sluice_transfer_progress(transfer, &progress));
    rank->launch[i] = (double)(rank->started_ns - opened) * 1e-3;
    rank->callback[i] = (double)(rank->told_ns - rank->end_ns) * 1e-3;
    rank->commit[i] = (double)progress.commit_ns * 1e-9;
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    if (me < SIDES)
        return;
    double begin = seconds();
    memcpy(rank->copy, rank->weights, rank->bytes);
    rank->bare[i] = seconds() - begin;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double part(double *values, uint32_t count, double which)
{
    qsort(values, count, sizeof *values, by_value);
    return values[(uint32_t)((double)(count - 1) * which)];
}

static uint64_t resident(void)
{
    char line[128], *rest = line;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    _Bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    if (!read)
        return 0;
    SL_IGNORE(strtoull(line, &rest, 10)); /* the whole size comes first */
    return strtoull(rest, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void report(struct rank *rank, uint32_t me, uint32_t refits, uint64_t before, uint64_t after)
{
    uint32_t count = refits - WARM;
    if (me == 0)
        printf("gate opened to first launch: median %.0f us, p99 %.0f us (source)\n",
               part(rank->launch + WARM, count, 0.5), part(rank->launch + WARM, count, 0.99));
    if (me != SIDES)
        return;
    double commit = part(rank->commit + WARM, count, 0.5), bare = part(rank->bare + WARM, count, 0.5);
    printf("commit of %.1f MB: median %.2f ms, memcpy %.2f ms, ratio %.2f\n", (double)rank->bytes / 1e6, commit * 1e3,
           bare * 1e3, commit / bare);
    printf("completion to callback: median %.0f us, p99 %.0f us (destination)\n",
           part(rank->callback + WARM, count, 0.5), part(rank->callback + WARM, count, 0.99));
    printf("resident memory over %u refits: %.1f MB, then %.1f MB\n", count, (double)before / 1e6, (double)after / 1e6);
}

static void run_rank(uint32_t me, uint32_t port, uint32_t refits, uint64_t param_bytes)
{
    static struct rank rank = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct sluice_runtime_options options = local_rank(me, WORLD, port);
    uint64_t before = 0;
    rank.bytes = param_bytes * PARAMS / (me < SIDES ? SIDES : 1);
    rank.weights = malloc(rank.bytes);
    rank.copy = malloc(rank.bytes);
    if (rank.weights == NULL || rank.copy == NULL)
        exit(1);
    memset(rank.weights, (int)me, rank.bytes);
    memset(rank.copy, 0, rank.bytes);
    CHECK(sluice_runtime_open(&options, &rank.runtime));
    make_plan(&rank, me, param_bytes);
    for (uint32_t i = 0; i < refits; i++) {
        before = i == WARM ? resident() : before;
        refit(&rank, me, i);
    }
    report(&rank, me, refits, before, resident());
    sluice_plan_destroy(rank.plan);
    sluice_runtime_close_wait(rank.runtime);
}

static void make_meeting(void)
{
    pthread_barrierattr_t shared;
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    if (meeting == MAP_FAILED || pthread_barrier_init(meeting, &shared, WORLD) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    uint32_t refits = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 305;
    uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 64;
    uint32_t port = free_port();
    pid_t children[WORLD];
    int good = 1;
    if (refits <= WARM || refits > REFITS_MAX || mib == 0 || mib > 4096) {
        fprintf(stderr, "bench_refit [REFITS [MIB]]: %d < REFITS <= %d, 0 < MIB <= 4096\n", WARM, REFITS_MAX);
        return 2;
    }
    make_meeting();
    for (uint32_t me = 0; me < WORLD; me++) {
        children[me] = fork();
        if (children[me] == 0) {
            run_rank(me, port, refits, (mib << 20) / PARAMS);
            return 0;
        }
    }
    for (uint32_t me = 0; me < WORLD; me++)
        good = ended_well(children[me]) && good;
    return good ? 0 : 1;
}
