/*
 * Buffers on a GPU, for `sluice run --backend cuda`.
 *
 * Invariants: the device is opened by the child, never before the fork; whole buffers are copied, in one piece a
 * role, by the device's own copy; what NCCL reads from the environment is set before any of it is called.
 */
#include "run_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/error.h"
#include "tool.h"

/* Multiprocessors of all ranks of one GPU together: NCCL's kernels of all of them must be there at once. */
enum { SHARED_CTAS = 64, SHARED_CTAS_MOST = 16, ONE_NODE_SINCE = 23000 };

void run_share_gpu(uint32_t version, uint32_t ranks, uint32_t rank)
{
    char host[32], ctas[16];
    uint32_t most = ranks * SHARED_CTAS_MOST > SHARED_CTAS ? SHARED_CTAS / ranks : SHARED_CTAS_MOST;
    SL_IGNORE(snprintf(host, sizeof host, "sluice-rank-%u", rank));
    if (version < ONE_NODE_SINCE)
        SL_IGNORE(setenv("NCCL_HOSTID", host, 1));
    else
        SL_IGNORE(setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1));
    SL_IGNORE(setenv("NCCL_NVLS_ENABLE", "0", 0));
    SL_IGNORE(setenv("NCCL_IB_DISABLE", "1", 0));
    SL_IGNORE(setenv("NCCL_SOCKET_IFNAME", "lo", 0));
    /* On loopback every chunk wakes two threads up; larger chunks and fewer channels leave the processors to copy. */
    SL_IGNORE(setenv("NCCL_P2P_NET_CHUNKSIZE", "524288", 0));
    SL_IGNORE(setenv("NCCL_NCHANNELS_PER_NET_PEER", "2", 0));
    SL_IGNORE(snprintf(ctas, sizeof ctas, "%u", most > 0 ? most : 1));
    SL_IGNORE(setenv("SLUICE_MAX_CTAS", ctas, 0));
    if (rank == 0)
        tool_say("%u ranks share a GPU: each one takes %s multiprocessors and %s; start nvidia-cuda-mps-control -d "
                 "first, or they take turns",
                 ranks, getenv("SLUICE_MAX_CTAS"),
                 version < ONE_NODE_SINCE ? "its own NCCL_HOSTID (messages go over sockets)"
                                          : "NCCL_MULTI_RANK_GPU_ENABLE=1");
}

static sluice_status find(const struct sluice_runtime_options *options, struct sluice_backend_info *info,
                          const struct sluice_backend_ops **ret)
{
    const struct sluice_backend_ops *ops = NULL;
    if (options->backend != NULL && strcmp(options->backend, "cuda") != 0)
        return SLUICE_OK;
    sluice_status status = sl_backend_find("cuda", &ops);
    if (status == SLUICE_OK)
        status = ops->query(info);
    if (status == SLUICE_OK && info->usable)
        *ret = ops;
    return options->backend == NULL ? SLUICE_OK : status; /* the runtime tells why it cannot be used */
}

const char *const run_memory_names[] = {"device", "pinned", "pageable", NULL};

static enum sluice_memory memory_of(enum run_memory kind)
{
    return kind == RUN_MEMORY_PINNED ? SLUICE_MEMORY_PINNED : SLUICE_MEMORY_DEVICE;
}

static sluice_status take_memory(const struct run_buffers *buffers, struct run_device *device)
{
    void *memory = NULL;
    sluice_status status = SLUICE_OK;
    for (int role = 0; role < 2 && status == SLUICE_OK; role++) {
        if (buffers->total[role] == 0 || device->kind[role] == RUN_MEMORY_PAGEABLE)
            continue;
        status = device->ops->mem_alloc(device->device, memory_of(device->kind[role]), buffers->total[role], &memory);
        if (status == SLUICE_OK) {
            device->memory[role] = memory;
            device->bytes[role] = buffers->total[role];
        }
    }
    return status;
}

sluice_status run_device_open(const struct run_buffers *buffers, const enum run_memory kinds[2],
                              struct sluice_runtime_options *options, uint32_t ranks_per_gpu, uint32_t local_rank,
                              struct run_device *ret)
{
    struct sluice_backend_info info = {.size = sizeof info};
    struct run_device device = {.kind = {kinds[0], kinds[1]}};
    sluice_status status = find(options, &info, &device.ops);
    if (status == SLUICE_OK && device.ops == NULL && (kinds[0] != RUN_MEMORY_DEVICE || kinds[1] != RUN_MEMORY_DEVICE))
        return sl_fail(SLUICE_INVALID, "run", "--source-memory and --destination-memory are for --backend cuda");
    if (status == SLUICE_OK && device.ops == NULL && ranks_per_gpu != 0)
        return sl_fail(SLUICE_INVALID, "run", "--ranks-per-gpu is for --backend cuda");
    if (status != SLUICE_OK || device.ops == NULL)
        return status;
    uint32_t shared = ranks_per_gpu;
    if (shared == 0 && options->world > info.devices)
        shared = (options->world + info.devices - 1) / info.devices;
    if (shared > 1) {
        run_share_gpu(info.version, shared, local_rank);
        options->device_shared = 1;
    }
    uint32_t index = options->device != 0 ? options->device - 1 : local_rank % info.devices;
    struct sluice_backend_config config = sl_backend_config_alone();
    config.device = index;
    status = device.ops->open(&config, &device.device);
    if (status == SLUICE_OK)
        status = take_memory(buffers, &device);
    if (status != SLUICE_OK) {
        run_device_close(&device);
        return status;
    }
    *ret = device;
    return SLUICE_OK;
}

void run_device_close(struct run_device *device)
{
    for (int role = 0; role < 2 && device->device != NULL; role++)
        device->ops->mem_free(device->device, memory_of(device->kind[role]), device->memory[role], device->bytes[role]);
    if (device->device != NULL)
        device->ops->close(device->device);
    *device = (struct run_device){.ops = NULL};
}

uint8_t *run_device_buffer(const struct run_device *device, const struct run_buffers *buffers, uint32_t param,
                           enum sluice_role role)
{
    if (device->ops == NULL || device->kind[role] == RUN_MEMORY_PAGEABLE)
        return run_buffer(buffers, param, role);
    return device->memory[role] + buffers->offsets[role][param];
}

static sluice_status copy(const struct run_device *device, const uint8_t *from, const uint8_t *to, uint64_t bytes)
{
    uint64_t ns = 0;
    struct sluice_copy piece = {.from = {.address = (uint64_t)(uintptr_t)from, .row_bytes = UINT64_MAX},
                                .to = {.address = (uint64_t)(uintptr_t)to, .row_bytes = UINT64_MAX},
                                .bytes = bytes};
    return bytes == 0 ? SLUICE_OK : device->ops->copy_time(device->device, &piece, 1, &ns);
}

sluice_status run_device_upload(const struct run_device *device, const struct run_buffers *buffers)
{
    sluice_status status = SLUICE_OK;
    for (int role = 0; role < 2 && status == SLUICE_OK && device->ops != NULL; role++)
        status = copy(device, buffers->memory[role], device->memory[role], device->bytes[role]);
    return status;
}

sluice_status run_device_download(const struct run_device *device, const struct run_buffers *buffers)
{
    const int role = SLUICE_ROLE_DESTINATION;
    if (device->ops == NULL)
        return SLUICE_OK;
    return copy(device, device->memory[role], buffers->memory[role], device->bytes[role]);
}
