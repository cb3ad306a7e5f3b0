/*
 * Pinned memory: blocks of cudaHostAlloc behind an arena for mixed sizes.
 *
 * Invariants: portable, so that every device of the process reaches it; taken and given back by the thread that calls
 * the backend, which has entered the device; the device closes after all of it was freed.
 */
#include "runtime/backend/cuda/device.h"

static void *take(void *context, size_t bytes)
{
    struct sluice_device *device = context;
    void *block = NULL;
    device->pinned_result = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    return device->pinned_result == cudaSuccess ? block : NULL;
}

static void give(void *context, void *block, size_t bytes)
{
    (void)context, (void)bytes;
    (void)cudaFreeHost(block);
}

sluice_status sl_cuda_pinned_open(struct sluice_device *device)
{
    static const struct sl_block_ops ops = {take, give};
    return sl_blocks_open(device->mem, &ops, device, &device->pinned);
}

sluice_status sl_cuda_pinned_alloc(struct sluice_device *device, uint64_t bytes, void **ret)
{
    device->pinned_result = cudaSuccess;
    void *memory = sl_blocks_alloc(device->pinned, bytes);
    if (memory != NULL) {
        *ret = memory;
        return SLUICE_OK;
    }
    cudaError_t result = device->pinned_result != cudaSuccess ? device->pinned_result : cudaErrorMemoryAllocation;
    return sl_cuda_status(result, "allocating pinned memory");
}
