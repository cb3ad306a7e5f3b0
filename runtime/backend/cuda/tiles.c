/*
 * Tiles: pieces cut into what one thread block copies at a time.
 *
 * Invariants: tiles cover the pieces' bytes exactly and in order; a tile has at most `tile_bytes`.
 */
#include "runtime/backend/cuda/device.h"
#include "runtime/backend/strided.h"

static sluice_status add(struct sl_cuda_tiles *tiles, const struct sl_tile *tile)
{
    sluice_status status =
        sl_grow(tiles->mem, &tiles->list, &tiles->capacity, tiles->count + 1, sizeof *tiles->list, "copy tiles");
    if (status == SLUICE_OK)
        tiles->list[tiles->count++] = *tile;
    return status;
}

static _Bool is_flat(const struct sl_cursor *cursor)
{
    return cursor->row_bytes == UINT64_MAX;
}

static _Bool at_row(const struct sl_cursor *cursor)
{
    return is_flat(cursor) || cursor->left == cursor->row_bytes;
}

static void skip_rows(struct sl_cursor *cursor, uint64_t rows, uint64_t row_bytes)
{
    cursor->address += rows * (is_flat(cursor) ? row_bytes : cursor->pitch);
}

/* Whole rows of one length at both ends, from here on; 0 when the ends do not fit each other. */
static uint64_t common_row(const struct sl_cursor *from, const struct sl_cursor *to)
{
    if (!at_row(from) || !at_row(to) || (is_flat(from) && is_flat(to)))
        return 0;
    if (!is_flat(from) && !is_flat(to) && from->row_bytes != to->row_bytes)
        return 0;
    return from->row_bytes < to->row_bytes ? from->row_bytes : to->row_bytes;
}

static sluice_status add_rows(struct sl_cuda_tiles *tiles, struct sl_cursor *from, struct sl_cursor *to, uint64_t row,
                              uint64_t rows)
{
    uint64_t most = tiles->tile_bytes / row;
    while (rows > 0) {
        uint64_t now = rows < most ? rows : most;
        struct sl_tile tile = {.from = from->address,
                               .to = to->address,
                               .from_pitch = is_flat(from) ? row : from->pitch,
                               .to_pitch = is_flat(to) ? row : to->pitch,
                               .row_bytes = (uint32_t)row,
                               .rows = (uint32_t)now};
        sluice_status status = add(tiles, &tile);
        if (status != SLUICE_OK)
            return status;
        skip_rows(from, now, row);
        skip_rows(to, now, row);
        rows -= now;
    }
    return SLUICE_OK;
}

sluice_status sl_cuda_tiles_add(struct sl_cuda_tiles *tiles, const struct sluice_copy *piece)
{
    struct sl_cursor from = sl_cursor_at(&piece->from, 0), to = sl_cursor_at(&piece->to, 0);
    uint64_t left = piece->bytes;
    while (left > 0) {
        uint64_t row = common_row(&from, &to);
        if (row != 0 && row <= tiles->tile_bytes / 2 && left >= 2 * row) {
            uint64_t rows = left / row;
            sluice_status status = add_rows(tiles, &from, &to, row, rows);
            if (status != SLUICE_OK)
                return status;
            left -= rows * row;
            continue;
        }
        uint64_t run = left;
        run = run < from.left ? run : from.left;
        run = run < to.left ? run : to.left;
        run = run < tiles->tile_bytes ? run : tiles->tile_bytes;
        struct sl_tile tile = {.from = from.address, .to = to.address, .row_bytes = (uint32_t)run, .rows = 1};
        sluice_status status = add(tiles, &tile);
        if (status != SLUICE_OK)
            return status;
        sl_cursor_advance(&from, run);
        sl_cursor_advance(&to, run);
        left -= run;
    }
    return SLUICE_OK;
}
