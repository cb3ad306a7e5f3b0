/*
 * Simulated devices: queues whose operations take virtual time.
 *
 * Invariants: only the head of a queue runs; a completion is made exactly once, at the end of an operation;
 * memory is touched only when the world moves bytes.
 */
#include "runtime/backend/op_check.h"
#include "runtime/backend/sim/state.h"
#include "runtime/backend/strided.h"

#include <stdio.h>
#include <string.h>

static sluice_status query(struct sluice_backend_info *ret)
{
    *ret = (struct sluice_backend_info){.size = sizeof *ret,
                                        .usable = 1,
                                        .devices = 1,
                                        .queues_max = SL_SIM_QUEUES_MAX,
                                        .markers_max = SL_SIM_MARKERS_MAX,
                                        .alignment = 1,
                                        .digests = 1};
    (void)snprintf(ret->reason, sizeof ret->reason, "virtual time; for simulation only");
    return SLUICE_OK;
}

static sluice_status open_device(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    struct sl_sim *sim = config->extra;
    if (sim == NULL || config->rank >= sim->world)
        return sl_fail(SLUICE_UNSUPPORTED, "sim", "the sim backend runs inside a simulated world only (sluice sim)");
    if (sim->devices[config->rank] != NULL)
        return sl_fail(SLUICE_STATE, "sim", "rank %u of the simulated world is open already", config->rank);
    struct sluice_device *device = sl_new(sim->mem, sizeof *device, "simulated device");
    if (device == NULL)
        return SLUICE_NOMEM;
    device->sim = sim;
    device->config = *config;
    sim->devices[config->rank] = device;
    *ret = device;
    return SLUICE_OK;
}

static void close_device(struct sluice_device *device)
{
    if (device == NULL)
        return;
    device->sim->devices[device->config.rank] = NULL;
    sl_free(device->sim->mem, device->done);
    sl_free(device->sim->mem, device);
}

/* Without moving bytes an address is only a number; these lie where no process has memory. */
static sluice_status allocate(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    struct sl_sim *sim = device->sim;
    (void)kind;
    if (sim->options.move_bytes) {
        void *memory = sl_new_aligned(sim->mem, bytes, 256, "simulated memory");
        if (memory == NULL)
            return SLUICE_NOMEM;
        *ret = memory;
        return SLUICE_OK;
    }
    *ret = (void *)(uintptr_t)((UINT64_C(1) << 63) + ((uint64_t)device->config.rank << 48) + 256);
    return SLUICE_OK;
}

static void release(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    (void)kind;
    (void)bytes;
    if (device->sim->options.move_bytes)
        sl_free(device->sim->mem, memory);
}

static sluice_status open_queue(struct sluice_device *device, struct sluice_queue **ret)
{
    if (device->queue_count == SL_SIM_QUEUES_MAX)
        return sl_fail(SLUICE_LIMIT, "sim", "more than %d queues", SL_SIM_QUEUES_MAX);
    struct sluice_queue *queue = sl_new(device->sim->mem, sizeof *queue, "simulated queue");
    if (queue == NULL)
        return SLUICE_NOMEM;
    queue->device = device;
    device->queues[device->queue_count++] = queue;
    *ret = queue;
    return SLUICE_OK;
}

static void close_queue(struct sluice_queue *queue)
{
    if (queue == NULL)
        return;
    struct sluice_device *device = queue->device;
    for (uint32_t i = 0; i < device->queue_count; i++)
        if (device->queues[i] == queue) {
            device->queues[i] = device->queues[--device->queue_count];
            break;
        }
    sl_sim_forget(device->sim, queue);
    sl_free(device->sim->mem, queue);
}

static sluice_status open_set(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    struct sl_sim *sim = device->sim;
    for (size_t i = 0; i < count; i++)
        if (pieces[i].bytes == 0 || pieces[i].from.address == 0 || pieces[i].to.address == 0)
            return sl_fail(SLUICE_INVALID, "sim", "piece %zu of a copy set has no bytes or no address", i);
    size_t kept = sim->options.move_bytes ? count : 0;
    struct sluice_set *set = sl_new(sim->mem, sizeof *set + kept * sizeof *pieces, "simulated copy set");
    if (set == NULL)
        return SLUICE_NOMEM;
    set->device = device;
    set->kind = kind;
    set->count = kept;
    for (size_t i = 0; i < count; i++)
        set->bytes += pieces[i].bytes;
    if (kept > 0)
        memcpy(set->pieces, pieces, kept * sizeof *pieces);
    *ret = set;
    return SLUICE_OK;
}

static void close_set(struct sluice_set *set)
{
    if (set != NULL)
        sl_free(set->device->sim->mem, set);
}

/* --- running --- */

void sl_sim_complete(struct sluice_device *device, uint64_t cookie, uint64_t begin_ns, const struct sluice_error *error)
{
    size_t capacity = device->done_capacity;
    /* Room was made when the operation was accepted. */
    SL_ASSERT(device->done_count < capacity);
    struct sluice_completion *done = &device->done[device->done_count++];
    *done = (struct sluice_completion){.cookie = cookie};
    if (device->config.trace) {
        done->begin_ns = begin_ns;
        done->end_ns = device->sim->now;
    }
    if (error != NULL) {
        done->status = error->status;
        done->error = *error;
    }
    device->config.wake(device->config.wake_context);
}

sluice_status sl_sim_make_room(struct sluice_device *device, size_t extra)
{
    size_t capacity = device->done_capacity;
    size_t need = device->done_count + device->group_count + extra;
    for (uint32_t q = 0; q < device->queue_count; q++)
        need += (size_t)(device->queues[q]->tail - device->queues[q]->head);
    sluice_status status =
        sl_grow(device->sim->mem, &device->done, &capacity, need, sizeof *device->done, "simulated completions");
    device->done_capacity = (uint32_t)capacity;
    return status;
}

static struct sl_sim_op *head_of(struct sluice_queue *queue)
{
    return &queue->ops[queue->head % SL_SIM_OPS_MAX];
}

/* Without moving bytes there are none to digest: all values stay what they are, alike at both ends. */
static void run_set(const struct sluice_op *op)
{
    const struct sluice_set *set = op->set;
    for (size_t i = 0; i < set->count; i++)
        if (op->kind == SLUICE_OP_DIGEST)
            op->digests[i] = sl_strided_digest(&set->pieces[i].from, set->pieces[i].bytes);
        else
            sl_strided_copy(&set->pieces[i], 0);
}

void sl_sim_finish(struct sluice_queue *queue, const struct sluice_error *error)
{
    struct sl_sim_op *slot = head_of(queue);
    SL_ASSERT(queue->head < queue->tail && slot->running);
    sl_sim_note(queue->device->sim, queue->device->config.rank, slot->op.kind, slot->op.cookie);
    if (error != NULL && queue->error.status == SLUICE_OK)
        queue->error = *error;
    if (slot->op.notify) {
        sl_sim_complete(queue->device, slot->op.cookie, slot->begin_ns,
                        queue->error.status != SLUICE_OK ? &queue->error : NULL);
        queue->error.status = SLUICE_OK;
    }
    slot->running = 0;
    queue->head++;
}

static void set_done(void *context, uint64_t number)
{
    struct sluice_queue *queue = context;
    SL_ASSERT(queue->head == number);
    run_set(&head_of(queue)->op);
    sl_sim_finish(queue, NULL);
    sl_sim_advance(queue);
}

static void wake_waiters(struct sluice_device *device)
{
    for (uint32_t q = 0; q < device->queue_count; q++)
        sl_sim_advance(device->queues[q]);
}

/* Starts the head; true when it took no time and is done. */
static _Bool start_head(struct sluice_queue *queue)
{
    struct sluice_device *device = queue->device;
    struct sl_sim *sim = device->sim;
    struct sl_sim_op *slot = head_of(queue);
    if (slot->op.kind == SLUICE_OP_WAIT && device->markers[slot->op.marker].passed < slot->record)
        return 0;
    if (slot->op.kind == SLUICE_OP_GROUP && slot->op.group->ended != slot->record)
        return 0;
    slot->running = 1;
    slot->begin_ns = sim->now;
    if (slot->op.kind == SLUICE_OP_COPY || slot->op.kind == SLUICE_OP_DIGEST) {
        uint64_t takes = (uint64_t)((double)slot->op.set->bytes / sim->options.pack_rate * 1e9 + 0.5);
        SL_ASSERT(sl_sim_at(sim, sim->now + takes, set_done, queue, queue->head) == SLUICE_OK);
        return 0;
    }
    if (slot->op.kind == SLUICE_OP_GROUP) {
        sl_sim_post(queue);
        return 0;
    }
    if (slot->op.kind == SLUICE_OP_RECORD)
        device->markers[slot->op.marker].passed = slot->record;
    _Bool record = slot->op.kind == SLUICE_OP_RECORD;
    sl_sim_finish(queue, NULL);
    if (record)
        wake_waiters(device);
    return 1;
}

void sl_sim_advance(struct sluice_queue *queue)
{
    while (queue->head < queue->tail && !head_of(queue)->running)
        if (!start_head(queue))
            return;
}

static void advance_later(void *context, uint64_t argument)
{
    (void)argument;
    sl_sim_advance(context);
}

static sluice_status check_op(const struct sluice_device *device, const struct sluice_op *op)
{
    const struct sl_op_facts facts = {
        .where = "sim",
        .markers = SL_SIM_MARKERS_MAX,
        .recorded = op->marker < SL_SIM_MARKERS_MAX && device->markers[op->marker].submitted != 0,
        .set_kind = op->set != NULL ? op->set->kind : 0,
    };
    sluice_status status = sl_op_check(&facts, op);
    return status == SLUICE_OK && op->kind == SLUICE_OP_GROUP ? sl_sim_group_check(op->group, op) : status;
}

static sluice_status submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    struct sluice_device *device = queue->device;
    if (queue->tail - queue->head == SL_SIM_OPS_MAX)
        return SLUICE_AGAIN;
    sluice_status status = check_op(device, op);
    if (status == SLUICE_OK)
        status = sl_sim_make_room(device, 1);
    if (status == SLUICE_OK) /* Nothing runs inside submit. */
        status = sl_sim_at(device->sim, device->sim->now, advance_later, queue, 0);
    if (status != SLUICE_OK)
        return status;
    struct sl_sim_op *slot = &queue->ops[queue->tail++ % SL_SIM_OPS_MAX];
    *slot = (struct sl_sim_op){.op = *op};
    if (op->kind == SLUICE_OP_RECORD)
        slot->record = ++device->markers[op->marker].submitted;
    if (op->kind == SLUICE_OP_WAIT)
        slot->record = device->markers[op->marker].submitted;
    if (op->kind == SLUICE_OP_GROUP)
        slot->record = op->group->accepted++;
    return SLUICE_OK;
}

static sluice_status poll(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                          uint32_t *ret_count)
{
    uint32_t count = device->done_count < max ? device->done_count : max;
    *ret_count = count;
    if (count == 0)
        return SLUICE_OK;
    memcpy(ret, device->done, count * sizeof *ret);
    memmove(device->done, device->done + count, (device->done_count - count) * sizeof *ret);
    device->done_count -= count;
    return SLUICE_OK;
}

static sluice_status arm(struct sluice_device *device)
{
    return device->done_count > 0 ? SLUICE_BUSY : SLUICE_OK;
}

static const struct sluice_backend_ops table = {
    .size = sizeof(struct sluice_backend_ops),
    .abi = SLUICE_BACKEND_ABI,
    .name = "sim",
    .query = query,
    .open = open_device,
    .close = close_device,
    .mem_alloc = allocate,
    .mem_free = release,
    .queue_open = open_queue,
    .queue_close = close_queue,
    .set_open = open_set,
    .set_close = close_set,
    .group_address = sl_sim_group_address,
    .group_open = sl_sim_group_open,
    .group_close = sl_sim_group_close,
    .submit = submit,
    .poll = poll,
    .arm = arm,
    .abort = sl_sim_abort,
};

const struct sluice_backend_ops *sl_sim_backend(void)
{
    return &table;
}
