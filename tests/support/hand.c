/*
 * hand.c: see hand.h.
 *
 * Invariants: only the scheduler thread touches the device; the test touches the atomics of `hand`.
 */
#include "support/hand.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"

enum { PENDING_MAX = 256 };

struct sluice_device {
    struct sluice_backend_config config;
    struct sluice_op pending[PENDING_MAX];
    uint32_t head, count;
};

struct sluice_queue {
    struct sluice_device *device;
};

struct sluice_set {
    struct sluice_copy *pieces;
    size_t count;
};

struct hand hand;
static _Atomic(struct sluice_device *) open_device;

void hand_reset(void)
{
    atomic_store(&hand.allowed, HAND_ALL);
    atomic_store(&hand.submitted, 0);
    atomic_store(&hand.completed, 0);
    atomic_store(&hand.refuse, 0);
    atomic_store(&hand.fail_at, -1);
}

void hand_allow(uint32_t count)
{
    struct sluice_device *device = atomic_load(&open_device);
    if (count == HAND_ALL)
        atomic_store(&hand.allowed, HAND_ALL);
    else
        atomic_fetch_add(&hand.allowed, count);
    if (device != NULL)
        device->config.wake(device->config.wake_context);
}

static sluice_status query(struct sluice_backend_info *ret)
{
    uint32_t size = ret->size;
    *ret = (struct sluice_backend_info){
        .size = size, .usable = 1, .devices = 1, .queues_max = 16, .markers_max = 16, .alignment = 16};
    return SLUICE_OK;
}

static sluice_status open_it(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    struct sluice_device *device = calloc(1, sizeof *device);
    SL_ASSERT(device != NULL);
    device->config = *config;
    atomic_store(&open_device, device);
    *ret = device;
    return SLUICE_OK;
}

static void close_it(struct sluice_device *device)
{
    atomic_store(&open_device, NULL);
    free(device);
}

static sluice_status mem_alloc(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    atomic_fetch_add(&hand.calls, 1);
    (void)device;
    (void)kind;
    *ret = calloc(1, bytes);
    SL_ASSERT(*ret != NULL);
    atomic_fetch_add(&hand.memory, 1);
    return SLUICE_OK;
}

static void mem_free(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    atomic_fetch_add(&hand.calls, 1);
    (void)device;
    (void)kind;
    (void)bytes;
    free(memory);
    atomic_fetch_sub(&hand.memory, 1);
}

static sluice_status queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    atomic_fetch_add(&hand.calls, 1);
    *ret = calloc(1, sizeof **ret);
    SL_ASSERT(*ret != NULL);
    (*ret)->device = device;
    return SLUICE_OK;
}

static void queue_close(struct sluice_queue *queue)
{
    atomic_fetch_add(&hand.calls, 1);
    free(queue);
}

static sluice_status set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    atomic_fetch_add(&hand.calls, 1);
    (void)device;
    (void)kind;
    struct sluice_set *set = calloc(1, sizeof *set);
    SL_ASSERT(set != NULL);
    set->pieces = calloc(count, sizeof *pieces);
    SL_ASSERT(set->pieces != NULL);
    memcpy(set->pieces, pieces, count * sizeof *pieces);
    set->count = count;
    atomic_fetch_add(&hand.sets, 1);
    *ret = set;
    return SLUICE_OK;
}

static void set_close(struct sluice_set *set)
{
    atomic_fetch_add(&hand.calls, 1);
    free(set->pieces);
    free(set);
    atomic_fetch_sub(&hand.sets, 1);
}

static sluice_status group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    (void)device;
    *ret = (struct sluice_blob){0};
    return SLUICE_OK;
}

static sluice_status group_open(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret)
{
    (void)device;
    (void)config;
    (void)cookie;
    (void)ret;
    return sl_fail(SLUICE_UNSUPPORTED, "hand", "this backend has no groups");
}

static void group_close(struct sluice_group *group)
{
    (void)group;
}

static sluice_status submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    struct sluice_device *device = queue->device;
    if (atomic_load(&hand.refuse) > 0) {
        atomic_fetch_sub(&hand.refuse, 1);
        return SLUICE_AGAIN;
    }
    SL_ASSERT(op->kind == SLUICE_OP_COPY && device->count < PENDING_MAX);
    device->pending[(device->head + device->count++) % PENDING_MAX] = *op;
    atomic_fetch_add(&hand.submitted, 1);
    device->config.wake(device->config.wake_context);
    return SLUICE_OK;
}

static uint8_t *at(const struct sluice_strided *side, uint64_t byte)
{
    uint64_t i = side->begin + byte;
    if (side->row_bytes == UINT64_MAX)
        return (uint8_t *)(uintptr_t)side->address + i;
    return (uint8_t *)(uintptr_t)side->address + i / side->row_bytes * side->pitch + i % side->row_bytes;
}

static void run_set(const struct sluice_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        for (uint64_t byte = 0; byte < set->pieces[i].bytes; byte++)
            *at(&set->pieces[i].to, byte) = *at(&set->pieces[i].from, byte);
}

static _Bool may_complete(void)
{
    unsigned allowed = atomic_load(&hand.allowed);
    if (allowed != HAND_ALL && allowed > 0)
        atomic_fetch_sub(&hand.allowed, 1);
    return allowed > 0;
}

static sluice_status poll_it(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                             uint32_t *ret_count)
{
    uint32_t count = 0;
    while (count < max && device->count > 0 && may_complete()) {
        const struct sluice_op *op = &device->pending[device->head];
        ret[count] = (struct sluice_completion){.cookie = op->cookie};
        if ((int)atomic_load(&hand.completed) == atomic_load(&hand.fail_at))
            ret[count].status = sl_error_set(&ret[count].error, SLUICE_DEVICE, "hand", "a copy failed");
        else
            run_set(op->set);
        atomic_fetch_add(&hand.completed, 1);
        device->head = (device->head + 1) % PENDING_MAX;
        device->count--;
        count++;
    }
    *ret_count = count;
    return SLUICE_OK;
}

static sluice_status arm(struct sluice_device *device)
{
    (void)device;
    return SLUICE_OK;
}

static sluice_status abort_it(struct sluice_group *group)
{
    (void)group;
    return SLUICE_OK;
}

const struct sluice_backend_ops *hand_backend(void)
{
    static const struct sluice_backend_ops ops = {
        .size = sizeof ops,
        .abi = SLUICE_BACKEND_ABI,
        .name = "hand",
        .query = query,
        .open = open_it,
        .close = close_it,
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
        .poll = poll_it,
        .arm = arm,
        .abort = abort_it,
    };
    return &ops;
}
