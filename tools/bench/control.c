/*
 * control.c: the control plane at scale: many ranks of one process join one rank 0 on loopback, agree in
 * rounds of a seal's size, and beat for a while. Prints times, rank 0's memory a rank and its CPU time.
 *
 *   bench_control [RANKS] [SECONDS]
 */
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/parse.h"
#include "runtime/control/control.h"

enum { RANKS_DEFAULT = 2000, SECONDS_DEFAULT = 5, PART_BYTES = 600, ROUNDS = 3, STACK_BYTES = 256 * 1024 };

struct rank {
    struct sl_control_config config;
    struct sl_control *control;
    pthread_t thread;
    struct sluice_error error;
};

static struct rank *ranks;
static uint32_t world;
static _Atomic uint32_t rounds_ended, rounds_failed, lost;
static _Atomic int64_t bytes_of_rank_0;

/* --- memory of rank 0, counted --- */

static void *count_alloc(void *context, size_t bytes, size_t alignment)
{
    void *block = NULL;
    if (posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0)
        return NULL;
    if (context != NULL)
        atomic_fetch_add(&bytes_of_rank_0, (int64_t)malloc_usable_size(block));
    return block;
}

static void count_free(void *context, void *block)
{
    if (context != NULL)
        atomic_fetch_sub(&bytes_of_rank_0, (int64_t)malloc_usable_size(block));
    free(block);
}

static struct sl_mem *counted(void *context)
{
    static const struct sl_mem_ops ops = {"counted", count_alloc, count_free};
    sl_mem_install(&ops, context);
    struct sl_mem *mem = sl_mem_open();
    SL_ASSERT(mem != NULL);
    return mem;
}

/* --- handlers --- */

static void on_round(void *context, uint32_t kind, uint64_t id, sluice_status status, const struct sluice_error *error,
                     const uint8_t *data, size_t bytes)
{
    (void)context, (void)kind, (void)id, (void)error, (void)data, (void)bytes;
    atomic_fetch_add(status == SLUICE_OK ? &rounds_ended : &rounds_failed, 1);
}

static void on_note(void *context, const struct sl_note *note)
{
    (void)context;
    atomic_fetch_add(&lost, note->kind == SL_NOTE_LOST && note->status == SLUICE_PEER_LOST);
}

/* As a seal without faults: reads all parts, answers with little. */
static sluice_status reduce(void *context, uint32_t kind, const struct sl_bytes *parts, uint32_t count,
                            struct sl_mem *mem, uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error)
{
    (void)context, (void)kind;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < parts[i].bytes; k++)
            sum += parts[i].data[k];
    *ret_data = sl_new(mem, sizeof(sum), "a result");
    if (*ret_data == NULL)
        return sl_error_set(error, SLUICE_NOMEM, "bench", "out of memory");
    memcpy(*ret_data, &sum, sizeof(sum));
    *ret_bytes = sizeof(sum);
    return SLUICE_OK;
}

/* --- ranks --- */

static uint32_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SL_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    SL_ASSERT(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    SL_IGNORE(close(fd));
    return ntohs(address.sin_port);
}

static void configure(const char *directory, const struct sl_log *log)
{
    struct sl_mem *first = counted(&bytes_of_rank_0);
    struct sl_mem *others = counted(NULL);
    uint32_t port = free_port();
    for (uint32_t i = 0; i < world; i++) {
        struct sl_control_config *config = &ranks[i].config;
        config->identity = (struct sl_identity){.rank = i, .world = world, .address = "127.0.0.1", .port = port};
        (void)snprintf(config->identity.runtime_directory, sizeof(config->identity.runtime_directory), "%s", directory);
        config->handlers = (struct sl_control_handlers){NULL, on_round, on_note, reduce};
        config->clock = sl_clock_system();
        config->log = log;
        config->mem = i == 0 ? first : others;
        config->bootstrap_timeout_ns = 60 * SLUICE_SECOND;
        config->heartbeat_ns = SLUICE_SECOND;
    }
}

static void *open_one(void *context)
{
    struct rank *rank = context;
    if (sl_control_open(&rank->config, &rank->control) != SLUICE_OK)
        sl_error_take(&rank->error);
    return NULL;
}

static void *close_one(void *context)
{
    struct rank *rank = context;
    sl_control_close(rank->control);
    return NULL;
}

static void in_threads(void *(*body)(void *))
{
    pthread_attr_t attributes;
    SL_ASSERT(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
    for (uint32_t i = 0; i < world; i++)
        SL_ASSERT(pthread_create(&ranks[i].thread, &attributes, body, &ranks[i]) == 0);
    for (uint32_t i = 0; i < world; i++)
        SL_ASSERT(pthread_join(ranks[i].thread, NULL) == 0);
    SL_IGNORE(pthread_attr_destroy(&attributes));
}

static _Bool all_open(void)
{
    for (uint32_t i = 0; i < world; i++) {
        if (ranks[i].control == NULL) {
            (void)fprintf(stderr, "rank %u: %s\n", i, ranks[i].error.text);
            return 0;
        }
    }
    return 1;
}

static void run_rounds(void)
{
    static const uint8_t part[PART_BYTES] = {1};
    for (uint64_t id = 1; id <= ROUNDS; id++) {
        uint32_t want = (uint32_t)id * world;
        for (uint32_t i = 0; i < world; i++)
            SL_ASSERT(sl_control_round(ranks[i].control, 1, id, part, sizeof(part), 60 * SLUICE_SECOND) == SLUICE_OK);
        while (atomic_load(&rounds_ended) + atomic_load(&rounds_failed) < want)
            SL_IGNORE(usleep(1000));
    }
}

static double seconds_since(uint64_t begin)
{
    return (double)(sl_now(sl_clock_system()) - begin) / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    SL_ASSERT(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int measure(uint32_t seconds)
{
    uint64_t begin = sl_now(sl_clock_system());
    in_threads(open_one);
    if (!all_open())
        return 1;
    double joined = seconds_since(begin);
    run_rounds();
    double sealed = seconds_since(begin);
    double cpu = cpu_seconds();
    SL_IGNORE(sleep(seconds));
    cpu = cpu_seconds() - cpu;
    (void)printf("ranks                          %u\n", world);
    (void)printf("bootstrap                      %.2f s\n", joined);
    (void)printf("%d rounds of %d bytes a rank    %.2f s\n", ROUNDS, PART_BYTES, sealed - joined);
    (void)printf("rank 0's memory                %.2f KiB a rank\n",
                 (double)atomic_load(&bytes_of_rank_0) / 1024.0 / world);
    (void)printf("beating, all ranks together    %.1f %% of one core, %u lost\n", 100.0 * cpu / seconds,
                 atomic_load(&lost));
    begin = sl_now(sl_clock_system());
    in_threads(close_one);
    (void)printf("close                          %.2f s\n", seconds_since(begin));
    return atomic_load(&rounds_failed) + atomic_load(&lost) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint32_t seconds = SECONDS_DEFAULT;
    char directory[] = "/tmp/sluice-bench-XXXXXX";
    struct sl_log log = {.level = SLUICE_LOG_WARN};
    struct rlimit limit;
    world = RANKS_DEFAULT;
    if ((argc > 1 && !sl_parse_u32(argv[1], &world)) || (argc > 2 && !sl_parse_u32(argv[2], &seconds)) || world < 2 ||
        world > SLUICE_WORLD_MAX || seconds == 0 || argc > 3) {
        (void)fprintf(stderr, "usage: bench_control [RANKS] [SECONDS]\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) { /* eight descriptors a rank */
        limit.rlim_cur = limit.rlim_max;
        SL_IGNORE(setrlimit(RLIMIT_NOFILE, &limit));
    }
    ranks = calloc(world, sizeof(*ranks));
    if (ranks == NULL || mkdtemp(directory) == NULL)
        return 1;
    configure(directory, &log);
    int code = measure(seconds);
    SL_IGNORE(rmdir(directory));
    free(ranks);
    return code;
}
