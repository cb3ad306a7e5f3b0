/*
 * layout_cut.c: the pieces between the shards of two sides.
 *
 * - A piece lies within one part and way of either side. Where both sides cut the same stretch evenly, all
 *   pieces are the unit of least-common-multiple tiling, stretch / lcm(ways, ways), as the published
 *   planner makes them (also where two neighbouring ones come from one shard).
 * - The pieces of one destination shard cover its row once. Pieces of different shards are equal or disjoint
 *   in the whole row, so a map of boundaries is enough to scale them.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "scheduler/layout_cut.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The source part that holds byte `at`; parts are few, and `hint` is where the last search ended. */
static const struct sl_part *part_at(const struct sl_side *side, uint64_t at, uint32_t *hint)
{
    uint32_t i = at < side->parts[*hint].begin ? 0 : *hint;
    while (at - side->parts[i].begin >= side->parts[i].bytes)
        i++;
    SL_ASSERT(i < side->part_count);
    *hint = i;
    return &side->parts[i];
}

/* Longest piece at `at` that stays in one way of the source part, and in one tile where there are tiles. */
static uint64_t run_at(const struct sl_part *from, const struct sl_part *to, uint64_t at)
{
    uint64_t way = from->bytes / from->ways;
    if (from->begin == to->begin && from->bytes == to->bytes)
        return gcd(way, to->bytes / to->ways);
    return way - (at - from->begin) % way;
}

static sluice_status add_piece(struct sl_cut *cut, size_t *capacity, const struct sl_cut_piece *piece)
{
    sluice_status status =
        sl_grow(cut->mem, &cut->pieces, capacity, cut->piece_count + 1, sizeof *cut->pieces, "pieces of a tensor");
    if (status == SLUICE_OK)
        cut->pieces[cut->piece_count++] = *piece;
    return status;
}

/* Cuts [begin, begin + bytes) of the row, which begins at `local` in the destination shard. */
static sluice_status cut_range(struct sl_cut *cut, size_t *capacity, const struct sl_side *from,
                               const struct sl_part *to, uint64_t begin)
{
    uint64_t end = begin + to->bytes / to->ways;
    uint32_t hint = 0;
    for (uint64_t at = begin; at < end;) {
        const struct sl_part *part = part_at(from, at, &hint);
        uint64_t run = run_at(part, to, at);
        run = run < end - at ? run : end - at;
        uint64_t way_bytes = part->bytes / part->ways;
        uint32_t way = (uint32_t)((at - part->begin) / way_bytes);
        struct sl_cut_piece piece = {.from = part->local + (at - part->begin) % way_bytes,
                                     .to = to->local + (at - begin),
                                     .origin = at,
                                     .bytes = run,
                                     .weight = run,
                                     .shard = part->shard + way,
                                     .shards = part->copies};
        sluice_status status = add_piece(cut, capacity, &piece);
        if (status != SLUICE_OK)
            return status;
        at += run;
    }
    return SLUICE_OK;
}

static _Bool holds(const struct sl_part *part, uint32_t shard)
{
    uint32_t span = part->ways > 1 ? part->ways : part->copies;
    return shard >= part->shard && shard - part->shard < span;
}

static sluice_status cut_shard(struct sl_cut *cut, size_t *capacity, const struct sl_side *from,
                               const struct sl_side *to, uint32_t shard)
{
    for (uint32_t i = 0; i < to->part_count; i++) {
        const struct sl_part *part = &to->parts[i];
        if (!holds(part, shard))
            continue;
        uint64_t way = part->ways > 1 ? shard - part->shard : 0;
        sluice_status status = cut_range(cut, capacity, from, part, part->begin + way * (part->bytes / part->ways));
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

static sluice_status cut_sides(struct sl_cut *cut, const struct sl_side *from, const struct sl_side *to)
{
    size_t capacity = 0;
    cut->shards = to->shards;
    cut->from_row = from->local_row;
    cut->to_row = to->local_row;
    cut->first = sl_new_array(cut->mem, cut->shards + 1u, sizeof *cut->first, "shards of a tensor");
    if (!cut->first)
        return SLUICE_NOMEM;
    for (uint32_t shard = 0; shard < cut->shards; shard++) {
        sluice_status status = cut_shard(cut, &capacity, from, to, shard);
        if (status != SLUICE_OK)
            return status;
        if (cut->piece_count > UINT32_MAX)
            return sl_fail(SLUICE_LIMIT, "layout", "a tensor has more than 2^32 pieces");
        cut->first[shard + 1] = (uint32_t)cut->piece_count;
    }
    return SLUICE_OK;
}

static uint32_t shards_of(const struct sl_tensor *tensor, const struct sl_layout *layout)
{
    return tensor->experts ? layout->etp : layout->tp;
}

sluice_status sl_cut_make(const struct sl_tensor *tensor, const struct sl_layout *from, const struct sl_layout *to,
                          uint64_t scale, struct sl_mem *mem, struct sl_cut *ret)
{
    _Bool whole = tensor->split == SL_SPLIT_NONE || (shards_of(tensor, from) == 1 && shards_of(tensor, to) == 1);
    struct sl_side sides[2] = {{0}, {0}};
    struct sl_cut cut = {.mem = mem,
                         .rows = whole ? 1 : sl_tensor_span(tensor, 0, tensor->dim),
                         .row = sl_tensor_span(tensor, whole ? 0 : tensor->dim, tensor->dims) *
                                sluice_dtype_bytes(tensor->dtype)};
    sluice_status status = sl_side_make(tensor, from, whole, mem, &sides[0]);
    if (status == SLUICE_OK)
        status = sl_side_make(tensor, to, whole, mem, &sides[1]);
    if (status == SLUICE_OK)
        status = cut_sides(&cut, &sides[0], &sides[1]);
    if (status == SLUICE_OK && scale > 1)
        status = sl_cut_scale(&cut, scale);
    for (uint32_t i = 0; i < 2; i++)
        if (sides[i].mem)
            sl_side_drop(&sides[i]);
    if (status != SLUICE_OK) {
        sl_cut_drop(&cut);
        return status;
    }
    *ret = cut;
    return SLUICE_OK;
}

void sl_cut_drop(struct sl_cut *cut)
{
    if (!cut->mem)
        return;
    sl_free(cut->mem, cut->pieces);
    sl_free(cut->mem, cut->first);
    *cut = (struct sl_cut){0};
}
