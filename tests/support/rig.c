/*
 * rig.c: see rig.h.
 *
 * - One eventfd per rig: the wake-up of every device writes it, and the test's thread sleeps on it only after every
 *   device was armed, so a lost wake-up shows as a test that times out.
 */
#include "support/rig.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

#define LIMIT_NS (60 * SLUICE_SECOND)

static int wake_fd = -1;

static void must(sluice_status status, const char *what)
{
    cr_assert_eq(status, SLUICE_OK, "%s: %s: %s", what, sluice_status_name(status), sluice_last_error()->text);
}

size_t rig_names(struct rig_name *ret, size_t max)
{
    static struct sl_backend_entry entries[SL_BACKENDS_MAX];
    size_t count = 0;
    uint32_t found = sl_backend_list(entries);
    for (uint32_t i = 0; i < found && count < max; i++)
        if (entries[i].built)
            strncpy(ret[count++].text, entries[i].name, sizeof(ret->text) - 1);
    return count;
}

static void wake(void *context)
{
    struct rig_rank *rank = context;
    atomic_fetch_add(&rank->wakes, 1);
    eventfd_write(wake_fd, 1);
}

static void open_rank(struct rig *rig, uint32_t index)
{
    struct rig_rank *rank = &rig->rank[index];
    rank->rig = rig;
    rank->rank = rig->first + index;
    struct sluice_backend_config config = sl_backend_config_alone();
    config.device = index;
    config.rank = rig->first + index;
    config.world = rig->world;
    config.trace = rig->trace;
    config.wake = wake;
    config.wake_context = rank;
    config.extra = rig->sim;
    if (rig->sim != NULL) {
        config.now = sl_sim_clock(rig->sim)->now;
        config.clock = rig->sim;
    }
    must(rig->ops->open(&config, &rank->device), "open");
    for (uint32_t q = 0; q < rig->queues; q++)
        must(rig->ops->queue_open(rank->device, &rank->queues[q]), "queue_open");
}

static void start(struct rig *rig, const char *backend)
{
    uint32_t ranks = rig->ranks;
    must(sl_backend_find(backend, &rig->ops), "backend");
    struct sluice_backend_info info = {.size = sizeof(info)};
    must(rig->ops->query(&info), "query");
    if (!info.usable)
        cr_skip_test("%s is not usable here: %s", backend, info.reason);
    if (strcmp(backend, "cuda") == 0 && info.devices < ranks)
        cr_skip_test("%u ranks need as many devices: there are %u", ranks, info.devices);
    if (strcmp(backend, "sim") == 0) {
        const struct sl_sim_options options = {.link = 1e9, .pack_rate = 1e9, .group_overhead = 1e-6, .move_bytes = 1};
        rig->sim = sl_sim_create(&options, ranks, sl_mem_default());
        cr_assert_not_null(rig->sim);
    }
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rig->rank = calloc(ranks, sizeof(*rig->rank));
    for (uint32_t i = 0; i < ranks; i++)
        open_rank(rig, i);
}

void rig_open(struct rig *rig, const char *backend, uint32_t ranks, uint32_t queues, uint32_t trace)
{
    *rig = (struct rig){.ranks = ranks, .world = ranks, .queues = queues, .trace = trace};
    start(rig, backend);
}

void rig_open_part(struct rig *rig, const char *backend, uint32_t first, uint32_t ranks, uint32_t world,
                   uint32_t queues)
{
    *rig = (struct rig){.ranks = ranks, .first = first, .world = world, .queues = queues};
    start(rig, backend);
}

static void free_blocks(struct rig_rank *rank)
{
    while (rank->block_count > 0) {
        struct rig_block block = rank->blocks[--rank->block_count];
        rank->rig->ops->mem_free(rank->device, block.kind, block.memory, block.bytes);
    }
    free(rank->blocks);
}

void rig_close(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->ranks; i++)
        for (uint32_t q = 0; q < rig->queues; q++)
            rig->ops->queue_close(rig->rank[i].queues[q]);
    for (uint32_t i = 0; i < rig->ranks; i++)
        if (rig->rank[i].group != NULL)
            rig->ops->group_close(rig->rank[i].group);
    for (uint32_t i = 0; i < rig->ranks; i++) {
        free_blocks(&rig->rank[i]);
        rig->ops->close(rig->rank[i].device);
    }
    sl_sim_destroy(rig->sim);
    free(rig->rank);
    close(wake_fd);
}

void rig_addresses(struct rig *rig, struct sluice_blob *blobs)
{
    for (uint32_t i = 0; i < rig->ranks; i++)
        must(rig->ops->group_address(rig->rank[i].device, &blobs[rig->rank[i].rank]), "group_address");
}

void rig_join(struct rig *rig, const struct sluice_blob *blobs, struct sluice_group **groups)
{
    uint8_t peers[RIG_RANKS];
    for (uint32_t i = 0; i < rig->ranks; i++) {
        struct rig_rank *rank = &rig->rank[i];
        memset(peers, 3, sizeof(peers));
        peers[rank->rank] = 0;
        const struct sluice_group_config config = {
            .size = sizeof(config), .rank = rank->rank, .world = rig->world, .blobs = blobs, .peers = peers};
        rank->ends[RIG_COOKIES - 1] = (struct rig_end){0};
        must(rig->ops->group_open(rank->device, &config, RIG_COOKIES - 1, &groups[i]), "group_open");
    }
    for (uint32_t i = 0; i < rig->ranks; i++)
        rig_wait(&rig->rank[i], RIG_COOKIES - 1);
}

void rig_connect(struct rig *rig, struct sluice_group **groups)
{
    struct sluice_blob blobs[RIG_RANKS];
    rig_addresses(rig, blobs);
    rig_join(rig, blobs, groups);
}

void rig_connect_all(struct rig *rig)
{
    struct sluice_group *groups[RIG_RANKS];
    rig_connect(rig, groups);
    for (uint32_t i = 0; i < rig->ranks; i++)
        rig->rank[i].group = groups[i];
}

void *rig_memory(struct rig_rank *rank, enum sluice_memory kind, uint64_t bytes)
{
    void *memory = NULL;
    must(rank->rig->ops->mem_alloc(rank->device, kind, bytes, &memory), "mem_alloc");
    if (rank->block_count == rank->block_capacity) {
        rank->block_capacity = 2 * rank->block_capacity + 16;
        rank->blocks = realloc(rank->blocks, rank->block_capacity * sizeof(*rank->blocks));
    }
    rank->blocks[rank->block_count++] = (struct rig_block){memory, bytes, kind};
    return memory;
}

void rig_free(struct rig_rank *rank, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    for (uint32_t i = 0; i < rank->block_count; i++)
        if (rank->blocks[i].memory == memory) {
            rank->blocks[i] = rank->blocks[--rank->block_count];
            break;
        }
    rank->rig->ops->mem_free(rank->device, kind, memory, bytes);
}

static void copy_through(struct rig_rank *rank, const void *from, void *to, uint64_t bytes)
{
    struct sluice_copy piece = rig_piece(from, to, bytes, SLUICE_MESSAGE_NONE);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
    rank->ends[RIG_COOKIES - 2] = (struct rig_end){0};
    rig_copy(rank, rank->rig->queues - 1, set, RIG_COOKIES - 2);
    rig_wait(rank, RIG_COOKIES - 2);
    rank->rig->ops->set_close(set);
}

void rig_write(struct rig_rank *rank, void *to, const void *from, uint64_t bytes)
{
    void *between = rig_memory(rank, SLUICE_MEMORY_PINNED, bytes);
    memcpy(between, from, bytes);
    copy_through(rank, between, to, bytes);
    rig_free(rank, SLUICE_MEMORY_PINNED, between, bytes);
}

void rig_read(struct rig_rank *rank, void *to, const void *from, uint64_t bytes)
{
    void *between = rig_memory(rank, SLUICE_MEMORY_PINNED, bytes);
    copy_through(rank, from, between, bytes);
    memcpy(to, between, bytes);
    rig_free(rank, SLUICE_MEMORY_PINNED, between, bytes);
}

static void sleep_until_woken(struct rig *rig, uint64_t deadline)
{
    for (uint32_t i = 0; i < rig->ranks; i++)
        if (rig->ops->arm(rig->rank[i].device) != SLUICE_OK)
            return;
    if (rig->sim != NULL) { /* virtual time stands still while anybody sleeps */
        cr_assert(sl_sim_next(rig->sim, UINT64_MAX), "the simulated world will never do what is waited for");
        return;
    }
    struct pollfd one = {.fd = wake_fd, .events = POLLIN};
    uint64_t time = sl_now(sl_clock_system());
    poll(&one, 1, time < deadline ? (int)((deadline - time) / SLUICE_MILLISECOND) + 1 : 0);
    eventfd_t value;
    SL_IGNORE(eventfd_read(wake_fd, &value) != 0);
}

void rig_submit(struct rig_rank *rank, uint32_t queue, const struct sluice_op *op)
{
    uint64_t deadline = sl_now(sl_clock_system()) + LIMIT_NS;
    sluice_status status;
    while ((status = rank->rig->ops->submit(rank->queues[queue], op)) == SLUICE_AGAIN) {
        cr_assert_lt(sl_now(sl_clock_system()), deadline, "the queue never had room again");
        rig_poll(rank->rig);
        sleep_until_woken(rank->rig, deadline);
    }
    must(status, "submit");
}

void rig_copy(struct rig_rank *rank, uint32_t queue, struct sluice_set *set, uint64_t cookie)
{
    const struct sluice_op op = {.kind = SLUICE_OP_COPY, .set = set, .cookie = cookie, .notify = 1};
    rig_submit(rank, queue, &op);
}

void rig_group(struct rig_rank *rank, uint32_t queue, const struct sluice_message *messages, uint32_t count,
               uint64_t cookie)
{
    const struct sluice_op op = {.kind = SLUICE_OP_GROUP,
                                 .group = rank->group,
                                 .messages = messages,
                                 .message_count = count,
                                 .cookie = cookie,
                                 .notify = 1};
    rig_submit(rank, queue, &op);
}

void rig_mark(struct rig_rank *rank, uint32_t queue, enum sluice_op_kind kind, uint32_t marker)
{
    const struct sluice_op op = {.kind = kind, .marker = marker};
    rig_submit(rank, queue, &op);
}

void rig_fence(struct rig_rank *rank, uint32_t queue, uint64_t cookie)
{
    const struct sluice_op op = {.kind = SLUICE_OP_FENCE, .cookie = cookie, .notify = 1};
    rig_submit(rank, queue, &op);
}

struct sluice_set *rig_set(struct rig_rank *rank, enum sluice_copy_kind kind, const struct sluice_copy *pieces,
                           size_t count)
{
    struct sluice_set *set = NULL;
    must(rank->rig->ops->set_open(rank->device, kind, pieces, count, &set), "set_open");
    return set;
}

struct sluice_strided rig_flat(const void *address)
{
    return (struct sluice_strided){
        .address = (uint64_t)(uintptr_t)address, .row_bytes = UINT64_MAX, .pitch = UINT64_MAX};
}

struct sluice_copy rig_piece(const void *from, void *to, uint64_t bytes, uint32_t message)
{
    return (struct sluice_copy){.from = rig_flat(from), .to = rig_flat(to), .bytes = bytes, .message = message};
}

void rig_pass(struct rig *rig)
{
    if (rig->sim != NULL)
        SL_IGNORE(sl_sim_next(rig->sim, UINT64_MAX));
}

void rig_poll(struct rig *rig)
{
    struct sluice_completion got[8];
    for (uint32_t i = 0; i < rig->ranks; i++) {
        struct rig_rank *rank = &rig->rank[i];
        uint32_t count = SL_COUNT(got);
        while (count == SL_COUNT(got)) {
            must(rig->ops->poll(rank->device, got, SL_COUNT(got), &count), "poll");
            for (uint32_t c = 0; c < count; c++) {
                struct rig_end *end = &rank->ends[got[c].cookie % RIG_COOKIES];
                end->times++;
                end->status = got[c].status;
                end->begin_ns = got[c].begin_ns;
                end->end_ns = got[c].end_ns;
                end->error = got[c].error;
                rank->completions++;
            }
        }
    }
}

const struct rig_end *rig_wait_any(struct rig_rank *rank, uint64_t cookie)
{
    uint64_t deadline = sl_now(sl_clock_system()) + LIMIT_NS;
    while (!rig_ended(rank, cookie)) {
        cr_assert_lt(sl_now(sl_clock_system()), deadline, "rank %u: operation %lu did not end", rank->rank,
                     (unsigned long)cookie);
        sleep_until_woken(rank->rig, deadline);
    }
    const struct rig_end *end = &rank->ends[cookie];
    cr_assert_eq(end->times, 1, "rank %u: operation %lu ended %u times", rank->rank, (unsigned long)cookie, end->times);
    return end;
}

const struct rig_end *rig_wait(struct rig_rank *rank, uint64_t cookie)
{
    const struct rig_end *end = rig_wait_any(rank, cookie);
    cr_assert_eq(end->status, SLUICE_OK, "rank %u: operation %lu: %s: %s", rank->rank, (unsigned long)cookie,
                 sluice_status_name(end->status), end->error.text);
    return end;
}

_Bool rig_ended(struct rig_rank *rank, uint64_t cookie)
{
    rig_poll(rank->rig);
    return rank->ends[cookie].times > 0;
}

uint8_t rig_byte(uint64_t seed, uint64_t at)
{
    return (uint8_t)(sl_mix64(seed * 0x9e3779b97f4a7c15u + at / 8) >> (8 * (at % 8)));
}

void rig_pattern(uint8_t *memory, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        memory[i] = rig_byte(seed, i);
}

uint64_t rig_compare(const uint8_t *memory, uint64_t bytes, uint64_t seed)
{
    uint64_t i = 0;
    while (i < bytes && memory[i] == rig_byte(seed, i))
        i++;
    return i;
}
