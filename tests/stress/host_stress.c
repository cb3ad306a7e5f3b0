/*
 * host_stress.c: devices of one process under the thread sanitizer. One thread per rank drives its own device, as the
 * scheduler thread of a runtime does: random groups of staged and plain messages, pack and unpack sets over rotating
 * slots, markers between queues, sleeping only when armed; at the end a communicator is aborted from another thread.
 * Every received byte is checked. Usage: host_stress [rounds] [seed]
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/random.h"

enum { WORLD = 4, SLOTS = 3, MESSAGES = 3, LONGEST = 40000, PART = 2 * WORLD * MESSAGES * LONGEST };

#define COOKIE_OPEN UINT64_MAX
#define COOKIE_HANG (UINT64_MAX - 1)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, sluice_last_error()->text); \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* One received message of a window. */
struct due {
    const uint8_t *at;
    uint64_t bytes, seed;
};

struct window {
    struct sluice_message messages[2 * WORLD * MESSAGES];
    struct due dues[WORLD * MESSAGES];
    struct sluice_set *pack, *unpack;
    uint32_t count, due_count;
};

struct rank {
    uint32_t number, rounds;
    uint64_t seed;
    int wake_fd;
    struct sluice_device *device;
    struct sluice_queue *queues[SLOTS];
    struct sluice_group *group;
    uint8_t *source, *target, *send, *recv, *plain; /* SLOTS parts each */
    struct window windows[SLOTS];
    uint64_t slot_done[SLOTS]; /* rounds done with it; cookies of windows are their round */
    _Bool opened;
    sluice_status hang_status; /* of the group that is aborted; OK until it ended */
};

static const struct sluice_backend_ops *host;
static struct sluice_blob blobs[WORLD];
static pthread_barrier_t barrier;

static uint64_t now(void *clock)
{
    (void)clock;
    return sl_now(sl_clock_system());
}

static void wake(void *context)
{
    struct rank *rank = context;
    CHECK(eventfd_write(rank->wake_fd, 1) == 0);
}

static void take_completions(struct rank *rank)
{
    struct sluice_completion got[4];
    uint32_t count = 0;
    CHECK(host->poll(rank->device, got, 4, &count) == SLUICE_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (got[i].cookie == COOKIE_HANG) {
            rank->hang_status = got[i].status;
            continue;
        }
        if (got[i].status != SLUICE_OK)
            CHECK(sl_fail_copy(&got[i].error) == SLUICE_OK);
        if (got[i].cookie == COOKIE_OPEN)
            rank->opened = 1;
        else
            rank->slot_done[got[i].cookie % SLOTS]++;
    }
}

/* Sleeps when there is nothing, then takes what there is. */
static void pump(struct rank *rank)
{
    if (host->arm(rank->device) == SLUICE_OK) {
        struct pollfd one = {.fd = rank->wake_fd, .events = POLLIN};
        CHECK(poll(&one, 1, 120000) == 1 || errno == EINTR);
        eventfd_t value;
        SL_IGNORE(eventfd_read(rank->wake_fd, &value) != 0);
    }
    take_completions(rank);
}

static void submit(struct rank *rank, uint32_t queue, const struct sluice_op *op)
{
    sluice_status status;
    while ((status = host->submit(rank->queues[queue], op)) == SLUICE_AGAIN)
        take_completions(rank);
    CHECK(status == SLUICE_OK);
}

static uint8_t byte_of(uint64_t seed, uint64_t at)
{
    return (uint8_t)sl_mix64(seed + at);
}

static void *memory_of(struct rank *rank, enum sluice_memory kind)
{
    void *memory = NULL;
    CHECK(host->mem_alloc(rank->device, kind, (uint64_t)SLOTS * PART, &memory) == SLUICE_OK);
    return memory;
}

static void open_rank(struct rank *rank)
{
    rank->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const struct sluice_backend_config config = {.size = sizeof(config),
                                                 .rank = rank->number,
                                                 .world = WORLD,
                                                 .trace = 1,
                                                 .now = now,
                                                 .wake = wake,
                                                 .wake_context = rank};
    CHECK(host->open(&config, &rank->device) == SLUICE_OK);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(host->queue_open(rank->device, &rank->queues[i]) == SLUICE_OK);
    rank->source = memory_of(rank, SLUICE_MEMORY_DEVICE);
    rank->target = memory_of(rank, SLUICE_MEMORY_DEVICE);
    rank->plain = memory_of(rank, SLUICE_MEMORY_DEVICE);
    rank->send = memory_of(rank, SLUICE_MEMORY_SEND);
    rank->recv = memory_of(rank, SLUICE_MEMORY_RECV);
    CHECK(host->group_address(rank->device, &blobs[rank->number]) == SLUICE_OK);
    pthread_barrier_wait(&barrier);
    uint8_t peers[WORLD] = {3, 3, 3, 3};
    peers[rank->number] = 0;
    const struct sluice_group_config world = {
        .size = sizeof(world), .rank = rank->number, .world = WORLD, .blobs = blobs, .peers = peers};
    CHECK(host->group_open(rank->device, &world, COOKIE_OPEN, &rank->group) == SLUICE_OK);
    take_completions(rank);
    while (!rank->opened)
        pump(rank);
}

static void close_rank(struct rank *rank)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        host->queue_close(rank->queues[i]);
    host->group_close(rank->group);
    for (uint32_t i = 0; i < SLOTS; i++) {
        host->set_close(rank->windows[i].pack);
        host->set_close(rank->windows[i].unpack);
    }
    uint64_t bytes = (uint64_t)SLOTS * PART;
    host->mem_free(rank->device, SLUICE_MEMORY_DEVICE, rank->source, bytes);
    host->mem_free(rank->device, SLUICE_MEMORY_DEVICE, rank->target, bytes);
    host->mem_free(rank->device, SLUICE_MEMORY_DEVICE, rank->plain, bytes);
    host->mem_free(rank->device, SLUICE_MEMORY_SEND, rank->send, bytes);
    host->mem_free(rank->device, SLUICE_MEMORY_RECV, rank->recv, bytes);
    host->close(rank->device);
    close(rank->wake_fd);
}

static struct sluice_copy piece_of(const uint8_t *from, uint8_t *to, uint64_t bytes, uint32_t message)
{
    return (struct sluice_copy){.from = {(uint64_t)(uintptr_t)from, UINT64_MAX, UINT64_MAX, 0},
                                .to = {(uint64_t)(uintptr_t)to, UINT64_MAX, UINT64_MAX, 0},
                                .bytes = bytes,
                                .message = message};
}

struct building {
    struct rank *rank;
    struct window *window;
    struct sluice_copy packs[WORLD * MESSAGES], unpacks[WORLD * MESSAGES];
    uint32_t pack_count, unpack_count;
    uint64_t at; /* in the slot's part */
};

static void add_send(struct building *b, uint32_t peer, uint64_t bytes, _Bool staged, uint64_t seed)
{
    uint64_t at = (uint64_t)(b->window - b->rank->windows) * PART + b->at;
    uint8_t *content = b->rank->source + at;
    for (uint64_t i = 0; i < bytes; i++)
        content[i] = byte_of(seed, i);
    if (staged)
        b->packs[b->pack_count++] = piece_of(content, b->rank->send + at, bytes, b->window->count);
    b->window->messages[b->window->count++] =
        (struct sluice_message){.address = (uint64_t)(uintptr_t)(staged ? b->rank->send + at : content),
                                .bytes = bytes,
                                .peer = peer,
                                .staged = staged};
}

static void add_receive(struct building *b, uint32_t peer, uint64_t bytes, _Bool staged, uint64_t seed)
{
    uint64_t at = (uint64_t)(b->window - b->rank->windows) * PART + b->at;
    uint8_t *landing = (staged ? b->rank->recv : b->rank->plain) + at;
    if (staged)
        b->unpacks[b->unpack_count++] = piece_of(landing, b->rank->target + at, bytes, b->window->count);
    b->window->messages[b->window->count++] = (struct sluice_message){
        .address = (uint64_t)(uintptr_t)landing, .bytes = bytes, .peer = peer, .receive = 1, .staged = staged};
    b->window->dues[b->window->due_count++] =
        (struct due){.at = staged ? b->rank->target + at : landing, .bytes = bytes, .seed = seed};
}

/* All ranks draw the same window from the same seed and keep their part of it. */
static void make_window(struct rank *rank, uint32_t round)
{
    struct building b = {.rank = rank, .window = &rank->windows[round % SLOTS]};
    struct sl_random random = {.state = rank->seed * 1000003 + round};
    b.window->count = b.window->due_count = 0;
    for (uint32_t from = 0; from < WORLD; from++)
        for (uint32_t to = 0; to < WORLD; to++)
            for (uint64_t left = sl_random_below(&random, MESSAGES + 1); left > 0; left--) {
                uint64_t bytes = 1 + sl_random_below(&random, sl_random_below(&random, 2) ? LONGEST : 50);
                uint64_t seed = sl_random_next(&random);
                uint64_t staged = sl_random_below(&random, 4);
                if (from == to || (from != rank->number && to != rank->number))
                    continue;
                if (from == rank->number)
                    add_send(&b, to, bytes, staged & 1, seed);
                else
                    add_receive(&b, from, bytes, staged >> 1, seed);
                b.at += LONGEST;
                CHECK(b.at <= PART);
            }
    host->set_close(b.window->pack);
    host->set_close(b.window->unpack);
    CHECK(host->set_open(rank->device, SLUICE_COPY_PACK, b.packs, b.pack_count, &b.window->pack) == SLUICE_OK);
    CHECK(host->set_open(rank->device, SLUICE_COPY_UNPACK, b.unpacks, b.unpack_count, &b.window->unpack) == SLUICE_OK);
}

static void launch(struct rank *rank, uint32_t round)
{
    uint32_t slot = round % SLOTS;
    struct window *window = &rank->windows[slot];
    const struct sluice_op pack = {.kind = SLUICE_OP_COPY, .set = window->pack};
    const struct sluice_op wait = {.kind = SLUICE_OP_WAIT, .marker = (round + 1) % 2};
    const struct sluice_op group = {
        .kind = SLUICE_OP_GROUP, .group = rank->group, .messages = window->messages, .message_count = window->count};
    const struct sluice_op record = {.kind = SLUICE_OP_RECORD, .marker = round % 2};
    const struct sluice_op unpack = {.kind = SLUICE_OP_COPY, .set = window->unpack, .cookie = round, .notify = 1};
    submit(rank, slot, &pack);
    if (round > 0)
        submit(rank, slot, &wait);
    submit(rank, slot, &group);
    submit(rank, slot, &record);
    submit(rank, slot, &unpack);
}

static void check_window(struct rank *rank, uint32_t round)
{
    const struct window *window = &rank->windows[round % SLOTS];
    for (uint32_t i = 0; i < window->due_count; i++)
        for (uint64_t at = 0; at < window->dues[i].bytes; at++)
            CHECK(window->dues[i].at[at] == byte_of(window->dues[i].seed, at));
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    open_rank(rank);
    for (uint32_t round = 0; round < rank->rounds + SLOTS; round++) {
        if (round >= SLOTS) {
            take_completions(rank);
            while (rank->slot_done[round % SLOTS] < round / SLOTS)
                pump(rank);
            check_window(rank, round - SLOTS);
        }
        if (round < rank->rounds) {
            make_window(rank, round);
            launch(rank, round);
        }
    }
    pthread_barrier_wait(&barrier);
    /* Somebody else aborts while this rank waits for a message that never comes. */
    const struct sluice_message never = {
        .address = (uint64_t)(uintptr_t)rank->plain, .bytes = 8, .peer = (rank->number + 1) % WORLD, .receive = 1};
    const struct sluice_op hang = {.kind = SLUICE_OP_GROUP,
                                   .group = rank->group,
                                   .messages = &never,
                                   .message_count = 1,
                                   .cookie = COOKIE_HANG,
                                   .notify = 1};
    submit(rank, 0, &hang);
    pthread_barrier_wait(&barrier);
    take_completions(rank);
    while (rank->hang_status == SLUICE_OK)
        pump(rank);
    CHECK(rank->hang_status == SLUICE_ABORTED || rank->hang_status == SLUICE_PEER_FAILED);
    pthread_barrier_wait(&barrier);
    close_rank(rank);
    return NULL;
}

int main(int count, char **arguments)
{
    static struct rank ranks[WORLD];
    pthread_t threads[WORLD];
    uint32_t rounds = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 10) : 200;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    CHECK(sl_backend_find("host", &host) == SLUICE_OK);
    pthread_barrier_init(&barrier, NULL, WORLD + 1);
    for (uint32_t i = 0; i < WORLD; i++) {
        ranks[i] = (struct rank){.number = i, .rounds = rounds, .seed = seed};
        CHECK(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
    }
    for (uint32_t i = 0; i < 3; i++)
        pthread_barrier_wait(&barrier); /* addresses, rounds, hanging groups */
    for (uint32_t i = 0; i < WORLD; i++)
        CHECK(host->abort(ranks[i].group) == SLUICE_OK);
    pthread_barrier_wait(&barrier);
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(threads[i], NULL);
    printf("host_stress: %u rounds of %d ranks, seed %llu: every byte right\n", rounds, WORLD,
           (unsigned long long)seed);
    return 0;
}
