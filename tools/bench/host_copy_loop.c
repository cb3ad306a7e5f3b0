/*
 * host_copy_loop.c: how near the host backend comes to a bare copy loop.
 *
 * Two source and two destination processes; every source holds one tensor for every destination. Both ways move it with
 * two copies through shared memory of the same size, cut into the same windows and slots:
 *   bare     each source copies into the slots, each destination out of them; counters and a futex, nothing else
 *   backend  pack set, group, unpack set on the host backend's table, slots rotating over as many queues
 * The two alternate, so that the machine's moods hit both; the best of each is compared. Every byte is verified. cpu(s) is
 * what all processes and threads used in the average pass: on a busy machine it says more than the time.
 *
 * Usage: bench_host_copy_loop [--bytes B] [--window B] [--slots S] [--repeat N]      sizes in bytes, k M G Ki Mi Gi
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/backend/host/bell.h"
#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/parse.h"

enum { SIDES = 2, WORLD = 2 * SIDES, SLOTS_MAX = 8, REPEAT_MAX = 100 };

static const char usage[] = "usage: bench_host_copy_loop [--bytes B] [--window B] [--slots S] [--repeat N]\n";

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "bench: %s failed (line %d): %s\n", #condition, __LINE__, sluice_last_error()->text);      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Everything that the processes share; the pool of the bare loop lies behind it. */
struct shared {
    uint64_t bytes, window, part; /* of a pair; of a rank and window; of a pair and window */
    uint32_t slots, repeat, windows;
    pthread_barrier_t barrier;
    struct sluice_blob blobs[WORLD];
    double bare[REPEAT_MAX], backend[REPEAT_MAX]; /* seconds */
    _Atomic uint64_t bare_cpu_us, backend_cpu_us; /* over all passes and processes */
    struct {
        _Alignas(64) _Atomic uint64_t filled, emptied; /* windows */
    } lanes[SIDES][SIDES];
    _Alignas(64) struct sl_bell bells[WORLD];
};

/* One process. A source's memory is `tensor[d]`, a destination's `tensor[s]`. */
struct process {
    struct shared *shared;
    uint8_t *pool;
    uint32_t rank;
    bool source;
    uint8_t *tensor[SIDES];
    const struct sluice_backend_ops *ops;
    struct sluice_device *device;
    struct sluice_queue *queues[SLOTS_MAX];
    struct sluice_group *group;
    uint8_t *staging;
    struct sluice_set **sets;        /* one a window */
    struct sluice_message *messages; /* SIDES a window */
    struct sl_bell bell;
    uint64_t completions; /* seen since the last pass began */
};

static uint64_t now(void *context)
{
    (void)context;
    return sl_now(sl_clock_system());
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t word_of(uint32_t source, uint32_t destination, uint64_t index)
{
    return sl_mix64(((uint64_t)source << 60) + ((uint64_t)destination << 56) + index);
}

static void fill(const struct process *p)
{
    for (uint32_t i = 0; i < SIDES; i++)
        for (uint64_t w = 0; w < p->shared->bytes / 8; w++) {
            uint64_t word = p->source ? word_of(p->rank, i, w) : 0;
            memcpy(p->tensor[i] + 8 * w, &word, 8);
        }
}

/* Also poisons what it has read, so that the next pass cannot live on this one. */
static void verify(const struct process *p, const char *way)
{
    for (uint32_t i = 0; i < SIDES && !p->source; i++)
        for (uint64_t w = 0; w < p->shared->bytes / 8; w++) {
            uint64_t word = word_of(i, p->rank - SIDES, w), got;
            memcpy(&got, p->tensor[i] + 8 * w, 8);
            memset(p->tensor[i] + 8 * w, 0xee, 8);
            if (got != word) {
                fprintf(stderr, "bench: %s: rank %u: word %llu from rank %u is wrong\n", way, p->rank,
                        (unsigned long long)w, i);
                exit(1);
            }
        }
}

/* --- bare --- */

static uint8_t *bare_slot(const struct process *p, uint32_t source, uint32_t destination, uint64_t window)
{
    const struct shared *s = p->shared;
    uint64_t lane = (uint64_t)source * SIDES + destination;
    return p->pool + (lane * s->slots + window % s->slots) * s->part;
}

/* One window of one lane, when the other end is far enough. */
static bool bare_step(const struct process *p, uint32_t other, uint64_t window)
{
    struct shared *s = p->shared;
    uint32_t source = p->source ? p->rank : other, destination = p->source ? other : p->rank - SIDES;
    _Atomic uint64_t *filled = &s->lanes[source][destination].filled;
    _Atomic uint64_t *emptied = &s->lanes[source][destination].emptied;
    if (p->source ? window - atomic_load(emptied) >= s->slots : window >= atomic_load(filled))
        return false;
    uint8_t *slot = bare_slot(p, source, destination, window);
    uint8_t *place = p->tensor[other] + window * s->part;
    uint64_t bytes = least(s->part, s->bytes - window * s->part);
    if (p->source)
        memcpy(slot, place, bytes);
    else
        memcpy(place, slot, bytes);
    atomic_store(p->source ? filled : emptied, window + 1);
    sl_bell_ring(&s->bells[p->source ? SIDES + other : other]);
    return true;
}

static void run_bare(struct process *p)
{
    uint64_t next[SIDES] = {0};
    struct sl_bell *bell = &p->shared->bells[p->rank];
    for (;;) {
        uint32_t seen = sl_bell_look(bell);
        bool moved = false, done = true;
        for (uint32_t i = 0; i < SIDES; i++) {
            if (next[i] < p->shared->windows && bare_step(p, i, next[i])) {
                next[i]++;
                moved = true;
            }
            done = done && next[i] == p->shared->windows;
        }
        if (done)
            return;
        if (!moved)
            sl_bell_wait(bell, seen, SLUICE_SECOND);
    }
}

/* --- backend --- */

static void wake(void *context)
{
    struct process *p = context;
    sl_bell_ring(&p->bell);
}

static void take(struct process *p)
{
    struct sluice_completion got[16];
    uint32_t count = 0;
    CHECK(p->ops->poll(p->device, got, 16, &count) == SLUICE_OK);
    for (uint32_t i = 0; i < count; i++)
        if (got[i].status != SLUICE_OK) {
            fprintf(stderr, "bench: %s\n", got[i].error.text);
            exit(1);
        }
    p->completions += count;
}

static void wait_for(struct process *p, uint64_t completions)
{
    for (;;) {
        uint32_t seen = sl_bell_look(&p->bell);
        take(p);
        if (p->completions >= completions)
            return;
        if (p->ops->arm(p->device) == SLUICE_OK)
            sl_bell_wait(&p->bell, seen, SLUICE_SECOND);
    }
}

static void make_window(struct process *p, uint32_t w)
{
    const struct shared *s = p->shared;
    struct sluice_copy pieces[SIDES];
    for (uint32_t i = 0; i < SIDES; i++) {
        uint8_t *slot = p->staging + (uint64_t)(w % s->slots) * s->window + i * s->part;
        uint8_t *place = p->tensor[i] + w * s->part;
        uint64_t bytes = least(s->part, s->bytes - w * s->part);
        pieces[i] =
            (struct sluice_copy){.from = {(uint64_t)(uintptr_t)(p->source ? place : slot), UINT64_MAX, UINT64_MAX, 0},
                                 .to = {(uint64_t)(uintptr_t)(p->source ? slot : place), UINT64_MAX, UINT64_MAX, 0},
                                 .bytes = bytes,
                                 .message = i};
        p->messages[w * SIDES + i] = (struct sluice_message){.address = (uint64_t)(uintptr_t)slot,
                                                             .bytes = bytes,
                                                             .peer = p->source ? SIDES + i : i,
                                                             .receive = !p->source,
                                                             .staged = 1};
    }
    CHECK(p->ops->set_open(p->device, p->source ? SLUICE_COPY_PACK : SLUICE_COPY_UNPACK, pieces, SIDES, &p->sets[w]) ==
          SLUICE_OK);
}

static void open_backend(struct process *p)
{
    struct shared *s = p->shared;
    const struct sluice_backend_config config = {
        .size = sizeof(config), .rank = p->rank, .world = WORLD, .now = now, .wake = wake, .wake_context = p};
    CHECK(sl_backend_find("host", &p->ops) == SLUICE_OK);
    CHECK(p->ops->open(&config, &p->device) == SLUICE_OK);
    for (uint32_t i = 0; i < s->slots; i++)
        CHECK(p->ops->queue_open(p->device, &p->queues[i]) == SLUICE_OK);
    void *staging = NULL;
    enum sluice_memory kind = p->source ? SLUICE_MEMORY_SEND : SLUICE_MEMORY_RECV;
    CHECK(p->ops->mem_alloc(p->device, kind, s->slots * s->window, &staging) == SLUICE_OK);
    p->staging = staging;
    p->sets = calloc(s->windows, sizeof(*p->sets));
    p->messages = calloc((size_t)s->windows * SIDES, sizeof(*p->messages));
    CHECK(p->sets != NULL && p->messages != NULL);
    for (uint32_t w = 0; w < s->windows; w++)
        make_window(p, w);
    CHECK(p->ops->group_address(p->device, &s->blobs[p->rank]) == SLUICE_OK);
    pthread_barrier_wait(&s->barrier);
    uint8_t peers[WORLD] = {0};
    memset(peers + (p->source ? SIDES : 0), p->source ? 1 : 2, SIDES);
    const struct sluice_group_config world = {
        .size = sizeof(world), .rank = p->rank, .world = WORLD, .blobs = s->blobs, .peers = peers};
    CHECK(p->ops->group_open(p->device, &world, 0, &p->group) == SLUICE_OK);
    wait_for(p, 1);
}

static void submit(struct process *p, uint32_t queue, const struct sluice_op *op)
{
    sluice_status status;
    while ((status = p->ops->submit(p->queues[queue], op)) == SLUICE_AGAIN)
        sl_bell_wait(&p->bell, sl_bell_look(&p->bell), SLUICE_MILLISECOND);
    CHECK(status == SLUICE_OK);
}

/* As the driver does it: at most `slots` windows are launched and not done. */
static void run_backend(struct process *p)
{
    const struct shared *s = p->shared;
    p->completions = 0;
    for (uint32_t w = 0; w < s->windows; w++) {
        uint32_t queue = w % s->slots;
        if (w >= s->slots)
            wait_for(p, w - s->slots + 1);
        const struct sluice_op copy = {.kind = SLUICE_OP_COPY, .set = p->sets[w], .notify = !p->source};
        const struct sluice_op wait = {.kind = SLUICE_OP_WAIT, .marker = (w + 1) % 2};
        const struct sluice_op group = {.kind = SLUICE_OP_GROUP,
                                        .group = p->group,
                                        .messages = p->messages + (size_t)w * SIDES,
                                        .message_count = SIDES,
                                        .notify = p->source};
        const struct sluice_op record = {.kind = SLUICE_OP_RECORD, .marker = w % 2};
        if (p->source)
            submit(p, queue, &copy);
        if (w > 0)
            submit(p, queue, &wait);
        submit(p, queue, &group);
        submit(p, queue, &record);
        if (!p->source)
            submit(p, queue, &copy);
    }
    wait_for(p, s->windows);
}

static void close_backend(struct process *p)
{
    pthread_barrier_wait(&p->shared->barrier);
    for (uint32_t i = 0; i < p->shared->slots; i++)
        p->ops->queue_close(p->queues[i]);
    for (uint32_t w = 0; w < p->shared->windows; w++)
        p->ops->set_close(p->sets[w]);
    p->ops->group_close(p->group);
    p->ops->mem_free(p->device, p->source ? SLUICE_MEMORY_SEND : SLUICE_MEMORY_RECV, p->staging,
                     p->shared->slots * p->shared->window);
    p->ops->close(p->device);
    free(p->sets);
    free(p->messages);
}

/* --- the four processes --- */

static uint64_t cpu_us(void)
{
    struct rusage used;
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static double timed(struct process *p, void (*run)(struct process *p), _Atomic uint64_t *cpu)
{
    pthread_barrier_wait(&p->shared->barrier);
    uint64_t begin = now(NULL), used = cpu_us();
    run(p);
    pthread_barrier_wait(&p->shared->barrier);
    atomic_fetch_add(cpu, cpu_us() - used);
    return (double)(now(NULL) - begin) / 1e9;
}

static void reset_lanes(struct process *p)
{
    for (uint32_t i = 0; i < SIDES && p->source; i++) {
        atomic_store(&p->shared->lanes[p->rank][i].filled, 0);
        atomic_store(&p->shared->lanes[p->rank][i].emptied, 0);
    }
}

static void run_process(struct shared *shared, uint8_t *pool, uint32_t rank)
{
    struct process p = {.shared = shared, .pool = pool, .rank = rank, .source = rank < SIDES};
    for (uint32_t i = 0; i < SIDES; i++) {
        p.tensor[i] = aligned_alloc(4096, shared->bytes);
        CHECK(p.tensor[i] != NULL);
    }
    fill(&p);
    open_backend(&p);
    for (uint32_t i = 0; i < shared->repeat; i++) {
        reset_lanes(&p);
        double bare = timed(&p, run_bare, &shared->bare_cpu_us);
        verify(&p, "bare");
        double backend = timed(&p, run_backend, &shared->backend_cpu_us);
        verify(&p, "backend");
        if (rank == 0) {
            shared->bare[i] = bare;
            shared->backend[i] = backend;
        }
    }
    close_backend(&p);
    for (uint32_t i = 0; i < SIDES; i++)
        free(p.tensor[i]);
}

static double best(const double *seconds, uint32_t count)
{
    double found = seconds[0];
    for (uint32_t i = 1; i < count; i++)
        found = seconds[i] < found ? seconds[i] : found;
    return found;
}

static void report(const struct shared *s)
{
    double total = (double)s->bytes * SIDES * SIDES;
    double bare = best(s->bare, s->repeat), backend = best(s->backend, s->repeat);
    printf("# %u+%u processes, %llu bytes a pair, windows of %llu bytes a rank, %u slots, best of %u\n", SIDES, SIDES,
           (unsigned long long)s->bytes, (unsigned long long)s->window, s->slots, s->repeat);
    double bare_cpu = (double)s->bare_cpu_us / 1e6 / s->repeat,
           backend_cpu = (double)s->backend_cpu_us / 1e6 / s->repeat;
    printf("%-10s %10s %10s %10s\n", "way", "time(s)", "GB/s", "cpu(s)");
    printf("%-10s %10.4f %10.2f %10.4f\n", "bare", bare, total / bare / 1e9, bare_cpu);
    printf("%-10s %10.4f %10.2f %10.4f\n", "backend", backend, total / backend / 1e9, backend_cpu);
    printf("ratio %.3f\n", bare / backend);
}

static bool parse(int count, char **arguments, struct shared *s)
{
    static const struct option options[] = {{"bytes", required_argument, NULL, 'b'},
                                            {"window", required_argument, NULL, 'w'},
                                            {"slots", required_argument, NULL, 's'},
                                            {"repeat", required_argument, NULL, 'r'},
                                            {0}};
    bool good = true;
    for (int option; good && (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
        switch (option) {
        case 'b':
            good = sl_parse_size(optarg, &s->bytes) && s->bytes >= 4096 && s->bytes % 4096 == 0;
            break;
        case 'w':
            good = sl_parse_size(optarg, &s->window) && s->window >= 4096 && s->window % 4096 == 0;
            break;
        case 's':
            good = sl_parse_u32(optarg, &s->slots) && s->slots >= 2 && s->slots <= SLOTS_MAX;
            break;
        case 'r':
            good = sl_parse_u32(optarg, &s->repeat) && s->repeat >= 1 && s->repeat <= REPEAT_MAX;
            break;
        default:
            good = false;
        }
    s->part = s->window / SIDES;
    uint64_t windows = (s->bytes + s->part - 1) / s->part;
    s->windows = (uint32_t)windows;
    return good && optind == count && windows <= 1000000;
}

/* One that fails takes the others with it: they would wait for it. */
static int wait_all(const pid_t *children)
{
    int result = 0, status;
    for (uint32_t ended = 0; ended < WORLD; ended++)
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            for (uint32_t i = 0; i < WORLD && result == 0; i++)
                kill(children[i], SIGKILL);
            result = 1;
        }
    return result;
}

int main(int count, char **arguments)
{
    struct shared options = {.bytes = UINT64_C(256) << 20, .window = UINT64_C(8) << 20, .slots = 3, .repeat = 5};
    if (!parse(count, arguments, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    size_t head = (sizeof(struct shared) + 4095) / 4096 * 4096;
    size_t bytes = head + (size_t)(options.part * options.slots * SIDES * SIDES);
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct shared *shared = (struct shared *)(void *)memory;
    *shared = options;
    pthread_barrierattr_t attributes;
    CHECK(pthread_barrierattr_init(&attributes) == 0);
    CHECK(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_barrier_init(&shared->barrier, &attributes, WORLD) == 0);
    pid_t children[WORLD];
    for (uint32_t rank = 0; rank < WORLD; rank++)
        if ((children[rank] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_process(shared, memory + head, rank);
            exit(0);
        }
    int result = wait_all(children);
    if (result == 0)
        report(shared);
    return result;
}
