/*
 * layout_scale.c: the same cut with fewer bytes a row.
 *
 * - Every piece has max(16, bytes / scale rounded up to 16) bytes; pieces, shards and rows stay.
 * - Each of the three rows (source shard, destination shard, whole) has one map from old to new offsets for
 *   all shards. It grows by the scaled length of every stretch between two neighbouring boundaries, so
 *   pieces that were disjoint stay disjoint. Where shards are cut at different places (replicated heads
 *   against split ones) a few bytes between pieces can stay unused.
 */
#include <stdlib.h>

#include "runtime/base/error.h"
#include "scheduler/layout_cut.h"

enum row { ROW_FROM, ROW_TO, ROW_WHOLE, ROWS };

struct boundary {
    uint64_t old;
    uint64_t new;
};

static uint64_t scaled(uint64_t bytes, uint64_t scale)
{
    uint64_t units = bytes / scale / SLUICE_UNIT;
    return (units + (units * scale * SLUICE_UNIT < bytes)) * SLUICE_UNIT;
}

static uint64_t *offset_in(struct sl_cut_piece *piece, enum row row)
{
    switch (row) {
    case ROW_FROM:
        return &piece->from;
    case ROW_TO:
        return &piece->to;
    case ROW_WHOLE:
    case ROWS:
        break;
    }
    return &piece->origin;
}

static int by_old(const void *a, const void *b)
{
    uint64_t left = ((const struct boundary *)a)->old;
    uint64_t right = ((const struct boundary *)b)->old;
    return (left > right) - (left < right);
}

static size_t unique(struct boundary *list, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || list[kept - 1].old != list[i].old)
            list[kept++] = list[i];
    return kept;
}

static uint64_t look_up(const struct boundary *list, size_t count, uint64_t old)
{
    struct boundary key = {.old = old};
    const struct boundary *found = bsearch(&key, list, count, sizeof key, by_old);
    SL_ASSERT(found != NULL);
    return found->new;
}

/* Maps the offsets of all pieces in one row; returns the new length of the row. `list` holds 2 a piece. */
static uint64_t map_row(struct sl_cut *cut, enum row row, uint64_t scale, struct boundary *list)
{
    for (size_t i = 0; i < cut->piece_count; i++) {
        uint64_t begin = *offset_in(&cut->pieces[i], row);
        list[2 * i] = (struct boundary){.old = begin};
        list[2 * i + 1] = (struct boundary){.old = begin + cut->pieces[i].bytes};
    }
    qsort(list, 2 * cut->piece_count, sizeof *list, by_old);
    size_t count = unique(list, 2 * cut->piece_count);
    for (size_t i = 1; i < count; i++)
        list[i].new = list[i - 1].new + scaled(list[i].old - list[i - 1].old, scale);
    for (size_t i = 0; i < cut->piece_count; i++) {
        uint64_t *offset = offset_in(&cut->pieces[i], row);
        *offset = look_up(list, count, *offset);
    }
    return list[count - 1].new;
}

sluice_status sl_cut_scale(struct sl_cut *cut, uint64_t scale)
{
    struct boundary *list = sl_new_array(cut->mem, 2 * cut->piece_count, sizeof *list, "boundaries of a tensor");
    if (!list)
        return SLUICE_NOMEM;
    cut->from_row = map_row(cut, ROW_FROM, scale, list);
    cut->to_row = map_row(cut, ROW_TO, scale, list);
    cut->row = map_row(cut, ROW_WHOLE, scale, list);
    for (size_t i = 0; i < cut->piece_count; i++)
        cut->pieces[i].bytes = scaled(cut->pieces[i].bytes, scale);
    sl_free(cut->mem, list);
    uint64_t longest = cut->row > cut->from_row ? cut->row : cut->from_row;
    longest = longest > cut->to_row ? longest : cut->to_row;
    if (cut->rows > SLUICE_BYTES_MAX / longest)
        return sl_fail(SLUICE_LIMIT, "layout", "scale: rows of 16 bytes at least make a tensor larger than 2^62 bytes");
    return SLUICE_OK;
}
