/*
 * kernels.h: the fused copy and digest kernels' descriptors and launches.
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

/*
 * Bytes of one piece, whole units of it but for the end of the piece: `left` bytes from `address` on, then rows of
 * `row_bytes` from `next` on, `pitch` apart, `bytes` in all.
 */
struct sl_digest_tile {
    uint64_t address, next, pitch;
    uint64_t first_unit; /* of the tile, in its piece */
    uint32_t left, row_bytes, bytes;
    uint32_t piece;
};

/* The sum is zero before and after every launch. */
struct sl_digest_piece {
    uint64_t bytes, sum;
};

/*
 * Enqueues one kernel that digests tiles, which are in the order of their pieces, and writes one value a piece to
 * `values`: memory of the host that the device reaches. Tiles and pieces are in device memory.
 */
cudaError_t sl_kernel_digest(const struct sl_digest_tile *tiles, uint32_t count, struct sl_digest_piece *pieces,
                             uint32_t piece_count, uint64_t *values, struct sl_ticket *ticket, uint32_t multiprocessors,
                             uint32_t all, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
