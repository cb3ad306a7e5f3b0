/*
 * Aborting and closing a communicator: both can block inside NCCL, so a disposable thread takes it over.
 *
 * Invariants: from the moment the thread runs nobody else touches the communicator; if it has not come
 * back by the deadline, the communicator and its memory are kept aside and never freed; buffers are free
 * only when the abort has returned and the streams are idle: no operation that was aborted is reported before; who
 * gives the thread up takes the wake-up away from it.
 */
#include "runtime/backend/cuda/device.h"

#include <signal.h>

enum closing { CLOSE_RUNNING = 0, CLOSE_RETURNED = 1, CLOSE_GIVEN_UP = 2 };

struct takeover {
    ncclComm_t comm;
    int ordinal;
    _Bool destroy; /* an orderly end instead of an abort */
    atomic_int *done;
    void (*wake)(void *context);
    void *wake_context;
};

static void *take_over(void *argument)
{
    struct takeover *job = argument;
    (void)cudaSetDevice(job->ordinal);
    if (job->destroy)
        (void)ncclCommDestroy(job->comm);
    else
        (void)ncclCommAbort(job->comm);
    if (atomic_exchange(job->done, CLOSE_RETURNED) == CLOSE_RUNNING)
        job->wake(job->wake_context);
    return NULL;
}

static _Bool start_thread(struct sluice_group *group, _Bool destroy)
{
    sigset_t all, before;
    struct sluice_device *device = group->device;
    group->job = sl_new(device->mem, sizeof *group->job, "abort");
    if (group->job == NULL)
        return 0;
    *group->job = (struct takeover){.comm = group->comm,
                                    .ordinal = device->ordinal,
                                    .destroy = destroy,
                                    .done = &group->abort_done,
                                    .wake = device->config.wake,
                                    .wake_context = device->config.wake_context};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&group->abort_thread, NULL, take_over, group->job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    group->abort_started = result == 0;
    return group->abort_started;
}

/* What was accepted and is not complete ends with the group's error. */
static void mark_aborted(struct sluice_device *device)
{
    for (uint32_t q = 0; q < device->queue_count; q++) {
        struct sluice_queue *queue = device->queues[q];
        for (uint64_t n = queue->head; n < queue->tail; n++)
            queue->ops[n % SL_CUDA_OPS_MAX].aborted = 1;
    }
}

static void begin_abort(struct sluice_group *group)
{
    struct sluice_device *device = group->device;
    if (group->error.status == SLUICE_OK)
        sl_error_set(&group->error, SLUICE_ABORTED, "nccl", "the communicator was aborted");
    if (group->issuing != NULL) {
        struct sluice_queue *queue = group->issuing;
        group->issuing = NULL;
        sl_cuda_issued(queue, &group->error);
    }
    mark_aborted(device);
    group->state = SL_CUDA_GROUP_ABORTING;
    uint64_t now = device->config.now(device->config.clock);
    group->abort_deadline = now + device->config.abort_timeout_ns;
    if (group->comm == NULL || group->lent || !start_thread(group, 0))
        atomic_store(&group->abort_done, CLOSE_RETURNED);
}

static _Bool streams_idle(const struct sluice_device *device)
{
    for (uint32_t q = 0; q < device->queue_count; q++)
        if (cudaStreamQuery(device->queues[q]->stream) == cudaErrorNotReady)
            return 0;
    return 1;
}

void sl_cuda_group_advance_abort(struct sluice_group *group)
{
    struct sluice_device *device = group->device;
    if (group->state < SL_CUDA_GROUP_ABORTING)
        begin_abort(group);
    if (group->state != SL_CUDA_GROUP_ABORTING)
        return;
    if (atomic_load(&group->abort_done) == CLOSE_RETURNED && streams_idle(device)) {
        group->state = SL_CUDA_GROUP_DEAD;
        return;
    }
    if (device->config.now(device->config.clock) < group->abort_deadline)
        return;
    group->kept_aside = 1;
    group->state = SL_CUDA_GROUP_DEAD;
    sl_error_set(&group->error, SLUICE_POISONED, "nccl",
                 "the communicator did not let go within its abort deadline: recreate the runtime");
    SL_LOG(&device->log, SLUICE_LOG_ERROR, "nccl", "%s", group->error.text);
}

sluice_status sl_cuda_abort(struct sluice_group *group)
{
    atomic_store(&group->abort_wanted, 1);
    group->device->config.wake(group->device->config.wake_context);
    return SLUICE_OK;
}

_Bool sl_cuda_group_let_go(const struct sluice_group *group)
{
    return atomic_load(&group->abort_done) == CLOSE_RETURNED;
}

/* Waits for the helper thread, at most the abort deadline; false: it is given up and will wake nobody. */
static _Bool wait_for_thread(struct sluice_group *group)
{
    if (!group->abort_started)
        return 1;
    const struct sluice_backend_config *config = &group->device->config;
    uint64_t until = config->now(config->clock) + config->abort_timeout_ns;
    struct timespec time = {(time_t)(until / SLUICE_SECOND), (long)(until % SLUICE_SECOND)};
    if (pthread_clockjoin_np(group->abort_thread, NULL, CLOCK_MONOTONIC, &time) == 0)
        return 1;
    if (atomic_exchange(&group->abort_done, CLOSE_GIVEN_UP) == CLOSE_RUNNING)
        return 0;
    return pthread_join(group->abort_thread, NULL) == 0; /* it has come back meanwhile */
}

void sl_cuda_group_close(struct sluice_group *group)
{
    struct sl_cuda_scope scope;
    if (group == NULL)
        return;
    struct sluice_device *device = group->device;
    if (!group->abort_started && group->comm != NULL && !group->lent)
        SL_IGNORE(start_thread(group, group->state == SL_CUDA_GROUP_READY));
    device->group = NULL;
    sl_cuda_group_give_device(device);
    if (!wait_for_thread(group)) {
        SL_LOG(&device->log, SLUICE_LOG_WARN, "nccl", "a communicator did not close in time and is kept aside");
        (void)pthread_detach(group->abort_thread);
        return; /* the thread still uses it */
    }
    if (sl_cuda_enter(device, &scope) == SLUICE_OK) {
        if (group->warm_done != NULL)
            (void)cudaEventDestroy(group->warm_done);
        (void)cudaFree(group->warm_memory);
        sl_cuda_leave(&scope);
    }
    sl_free(device->mem, group->job);
    sl_free(device->mem, group->peers);
    sl_free(device->mem, group);
}
