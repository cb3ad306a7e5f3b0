/*
 * The fused kernels: one launch packs, unpacks, copies or digests a whole window.
 *
 * - A row moves in words as wide as the alignment of both ends allows; ends that differ modulo 16 by a common
 *   head move it byte by byte first.
 * - Two shapes of one kernel, by how many multiprocessors it may take; both were chosen by measurement
 *   (docs/performance.md).
 */
#include "runtime/backend/cuda/kernels.h"

#include "runtime/backend/digest.h"

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

/* --- digests --- */

constexpr uint32_t UNIT = SL_DIGEST_UNIT;

__device__ __forceinline__ uint64_t digest_term(ulonglong2 unit, uint64_t index)
{
    return sl_digest_term(unit.x, unit.y, index);
}

/* Units of a run that begins at a multiple of their size. */
template <int DEPTH>
__device__ __forceinline__ uint64_t digest_units(const ulonglong2 *run, uint32_t units, uint64_t first, uint32_t lane,
                                                 uint32_t lanes)
{
    uint64_t sum = 0;
    uint32_t i = lane;
    for (; i + (DEPTH - 1) * lanes < units; i += DEPTH * lanes) {
        ulonglong2 unit[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            unit[k] = run[i + k * lanes];
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            sum += digest_term(unit[k], first + i + k * lanes);
    }
    for (; i < units; i += lanes)
        sum += digest_term(run[i], first + i);
    return sum;
}

/* Up to eight bytes of any address. */
__device__ __forceinline__ uint64_t gather(uint64_t address, uint32_t bytes)
{
    uint64_t word = 0;
    for (uint32_t k = 0; k < bytes; k++)
        word |= (uint64_t)(*(const uint8_t *)(address + k)) << (8 * k);
    return word;
}

/* A word of any address, from the two aligned words that hold it where both lie within [begin, end). */
__device__ __forceinline__ uint64_t load_word(uint64_t address, uint64_t begin, uint64_t end)
{
    const uint64_t low = address & ~(uint64_t)7;
    const uint32_t shift = (uint32_t)(address & 7) * 8;
    if (shift == 0)
        return *(const uint64_t *)address;
    if (low < begin || low + 16 > end)
        return gather(address, 8);
    return *(const uint64_t *)low >> shift | *(const uint64_t *)(low + 8) << (64 - shift);
}

__device__ __forceinline__ ulonglong2 load_unit(uint64_t address, uint64_t begin, uint64_t end)
{
    return make_ulonglong2(load_word(address, begin, end), load_word(address + 8, begin, end));
}

/* The last unit of a piece, of which `bytes` are there. */
__device__ __forceinline__ ulonglong2 gather_unit(uint64_t address, uint32_t bytes)
{
    return make_ulonglong2(gather(address, bytes < 8 ? bytes : 8), bytes > 8 ? gather(address + 8, bytes - 8) : 0);
}

/* One run of bytes by `lanes` threads, of which this is `lane`. */
template <int DEPTH>
__device__ __forceinline__ uint64_t digest_run(uint64_t address, uint32_t bytes, uint64_t first, uint32_t lane,
                                               uint32_t lanes)
{
    const uint32_t units = bytes / UNIT;
    uint64_t sum = 0;
    if (address % UNIT == 0) {
        sum = digest_units<DEPTH>((const ulonglong2 *)address, units, first, lane, lanes);
    } else {
#pragma unroll 2
        for (uint32_t i = lane; i < units; i += lanes)
            sum += digest_term(load_unit(address + i * UNIT, address, address + bytes), first + i);
    }
    if (bytes % UNIT != 0 && lane == 0)
        sum += digest_term(gather_unit(address + units * UNIT, bytes % UNIT), first + units);
    return sum;
}

/* Rows of whole units, dealt to groups of threads as those of copies are. */
template <int TEAM, int DEPTH>
__device__ __forceinline__ uint64_t digest_rows(const sl_digest_tile &tile, uint32_t thread)
{
    const uint32_t rest = tile.bytes - tile.left;
    const uint32_t rows = (rest + tile.row_bytes - 1) / tile.row_bytes;
    uint64_t sum = digest_run<1>(tile.address, tile.left, tile.first_unit, thread, TEAM);
    uint32_t lanes = WARP;
    while (lanes > 1 && (lanes / 2) * UNIT >= tile.row_bytes)
        lanes /= 2;
    while (lanes < TEAM && TEAM / lanes > rows)
        lanes *= 2;
    for (uint32_t row = thread / lanes; row < rows; row += TEAM / lanes) {
        const uint32_t at = row * tile.row_bytes;
        const uint32_t bytes = rest - at < tile.row_bytes ? rest - at : tile.row_bytes;
        sum += digest_run<DEPTH>(tile.next + row * tile.pitch, bytes, tile.first_unit + (tile.left + at) / UNIT,
                                 thread % lanes, lanes);
    }
    return sum;
}

/* Where byte `at` of a tile lies, and how far its row goes from there. */
__device__ __forceinline__ uint64_t locate(const sl_digest_tile &tile, uint32_t at, uint32_t *ret_left)
{
    if (at < tile.left) {
        *ret_left = tile.left - at;
        return tile.address + at;
    }
    const uint32_t row = (at - tile.left) / tile.row_bytes, column = (at - tile.left) % tile.row_bytes;
    *ret_left = tile.row_bytes - column;
    return tile.next + row * tile.pitch + column;
}

/* Bytes [at, end) of a tile, at most eight, wherever its rows end. */
__device__ __forceinline__ uint64_t gather_rows(const sl_digest_tile &tile, uint32_t at, uint32_t end)
{
    uint64_t word = 0;
    uint32_t left;
    for (uint32_t k = at; k < end; k++)
        word |= (uint64_t)(*(const uint8_t *)locate(tile, k, &left)) << (8 * (k - at));
    return word;
}

/* Rows whose ends cut units. */
template <int TEAM> __device__ __forceinline__ uint64_t digest_ragged(const sl_digest_tile &tile, uint32_t thread)
{
    uint64_t sum = 0;
    for (uint32_t at = UNIT * thread; at < tile.bytes; at += UNIT * TEAM) {
        const uint32_t end = tile.bytes - at < UNIT ? tile.bytes : at + UNIT;
        const uint32_t middle = end - at < 8 ? end : at + 8;
        uint32_t left;
        const uint64_t address = locate(tile, at, &left);
        const ulonglong2 unit = left >= UNIT && end == at + UNIT
                                    ? load_unit(address, address, address + left)
                                    : make_ulonglong2(gather_rows(tile, at, middle), gather_rows(tile, middle, end));
        sum += digest_term(unit, tile.first_unit + at / UNIT);
    }
    return sum;
}

template <int TEAM, int DEPTH>
__device__ __forceinline__ uint64_t digest_tile(const sl_digest_tile &tile, uint32_t thread)
{
    if (tile.left >= tile.bytes)
        return digest_run<DEPTH>(tile.address, tile.bytes, tile.first_unit, thread, TEAM);
    if ((tile.left | tile.row_bytes) % UNIT == 0)
        return digest_rows<TEAM, DEPTH>(tile, thread);
    return digest_ragged<TEAM>(tile, thread);
}

__device__ __forceinline__ void add_to_piece(struct sl_digest_piece *pieces, uint32_t piece, uint64_t sum)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (threadIdx.x % WARP == 0)
        atomicAdd((unsigned long long *)&pieces[piece].sum, (unsigned long long)sum);
}

/* The last block to leave finds all sums complete; it ends them and sets everything back for the next launch. */
__device__ __forceinline__ void end_digests(struct sl_digest_piece *pieces, uint32_t piece_count, uint64_t *values,
                                            struct sl_ticket *ticket)
{
    __shared__ uint32_t last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(&ticket->left, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (uint32_t p = threadIdx.x; p < piece_count; p += blockDim.x) {
        values[p] = sl_digest_end(__ldcg((const unsigned long long *)&pieces[p].sum), pieces[p].bytes);
        pieces[p].sum = 0;
    }
    if (threadIdx.x == 0) {
        ticket->next = 0;
        ticket->left = 0;
    }
}

/*
 * Teams of threads (a block or a warp) take tiles off one counter as copies do. A team keeps its sum as long as its
 * tiles are of one piece: a large piece would otherwise have all teams add to one place.
 */
template <int THREADS, int BLOCKS, int TEAM, int DEPTH>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    digest_tiles(const sl_digest_tile *__restrict__ tiles, uint32_t count, struct sl_digest_piece *pieces,
                 uint32_t piece_count, uint64_t *values, struct sl_ticket *ticket)
{
    __shared__ uint32_t taken;
    const uint32_t thread = threadIdx.x % TEAM;
    uint64_t sum = 0;
    uint32_t piece = 0;
    for (;;) {
        uint32_t mine = 0;
        if (TEAM == WARP) {
            if (thread == 0)
                mine = atomicAdd(&ticket->next, 1);
            mine = __shfl_sync(0xffffffff, mine, 0);
        } else {
            __syncthreads();
            if (thread == 0)
                taken = atomicAdd(&ticket->next, 1);
            __syncthreads();
            mine = taken;
        }
        if (mine >= count)
            break;
        const sl_digest_tile tile = tiles[mine];
        if (tile.piece != piece) {
            add_to_piece(pieces, piece, sum);
            sum = 0;
            piece = tile.piece;
        }
        sum += digest_tile<TEAM, DEPTH>(tile, thread);
    }
    add_to_piece(pieces, piece, sum);
    end_digests(pieces, piece_count, values, ticket);
}

/* The whole device: enough threads to hide memory, few words each. A few multiprocessors: more words each. */
constexpr int WIDE_THREADS = 512, WIDE_BLOCKS = 3, WIDE_DEPTH = 2;
constexpr int FEW_THREADS = 1024, FEW_DEPTH = 4;
/* Digests only read, so a thread has more on its way, and needs more registers. */
constexpr int DIGEST_DEPTH = 4;

constexpr auto digest_wide = digest_tiles<WIDE_THREADS, WIDE_BLOCKS, WIDE_THREADS, DIGEST_DEPTH>;
constexpr auto digest_few = digest_tiles<FEW_THREADS, 1, WARP, DIGEST_DEPTH>;

} // namespace

extern "C" cudaError_t sl_kernel_load(void)
{
    cudaFuncAttributes attributes;
    cudaError_t result = cudaFuncGetAttributes(&attributes, copy_tiles<WIDE_THREADS, WIDE_BLOCKS, WIDE_DEPTH>);
    if (result == cudaSuccess)
        result = cudaFuncGetAttributes(&attributes, copy_tiles_by_warp<FEW_THREADS, FEW_DEPTH>);
    if (result == cudaSuccess)
        result = cudaFuncGetAttributes(&attributes, digest_wide);
    if (result == cudaSuccess)
        result = cudaFuncGetAttributes(&attributes, digest_few);
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

extern "C" cudaError_t sl_kernel_digest(const struct sl_digest_tile *tiles, uint32_t count,
                                        struct sl_digest_piece *pieces, uint32_t piece_count, uint64_t *values,
                                        struct sl_ticket *ticket, uint32_t multiprocessors, uint32_t all,
                                        cudaStream_t stream)
{
    if (piece_count == 0)
        return cudaSuccess;
    bool wide = 2 * multiprocessors >= all;
    uint32_t most = wide ? WIDE_BLOCKS * multiprocessors : multiprocessors;
    uint32_t blocks = count == 0 ? 1 : most < count ? most : count;
    (wide ? digest_wide : digest_few)<<<blocks, wide ? WIDE_THREADS : FEW_THREADS, 0, stream>>>(
        tiles, count, pieces, piece_count, values, ticket);
    return cudaPeekAtLastError();
}
