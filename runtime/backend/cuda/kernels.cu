/*
 * The fused copy kernel: packs, unpacks and copies a whole window in one launch.
 *
 * - A block takes tiles in strides of the grid, so that neighbours in the list are copied at the same time.
 * - A row moves in words as wide as the alignment of both ends allows; ends that differ modulo 16 by a common
 *   head move it byte by byte first.
 * - Two shapes of one loop: `WIDE` for a launch over the whole device (many threads, one word each in flight,
 *   which measured best there), and one with eight words in flight for a few multiprocessors.
 */
#include "runtime/backend/cuda/kernels.h"

namespace
{

constexpr uint32_t THREADS = 1024;
constexpr uint32_t WARP = 32;

template <typename Word, int DEPTH>
__device__ __forceinline__ void copy_words(const Word *from, Word *to, uint32_t count, uint32_t lane, uint32_t lanes)
{
    uint32_t i = lane;
    if (DEPTH > 1) {
        for (; i + (DEPTH - 1) * lanes < count; i += DEPTH * lanes) {
            Word words[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; k++)
                words[k] = from[i + k * lanes];
#pragma unroll
            for (int k = 0; k < DEPTH; k++)
                to[i + k * lanes] = words[k];
        }
    }
    for (; i < count; i += lanes)
        to[i] = from[i];
}

/* Copies one run of bytes with `lanes` threads, of which this is `lane`. */
template <int DEPTH>
__device__ __forceinline__ void copy_run(uint64_t from, uint64_t to, uint32_t bytes, uint32_t lane, uint32_t lanes)
{
    const uint32_t apart = (uint32_t)(from ^ to);
    if ((apart & 15) == 0) {
        uint32_t head = (uint32_t)(-from & 15);
        head = head < bytes ? head : bytes;
        uint32_t body = (bytes - head) & ~15u;
        if (head != 0)
            copy_words<uint8_t, 1>((const uint8_t *)from, (uint8_t *)to, head, lane, lanes);
        copy_words<uint4, DEPTH>((const uint4 *)(from + head), (uint4 *)(to + head), body / 16, lane, lanes);
        uint32_t tail = head + body;
        if (tail < bytes)
            copy_words<uint8_t, 1>((const uint8_t *)(from + tail), (uint8_t *)(to + tail), bytes - tail, lane, lanes);
        return;
    }
    const uint32_t bits = (uint32_t)(from | to | bytes);
    if ((bits & 7) == 0)
        copy_words<uint64_t, DEPTH>((const uint64_t *)from, (uint64_t *)to, bytes / 8, lane, lanes);
    else if ((bits & 3) == 0)
        copy_words<uint32_t, DEPTH>((const uint32_t *)from, (uint32_t *)to, bytes / 4, lane, lanes);
    else if ((bits & 1) == 0)
        copy_words<uint16_t, DEPTH>((const uint16_t *)from, (uint16_t *)to, bytes / 2, lane, lanes);
    else
        copy_words<uint8_t, DEPTH>((const uint8_t *)from, (uint8_t *)to, bytes, lane, lanes);
}

/* Rows are dealt to groups of threads just large enough for one row's 16-byte words. */
template <int DEPTH> __device__ __forceinline__ void copy_rows(const sl_tile &tile)
{
    uint32_t lanes = WARP;
    while (lanes > 1 && (lanes / 2) * 16 >= tile.row_bytes)
        lanes /= 2;
    uint32_t groups = THREADS / lanes;
    uint32_t lane = threadIdx.x % lanes;
    for (uint32_t row = threadIdx.x / lanes; row < tile.rows; row += groups)
        copy_run<DEPTH>(tile.from + row * tile.from_pitch, tile.to + row * tile.to_pitch, tile.row_bytes, lane, lanes);
}

template <int DEPTH, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) copy_tiles(const sl_tile *__restrict__ tiles, uint32_t count)
{
    for (uint32_t t = blockIdx.x; t < count; t += gridDim.x) {
        const sl_tile tile = tiles[t];
        if (tile.rows == 1)
            copy_run<DEPTH>(tile.from, tile.to, tile.row_bytes, threadIdx.x, THREADS);
        else
            copy_rows<DEPTH>(tile);
    }
}

} // namespace

extern "C" cudaError_t sl_kernel_copy(const struct sl_tile *tiles, uint32_t count, uint32_t multiprocessors,
                                      uint32_t all, cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    if (2 * multiprocessors >= all) {
        uint32_t blocks = 2 * multiprocessors < count ? 2 * multiprocessors : count;
        copy_tiles<1, 2><<<blocks, THREADS, 0, stream>>>(tiles, count);
    } else {
        uint32_t blocks = multiprocessors < count ? multiprocessors : count;
        copy_tiles<8, 1><<<blocks, THREADS, 0, stream>>>(tiles, count);
    }
    return cudaPeekAtLastError();
}
