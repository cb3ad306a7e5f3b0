/*
 * kernels.h: the fused copy kernel's descriptors and launch.
 *
 * A tile is a two-dimensional piece that one thread block copies: `rows` rows of `row_bytes`. Tiles of a
 * launch never overlap in what they write. The copy is of bytes: any bit pattern survives.
 */
#ifndef SL_CUDA_KERNELS_H
#define SL_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sl_tile {
    uint64_t from, to; /* addresses of the first row */
    uint64_t from_pitch, to_pitch;
    uint32_t row_bytes;
    uint32_t rows;
    uint64_t reserved;
};

/*
 * Enqueues one kernel that copies `count` tiles (in device memory). It takes at most `multiprocessors` of the
 * device's `all`.
 */
cudaError_t sl_kernel_copy(const struct sl_tile *tiles, uint32_t count, uint32_t multiprocessors, uint32_t all,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
