/*
 * job_device.c: the simulated backend with faults in front of it.
 *
 * Invariants: what the simulation accepted completes once, here perhaps later and with an error; completions stay in
 * their order; a lost wake-up is only that, the completion is there for the next poll.
 */
#include <string.h>

#include "tools/faults/job_state.h"

static struct job_rank *rank_of(const struct sluice_device *device)
{
    return device->config.wake_context;
}

static const struct sluice_backend_ops *sim(void)
{
    return sl_sim_backend();
}

static sluice_status count_call(struct job_rank *rank)
{
    struct job *job = rank->job;
    if (job->fail_call == 0 || --job->fail_call > 0)
        return SLUICE_OK;
    job->result->struck = 1;
    return sl_fail(SLUICE_DEVICE, "device", "a made-up failure of a call");
}

static void wake(void *context)
{
    struct job_rank *rank = context;
    if (rank->device == NULL || (rank->deaf && job_chance(rank->job, 70)))
        return;
    rank->woken = 1;
    rank->wake(rank->wake_context);
}

static sluice_status query(struct sluice_backend_info *ret)
{
    return sim()->query(ret);
}

static sluice_status open_device(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    struct job_rank *rank = config->extra;
    struct sluice_backend_config copy = *config;
    rank->wake = config->wake;
    rank->wake_context = config->wake_context;
    copy.extra = rank->job->sim;
    copy.wake = wake;
    copy.wake_context = rank;
    sluice_status status = count_call(rank);
    if (status == SLUICE_OK)
        status = sim()->open(&copy, ret);
    if (status == SLUICE_OK)
        rank->device = *ret;
    return status;
}

static void close_device(struct sluice_device *device)
{
    struct job_rank *rank = rank_of(device);
    if (rank->open > 0)
        job_violated(rank->job, "rank %u: the device was closed with %u sets, queues, groups or blocks open",
                     rank->number, rank->open);
    rank->device = NULL;
    sim()->close(device);
}

static sluice_status opened(struct sluice_device *device, sluice_status status)
{
    rank_of(device)->open += status == SLUICE_OK;
    return status;
}

/* Every call that makes something fails on a broken device. */
static sluice_status broken(const struct sluice_device *device)
{
    struct job_rank *rank = rank_of(device);
    sluice_status status = count_call(rank);
    return status == SLUICE_OK && rank->sticky ? sl_fail(SLUICE_DEVICE, "device", "a made-up broken device") : status;
}

static sluice_status allocate(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    sluice_status status = broken(device);
    return status != SLUICE_OK ? status : opened(device, sim()->mem_alloc(device, kind, bytes, ret));
}

static void release(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    rank_of(device)->open--;
    sim()->mem_free(device, kind, memory, bytes);
}

static sluice_status open_queue(struct sluice_device *device, struct sluice_queue **ret)
{
    sluice_status status = broken(device);
    return status != SLUICE_OK ? status : opened(device, sim()->queue_open(device, ret));
}

static void close_queue(struct sluice_queue *queue)
{
    if (queue->head < queue->tail)
        job_violated(rank_of(queue->device)->job, "rank %u: a queue was closed before it was drained",
                     rank_of(queue->device)->number);
    rank_of(queue->device)->open--;
    sim()->queue_close(queue);
}

static sluice_status open_set(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    sluice_status status = broken(device);
    return status != SLUICE_OK ? status : opened(device, sim()->set_open(device, kind, pieces, count, ret));
}

static void close_set(struct sluice_set *set)
{
    struct sluice_device *device = set->device;
    for (uint32_t q = 0; q < device->queue_count; q++)
        for (uint64_t i = device->queues[q]->head; i < device->queues[q]->tail; i++)
            if (device->queues[q]->ops[i % SL_SIM_OPS_MAX].op.set == set)
                job_violated(rank_of(device)->job, "rank %u: a copy set was closed while it was in a queue",
                             rank_of(device)->number);
    rank_of(device)->open--;
    sim()->set_close(set);
}

static sluice_status group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    sluice_status status = broken(device);
    return status != SLUICE_OK ? status : sim()->group_address(device, ret);
}

static sluice_status open_group(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret)
{
    sluice_status status = broken(device);
    return status != SLUICE_OK ? status : opened(device, sim()->group_open(device, config, cookie, ret));
}

static void close_group(struct sluice_group *group)
{
    if (group->accepted != group->ended)
        job_violated(rank_of(group->device)->job, "rank %u: a communicator was closed with groups in flight",
                     rank_of(group->device)->number);
    rank_of(group->device)->open--;
    sim()->group_close(group);
}

static sluice_status submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    struct job_rank *rank = rank_of(queue->device);
    uint64_t now = sl_sim_now(rank->job->sim);
    if (rank->full > now)
        return SLUICE_AGAIN;
    sluice_status status = broken(queue->device);
    if (status == SLUICE_OK && rank->refuse > 0 && --rank->refuse == 0)
        status = sl_fail(SLUICE_DEVICE, "device", "a made-up refusal");
    if (status == SLUICE_OK)
        status = sim()->submit(queue, op);
    if (status == SLUICE_OK)
        check_accepted(rank, queue, op);
    return status;
}

static void wake_later(void *context, uint64_t argument)
{
    (void)argument;
    wake(context);
}

/* Takes what the simulation has done, and perhaps holds it back. */
static void take(struct job_rank *rank)
{
    struct job *job = rank->job;
    uint64_t now = sl_sim_now(job->sim);
    uint32_t count = 0;
    do {
        struct sluice_completion one;
        SL_ASSERT(rank->held_count < JOB_OPS);
        SL_ASSERT(sim()->poll(rank->device, &one, 1, &count) == SLUICE_OK);
        if (count == 0)
            return;
        uint64_t until = rank->late > 0 && job_chance(job, 30) ? now + job_below(job, rank->late) : now;
        rank->held[rank->held_count++] = (struct held_completion){one, until};
        if (until > now)
            SL_ASSERT(sl_sim_at(job->sim, until, wake_later, rank, 0) == SLUICE_OK);
    } while (count > 0);
}

static sluice_status poll(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                          uint32_t *ret_count)
{
    struct job_rank *rank = rank_of(device);
    uint64_t now = sl_sim_now(rank->job->sim);
    *ret_count = 0;
    if (count_call(rank) != SLUICE_OK)
        return SLUICE_DEVICE;
    if (rank->sticky && rank->sticky_poll)
        return broken(device);
    take(rank);
    while (*ret_count < max && rank->held_count > 0 && rank->held[0].until <= now) {
        struct sluice_completion *done = &ret[(*ret_count)++];
        *done = rank->held[0].completion;
        memmove(rank->held, rank->held + 1, --rank->held_count * sizeof rank->held[0]);
        if (rank->sticky && done->status == SLUICE_OK)
            done->status = sl_error_set(&done->error, SLUICE_DEVICE, "device", "a made-up broken device");
        check_completed(rank, done);
    }
    return SLUICE_OK;
}

static sluice_status arm(struct sluice_device *device)
{
    sluice_status status = count_call(rank_of(device));
    if (status != SLUICE_OK)
        return status;
    return rank_of(device)->held_count > 0 ? SLUICE_BUSY : sim()->arm(device);
}

static void abort_now(void *context, uint64_t argument)
{
    (void)argument;
    SL_IGNORE(sim()->abort(context));
}

static sluice_status abort_group(struct sluice_group *group)
{
    struct job_rank *rank = rank_of(group->device);
    rank->job->result->aborts++;
    sluice_status status = count_call(rank);
    if (status != SLUICE_OK)
        return status;
    if (rank->abort_late == 0)
        return sim()->abort(group);
    uint64_t at = sl_sim_now(rank->job->sim) + job_below(rank->job, rank->abort_late);
    return sl_sim_at(rank->job->sim, at, abort_now, group, 0);
}

static const struct sluice_backend_ops table = {
    .size = sizeof(struct sluice_backend_ops),
    .abi = SLUICE_BACKEND_ABI,
    .name = "sim with faults",
    .query = query,
    .open = open_device,
    .close = close_device,
    .mem_alloc = allocate,
    .mem_free = release,
    .queue_open = open_queue,
    .queue_close = close_queue,
    .set_open = open_set,
    .set_close = close_set,
    .group_address = group_address,
    .group_open = open_group,
    .group_close = close_group,
    .submit = submit,
    .poll = poll,
    .arm = arm,
    .abort = abort_group,
};

const struct sluice_backend_ops *job_backend(void)
{
    return &table;
}
