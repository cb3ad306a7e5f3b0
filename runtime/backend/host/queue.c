/*
 * queue.c: a queue is a ring of operations and a worker thread that runs them in order.
 *
 * - `submitted`, `done` and `reaped` only grow, over all queues that use one index; entry i % SL_HOST_OPS belongs to the scheduler before it is submitted
 *   and after it is done, and to the worker in between. That is all the synchronisation there is.
 * - A RECORD is known by its queue and number, so a WAIT means exactly the record that was submitted last before it,
 *   even when the marker was used again meanwhile.
 * - A failed operation that wanted no completion is reported by the next one of its queue that wants one.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/op_check.h"

sluice_status sl_host_thread(void *(*body)(void *), void *argument, const char *name, pthread_t *ret)
{
    /* Signals are the application's: a library thread must never run its handlers. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int reason = pthread_create(ret, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (reason != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, reason, SL_HOST_WHERE, "cannot start a thread");
    pthread_setname_np(*ret, name);
    return SLUICE_OK;
}

/* --- the worker --- */

static sluice_status wait_marker(const struct sluice_queue *queue, const struct sl_host_marker *until)
{
    struct sl_bell *bell = &queue->device->bell;
    for (;;) {
        uint32_t seen = sl_bell_look(bell);
        if (atomic_load(&queue->device->counters[until->queue].done) > until->sequence || atomic_load(&queue->stop))
            return SLUICE_OK;
        sl_bell_wait(bell, seen, SL_HOST_SLICE);
    }
}

static sluice_status run_copy(struct sluice_queue *queue, struct sl_host_op *slot)
{
    enum sluice_copy_kind kind = sl_host_set_kind(slot->op.set);
    sluice_status status = SLUICE_OK;
    if (kind == SLUICE_COPY_PACK) {
        /* A window begins: what the last one did not unpack never will be, and two ranks must not wait for each other. */
        sl_host_landings_release(queue);
        status = sl_host_leases_wait(queue);
    }
    if (queue->device->config.trace)
        slot->completion.begin_ns = sl_host_now(queue->device);
    if (status == SLUICE_OK)
        status = sl_host_set_run(slot->op.set, queue);
    if (kind == SLUICE_COPY_UNPACK)
        sl_host_landings_release(queue);
    return status;
}

static sluice_status run(struct sluice_queue *queue, struct sl_host_op *slot)
{
    switch ((enum sluice_op_kind)slot->op.kind) {
    case SLUICE_OP_COPY:
        return run_copy(queue, slot);
    case SLUICE_OP_GROUP:
        return sl_host_group_run(queue, slot);
    case SLUICE_OP_WAIT:
        return wait_marker(queue, &slot->until);
    case SLUICE_OP_DIGEST:
        sl_host_set_digest(slot->op.set, slot->op.digests);
        break;
    case SLUICE_OP_RECORD:
    case SLUICE_OP_FENCE:
    case SLUICE_OP_AFTER: /* refused by `check`: there are no points */
    case SLUICE_OP_POINT:
        break;
    }
    return SLUICE_OK;
}

static void complete(struct sluice_queue *queue, struct sl_host_op *slot, sluice_status status)
{
    struct sluice_completion *completion = &slot->completion;
    if (status != SLUICE_OK)
        sl_error_take(&completion->error);
    if (!slot->op.notify) {
        if (status != SLUICE_OK && queue->unreported.status == SLUICE_OK)
            queue->unreported = completion->error;
        return;
    }
    if (status == SLUICE_OK && queue->unreported.status != SLUICE_OK) {
        completion->error = queue->unreported;
        status = queue->unreported.status;
        queue->unreported = (struct sluice_error){0};
    }
    completion->status = status;
}

static void execute(struct sluice_queue *queue, uint64_t sequence)
{
    struct sluice_device *device = queue->device;
    struct sl_host_op *slot = &queue->ops[sequence % SL_HOST_OPS];
    bool notify = slot->op.notify != 0;
    bool record = slot->op.kind == SLUICE_OP_RECORD;
    bool trace = device->config.trace != 0 && notify;
    slot->completion = (struct sluice_completion){.cookie = slot->op.cookie};
    if (trace)
        slot->completion.begin_ns = sl_host_now(device);
    sluice_status status = run(queue, slot);
    if (trace)
        slot->completion.end_ns = sl_host_now(device);
    complete(queue, slot, status);
    atomic_store(&queue->counter->done, sequence + 1); /* from here on the slot is the scheduler's */
    if (record)
        sl_bell_ring(&device->bell);
    if (notify || atomic_load(&queue->starved))
        sl_host_notify(device);
}

static void *work(void *argument)
{
    struct sluice_queue *queue = argument;
    uint64_t next = atomic_load(&queue->counter->done);
    for (;;) {
        uint32_t seen = sl_bell_look(&queue->bell);
        if (atomic_load(&queue->stop))
            break;
        if (next < atomic_load(&queue->submitted))
            execute(queue, next++);
        else
            sl_bell_wait(&queue->bell, seen, SLUICE_SECOND);
    }
    sl_host_leases_drop(queue);
    return NULL;
}

/* --- opening and closing --- */

/* Room for the largest group; pages come with use. */
static void *reserve(size_t count, size_t bytes)
{
    void *memory =
        mmap(NULL, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unreserve(void *memory, size_t count, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, count * bytes);
}

static void free_queue(struct sluice_queue *queue)
{
    unreserve(queue->landings, SL_HOST_MESSAGES_MAX, sizeof(*queue->landings));
    unreserve(queue->leases, (size_t)2 * SL_HOST_MESSAGES_MAX, sizeof(*queue->leases));
    unreserve(queue->next, SL_HOST_MESSAGES_MAX, sizeof(*queue->next));
    sl_free(queue->device->mem, queue->ops);
    sl_free(queue->device->mem, queue);
}

static sluice_status start(struct sluice_queue *queue)
{
    struct sluice_device *device = queue->device;
    queue->ops = sl_new_array(device->mem, SL_HOST_OPS, sizeof(*queue->ops), "operations of a queue");
    if (queue->ops == NULL)
        return SLUICE_NOMEM;
    queue->landings = reserve(SL_HOST_MESSAGES_MAX, sizeof(*queue->landings));
    queue->leases = reserve((size_t)2 * SL_HOST_MESSAGES_MAX, sizeof(*queue->leases));
    queue->next = reserve(SL_HOST_MESSAGES_MAX, sizeof(*queue->next));
    if (queue->landings == NULL || queue->leases == NULL || queue->next == NULL)
        return sl_fail(SLUICE_NOMEM, SL_HOST_WHERE, "no address space for a queue");
    char name[16];
    SL_IGNORE(snprintf(name, sizeof(name), "sluice-q%u", queue->index));
    return sl_host_thread(work, queue, name, &queue->thread);
}

sluice_status sl_host_queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    uint32_t index = 0;
    while (index < SL_HOST_QUEUES && device->queues[index] != NULL)
        index++;
    if (index == SL_HOST_QUEUES)
        return sl_fail(SLUICE_LIMIT, SL_HOST_WHERE, "more than %u queues on one device", SL_HOST_QUEUES);
    struct sluice_queue *queue = sl_new_aligned(device->mem, sizeof(*queue), alignof(struct sluice_queue), "queue");
    if (queue == NULL)
        return SLUICE_NOMEM;
    memset(queue, 0, sizeof(*queue));
    queue->device = device;
    queue->index = index;
    queue->counter = &device->counters[index];
    queue->reaped = atomic_load(&queue->counter->done);
    atomic_store(&queue->submitted, queue->reaped);
    sluice_status status = start(queue);
    if (status != SLUICE_OK) {
        free_queue(queue);
        return status;
    }
    device->queues[index] = queue;
    *ret = queue;
    return SLUICE_OK;
}

void sl_host_queue_close(struct sluice_queue *queue)
{
    if (queue == NULL)
        return;
    struct sluice_device *device = queue->device;
    atomic_store(&queue->stop, true);
    sl_bell_ring(&queue->bell);
    sl_bell_ring(&device->bell);
    pthread_join(queue->thread, NULL);
    /* What was not run counts as passed: whoever waits for it is closed next. */
    atomic_store(&queue->counter->done, atomic_load(&queue->submitted));
    sl_bell_ring(&device->bell);
    device->queues[queue->index] = NULL;
    free_queue(queue);
}

/* --- the scheduler's side --- */

static sluice_status check(const struct sluice_queue *queue, const struct sluice_op *op)
{
    const struct sl_op_facts facts = {
        .where = SL_HOST_WHERE,
        .markers = SL_HOST_MARKERS,
        .recorded = op->marker < SL_HOST_MARKERS && queue->device->markers[op->marker].recorded,
        .set_kind = op->set != NULL ? sl_host_set_kind(op->set) : 0,
    };
    sluice_status status = sl_op_check(&facts, op);
    return status == SLUICE_OK && op->kind == SLUICE_OP_GROUP ? sl_host_group_check(op->group, op) : status;
}

/*
 * Gives back entries that nobody has to hear of; says whether a completion waits behind them. Both answers come from one
 * look at `done`: after a second look, a silent operation could stand where none stood before.
 */
static bool skip_silent(struct sluice_queue *queue)
{
    uint64_t done = atomic_load(&queue->counter->done);
    while (queue->reaped < done && !queue->ops[queue->reaped % SL_HOST_OPS].op.notify)
        queue->reaped++;
    return queue->reaped < done;
}

sluice_status sl_host_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    sluice_status status = check(queue, op);
    if (status != SLUICE_OK)
        return status;
    uint64_t sequence = atomic_load_explicit(&queue->submitted, memory_order_relaxed);
    SL_IGNORE(skip_silent(queue));
    if (sequence - queue->reaped == SL_HOST_OPS) {
        atomic_store(&queue->starved, true);
        return SLUICE_AGAIN;
    }
    struct sl_host_op *slot = &queue->ops[sequence % SL_HOST_OPS];
    slot->op = *op;
    struct sl_host_marker *markers = queue->device->markers;
    if (op->kind == SLUICE_OP_WAIT || op->kind == SLUICE_OP_RECORD)
        slot->op.notify = 0;
    if (op->kind == SLUICE_OP_WAIT)
        slot->until = markers[op->marker];
    if (op->kind == SLUICE_OP_RECORD)
        markers[op->marker] = (struct sl_host_marker){.queue = queue->index, .sequence = sequence, .recorded = true};
    if (op->kind == SLUICE_OP_GROUP)
        slot->ticket = op->group->tickets++;
    atomic_store(&queue->submitted, sequence + 1);
    sl_bell_ring(&queue->bell);
    return SLUICE_OK;
}

uint32_t sl_host_queue_reap(struct sluice_queue *queue, struct sluice_completion *ret, uint32_t max)
{
    uint32_t count = 0;
    while (count < max && skip_silent(queue))
        ret[count++] = queue->ops[queue->reaped++ % SL_HOST_OPS].completion;
    return count;
}

bool sl_host_queue_pending(struct sluice_queue *queue)
{
    if (skip_silent(queue))
        return true;
    if (!atomic_load(&queue->starved))
        return false;
    bool room = atomic_load_explicit(&queue->submitted, memory_order_relaxed) - queue->reaped < SL_HOST_OPS;
    if (room)
        atomic_store(&queue->starved, false);
    return room;
}
