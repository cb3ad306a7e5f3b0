/*
 * The CUDA backend's device: opening, closing, memory, errors, and the table.
 *
 * Invariants: nothing is allocated or freed between launch and completion; a context error is kept and
 * ends everything that is in flight; no context is made on another device than the one asked for.
 */
#include "runtime/backend/cuda/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { NCCL_VERSION_MIN = 22703 }; /* blocking = 0, nChannelsPerNetPeer, abort of a communicator in any state */

sluice_status sl_cuda_status(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return SLUICE_OK;
    sluice_status status = result == cudaErrorMemoryAllocation ? SLUICE_NOMEM : SLUICE_DEVICE;
    return sl_fail_native(status, SLUICE_DOMAIN_CUDA, result, "cuda", "%s: %s", what, cudaGetErrorString(result));
}

sluice_status sl_nccl_status(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return SLUICE_OK;
    return sl_fail_native(SLUICE_TRANSPORT, SLUICE_DOMAIN_NCCL, result, "nccl", "%s: %s", what,
                          ncclGetErrorString(result));
}

sluice_status sl_cuda_report(const struct sluice_backend_config *config, sluice_status status)
{
    if (status != SLUICE_OK && status != SLUICE_AGAIN && status != SLUICE_BUSY && config->fail != NULL)
        config->fail(sluice_last_error());
    return status;
}

void sl_cuda_lose(struct sluice_device *device, cudaError_t result, const char *what)
{
    if (device->sticky.status != SLUICE_OK)
        return;
    sl_error_set(&device->sticky, SLUICE_DEVICE, "cuda", "%s: %s; the context of device %d is lost", what,
                 cudaGetErrorString(result), device->ordinal);
    device->sticky.domain = SLUICE_DOMAIN_CUDA;
    device->sticky.native = result;
    SL_LOG(&device->log, SLUICE_LOG_ERROR, "cuda", "%s", device->sticky.text);
}

sluice_status sl_cuda_enter_ordinal(int ordinal, struct sl_cuda_scope *ret)
{
    if (cudaGetDevice(&ret->previous) != cudaSuccess)
        ret->previous = -1;
    ret->mode = cudaStreamCaptureModeRelaxed;
    sluice_status status = sl_cuda_status(cudaSetDevice(ordinal), "choosing the device");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaThreadExchangeStreamCaptureMode(&ret->mode), "relaxing the capture mode");
    return status;
}

sluice_status sl_cuda_enter(const struct sluice_device *device, struct sl_cuda_scope *ret)
{
    return sl_cuda_enter_ordinal(device->ordinal, ret);
}

void sl_cuda_leave(const struct sl_cuda_scope *scope)
{
    enum cudaStreamCaptureMode mode = scope->mode;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    if (scope->previous >= 0)
        (void)cudaSetDevice(scope->previous);
}

/* --- what is here --- */

static void describe_nccl(struct sluice_backend_info *info)
{
    int version = 0;
    (void)ncclGetVersion(&version);
    info->version = (uint32_t)version;
    if (version >= NCCL_VERSION_MIN)
        return;
    Dl_info where = {0};
    (void)dladdr((void *)(uintptr_t)&ncclGetVersion, &where);
    info->usable = 0;
    (void)snprintf(info->reason, sizeof info->reason, "NCCL %d.%d.%d in %s is too old, 2.27.3 or later is needed",
                   version / 10000, version / 100 % 100, version % 100,
                   where.dli_fname != NULL ? where.dli_fname : "an unknown file");
}

static sluice_status query(struct sluice_backend_info *ret)
{
    struct sluice_backend_info info = {.size = sizeof info,
                                       .threads_per_queue = 0,
                                       .queues_max = SL_CUDA_QUEUES_MAX,
                                       .markers_max = SL_CUDA_MARKERS_MAX,
                                       .alignment = 16,
                                       .digests = 1,
                                       .late_wake = 1};
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
        (void)snprintf(info.reason, sizeof info.reason, "no CUDA device: %s",
                       result != cudaSuccess ? cudaGetErrorString(result) : "the driver shows none");
        (void)cudaGetLastError();
    } else {
        struct cudaDeviceProp properties;
        info.devices = (uint32_t)count;
        info.usable = 1;
        if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)
            (void)snprintf(info.reason, sizeof info.reason, "%d x %s", count, properties.name);
        describe_nccl(&info);
    }
    *ret = info;
    return SLUICE_OK;
}

/*
 * P is the power of two that the communicator is opened with (minCTAs = maxCTAs), seen so on NCCL 2.28.9. How many
 * channels a pair takes depends on the path, so only P is said, which bounds it.
 */
static void describe(struct sluice_device *device, struct sluice_backend_info *ret)
{
    ret->channels = sl_cuda_channels(device);
    memcpy(ret->identity, device->identity, sizeof ret->identity);
    ret->transport_cpu_ns = atomic_load(&device->nccl_ns);
    ret->host_staging_bytes = sl_blocks_taken(device->pinned);
}

/* --- open and close --- */

static sluice_status open_events(struct sluice_device *device)
{
    sluice_status status =
        sl_cuda_status(cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking), "creating a stream");
    for (uint32_t m = 0; status == SLUICE_OK && m < SL_CUDA_MARKERS_MAX; m++)
        status = sl_cuda_status(cudaEventCreateWithFlags(&device->markers[m].event, cudaEventDisableTiming),
                                "creating an event");
    if (status != SLUICE_OK || !device->config.trace)
        return status;
    status = sl_cuda_status(cudaEventCreate(&device->time_zero), "creating an event");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventRecord(device->time_zero, device->setup), "recording an event");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventSynchronize(device->time_zero), "waiting for an event");
    device->time_zero_ns = device->config.now(device->config.clock);
    return status;
}

static sluice_status open_kernels(struct sluice_device *device)
{
    void *tickets = NULL;
    size_t bytes = SL_CUDA_TICKETS * sizeof *device->tickets;
    sluice_status status = sl_cuda_status(sl_kernel_load(), "loading the copy kernels");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaMalloc(&tickets, bytes), "allocating counters");
    if (status != SLUICE_OK)
        return status;
    device->tickets = tickets;
    status = sl_cuda_status(cudaMemsetAsync(tickets, 0, bytes, device->setup), "clearing counters");
    return status == SLUICE_OK ? sl_cuda_status(cudaStreamSynchronize(device->setup), "clearing counters") : status;
}

static void close_device(struct sluice_device *device)
{
    struct sl_cuda_scope scope;
    if (device == NULL)
        return;
    struct sl_mem *mem = device->mem;
    sluice_status entered = sl_cuda_enter(device, &scope);
    sl_cuda_staging_close(device); /* its threads end even where the device cannot be entered any more */
    if (entered == SLUICE_OK) {
        for (uint32_t m = 0; m < SL_CUDA_MARKERS_MAX; m++)
            if (device->markers[m].event != NULL)
                (void)cudaEventDestroy(device->markers[m].event);
        (void)cudaFree(device->tickets);
        sl_cuda_slabs_free(device);
        sl_blocks_close(device->pinned);
        if (device->time_zero != NULL)
            (void)cudaEventDestroy(device->time_zero);
        if (device->setup != NULL)
            (void)cudaStreamDestroy(device->setup);
        sl_cuda_leave(&scope);
    }
    sl_free(mem, device);
}

/* The UUID as nvidia-smi prints it: the same in every process, whatever number it knows the device by. */
static void name_device(struct sluice_device *device, const struct cudaDeviceProp *properties)
{
    const unsigned char *b = (const unsigned char *)properties->uuid.bytes;
    (void)snprintf(device->identity, sizeof device->identity,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
                   b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static sluice_status prepare(struct sluice_device *device)
{
    struct sl_cuda_scope scope;
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status == SLUICE_OK) {
        struct cudaDeviceProp properties;
        status = sl_cuda_status(cudaGetDeviceProperties(&properties, device->ordinal), "reading the device");
        if (status == SLUICE_OK) {
            device->multiprocessors = (uint32_t)properties.multiProcessorCount;
            name_device(device, &properties);
        }
        if (status == SLUICE_OK)
            status = sl_cuda_pinned_open(device);
        if (status == SLUICE_OK)
            status = open_events(device);
        if (status == SLUICE_OK)
            status = open_kernels(device);
        sl_cuda_leave(&scope);
    }
    return status;
}

static sluice_status open_device(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    struct sluice_backend_info info;
    SL_IGNORE(query(&info));
    if (!info.usable)
        return sl_fail(SLUICE_UNSUPPORTED, "cuda", "the cuda backend cannot be used here: %s", info.reason);
    if (config->device >= info.devices)
        return sl_fail(SLUICE_INVALID, "cuda", "device %u does not exist: there are %u", config->device, info.devices);
    struct sl_mem *mem = sl_mem_default();
    struct sluice_device *device = sl_new(mem, sizeof *device, "cuda device");
    if (device == NULL)
        return SLUICE_NOMEM;
    device->mem = mem;
    device->config = *config;
    device->log = (struct sl_log){config->log, config->log_user, SLUICE_LOG_TRACE};
    device->ordinal = (int)config->device;
    device->nccl_version = info.version;
    sluice_status status = prepare(device);
    if (status != SLUICE_OK) {
        close_device(device);
        return status;
    }
    *ret = device;
    return SLUICE_OK;
}

/* --- memory --- */

static sluice_status allocate(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    struct sl_cuda_scope scope;
    if (device->config.staging_bytes_max != 0 && bytes > device->config.staging_bytes_max - device->staging_bytes)
        return sl_fail(SLUICE_LIMIT, "cuda",
                       "%llu bytes of staging beside %llu exceed the limit of %llu: raise staging_bytes_max or lower "
                       "window_bytes",
                       (unsigned long long)bytes, (unsigned long long)device->staging_bytes,
                       (unsigned long long)device->config.staging_bytes_max);
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status != SLUICE_OK)
        return status;
    void *memory = NULL;
    if (kind == SLUICE_MEMORY_PINNED)
        status = sl_cuda_pinned_alloc(device, bytes, &memory);
    else
        status = sl_cuda_status(cudaMalloc(&memory, bytes), "allocating device memory");
    sl_cuda_leave(&scope);
    if (status != SLUICE_OK)
        return status;
    device->staging_bytes += bytes;
    *ret = memory;
    return SLUICE_OK;
}

static void release(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    struct sl_cuda_scope scope;
    if (memory == NULL)
        return;
    device->staging_bytes -= bytes;
    if (sl_cuda_enter(device, &scope) != SLUICE_OK)
        return;
    if (kind == SLUICE_MEMORY_PINNED)
        sl_blocks_free(device->pinned, memory, bytes);
    else
        (void)cudaFree(memory);
    sl_cuda_leave(&scope);
}

/* --- the table: every error is handed over to the library that opened the device --- */

static sluice_status table_open(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    return sl_cuda_report(config, open_device(config, ret));
}

static sluice_status table_allocate(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    return sl_cuda_report(&device->config, allocate(device, kind, bytes, ret));
}

static sluice_status table_queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    return sl_cuda_report(&device->config, sl_cuda_queue_open(device, ret));
}

static sluice_status table_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                                    const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    return sl_cuda_report(&device->config, sl_cuda_set_open(device, kind, pieces, count, ret));
}

static sluice_status table_group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    return sl_cuda_report(&device->config, sl_cuda_group_address(device, ret));
}

static sluice_status table_group_open(struct sluice_device *device, const struct sluice_group_config *config,
                                      uint64_t cookie, struct sluice_group **ret)
{
    return sl_cuda_report(&device->config, sl_cuda_group_open(device, config, cookie, ret));
}

static sluice_status table_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    return sl_cuda_report(&queue->device->config, sl_cuda_submit(queue, op));
}

static sluice_status table_point_open(const struct sluice_backend_config *config, enum sluice_point_kind kind,
                                      void *handle, struct sluice_point **ret)
{
    return sl_cuda_report(config, sl_cuda_point_open(config, kind, handle, ret));
}

static sluice_status table_point_wait(struct sluice_point *point, void *stream)
{
    return sl_cuda_report(&point->config, sl_cuda_point_wait(point, stream));
}

static sluice_status table_copy_on(struct sluice_set *set, void *stream)
{
    return sl_cuda_report(&set->device->config, sl_cuda_copy_on(set, stream));
}

static sluice_status table_copy_time(struct sluice_device *device, const struct sluice_copy *pieces, size_t count,
                                     uint64_t *ret_ns)
{
    return sl_cuda_report(&device->config, sl_cuda_copy_time(device, pieces, count, ret_ns));
}

static const struct sluice_backend_ops table = {
    .size = sizeof(struct sluice_backend_ops),
    .abi = SLUICE_BACKEND_ABI,
    .name = "cuda",
    .query = query,
    .open = table_open,
    .close = close_device,
    .mem_alloc = table_allocate,
    .mem_free = release,
    .queue_open = table_queue_open,
    .queue_close = sl_cuda_queue_close,
    .set_open = table_set_open,
    .set_close = sl_cuda_set_close,
    .group_address = table_group_address,
    .group_open = table_group_open,
    .group_close = sl_cuda_group_close,
    .submit = table_submit,
    .poll = sl_cuda_poll,
    .arm = sl_cuda_arm,
    .abort = sl_cuda_abort,
    .point_open = table_point_open,
    .point_query = sl_cuda_point_query,
    .point_wait = table_point_wait,
    .point_close = sl_cuda_point_close,
    .copy_on = table_copy_on,
    .describe = describe,
    .copy_time = table_copy_time,
    .is_staged = sl_cuda_set_is_staged,
    .is_direct = sl_cuda_is_direct,
};

SLUICE_API const struct sluice_backend_ops *sluice_cuda_backend(void);
const struct sluice_backend_ops *sluice_cuda_backend(void)
{
    return &table;
}
