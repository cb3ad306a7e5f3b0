/*
 * template.c: the smallest complete backend, to copy from when a new one is written. It compiles in CI and is in no
 * product.
 *
 * What it shows:
 * - Work finishes at some later time than submit, and completions come out of poll, in order per queue. Here "later" is
 *   the next poll: copies run there. A real backend hands them to hardware in submit and asks the hardware in poll.
 * - A queue has room for OPS operations. A full one says AGAIN and has taken nothing.
 * - Nothing is allocated between submit and completion.
 * - Its groups have one member, so messages never exist; a real one says here how ranks find each other.
 *
 * What a real one needs beside this: the wake-up when poll has something (here poll always has, so arm says BUSY), a
 * transport, and an answer to abort from any thread. tests/conformance runs over every backend in the registry.
 */
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "sluice/backend.h"

#define WHERE   "template"
#define OPS     64u
#define QUEUES  8u
#define MARKERS 64u

/* The only symbol; the registry's array would name it. */
const struct sluice_backend_ops *sl_template_backend(void);

struct sluice_device {
    struct sluice_backend_config config; /* copied: the caller's may be gone */
    struct sluice_queue *queues[QUEUES];
    struct sluice_group *opening; /* its completion is due */
};

struct sluice_queue {
    struct sluice_device *device;
    struct sluice_op ops[OPS]; /* a ring: entries done..submitted are ours */
    uint64_t submitted, done;
};

struct sluice_set {
    size_t count;
    struct sluice_copy pieces[];
};

struct sluice_group {
    struct sluice_device *device;
    uint64_t cookie;
};

static sluice_status query(struct sluice_backend_info *ret)
{
    /* Never fails: a backend that cannot work here says so in `usable` and `reason`. */
    *ret = (struct sluice_backend_info){.size = sizeof(*ret),
                                        .usable = 1,
                                        .devices = 1,
                                        .queues_max = QUEUES,
                                        .markers_max = MARKERS,
                                        .alignment = 1,
                                        .reason = "copies in poll, world of one"};
    return SLUICE_OK;
}

static sluice_status open_device(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    struct sluice_device *device = sl_new(sl_mem_default(), sizeof(*device), "device");
    if (device == NULL)
        return SLUICE_NOMEM;
    device->config = *config;
    *ret = device;
    return SLUICE_OK;
}

static void close_device(struct sluice_device *device)
{
    sl_free(sl_mem_default(), device);
}

static sluice_status mem_alloc(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    (void)device, (void)kind; /* one kind of memory serves all */
    void *memory = sl_new_aligned(sl_mem_default(), bytes, 64, "device memory");
    if (memory == NULL)
        return SLUICE_NOMEM;
    *ret = memory;
    return SLUICE_OK;
}

static void mem_free(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    (void)device, (void)kind, (void)bytes;
    sl_free(sl_mem_default(), memory);
}

static sluice_status queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    for (uint32_t i = 0; i < QUEUES; i++) {
        if (device->queues[i] != NULL)
            continue;
        struct sluice_queue *queue = sl_new(sl_mem_default(), sizeof(*queue), "queue");
        if (queue == NULL)
            return SLUICE_NOMEM;
        queue->device = device;
        device->queues[i] = queue;
        *ret = queue;
        return SLUICE_OK;
    }
    return sl_fail(SLUICE_LIMIT, WHERE, "more than %u queues", QUEUES);
}

static void queue_close(struct sluice_queue *queue)
{
    if (queue == NULL)
        return;
    for (uint32_t i = 0; i < QUEUES; i++)
        if (queue->device->queues[i] == queue)
            queue->device->queues[i] = NULL;
    sl_free(sl_mem_default(), queue);
}

static sluice_status set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    (void)device, (void)kind;
    struct sluice_set *set = sl_new(sl_mem_default(), sizeof(*set) + count * sizeof(*pieces), "copy set");
    if (set == NULL)
        return SLUICE_NOMEM;
    set->count = count;
    if (count > 0)
        memcpy(set->pieces, pieces, count * sizeof(*pieces));
    *ret = set;
    return SLUICE_OK;
}

static void set_close(struct sluice_set *set)
{
    sl_free(sl_mem_default(), set);
}

static sluice_status group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    (void)device;
    *ret = (struct sluice_blob){.bytes = 0}; /* whatever another rank needs to reach us */
    return SLUICE_OK;
}

static sluice_status group_open(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret)
{
    if (config->world != 1)
        return sl_fail(SLUICE_UNSUPPORTED, WHERE, "%u ranks: the template connects nobody", config->world);
    struct sluice_group *group = sl_new(sl_mem_default(), sizeof(*group), "communicator");
    if (group == NULL)
        return SLUICE_NOMEM;
    *group = (struct sluice_group){.device = device, .cookie = cookie};
    device->opening = group; /* even what is done at once completes through poll */
    *ret = group;
    return SLUICE_OK;
}

static void group_close(struct sluice_group *group)
{
    if (group != NULL && group->device->opening == group)
        group->device->opening = NULL;
    sl_free(sl_mem_default(), group);
}

static sluice_status submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    /* Refuse what is wrong before anything is taken; then AGAIN; then it is ours and completes once. */
    if (op->kind < SLUICE_OP_COPY || op->kind > SLUICE_OP_FENCE)
        return sl_fail(SLUICE_INVALID, WHERE, "operation of unknown kind %u", op->kind);
    if (op->kind == SLUICE_OP_GROUP && op->message_count > 0)
        return sl_fail(SLUICE_INVALID, WHERE, "a message in a world of one");
    if (queue->submitted - queue->done == OPS)
        return SLUICE_AGAIN;
    queue->ops[queue->submitted++ % OPS] = *op;
    return SLUICE_OK;
}

static void copy_rows(const struct sluice_copy *piece)
{
    for (uint64_t i = 0; i < piece->bytes; i++) {
        uint64_t from = piece->from.begin + i, to = piece->to.begin + i;
        const uint8_t *source = (const uint8_t *)(uintptr_t)piece->from.address;
        uint8_t *target = (uint8_t *)(uintptr_t)piece->to.address;
        target[to / piece->to.row_bytes * piece->to.pitch + to % piece->to.row_bytes] =
            source[from / piece->from.row_bytes * piece->from.pitch + from % piece->from.row_bytes];
    }
}

static void run(const struct sluice_op *op)
{
    /* Everything runs in submission order per queue and within one poll, so WAIT and RECORD have nothing to do. */
    if (op->kind == SLUICE_OP_COPY)
        for (size_t i = 0; i < op->set->count; i++)
            copy_rows(&op->set->pieces[i]);
}

static uint32_t drain(struct sluice_queue *queue, struct sluice_completion *ret, uint32_t max)
{
    uint32_t count = 0;
    while (queue->done < queue->submitted && count < max) {
        const struct sluice_op *op = &queue->ops[queue->done++ % OPS];
        run(op);
        if (op->notify)
            ret[count++] = (struct sluice_completion){.cookie = op->cookie};
    }
    return count;
}

static sluice_status poll_device(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                                 uint32_t *ret_count)
{
    uint32_t count = 0;
    if (device->opening != NULL && max > 0) {
        ret[count++] = (struct sluice_completion){.cookie = device->opening->cookie};
        device->opening = NULL;
    }
    for (uint32_t i = 0; i < QUEUES && count < max; i++)
        if (device->queues[i] != NULL)
            count += drain(device->queues[i], ret + count, max - count);
    *ret_count = count;
    return SLUICE_OK;
}

static sluice_status arm(struct sluice_device *device)
{
    for (uint32_t i = 0; i < QUEUES; i++)
        if (device->queues[i] != NULL && device->queues[i]->done < device->queues[i]->submitted)
            return SLUICE_BUSY;
    return device->opening != NULL ? SLUICE_BUSY : SLUICE_OK;
}

static sluice_status abort_group(struct sluice_group *group)
{
    (void)group; /* no operation of it is ever under way */
    return SLUICE_OK;
}

const struct sluice_backend_ops *sl_template_backend(void)
{
    static const struct sluice_backend_ops ops = {.size = sizeof(ops),
                                                  .abi = SLUICE_BACKEND_ABI,
                                                  .name = "template",
                                                  .query = query,
                                                  .open = open_device,
                                                  .close = close_device,
                                                  .mem_alloc = mem_alloc,
                                                  .mem_free = mem_free,
                                                  .queue_open = queue_open,
                                                  .queue_close = queue_close,
                                                  .set_open = set_open,
                                                  .set_close = set_close,
                                                  .group_address = group_address,
                                                  .group_open = group_open,
                                                  .group_close = group_close,
                                                  .submit = submit,
                                                  .poll = poll_device,
                                                  .arm = arm,
                                                  .abort = abort_group};
    return &ops;
}
