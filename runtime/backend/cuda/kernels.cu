/*
 * The fused copy kernel: packs, unpacks and copies a whole window in one launch.
 *
 * - A row moves in words as wide as the alignment of both ends allows; ends that differ modulo 16 by a common
 *   head move it byte by byte first.
 * - Two shapes of one kernel, by how many multiprocessors it may take; both were chosen by measurement
 *   (docs/performance.md).
 */
#include "runtime/backend/cuda/kernels.h"

namespace
{

constexpr int WARP = 32;

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

/* Rows are dealt to groups of threads just large enough for one row's 16-byte words; few rows get larger groups. */
template <int THREADS, int DEPTH> __device__ __forceinline__ void copy_rows(const sl_tile &tile, uint32_t thread)
{
    uint32_t lanes = WARP;
    while (lanes > 1 && (lanes / 2) * 16 >= tile.row_bytes)
        lanes /= 2;
    while (lanes < THREADS && THREADS / lanes > tile.rows)
        lanes *= 2;
    uint32_t groups = THREADS / lanes;
    uint32_t lane = thread % lanes;
    for (uint32_t row = thread / lanes; row < tile.rows; row += groups)
        copy_run<DEPTH>(tile.from + row * tile.from_pitch, tile.to + row * tile.to_pitch, tile.row_bytes, lane, lanes);
}

template <int THREADS, int DEPTH> __device__ __forceinline__ void copy_tile(const sl_tile &tile, uint32_t thread)
{
    if (tile.rows == 1)
        copy_run<DEPTH>(tile.from, tile.to, tile.row_bytes, thread, THREADS);
    else
        copy_rows<THREADS, DEPTH>(tile, thread);
}

/* The last block to leave sets both counters back for the next launch. */
__device__ __forceinline__ void leave(struct sl_ticket *ticket)
{
    if (threadIdx.x == 0 && atomicAdd(&ticket->left, 1) == gridDim.x - 1) {
        ticket->next = 0;
        ticket->left = 0;
    }
}

/*
 * Blocks take tiles off one counter, so none waits for a slow one and the device's whole traffic stays within
 * neighbouring addresses.
 */
template <int THREADS, int BLOCKS, int DEPTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    copy_tiles(const sl_tile *__restrict__ tiles, uint32_t count, struct sl_ticket *ticket)
{
    __shared__ uint32_t taken;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0)
            taken = atomicAdd(&ticket->next, 1);
        __syncthreads();
        const uint32_t mine = taken;
        if (mine >= count)
            break;
        copy_tile<THREADS, DEPTH>(tiles[mine], threadIdx.x);
    }
    leave(ticket);
}

/* The same with a tile for every warp: on a few multiprocessors nobody waits for a whole block. */
template <int THREADS, int DEPTH>
__global__ void __launch_bounds__(THREADS, 1)
    copy_tiles_by_warp(const sl_tile *__restrict__ tiles, uint32_t count, struct sl_ticket *ticket)
{
    const uint32_t lane = threadIdx.x % WARP;
    for (;;) {
        uint32_t mine = 0;
        if (lane == 0)
            mine = atomicAdd(&ticket->next, 1);
        mine = __shfl_sync(0xffffffff, mine, 0);
        if (mine >= count)
            break;
        copy_tile<WARP, DEPTH>(tiles[mine], lane);
    }
    __syncthreads();
    leave(ticket);
}

/* The whole device: enough threads to hide memory, few words each. A few multiprocessors: more words each. */
constexpr int WIDE_THREADS = 512, WIDE_BLOCKS = 3, WIDE_DEPTH = 2;
constexpr int FEW_THREADS = 1024, FEW_DEPTH = 4;

} // namespace

extern "C" cudaError_t sl_kernel_load(void)
{
    cudaFuncAttributes attributes;
    cudaError_t result = cudaFuncGetAttributes(&attributes, copy_tiles<WIDE_THREADS, WIDE_BLOCKS, WIDE_DEPTH>);
    if (result == cudaSuccess)
        result = cudaFuncGetAttributes(&attributes, copy_tiles_by_warp<FEW_THREADS, FEW_DEPTH>);
    return result;
}

extern "C" cudaError_t sl_kernel_copy(const struct sl_tile *tiles, uint32_t count, struct sl_ticket *ticket,
                                      uint32_t multiprocessors, uint32_t all, cudaStream_t stream)
{
    if (count == 0)
        return cudaSuccess;
    if (2 * multiprocessors >= all) {
        uint32_t blocks = WIDE_BLOCKS * multiprocessors < count ? WIDE_BLOCKS * multiprocessors : count;
        copy_tiles<WIDE_THREADS, WIDE_BLOCKS, WIDE_DEPTH><<<blocks, WIDE_THREADS, 0, stream>>>(tiles, count, ticket);
    } else {
        uint32_t blocks = multiprocessors < count ? multiprocessors : count;
        copy_tiles_by_warp<FEW_THREADS, FEW_DEPTH><<<blocks, FEW_THREADS, 0, stream>>>(tiles, count, ticket);
    }
    return cudaPeekAtLastError();
}
