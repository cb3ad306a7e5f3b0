/*
 * balance.c: equal shares of every pair stream, and how many of them.
 *
 * Share k of n of a stream of U units is [floor(U k / n), floor(U (k + 1) / n)). No share has more than
 * ceil(U / n) units and the last one always has exactly that many, for every stream at once. So the last window of
 * a block is its largest, in both directions, and its size never grows with n: the exact check of a candidate costs
 * one sum over the streams, and the smallest n is found by bisection.
 */
#include <inttypes.h>

#include "runtime/base/int128.h"
#include "scheduler/schedule.h"

void sl_share(uint64_t units, uint32_t share, uint32_t shares, uint64_t *ret_begin, uint64_t *ret_end)
{
    SL_ASSERT(share < shares);
    *ret_begin = sl_mul_div(units, share, shares);
    *ret_end = sl_mul_div(units, (uint64_t)share + 1, shares);
}

static uint64_t largest_share(uint64_t units, uint32_t shares)
{
    return units / shares + (units % shares != 0);
}

/* Units of the largest window of one block in one direction. */
static uint64_t block_peak(const struct sl_half *half, uint32_t shares, const uint16_t *block_of_stream, uint32_t block,
                           _Bool receive)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < half->stream_count; i++) {
        const struct sl_stream *stream = &half->streams[i];
        uint32_t own = block_of_stream != NULL ? block_of_stream[i] : 0;
        if (own == block && stream->receive == receive) {
            units += largest_share(stream->units, shares);
        }
    }
    return units;
}

static uint64_t peak(const struct sl_half *half, uint32_t shares, uint32_t blocks, const uint16_t *block_of_stream,
                     _Bool receive)
{
    uint64_t units = 0;
    for (uint32_t block = 0; block < blocks; block++) {
        uint64_t own = block_peak(half, shares, block_of_stream, block, receive);
        units = own > units ? own : units;
    }
    return units;
}

/* Streams with bytes of the fullest block and direction: each of them needs a unit in its last share. */
static uint32_t streams_at_once(const struct sl_half *half, uint32_t blocks, const uint16_t *block_of_stream)
{
    uint64_t send = peak(half, UINT32_MAX, blocks, block_of_stream, 0);
    uint64_t recv = peak(half, UINT32_MAX, blocks, block_of_stream, 1);
    uint64_t most = send > recv ? send : recv;
    return most > half->stream_count ? half->stream_count : (uint32_t)most;
}

static _Bool fits(const struct sl_half *half, uint64_t window_units, uint32_t blocks, const uint16_t *block_of_stream,
                  uint32_t shares)
{
    return peak(half, shares, blocks, block_of_stream, 0) <= window_units &&
           peak(half, shares, blocks, block_of_stream, 1) <= window_units;
}

sluice_status sl_propose_windows(const struct sl_half *half, uint64_t window_bytes, uint32_t blocks,
                                 const uint16_t *block_of_stream, uint32_t at_least, uint32_t *ret_windows)
{
    SL_ASSERT(blocks > 0 && (blocks == 1 || block_of_stream != NULL));
    uint64_t units = window_bytes / SLUICE_UNIT;
    uint32_t streams = streams_at_once(half, blocks, block_of_stream);
    if (units == 0 || units < streams) {
        return sl_fail(SLUICE_CONFIG, "schedule",
                       "window_bytes %" PRIu64 " is too small: rank %" PRIu32 " has %" PRIu32
                       " peers at once and needs at least %u",
                       window_bytes, half->rank, streams, streams > 0 ? streams * SLUICE_UNIT : SLUICE_UNIT);
    }
    uint32_t most = SLUICE_WINDOWS_MAX / blocks;
    uint32_t low = at_least / blocks + (at_least % blocks != 0);
    low = low > 0 ? low : 1;
    if (low > most || !fits(half, units, blocks, block_of_stream, most)) {
        return sl_fail(SLUICE_LIMIT, "schedule",
                       "rank %" PRIu32 " would need more than %u windows of window_bytes %" PRIu64
                       "; raise window_bytes",
                       half->rank, SLUICE_WINDOWS_MAX, window_bytes);
    }
    uint32_t high = most;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        _Bool enough = fits(half, units, blocks, block_of_stream, middle);
        high = enough ? middle : high;
        low = enough ? low : middle + 1;
    }
    *ret_windows = low * blocks;
    return SLUICE_OK;
}
