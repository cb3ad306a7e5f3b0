/*
 * Completions: events are queried in the order of each queue; ready, not ready and error are three answers.
 *
 * Invariants: every accepted operation leaves its ring once; one with `notify` leaves a completion behind;
 * what was aborted is reported when the communicator has let go of it and the device has passed it, not before, and
 * so never where that never comes: whoever gave the buffers takes them back with the report.
 */
#include "runtime/backend/cuda/device.h"

static uint64_t host_time(const struct sluice_device *device, cudaEvent_t event)
{
    float milliseconds = 0;
    if (cudaEventElapsedTime(&milliseconds, device->time_zero, event) != cudaSuccess)
        return 0;
    return device->time_zero_ns + (uint64_t)((double)milliseconds * 1e6);
}

static void fill(struct sluice_queue *queue, const struct sl_cuda_op *slot, const struct sluice_error *error,
                 struct sluice_completion *ret)
{
    const struct sluice_device *device = queue->device;
    *ret = (struct sluice_completion){.cookie = slot->op.cookie};
    if (error != NULL) {
        ret->status = error->status;
        ret->error = *error;
        return;
    }
    if (device->config.trace) {
        ret->begin_ns = host_time(device, slot->begin);
        ret->end_ns = host_time(device, slot->done);
    }
}

/* What the operation at the head came to: SLUICE_AGAIN while it runs, else its error or NULL. */
static sluice_status judge(struct sluice_queue *queue, const struct sl_cuda_op *slot, const struct sluice_error **ret)
{
    struct sluice_device *device = queue->device;
    *ret = NULL;
    if (device->sticky.status == SLUICE_OK && slot->state == SL_CUDA_ISSUED) {
        cudaError_t result = cudaEventQuery(slot->done);
        if (result == cudaErrorNotReady)
            return SLUICE_AGAIN;
        if (result != cudaSuccess)
            sl_cuda_lose(device, result, "waiting for an operation");
    }
    if (device->sticky.status == SLUICE_OK && slot->aborted && !sl_cuda_group_let_go(device->group))
        return SLUICE_AGAIN;
    if (device->sticky.status != SLUICE_OK)
        *ret = &device->sticky;
    else if (slot->state == SL_CUDA_FAILED)
        *ret = &queue->error;
    else if (slot->aborted)
        *ret = &device->group->error;
    return SLUICE_OK;
}

static uint32_t drain(struct sluice_queue *queue, struct sluice_completion *ret, uint32_t max)
{
    uint32_t count = 0;
    while (queue->head < queue->issued && count < max) {
        const struct sl_cuda_op *slot = &queue->ops[queue->head % SL_CUDA_OPS_MAX];
        const struct sluice_error *error;
        if (judge(queue, slot, &error) == SLUICE_AGAIN)
            break;
        if (slot->op.kind == SLUICE_OP_DIGEST && error == NULL)
            sl_cuda_digest_take(&slot->op);
        if (slot->op.notify && error != NULL)
            queue->reported = 1;
        if (slot->op.notify)
            fill(queue, slot, error, &ret[count++]);
        queue->head++;
    }
    return count;
}

sluice_status sl_cuda_poll(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                           uint32_t *ret_count)
{
    struct sl_cuda_scope scope;
    uint32_t count = 0;
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status != SLUICE_OK)
        return status;
    if (device->group != NULL) {
        sl_cuda_group_advance(device->group);
        if (max > 0 && sl_cuda_group_opened(device->group, ret))
            count++;
    }
    for (uint32_t q = 0; q < device->queue_count; q++)
        count += drain(device->queues[q], ret + count, max - count);
    SL_IGNORE(sl_cuda_issue(device));
    sl_cuda_leave(&scope);
    *ret_count = count;
    return SLUICE_OK;
}

/* True when a poll now would find something. */
static _Bool has_news(struct sluice_queue *queue)
{
    if (queue->issued < queue->tail)
        return 1;
    if (queue->head == queue->issued)
        return 0;
    const struct sl_cuda_op *slot = &queue->ops[queue->head % SL_CUDA_OPS_MAX];
    return slot->state == SL_CUDA_FAILED || queue->device->sticky.status != SLUICE_OK ||
           cudaEventQuery(slot->done) != cudaErrorNotReady;
}

sluice_status sl_cuda_arm(struct sluice_device *device)
{
    struct sl_cuda_scope scope;
    sluice_status status = SLUICE_OK;
    const struct sluice_group *group = device->group;
    if (group != NULL && sl_cuda_group_is_busy(group))
        return SLUICE_BUSY;
    if (sl_cuda_enter(device, &scope) != SLUICE_OK)
        return SLUICE_BUSY;
    for (uint32_t q = 0; status == SLUICE_OK && q < device->queue_count; q++)
        status = has_news(device->queues[q]) ? SLUICE_BUSY : SLUICE_OK;
    sl_cuda_leave(&scope);
    return status;
}
