/* ranks.c: see ranks.h. Handlers only record; waiting is by condition variable. */
#include "support/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/error.h"

enum { WAIT_SECONDS = 20 };

uint32_t test_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SL_ASSERT(fd >= 0);
    SL_ASSERT(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    SL_ASSERT(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    SL_IGNORE(close(fd));
    return ntohs(address.sin_port);
}

/* Rank 0 joins the parts; a part that begins with '!' makes the round fail. */
static sluice_status reduce(void *context, uint32_t kind, const struct sl_bytes *parts, uint32_t world,
                            struct sl_mem *mem, uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error)
{
    (void)context;
    size_t bytes = 0;
    for (uint32_t i = 0; i < world; i++) {
        if (parts[i].bytes > 0 && parts[i].data[0] == '!')
            return sl_error_set(error, SLUICE_MISMATCH, "test", "rank %u disagrees in a round of kind %u", i, kind);
        bytes += parts[i].bytes;
    }
    uint8_t *data = sl_new(mem, bytes, "a result");
    if (data == NULL)
        return sl_error_set(error, SLUICE_NOMEM, "test", "out of memory");
    *ret_data = data;
    *ret_bytes = bytes;
    for (uint32_t i = 0; i < world; i++) {
        if (parts[i].bytes > 0)
            memcpy(data, parts[i].data, parts[i].bytes);
        data += parts[i].bytes;
    }
    return SLUICE_OK;
}

static void on_round(void *context, uint32_t kind, uint64_t id, sluice_status status, const struct sluice_error *error,
                     const uint8_t *data, size_t bytes)
{
    (void)kind;
    struct test_rank *rank = context;
    SL_IGNORE(pthread_mutex_lock(&rank->lock));
    rank->rounds++;
    rank->round_id = id;
    rank->round_status = status;
    if (error != NULL)
        rank->round_error = *error;
    rank->round_bytes = bytes;
    if (bytes > 0)
        memcpy(rank->round_data, data, bytes < sizeof(rank->round_data) ? bytes : sizeof(rank->round_data));
    SL_IGNORE(pthread_cond_broadcast(&rank->changed));
    SL_IGNORE(pthread_mutex_unlock(&rank->lock));
}

static void on_note(void *context, const struct sl_note *note)
{
    struct test_rank *rank = context;
    SL_IGNORE(pthread_mutex_lock(&rank->lock));
    rank->notes++;
    rank->last = *note;
    if (note->kind == SL_NOTE_LOST)
        rank->lost = *note;
    SL_IGNORE(pthread_cond_broadcast(&rank->changed));
    SL_IGNORE(pthread_mutex_unlock(&rank->lock));
}

struct test_ranks *test_ranks_new(uint32_t world, uint64_t timeout_ns)
{
    struct test_ranks *ranks = sl_new(sl_mem_default(), sizeof(*ranks), "ranks");
    SL_ASSERT(ranks != NULL && world <= TEST_RANKS_MAX);
    ranks->world = world;
    ranks->port = test_free_port();
    ranks->log = (struct test_log)TEST_LOG_INIT;
    ranks->sink = (struct sl_log){.sink = test_log_sink, .user = &ranks->log, .level = SLUICE_LOG_DEBUG};
    (void)snprintf(ranks->directory, sizeof(ranks->directory), "/tmp/sluice-ranks-XXXXXX");
    SL_ASSERT(mkdtemp(ranks->directory) != NULL);
    for (uint32_t i = 0; i < world; i++) {
        struct test_rank *rank = &ranks->rank[i];
        rank->ranks = ranks;
        SL_IGNORE(pthread_mutex_init(&rank->lock, NULL));
        SL_IGNORE(pthread_cond_init(&rank->changed, NULL));
        struct sl_control_config *config = &rank->config;
        config->identity = (struct sl_identity){.rank = i, .world = world, .address = "127.0.0.1", .port = ranks->port};
        (void)snprintf(config->identity.runtime_directory, sizeof(config->identity.runtime_directory), "%s",
                       ranks->directory);
        config->handlers = (struct sl_control_handlers){rank, on_round, on_note, reduce};
        config->clock = sl_clock_system();
        config->log = &ranks->sink;
        config->mem = sl_mem_default();
        config->bootstrap_timeout_ns = timeout_ns;
        config->heartbeat_ns = SLUICE_SECOND;
    }
    return ranks;
}

static void *open_one(void *context)
{
    struct test_rank *rank = context;
    rank->opened = sl_control_open(&rank->config, &rank->control);
    if (rank->opened != SLUICE_OK) {
        sl_error_take(&rank->error);
        rank->control = NULL;
    }
    return NULL;
}

static void *close_one(void *context)
{
    struct test_rank *rank = context;
    sl_control_close(rank->control);
    rank->control = NULL;
    return NULL;
}

static void in_threads(struct test_ranks *ranks, uint32_t which, void *(*body)(void *))
{
    for (uint32_t i = 0; i < ranks->world; i++) {
        ranks->rank[i].started = (which >> i & 1u) != 0;
        if (ranks->rank[i].started)
            SL_ASSERT(pthread_create(&ranks->rank[i].thread, NULL, body, &ranks->rank[i]) == 0);
    }
    for (uint32_t i = 0; i < ranks->world; i++)
        if (ranks->rank[i].started)
            SL_ASSERT(pthread_join(ranks->rank[i].thread, NULL) == 0);
}

void test_ranks_open(struct test_ranks *ranks, uint32_t which)
{
    in_threads(ranks, which, open_one);
}

void test_ranks_close(struct test_ranks *ranks, uint32_t which)
{
    in_threads(ranks, which, close_one);
}

void test_ranks_end(struct test_ranks *ranks)
{
    test_ranks_close(ranks, UINT32_MAX);
    for (uint32_t i = 0; i < ranks->world; i++) {
        SL_IGNORE(pthread_cond_destroy(&ranks->rank[i].changed));
        SL_IGNORE(pthread_mutex_destroy(&ranks->rank[i].lock));
    }
    SL_IGNORE(rmdir(ranks->directory));
    sl_free(sl_mem_default(), ranks);
}

void test_give(struct test_ranks *ranks, uint32_t rank, uint32_t kind, uint64_t id, const char *text,
               uint64_t timeout_ns)
{
    SL_ASSERT(sl_control_round(ranks->rank[rank].control, kind, id, text, strlen(text), timeout_ns) == SLUICE_OK);
}

void test_tell(struct test_ranks *ranks, uint32_t rank, uint32_t kind, uint64_t key, uint64_t a, uint64_t b)
{
    struct sl_note note = {.kind = kind, .key = key, .a = a, .b = b};
    SL_ASSERT(sl_control_tell(ranks->rank[rank].control, &note) == SLUICE_OK);
}

/* --- ranks in processes of their own --- */

pid_t test_rank_fork(struct test_ranks *ranks, uint32_t rank, int *ret_ready)
{
    int ends[2];
    SL_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    SL_ASSERT(child >= 0);
    if (child == 0) {
        struct sl_control *control = NULL;
        SL_IGNORE(close(ends[0]));
        char good = sl_control_open(&ranks->rank[rank].config, &control) == SLUICE_OK;
        if (write(ends[1], &good, 1) != 1)
            _exit(1);
        for (;;)
            SL_IGNORE(pause());
    }
    SL_IGNORE(close(ends[1]));
    *ret_ready = ends[0];
    return child;
}

void test_rank_await(int ready)
{
    char good = 0;
    SL_ASSERT(read(ready, &good, 1) == 1 && good == 1);
    SL_IGNORE(close(ready));
}

void test_rank_kill(pid_t child)
{
    SL_ASSERT(kill(child, SIGKILL) == 0);
    SL_ASSERT(waitpid(child, NULL, 0) == child);
}

/* --- waiting --- */

struct wish {
    uint32_t rounds, kind, rank;
    uint64_t key;
};

static _Bool has_rounds(const struct test_rank *rank, const struct wish *wish)
{
    return rank->rounds >= wish->rounds;
}

static _Bool has_note(const struct test_rank *rank, const struct wish *wish)
{
    return rank->notes > 0 && rank->last.kind == wish->kind && rank->last.key == wish->key;
}

static _Bool has_lost(const struct test_rank *rank, const struct wish *wish)
{
    return rank->lost.kind == SL_NOTE_LOST && rank->lost.rank == wish->rank;
}

/* Returns with the lock held. */
static _Bool wait_for(struct test_rank *rank, _Bool (*has)(const struct test_rank *, const struct wish *),
                      const struct wish *wish)
{
    struct timespec until;
    SL_IGNORE(clock_gettime(CLOCK_REALTIME, &until));
    until.tv_sec += WAIT_SECONDS;
    SL_IGNORE(pthread_mutex_lock(&rank->lock));
    int code = 0;
    while (code == 0 && !has(rank, wish))
        code = pthread_cond_timedwait(&rank->changed, &rank->lock, &until);
    return has(rank, wish);
}

_Bool test_wait_rounds(struct test_rank *rank, uint32_t count)
{
    _Bool good = wait_for(rank, has_rounds, &(struct wish){.rounds = count});
    SL_IGNORE(pthread_mutex_unlock(&rank->lock));
    return good;
}

_Bool test_wait_note(struct test_rank *rank, uint32_t kind, uint64_t key, struct sl_note *ret)
{
    _Bool good = wait_for(rank, has_note, &(struct wish){.kind = kind, .key = key});
    *ret = rank->last;
    SL_IGNORE(pthread_mutex_unlock(&rank->lock));
    return good;
}

_Bool test_wait_lost(struct test_rank *rank, uint32_t lost, struct sl_note *ret)
{
    _Bool good = wait_for(rank, has_lost, &(struct wish){.rank = lost});
    *ret = rank->lost;
    SL_IGNORE(pthread_mutex_unlock(&rank->lock));
    return good;
}

_Bool test_ranks_live(struct test_ranks *ranks, uint64_t round_timeout_ns)
{
    test_ranks_open(ranks, 3);
    _Bool good = ranks->rank[0].opened == SLUICE_OK && ranks->rank[1].opened == SLUICE_OK;
    uint32_t before[2] = {ranks->rank[0].rounds, ranks->rank[1].rounds};
    _Bool given[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_note note = {.kind = SL_NOTE_JOIN, .key = 1, .a = 2, .b = 1};
        struct test_rank *rank = &ranks->rank[i];
        if (rank->opened != SLUICE_OK)
            continue;
        good = sl_control_tell(rank->control, &note) == SLUICE_OK && good;
        given[i] = sl_control_round(rank->control, 1, 1, "x", 1, round_timeout_ns) == SLUICE_OK;
        good = good && given[i];
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (!given[i])
            continue;
        SL_ASSERT(test_wait_rounds(&ranks->rank[i], before[i] + 1));
        good = good && ranks->rank[i].round_status == SLUICE_OK;
    }
    test_ranks_close(ranks, 3);
    return good;
}
