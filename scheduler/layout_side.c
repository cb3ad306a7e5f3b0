/*
 * layout_side.c: which part of a tensor's row lies on which shard of one side.
 *
 * - Parts follow each other without gaps from 0 to the end of the row.
 * - Between one shard and one shard a tensor is one whole part: strides and blocks matter only where a
 *   tensor is really cut.
 */
#include "runtime/base/error.h"
#include "scheduler/layout_cut.h"

static const char *split_name(const struct sl_tensor *tensor)
{
    return tensor->split == SL_SPLIT_ETP ? "etp" : "tp";
}

static void add_part(struct sl_side *side, struct sl_part part)
{
    const struct sl_part *last = side->part_count ? &side->parts[side->part_count - 1] : NULL;
    SL_ASSERT(part.begin == (last ? last->begin + last->bytes : 0) && part.bytes % part.ways == 0);
    side->parts[side->part_count++] = part;
    uint64_t end = part.local + part.bytes / part.ways;
    if (end > side->local_row)
        side->local_row = end;
}

/* Tensors fused by a stride, and packed blocks: each stretch is cut evenly over all shards. */
static sluice_status add_even(struct sl_side *side, const struct sl_tensor *tensor, const struct sl_layout *layout,
                              uint64_t unit)
{
    uint64_t begin = 0;
    for (uint32_t block = 0; block < tensor->block_count; block++) {
        uint64_t ways = (uint64_t)side->shards * tensor->stride;
        if (tensor->blocks[block] % ways)
            return sl_fail(SLUICE_INVALID, "layout",
                           "%s: %s=%u x stride %u does not divide dimension %u of %s (block %u of %u, %llu elements)",
                           layout->what, split_name(tensor), side->shards, tensor->stride, tensor->dim, tensor->name,
                           block + 1, tensor->block_count, (unsigned long long)tensor->blocks[block]);
        uint64_t bytes = tensor->blocks[block] / tensor->stride * unit;
        for (uint32_t i = 0; i < tensor->stride; i++, begin += bytes)
            add_part(side,
                     (struct sl_part){
                         .begin = begin, .bytes = bytes, .local = side->local_row, .ways = side->shards, .copies = 1});
    }
    return SLUICE_OK;
}

/* Each unit (a key or value head) lies on shards / units shards. */
static void add_replicated_units(struct sl_side *side, const struct sl_tensor *tensor, uint64_t unit)
{
    uint32_t copies = side->shards / (uint32_t)tensor->units;
    uint64_t bytes = tensor->shape[tensor->dim] / tensor->units * unit;
    for (uint32_t i = 0; i < (uint32_t)tensor->units; i++)
        add_part(side, (struct sl_part){
                           .begin = i * bytes, .bytes = bytes, .shard = i * copies, .ways = 1, .copies = copies});
}

/* Each group's query heads are cut over its shards; its key and value lie on all of them, behind the queries. */
static void add_replicated_groups(struct sl_side *side, const struct sl_tensor *tensor, uint64_t unit)
{
    uint32_t copies = side->shards / (uint32_t)tensor->kv;
    uint64_t head = tensor->shape[tensor->dim] / (tensor->query + 2 * tensor->kv) * unit;
    uint64_t query = tensor->query / tensor->kv * head;
    for (uint32_t i = 0; i < (uint32_t)tensor->kv; i++) {
        uint64_t begin = i * (query + 2 * head);
        add_part(side,
                 (struct sl_part){.begin = begin, .bytes = query, .shard = i * copies, .ways = copies, .copies = 1});
        add_part(side, (struct sl_part){.begin = begin + query,
                                        .bytes = 2 * head,
                                        .local = query / copies,
                                        .shard = i * copies,
                                        .ways = 1,
                                        .copies = copies});
    }
}

/* `heads` heads of that kind are dealt to the shards whole, or the shards to the heads. */
static sluice_status check_heads(const struct sl_tensor *tensor, const struct sl_layout *layout, uint64_t heads,
                                 const char *kind, _Bool may_replicate)
{
    uint64_t shards = tensor->split == SL_SPLIT_ETP ? layout->etp : layout->tp;
    if (heads % shards == 0 || (may_replicate && shards > heads && shards % heads == 0))
        return SLUICE_OK;
    return sl_fail(SLUICE_INVALID, "layout", "%s: %s=%llu does not divide the %llu %s of %s%s", layout->what,
                   split_name(tensor), (unsigned long long)shards, (unsigned long long)heads, kind, tensor->name,
                   may_replicate ? ", nor is it a multiple of them" : "");
}

static sluice_status check_all_heads(const struct sl_tensor *tensor, const struct sl_layout *layout)
{
    if (tensor->units)
        return check_heads(tensor, layout, tensor->units, "units", 1);
    if (!tensor->kv)
        return SLUICE_OK;
    sluice_status status = check_heads(tensor, layout, tensor->query, "query heads", 0);
    return status == SLUICE_OK ? check_heads(tensor, layout, tensor->kv, "key-value heads", 1) : status;
}

/* The layout says it, else the model. */
static _Bool replicates(const struct sl_tensor *tensor, const struct sl_layout *layout)
{
    return layout->kv == SL_KV_REPLICATE || (layout->kv == SL_KV_AS_MODEL && !tensor->even);
}

static sluice_status add_parts(struct sl_side *side, const struct sl_tensor *tensor, const struct sl_layout *layout,
                               _Bool whole)
{
    uint64_t unit =
        sl_tensor_span(tensor, whole ? 0 : tensor->dim + 1u, tensor->dims) * sluice_dtype_bytes(tensor->dtype);
    sluice_status status = whole ? SLUICE_OK : check_all_heads(tensor, layout);
    if (status != SLUICE_OK)
        return status;
    if (whole)
        add_part(side, (struct sl_part){.bytes = unit, .ways = 1, .copies = side->shards});
    else if (tensor->units && side->shards > tensor->units)
        add_replicated_units(side, tensor, unit);
    else if (tensor->kv && side->shards > tensor->kv && replicates(tensor, layout))
        add_replicated_groups(side, tensor, unit);
    else
        return add_even(side, tensor, layout, unit);
    return SLUICE_OK;
}

sluice_status sl_side_make(const struct sl_tensor *tensor, const struct sl_layout *layout, _Bool whole,
                           struct sl_mem *mem, struct sl_side *ret)
{
    struct sl_side side = {.mem = mem, .shards = tensor->experts ? layout->etp : layout->tp};
    size_t most = 2 * (size_t)side.shards + (size_t)tensor->stride * SL_TENSOR_BLOCKS;
    side.parts = sl_new_array(mem, most, sizeof *side.parts, "parts of a tensor");
    if (!side.parts)
        return SLUICE_NOMEM;
    sluice_status status = add_parts(&side, tensor, layout, whole);
    SL_ASSERT(side.part_count <= most);
    if (status != SLUICE_OK) {
        sl_side_drop(&side);
        return status;
    }
    *ret = side;
    return SLUICE_OK;
}

void sl_side_drop(struct sl_side *side)
{
    sl_free(side->mem, side->parts);
    *side = (struct sl_side){0};
}
