/*
 * Pageable memory: what the device cannot reach goes through slots of pinned memory (stage.h), in front of the
 * device's part or behind it.
 *
 * Invariants: threads of the crew call nothing of CUDA, and the calls of this file are made by the thread that calls
 * the backend; a device whose sets are all in memory that it reaches has no slot and no thread; a slot's event is
 * recorded behind the copies that read or write the slot.
 */
#include "runtime/backend/cuda/device.h"

#include <unistd.h>

/* A slot is what jemalloc fits into a block of BLOCK: it adds a page and rounds up to one of four sizes a doubling. */
enum { SLOT_BYTES = 7 << 19, BLOCK = 4 << 20, SLOTS_MIN = 2, THREADS_MAX = 4 };

struct sl_cuda_staging {
    struct sluice_device *device;
    struct sl_stage_slots slots;
    cudaEvent_t passed[SL_STAGE_SLOTS_MAX];
    struct sl_crew *crew;
    struct sl_stage *stage;
};

/* --- the device's part --- */

static cudaError_t copy_part(struct sluice_device *device, const struct sluice_set *set,
                             const struct sl_cuda_part *part, cudaStream_t stream)
{
    cudaError_t result = cudaSuccess;
    for (uint32_t i = 0; result == cudaSuccess && i < part->run_count; i++)
        result = cudaMemcpyAsync((void *)(uintptr_t)part->runs[i].to, (const void *)(uintptr_t)part->runs[i].from,
                                 part->runs[i].bytes, cudaMemcpyDefault, stream);
    if (result == cudaSuccess)
        result = sl_cuda_launch_tiles(device, set->tiles + part->first_tile, part->tile_count, stream);
    return result;
}

static sluice_status enqueue(void *context, const struct sl_stage_op *op, uint32_t chunk)
{
    const struct sl_cuda_staging *staging = context;
    const struct sluice_queue *queue = op->owner;
    const struct sluice_set *set = queue->ops[queue->issued % SL_CUDA_OPS_MAX].op.set;
    uint32_t slot = op->plan->chunks[chunk].slot;
    cudaError_t result = copy_part(staging->device, set, &set->parts[chunk], queue->stream);
    if (result == cudaSuccess)
        result = cudaEventRecord(staging->passed[slot], queue->stream);
    if (result == cudaSuccess)
        return SLUICE_OK;
    sl_cuda_lose(staging->device, result, "staging a copy");
    return SLUICE_DEVICE;
}

static sluice_status passed(void *context, uint32_t slot)
{
    const struct sl_cuda_staging *staging = context;
    cudaError_t result = cudaEventQuery(staging->passed[slot]);
    if (result == cudaSuccess)
        return SLUICE_OK;
    if (result == cudaErrorNotReady)
        return SLUICE_AGAIN;
    sl_cuda_lose(staging->device, result, "staging a copy");
    return SLUICE_DEVICE;
}

static void ended(void *context, struct sl_stage_op *op, _Bool lost)
{
    const struct sl_cuda_staging *staging = context;
    sl_cuda_issued(op->owner, lost ? &staging->device->sticky : NULL);
}

/* --- open and close --- */

static uint32_t threads_wanted(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors >= 4 * THREADS_MAX)
        return THREADS_MAX;
    return processors >= 8 ? (uint32_t)processors / 4 : 1;
}

static sluice_status open_slots(struct sl_cuda_staging *staging)
{
    struct sluice_device *device = staging->device;
    uint64_t most = device->config.host_staging_bytes_max;
    uint64_t count = most == 0 || most / BLOCK > SL_STAGE_SLOTS_MAX ? SL_STAGE_SLOTS_MAX : most / BLOCK;
    if (count < SLOTS_MIN)
        return sl_fail(SLUICE_LIMIT, "cuda",
                       "pageable memory needs %u bytes of pinned memory to be staged through, host_staging_bytes_max "
                       "is %llu: raise it (SLUICE_HOST_STAGING_MAX), or pin the buffers",
                       SLOTS_MIN * BLOCK, (unsigned long long)most);
    sluice_status status = SLUICE_OK;
    staging->slots.bytes = SLOT_BYTES;
    for (uint64_t i = 0; i < count && status == SLUICE_OK; i++) {
        void *memory = NULL;
        status = sl_cuda_pinned_alloc(device, SLOT_BYTES, &memory);
        staging->slots.memory[i] = memory;
        staging->slots.count += status == SLUICE_OK;
        if (status == SLUICE_OK)
            status = sl_cuda_status(cudaEventCreateWithFlags(&staging->passed[i], cudaEventDisableTiming),
                                    "creating an event");
    }
    return status;
}

static sluice_status open_staging(struct sl_cuda_staging *staging)
{
    static const struct sl_stage_ops ops = {enqueue, passed, ended};
    struct sluice_device *device = staging->device;
    uint32_t threads = threads_wanted();
    sluice_status status = open_slots(staging);
    if (status == SLUICE_OK)
        status = sl_crew_open(device->mem, threads, device->config.wake, device->config.wake_context, &staging->crew);
    if (status == SLUICE_OK)
        status = sl_stage_open(device->mem, &ops, staging, staging->crew, &staging->stage);
    if (status == SLUICE_OK)
        SL_LOG(&device->log, SLUICE_LOG_INFO, "cuda",
               "pageable memory is staged through %u slots of %d bytes of pinned memory by %u threads",
               staging->slots.count, SLOT_BYTES, threads);
    return status;
}

sluice_status sl_cuda_staging_open(struct sluice_device *device, struct sl_stage_slots **ret)
{
    sluice_status status = SLUICE_OK;
    if (device->staging == NULL) {
        device->staging = sl_new(device->mem, sizeof *device->staging, "staging");
        if (device->staging == NULL)
            return SLUICE_NOMEM;
        device->staging->device = device;
        status = open_staging(device->staging);
    }
    if (status == SLUICE_OK)
        *ret = &device->staging->slots;
    else
        sl_cuda_staging_close(device);
    return status;
}

void sl_cuda_staging_close(struct sluice_device *device)
{
    struct sl_cuda_staging *staging = device->staging;
    if (staging == NULL)
        return;
    sl_stage_close(staging->stage);
    sl_crew_close(staging->crew);
    for (uint32_t i = 0; i < SL_STAGE_SLOTS_MAX; i++) {
        if (staging->passed[i] != NULL)
            (void)cudaEventDestroy(staging->passed[i]);
        sl_blocks_free(device->pinned, staging->slots.memory[i], SLOT_BYTES);
    }
    sl_free(device->mem, staging);
    device->staging = NULL;
}

/* --- running --- */

static void begin_digest(struct sluice_queue *queue, const struct sluice_set *set)
{
    queue->digest.copies = set->hosted;
    queue->digest.count = set->hosted_count;
    queue->digest.digests = set->hosted_values;
    queue->digesting = 1;
    sl_crew_push(queue->device->staging->crew, &queue->digest);
}

void sl_cuda_staging_begin(struct sluice_queue *queue)
{
    const struct sluice_set *set = queue->ops[queue->issued % SL_CUDA_OPS_MAX].op.set;
    if (set->kind == SLUICE_COPY_DIGEST) {
        begin_digest(queue, set);
        return;
    }
    queue->stage = (struct sl_stage_op){.plan = &set->staged, .owner = queue};
    sl_stage_begin(queue->device->staging->stage, &queue->stage);
}

static _Bool end_digests(const struct sluice_device *device)
{
    _Bool moved = 0;
    for (uint32_t q = 0; q < device->queue_count; q++) {
        struct sluice_queue *queue = device->queues[q];
        if (!queue->digesting || !atomic_load(&queue->digest.done))
            continue;
        queue->digesting = 0;
        sl_cuda_issued(queue, device->sticky.status != SLUICE_OK ? &device->sticky : NULL);
        moved = 1;
    }
    return moved;
}

_Bool sl_cuda_staging_advance(struct sluice_device *device)
{
    if (device->sticky.status != SLUICE_OK)
        sl_stage_lose(device->staging->stage);
    _Bool moved = sl_stage_advance(device->staging->stage);
    moved |= end_digests(device);
    return moved;
}

void sl_cuda_staging_forget(struct sluice_queue *queue)
{
    const struct sl_cuda_op *op = &queue->ops[queue->issued % SL_CUDA_OPS_MAX];
    if (queue->digesting)
        sl_crew_wait(queue->device->staging->crew, &queue->digest);
    else if (queue->issued < queue->tail && op->state == SL_CUDA_ISSUING && op->op.kind == SLUICE_OP_COPY)
        sl_stage_cancel(queue->device->staging->stage, &queue->stage);
}
