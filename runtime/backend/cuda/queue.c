/*
 * Queues: a CUDA stream and a ring of accepted operations that go onto it in order.
 *
 * Invariants: an operation goes onto the stream only when all before it are there; while NCCL launches a
 * group of a queue, or the processor does a part of a set, nothing else goes onto that stream; a WAIT goes
 * there only after the RECORD that it refers to, since CUDA takes the wait for a record that comes later as done.
 */
#include "runtime/backend/cuda/device.h"
#include "runtime/backend/op_check.h"

static struct sl_cuda_op *op_at(struct sluice_queue *queue, uint64_t number)
{
    return &queue->ops[number % SL_CUDA_OPS_MAX];
}

/* --- open and close --- */

static sluice_status open_events(struct sluice_queue *queue)
{
    unsigned flags = queue->device->config.trace ? cudaEventDefault : cudaEventDisableTiming;
    for (uint32_t i = 0; i < SL_CUDA_OPS_MAX; i++) {
        sluice_status status =
            sl_cuda_status(cudaEventCreateWithFlags(&queue->ops[i].done, flags), "creating an event");
        if (status == SLUICE_OK && queue->device->config.trace)
            status = sl_cuda_status(cudaEventCreateWithFlags(&queue->ops[i].begin, flags), "creating an event");
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

static sluice_status open_streams(struct sluice_queue *queue)
{
    int lowest = 0, highest = 0;
    sluice_status status = sl_cuda_status(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "reading priorities");
    int priority = queue->device->config.high_priority ? highest : lowest;
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking, priority),
                                "creating a stream");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaStreamCreateWithFlags(&queue->notify, cudaStreamNonBlocking), "creating a stream");
    return status;
}

static void destroy(struct sluice_queue *queue)
{
    for (uint32_t i = 0; i < SL_CUDA_OPS_MAX; i++) {
        if (queue->ops[i].done != NULL)
            (void)cudaEventDestroy(queue->ops[i].done);
        if (queue->ops[i].begin != NULL)
            (void)cudaEventDestroy(queue->ops[i].begin);
    }
    /* Wake-ups must not come after the device is gone; a lost context runs none. */
    if (queue->notify != NULL && queue->device->sticky.status == SLUICE_OK)
        (void)cudaStreamSynchronize(queue->notify);
    if (queue->notify != NULL)
        (void)cudaStreamDestroy(queue->notify);
    if (queue->stream != NULL)
        (void)cudaStreamDestroy(queue->stream);
}

sluice_status sl_cuda_queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    struct sl_cuda_scope scope;
    if (device->queue_count == SL_CUDA_QUEUES_MAX)
        return sl_fail(SLUICE_LIMIT, "cuda", "more than %d queues", SL_CUDA_QUEUES_MAX);
    struct sluice_queue *queue = sl_new(device->mem, sizeof *queue, "cuda queue");
    if (queue == NULL)
        return SLUICE_NOMEM;
    queue->device = device;
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status == SLUICE_OK) {
        status = open_streams(queue);
        if (status == SLUICE_OK)
            status = open_events(queue);
        if (status != SLUICE_OK)
            destroy(queue);
        sl_cuda_leave(&scope);
    }
    if (status != SLUICE_OK) {
        sl_free(device->mem, queue);
        return status;
    }
    device->queues[device->queue_count++] = queue;
    *ret = queue;
    return SLUICE_OK;
}

void sl_cuda_queue_close(struct sluice_queue *queue)
{
    struct sl_cuda_scope scope;
    if (queue == NULL)
        return;
    struct sluice_device *device = queue->device;
    for (uint32_t i = 0; i < device->queue_count; i++)
        if (device->queues[i] == queue)
            device->queues[i--] = device->queues[--device->queue_count];
    sl_cuda_staging_forget(queue);
    if (sl_cuda_enter(device, &scope) == SLUICE_OK) {
        destroy(queue);
        sl_cuda_leave(&scope);
    }
    sl_free(device->mem, queue);
}

/* --- accepting --- */

static sluice_status check_op(const struct sluice_device *device, const struct sluice_op *op)
{
    const struct sl_op_facts facts = {
        .where = "cuda",
        .markers = SL_CUDA_MARKERS_MAX,
        .recorded = op->marker < SL_CUDA_MARKERS_MAX && device->markers[op->marker].submitted != 0,
        .points = 1,
        .set_kind = op->set != NULL ? op->set->kind : 0,
    };
    sluice_status status = sl_op_check(&facts, op);
    if (status != SLUICE_OK)
        return status;
    if (op->kind == SLUICE_OP_AFTER && !atomic_load(&op->point->set))
        return sl_fail(SLUICE_INVALID, "cuda", "a wait for a point that is not set");
    const struct sluice_group *group = op->group;
    if (op->kind != SLUICE_OP_GROUP || group->state >= SL_CUDA_GROUP_ABORTING) /* then it ends with ABORTED */
        return SLUICE_OK;
    if (group->state != SL_CUDA_GROUP_READY)
        return sl_fail(SLUICE_STATE, "cuda", "a group on a communicator that is not open");
    return sl_op_check_messages("cuda", op, group->rank, group->world, NULL);
}

sluice_status sl_cuda_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    struct sl_cuda_scope scope;
    struct sluice_device *device = queue->device;
    if (queue->tail - queue->head == SL_CUDA_OPS_MAX)
        return SLUICE_AGAIN;
    sluice_status status = check_op(device, op);
    if (status != SLUICE_OK)
        return status;
    struct sl_cuda_op *slot = op_at(queue, queue->tail++);
    slot->op = *op;
    slot->state = SL_CUDA_WAITING;
    slot->aborted = 0;
    if (op->kind == SLUICE_OP_GROUP)
        slot->record = ++op->group->submitted;
    if (op->kind == SLUICE_OP_RECORD)
        slot->record = ++device->markers[op->marker].submitted;
    if (op->kind == SLUICE_OP_WAIT)
        slot->record = device->markers[op->marker].submitted;
    if (op->kind == SLUICE_OP_POINT)
        atomic_store(&op->point->set, 0);
    if (sl_cuda_enter(device, &scope) == SLUICE_OK) {
        SL_IGNORE(sl_cuda_issue(device));
        sl_cuda_leave(&scope);
    }
    return SLUICE_OK;
}

/* --- issuing --- */

static void CUDART_CB wake(void *context)
{
    const struct sluice_device *device = context;
    device->config.wake(device->config.wake_context);
}

/* Everything behind an operation's own work: its event and, if wanted, the wake-up behind that. */
static cudaError_t close_op(struct sluice_queue *queue, struct sl_cuda_op *slot)
{
    cudaError_t result = cudaEventRecord(slot->done, queue->stream);
    if (result == cudaSuccess && slot->op.notify)
        result = cudaStreamWaitEvent(queue->notify, slot->done, 0);
    if (result == cudaSuccess && slot->op.notify)
        result = cudaLaunchHostFunc(queue->notify, wake, queue->device);
    return result;
}

static void finish_issue(struct sluice_queue *queue, struct sl_cuda_op *slot)
{
    cudaError_t result = close_op(queue, slot);
    slot->state = result == cudaSuccess ? SL_CUDA_ISSUED : SL_CUDA_FAILED;
    if (result != cudaSuccess)
        sl_cuda_lose(queue->device, result, "recording an event");
    queue->issued++;
}

static void fail_op(struct sluice_queue *queue, struct sl_cuda_op *slot, const struct sluice_error *error)
{
    slot->state = SL_CUDA_FAILED;
    if (queue->error.status == SLUICE_OK)
        queue->error = *error;
    queue->issued++;
}

void sl_cuda_issued(struct sluice_queue *queue, const struct sluice_error *error)
{
    struct sl_cuda_op *slot = op_at(queue, queue->issued);
    SL_ASSERT(queue->issued < queue->tail && slot->state == SL_CUDA_ISSUING);
    if (error != NULL)
        fail_op(queue, slot, error);
    else
        finish_issue(queue, slot);
}

uint32_t sl_cuda_ctas(const struct sluice_device *device)
{
    uint32_t most = device->config.max_ctas;
    return most == 0 || most > device->multiprocessors ? device->multiprocessors : most;
}

struct sl_ticket *sl_cuda_next_ticket(struct sluice_device *device)
{
    return &device->tickets[atomic_fetch_add(&device->ticket, 1) % SL_CUDA_TICKETS];
}

cudaError_t sl_cuda_launch_tiles(struct sluice_device *device, const struct sl_tile *tiles, uint32_t count,
                                 cudaStream_t stream)
{
    return sl_kernel_copy(tiles, count, sl_cuda_next_ticket(device), sl_cuda_ctas(device), device->multiprocessors,
                          stream);
}

static cudaError_t issue_marker(struct sluice_queue *queue, struct sl_cuda_op *slot)
{
    struct sl_cuda_marker *marker = &queue->device->markers[slot->op.marker];
    if (slot->op.kind == SLUICE_OP_WAIT)
        return cudaStreamWaitEvent(queue->stream, marker->event, 0);
    marker->issued = slot->record;
    return cudaEventRecord(marker->event, queue->stream);
}

static cudaError_t issue_point(struct sluice_queue *queue, const struct sl_cuda_op *slot)
{
    struct sluice_point *point = slot->op.point;
    if (slot->op.kind == SLUICE_OP_AFTER)
        return cudaStreamWaitEvent(queue->stream, point->event, 0);
    cudaError_t result = cudaEventRecord(point->event, queue->stream);
    atomic_store(&point->set, result == cudaSuccess);
    return result;
}

/* Everything but a group. */
static cudaError_t issue_plain(struct sluice_queue *queue, struct sl_cuda_op *slot)
{
    switch (slot->op.kind) {
    case SLUICE_OP_COPY:
        return sl_cuda_launch_tiles(queue->device, slot->op.set->tiles, slot->op.set->count, queue->stream);
    case SLUICE_OP_DIGEST:
        return sl_cuda_launch_digest(queue->device, slot->op.set, queue->stream);
    case SLUICE_OP_WAIT:
    case SLUICE_OP_RECORD:
        return issue_marker(queue, slot);
    case SLUICE_OP_AFTER:
    case SLUICE_OP_POINT:
        return issue_point(queue, slot);
    default:
        return cudaSuccess; /* a fence */
    }
}

/* A group that was submitted before this one, on whatever queue, is not with NCCL yet. */
static _Bool is_overtaking(const struct sluice_device *device, const struct sl_cuda_op *slot)
{
    for (uint32_t q = 0; q < device->queue_count; q++) {
        const struct sluice_queue *queue = device->queues[q];
        for (uint64_t n = queue->issued; n < queue->tail; n++) {
            const struct sl_cuda_op *other = &queue->ops[n % SL_CUDA_OPS_MAX];
            if (other->op.kind == SLUICE_OP_GROUP && other->record < slot->record)
                return 1;
        }
    }
    return 0;
}

/* Starts a group; false when the communicator has to finish another one first. */
static _Bool issue_group(struct sluice_queue *queue, struct sl_cuda_op *slot)
{
    struct sluice_error error;
    if (is_overtaking(queue->device, slot))
        return 0;
    sluice_status status = sl_cuda_group_start(slot->op.group, queue, &slot->op);
    if (status == SLUICE_AGAIN)
        return 0;
    if (status == SLUICE_OK) {
        slot->state = SL_CUDA_ISSUING;
        return 1;
    }
    sl_error_take(&error);
    fail_op(queue, slot, &error);
    return 1;
}

static _Bool has_set(const struct sluice_op *op)
{
    return op->kind == SLUICE_OP_COPY || op->kind == SLUICE_OP_DIGEST;
}

/* Puts the next operation of a queue on its stream; false when it must wait. */
static _Bool issue_next(struct sluice_queue *queue)
{
    struct sluice_device *device = queue->device;
    if (queue->issued == queue->tail)
        return 0;
    struct sl_cuda_op *slot = op_at(queue, queue->issued);
    if (slot->state == SL_CUDA_ISSUING)
        return 0;
    if (device->sticky.status != SLUICE_OK) {
        fail_op(queue, slot, &device->sticky);
        return 1;
    }
    if (slot->op.kind == SLUICE_OP_FENCE && queue->reported) {
        queue->error = (struct sluice_error){0}; /* who fences has heard of it: the queue lives on */
        queue->reported = 0;
    }
    if (queue->error.status != SLUICE_OK && slot->op.kind != SLUICE_OP_RECORD) {
        fail_op(queue, slot, &queue->error); /* nothing is unpacked that a failed group should have brought */
        return 1;
    }
    if (slot->op.kind == SLUICE_OP_WAIT && device->markers[slot->op.marker].issued < slot->record)
        return 0;
    if (device->config.trace && slot->op.kind != SLUICE_OP_WAIT)
        (void)cudaEventRecord(slot->begin, queue->stream);
    if (slot->op.kind == SLUICE_OP_GROUP)
        return issue_group(queue, slot);
    cudaError_t result = issue_plain(queue, slot);
    if (result != cudaSuccess) {
        sl_cuda_lose(device, result, "launching an operation");
        fail_op(queue, slot, &device->sticky);
        return 1;
    }
    if (has_set(&slot->op) && sl_cuda_set_is_staged(slot->op.set)) {
        slot->state = SL_CUDA_ISSUING;
        sl_cuda_staging_begin(queue);
        return 1;
    }
    finish_issue(queue, slot);
    return 1;
}

_Bool sl_cuda_issue(struct sluice_device *device)
{
    _Bool any = 0, moved;
    do {
        moved = device->staging != NULL && sl_cuda_staging_advance(device);
        for (uint32_t q = 0; q < device->queue_count; q++)
            while (issue_next(device->queues[q]))
                moved = 1;
        any |= moved;
    } while (moved);
    return any;
}
