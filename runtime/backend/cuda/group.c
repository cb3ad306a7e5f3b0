/*
 * The communicator: opened without blocking, warmed up pair by pair, one group launching at a time.
 *
 * Invariants: while NCCL reports "in progress", nobody calls it on this communicator but to ask again; a
 * group's event is recorded only after that; every rank warms up the same distances in the same order.
 */
#include "runtime/backend/cuda/device.h"

#include <string.h>
#include <time.h>

enum { WARM_PEERS = 16, WARM_BYTES = 16, ORDINALS = 64 };

/* --- opening --- */

/*
 * Groups of two communicators in another order on another rank can wait for each other for ever, and only ranks
 * of one runtime agree on an order. So a device has at most one communicator of ours in a process.
 */
static atomic_bool taken[ORDINALS];

static sluice_status take_device(const struct sluice_device *device)
{
    if (device->ordinal >= ORDINALS)
        return sl_fail(SLUICE_LIMIT, "nccl", "device %d: numbers below %d are kept account of", device->ordinal,
                       ORDINALS);
    if (!atomic_exchange(&taken[device->ordinal], 1))
        return SLUICE_OK;
    return sl_fail(SLUICE_STATE, "nccl",
                   "device %d has a communicator of another runtime of this process: seal both plans on one runtime, "
                   "or close the other first",
                   device->ordinal);
}

void sl_cuda_group_give_device(const struct sluice_device *device)
{
    atomic_store(&taken[device->ordinal], 0);
}

sluice_status sl_cuda_group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    _Static_assert(sizeof(ncclUniqueId) <= SLUICE_BLOB_MAX, "an NCCL id must fit a blob");
    struct sluice_blob blob = {0};
    if (device->config.rank == 0) {
        ncclUniqueId id;
        sluice_status status = sl_nccl_status(ncclGetUniqueId(&id), "making a communicator's id");
        if (status != SLUICE_OK)
            return status;
        blob.bytes = sizeof id;
        memcpy(blob.data, &id, sizeof id);
    }
    *ret = blob;
    return SLUICE_OK;
}

uint32_t sl_cuda_channels(const struct sluice_device *device)
{
    uint32_t most = device->config.max_ctas == 0 ? device->multiprocessors / 4 : device->config.max_ctas;
    uint32_t channels = 1;
    while (channels * 2 <= most && channels < 32)
        channels *= 2;
    return channels;
}

static sluice_status start_communicator(struct sluice_group *group, const struct sluice_group_config *config)
{
    ncclUniqueId id;
    ncclConfig_t options = NCCL_CONFIG_INITIALIZER;
    if (config->blobs[0].bytes != sizeof id)
        return sl_fail(SLUICE_PROTOCOL, "nccl", "rank 0 gave an id of %u bytes, %zu are needed", config->blobs[0].bytes,
                       sizeof id);
    memcpy(&id, config->blobs[0].data, sizeof id);
    int channels = (int)sl_cuda_channels(group->device);
    options.blocking = 0;
    options.minCTAs = channels;
    options.maxCTAs = channels;
    options.nChannelsPerNetPeer = channels < 4 ? channels : 4;
    ncclResult_t result = ncclCommInitRankConfig(&group->comm, (int)config->world, id, (int)config->rank, &options);
    return result == ncclInProgress ? SLUICE_OK : sl_nccl_status(result, "opening a communicator");
}

static sluice_status open_warm(struct sluice_group *group)
{
    sluice_status status =
        sl_cuda_status(cudaMalloc(&group->warm_memory, (size_t)WARM_BYTES * (WARM_PEERS + 1)), "allocating memory");
    if (status == SLUICE_OK)
        status =
            sl_cuda_status(cudaEventCreateWithFlags(&group->warm_done, cudaEventDisableTiming), "creating an event");
    return status;
}

sluice_status sl_cuda_group_open(struct sluice_device *device, const struct sluice_group_config *config,
                                 uint64_t cookie, struct sluice_group **ret)
{
    struct sl_cuda_scope scope;
    sluice_status status = take_device(device);
    if (status != SLUICE_OK)
        return status;
    struct sluice_group *group = sl_new(device->mem, sizeof *group, "communicator");
    if (group == NULL) {
        sl_cuda_group_give_device(device);
        return SLUICE_NOMEM;
    }
    *group = (struct sluice_group){.device = device,
                                   .world = config->world,
                                   .rank = config->rank,
                                   .open_cookie = cookie,
                                   .open_pending = 1,
                                   .lent = config->lent != NULL,
                                   .comm = config->lent,
                                   .warm_next = 1};
    group->peers = sl_new_array(device->mem, config->world, 1, "peers");
    status = group->peers == NULL ? SLUICE_NOMEM : sl_cuda_enter(device, &scope);
    if (status == SLUICE_OK) {
        memcpy(group->peers, config->peers, config->world);
        status = open_warm(group);
        if (status == SLUICE_OK && !group->lent)
            status = start_communicator(group, config);
        sl_cuda_leave(&scope);
    }
    device->group = group;
    if (status != SLUICE_OK) {
        sl_cuda_group_close(group);
        return status;
    }
    *ret = group;
    return SLUICE_OK;
}

/* --- warming up: the first message of a pair makes its connection --- */

static ncclResult_t warm_distance(struct sluice_group *group, uint32_t distance, uint32_t slot)
{
    uint32_t to = (group->rank + distance) % group->world;
    uint32_t from = (group->rank + group->world - distance) % group->world;
    char *memory = group->warm_memory;
    ncclResult_t result = ncclSuccess;
    if (group->peers[to] & SLUICE_PEER_WARM_SEND)
        result = ncclSend(memory, WARM_BYTES, ncclInt8, (int)to, group->comm, group->device->setup);
    if (result == ncclSuccess && group->peers[from] & SLUICE_PEER_WARM_RECEIVE)
        result = ncclRecv(memory + (size_t)WARM_BYTES * (slot + 1), WARM_BYTES, ncclInt8, (int)from, group->comm,
                          group->device->setup);
    return result;
}

static void fail_group(struct sluice_group *group, ncclResult_t result, const char *what)
{
    if (group->error.status == SLUICE_OK) {
        sl_error_set(&group->error, SLUICE_TRANSPORT, "nccl", "%s: %s: %s", what, ncclGetErrorString(result),
                     ncclGetLastError(group->comm));
        group->error.domain = SLUICE_DOMAIN_NCCL;
        group->error.native = result;
    }
    atomic_store(&group->abort_wanted, 1);
}

static void warm_more(struct sluice_group *group)
{
    if (group->warm_next >= group->world) {
        cudaError_t result = cudaEventRecord(group->warm_done, group->device->setup);
        if (result != cudaSuccess)
            sl_cuda_lose(group->device, result, "recording an event");
        group->warm_recorded = 1;
        return;
    }
    ncclResult_t result = ncclGroupStart();
    for (uint32_t slot = 0; result == ncclSuccess && slot < WARM_PEERS && group->warm_next < group->world; slot++)
        result = warm_distance(group, group->warm_next++, slot);
    ncclResult_t ended = ncclGroupEnd();
    result = result == ncclSuccess ? ended : result;
    if (result != ncclSuccess && result != ncclInProgress)
        fail_group(group, result, "warming up the communicator");
}

static void advance_warming(struct sluice_group *group)
{
    if (!group->warm_recorded) {
        warm_more(group);
        return;
    }
    cudaError_t result = cudaEventQuery(group->warm_done);
    if (result == cudaSuccess)
        group->state = SL_CUDA_GROUP_READY;
    else if (result != cudaErrorNotReady)
        sl_cuda_lose(group->device, result, "warming up the communicator");
}

/* --- running --- */

/* When tracing: what NCCL's calls cost the scheduler thread is told apart from what we do. */
static uint64_t thread_cpu(const struct sluice_device *device)
{
    struct timespec spent = {0};
    if (!device->config.trace)
        return 0;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * SLUICE_SECOND + (uint64_t)spent.tv_nsec;
}

static void note_nccl(struct sluice_device *device, uint64_t before)
{
    if (device->config.trace)
        atomic_fetch_add(&device->nccl_ns, thread_cpu(device) - before);
}

static ncclResult_t launch(struct sluice_group *group, const struct sluice_queue *queue, const struct sluice_op *op)
{
    ncclResult_t result = ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < op->message_count; i++) {
        const struct sluice_message *message = &op->messages[i];
        void *memory = (void *)(uintptr_t)message->address;
        result = message->receive
                     ? ncclRecv(memory, message->bytes, ncclInt8, (int)message->peer, group->comm, queue->stream)
                     : ncclSend(memory, message->bytes, ncclInt8, (int)message->peer, group->comm, queue->stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

sluice_status sl_cuda_group_start(struct sluice_group *group, struct sluice_queue *queue, const struct sluice_op *op)
{
    if (group->state >= SL_CUDA_GROUP_ABORTING || atomic_load(&group->abort_wanted))
        return sl_fail(SLUICE_ABORTED, "nccl", "the communicator was aborted");
    if (group->issuing != NULL)
        return SLUICE_AGAIN;
    uint64_t before = thread_cpu(group->device);
    ncclResult_t result = launch(group, queue, op);
    note_nccl(group->device, before);
    if (result != ncclSuccess && result != ncclInProgress) {
        fail_group(group, result, "launching a group");
        return sl_fail_copy(&group->error);
    }
    group->issuing = queue;
    return SLUICE_OK;
}

/* Asks NCCL where it is; false while it is busy or after a failure. */
static _Bool settled(struct sluice_group *group, const char *what)
{
    ncclResult_t state = ncclInProgress;
    uint64_t before = thread_cpu(group->device);
    ncclResult_t result = ncclCommGetAsyncError(group->comm, &state);
    note_nccl(group->device, before);
    result = result == ncclSuccess ? state : result;
    if (result == ncclInProgress)
        return 0;
    if (result == ncclSuccess)
        return 1;
    fail_group(group, result, what);
    return 0;
}

static void advance_launch(struct sluice_group *group)
{
    _Bool idle = settled(group, group->issuing != NULL ? "launching a group" : "running groups");
    struct sluice_queue *queue = group->issuing;
    if (queue == NULL)
        return;
    if (idle) {
        group->issuing = NULL;
        sl_cuda_issued(queue, NULL);
    } else if (group->error.status != SLUICE_OK) {
        group->issuing = NULL;
        sl_cuda_issued(queue, &group->error);
    }
}

void sl_cuda_group_advance(struct sluice_group *group)
{
    if (atomic_load(&group->abort_wanted)) {
        sl_cuda_group_advance_abort(group);
        return;
    }
    switch (group->state) {
    case SL_CUDA_GROUP_OPENING:
        if (group->comm != NULL && settled(group, "opening a communicator"))
            group->state = SL_CUDA_GROUP_WARMING;
        break;
    case SL_CUDA_GROUP_WARMING:
        if (settled(group, "warming up the communicator"))
            advance_warming(group);
        break;
    case SL_CUDA_GROUP_READY:
        advance_launch(group);
        break;
    case SL_CUDA_GROUP_ABORTING:
    case SL_CUDA_GROUP_DEAD:
        break;
    }
}

_Bool sl_cuda_group_is_busy(const struct sluice_group *group)
{
    return group->state < SL_CUDA_GROUP_READY || group->issuing != NULL || group->state == SL_CUDA_GROUP_ABORTING ||
           (atomic_load(&group->abort_wanted) && group->state != SL_CUDA_GROUP_DEAD);
}

_Bool sl_cuda_group_opened(struct sluice_group *group, struct sluice_completion *ret)
{
    if (!group->open_pending || (group->state != SL_CUDA_GROUP_READY && group->state != SL_CUDA_GROUP_DEAD))
        return 0;
    group->open_pending = 0;
    *ret = (struct sluice_completion){.cookie = group->open_cookie};
    if (group->state == SL_CUDA_GROUP_DEAD) {
        ret->status = group->error.status;
        ret->error = group->error;
    }
    return 1;
}
