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

/* Counts a launch's tiles; both zero before and after every launch. Launches that may overlap have tickets of their own. */
struct sl_ticket {
    uint32_t next, left;
};

/*
 * Loads the kernels onto the current device. Else the first launch would, and loading waits for whatever runs
 * there, which may be a kernel that waits for us.
 */
cudaError_t sl_kernel_load(void);

/*
 * Enqueues one kernel that copies `count` tiles (in device memory). It takes at most `multiprocessors` of the
 * device's `all`.
 */
cudaError_t sl_kernel_copy(const struct sl_tile *tiles, uint32_t count, struct sl_ticket *ticket,
                           uint32_t multiprocessors, uint32_t all, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
