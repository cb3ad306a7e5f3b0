/*
 * layout_cut.h: how one tensor's shards on one side are cut for the shards of the other. Pure.
 *
 * A tensor that is split along a dimension is `rows` rows (the product of the dimensions before it) of
 * `row` bytes. All offsets and sizes below are bytes within one row.
 */
#ifndef SL_SCHEDULER_LAYOUT_CUT_H
#define SL_SCHEDULER_LAYOUT_CUT_H

#include "scheduler/layout.h"

/* A part of the row that one side cuts evenly: way w is [begin + w * bytes / ways, ...). */
struct sl_part {
    uint64_t begin;
    uint64_t bytes;
    uint64_t local; /* where a way begins in the row of its shard */
    uint32_t shard; /* ways > 1: shard + w holds way w; else shards shard .. shard + copies - 1 hold it */
    uint32_t ways;
    uint32_t copies; /* 1 when ways > 1 */
};

/* One side of a tensor: parts in order, together the whole row. */
struct sl_side {
    struct sl_mem *mem;
    struct sl_part *parts;
    uint32_t part_count;
    uint32_t shards;
    uint64_t local_row; /* bytes of a shard's row; the longest */
};

/* What one destination shard takes from the source shards shard .. shard + shards - 1, which all hold it. */
struct sl_cut_piece {
    uint64_t from;   /* in the source shard's row */
    uint64_t to;     /* in the destination shard's row */
    uint64_t origin; /* in the whole row */
    uint64_t bytes;
    uint64_t weight; /* bytes before any scaling */
    uint32_t shard;
    uint32_t shards;
};

struct sl_cut {
    struct sl_mem *mem;
    struct sl_cut_piece *pieces;
    size_t piece_count;
    uint32_t *first; /* pieces of destination shard s: first[s] .. first[s + 1] */
    uint32_t shards; /* destination shards */
    uint64_t rows;
    uint64_t row;      /* bytes of a whole row */
    uint64_t from_row; /* of a source shard's */
    uint64_t to_row;   /* of a destination shard's */
};

/* The parts of `tensor` on one side. INVALID names layout, tensor, dimension and sizes. */
sluice_status sl_side_make(const struct sl_tensor *tensor, const struct sl_layout *layout, _Bool whole,
                           struct sl_mem *mem, struct sl_side *ret);
void sl_side_drop(struct sl_side *side);

/* Cuts `tensor` for all destination shards, row sizes divided by `scale`. INVALID, LIMIT, NOMEM. */
sluice_status sl_cut_make(const struct sl_tensor *tensor, const struct sl_layout *from, const struct sl_layout *to,
                          uint64_t scale, struct sl_mem *mem, struct sl_cut *ret);
void sl_cut_drop(struct sl_cut *cut);
/* Divides the row bytes of every piece by `scale`, rounded up to SLUICE_UNIT; offsets follow. NOMEM. */
sluice_status sl_cut_scale(struct sl_cut *cut, uint64_t scale);

#endif
