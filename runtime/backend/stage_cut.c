/*
 * stage_cut.c: see stage_cut.h.
 *
 * Invariants: what a chunk has in its slot begins at the same address modulo 16 as at the device's end, so that wide
 * words serve; a piece is cut at such a multiple; pieces keep their order.
 */
#include "runtime/backend/stage_cut.h"

#include "runtime/backend/strided.h"
#include "runtime/base/error.h"

enum { UNIT = 16, LEAST = 64 << 10 }; /* a slot with less room than LEAST left is not worth cutting a piece */

struct cut {
    struct sl_stage_slots *slots;
    struct sl_stage_plan *plan;
    uint64_t used; /* of the open chunk's slot */
    _Bool open;
};

static sluice_status add(struct sl_stage_plan *plan, struct sl_stage_list *list, struct sluice_strided from,
                         struct sluice_strided to, const struct sluice_copy *piece)
{
    sluice_status status =
        sl_grow(plan->mem, &list->copies, &list->capacity, list->count + 1, sizeof *list->copies, "staged copies");
    if (status == SLUICE_OK)
        list->copies[list->count++] = (struct sluice_copy){
            .from = from, .to = to, .bytes = piece->bytes, .message = piece->message, .param = piece->param};
    return status;
}

/* Also puts the end behind the last chunk. */
static sluice_status mark(struct sl_stage_plan *plan, uint32_t slot)
{
    sluice_status status =
        sl_grow(plan->mem, &plan->chunks, &plan->capacity, plan->count + 1, sizeof *plan->chunks, "chunks");
    if (status == SLUICE_OK)
        plan->chunks[plan->count] =
            (struct sl_stage_chunk){.slot = slot, plan->in.count, plan->device.count, plan->out.count};
    return status;
}

static sluice_status open_chunk(struct cut *cut)
{
    if (cut->plan->count == UINT32_MAX - 1)
        return sl_fail(SLUICE_LIMIT, "stage", "a copy set of too many chunks: lower window_bytes");
    sluice_status status = mark(cut->plan, cut->slots->next);
    if (status != SLUICE_OK)
        return status;
    cut->plan->count++;
    cut->slots->next = (cut->slots->next + 1) % cut->slots->count;
    cut->used = 0;
    cut->open = 1;
    return SLUICE_OK;
}

/* The address of the end that the device reaches, modulo the unit. */
static uint64_t skew_of(const struct sluice_copy *piece, uint8_t ends)
{
    if (ends == (SL_STAGE_FROM | SL_STAGE_TO))
        return 0;
    return sl_cursor_at(ends == SL_STAGE_FROM ? &piece->to : &piece->from, 0).address % UNIT;
}

static sluice_status add_part(struct cut *cut, const struct sluice_copy *part, uint8_t ends, uint64_t at)
{
    struct sl_stage_plan *plan = cut->plan;
    uint32_t slot = plan->chunks[plan->count - 1].slot;
    const struct sluice_strided staged = {.address = (uint64_t)(uintptr_t)cut->slots->memory[slot] + at,
                                          .row_bytes = UINT64_MAX};
    sluice_status status = SLUICE_OK;
    if (ends & SL_STAGE_FROM)
        status = add(plan, &plan->in, part->from, staged, part);
    if (status == SLUICE_OK && ends == SL_STAGE_FROM)
        status = add(plan, &plan->device, staged, part->to, part);
    if (status == SLUICE_OK && ends == SL_STAGE_TO)
        status = add(plan, &plan->device, part->from, staged, part);
    if (status == SLUICE_OK && (ends & SL_STAGE_TO))
        status = add(plan, &plan->out, staged, part->to, part);
    cut->used = at + part->bytes;
    return status;
}

static sluice_status cut_piece(struct cut *cut, const struct sluice_copy *piece, uint8_t ends)
{
    struct sluice_copy part = *piece;
    for (uint64_t left = piece->bytes; left > 0;) {
        uint64_t skew = skew_of(&part, ends);
        uint64_t at = (cut->used + UNIT - 1) / UNIT * UNIT + skew;
        uint64_t room = cut->slots->bytes > at ? cut->slots->bytes - at : 0;
        if (!cut->open || room < (left < LEAST ? left : LEAST)) {
            sluice_status status = open_chunk(cut);
            if (status != SLUICE_OK)
                return status;
            at = skew;
            room = cut->slots->bytes - at;
        }
        part.bytes = left <= room ? left : room - (at + room) % UNIT;
        sluice_status status = add_part(cut, &part, ends, at);
        if (status != SLUICE_OK)
            return status;
        left -= part.bytes;
        part.from.begin += part.bytes;
        part.to.begin += part.bytes;
    }
    return SLUICE_OK;
}

sluice_status sl_stage_cut(struct sl_mem *mem, struct sl_stage_slots *slots, const struct sluice_copy *pieces,
                           const uint8_t *ends, size_t count, struct sl_stage_plan *ret)
{
    SL_ASSERT(slots->bytes >= LEAST && slots->bytes % UNIT == 0 && slots->count > 0);
    *ret = (struct sl_stage_plan){.mem = mem};
    struct cut cut = {.slots = slots, .plan = ret};
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < count && status == SLUICE_OK; i++)
        if (ends[i] != 0)
            status = cut_piece(&cut, &pieces[i], ends[i]);
    return status == SLUICE_OK ? mark(ret, 0) : status;
}

void sl_stage_plan_drop(struct sl_stage_plan *plan)
{
    if (plan->mem == NULL)
        return;
    sl_free(plan->mem, plan->in.copies);
    sl_free(plan->mem, plan->device.copies);
    sl_free(plan->mem, plan->out.copies);
    sl_free(plan->mem, plan->chunks);
    *plan = (struct sl_stage_plan){.mem = NULL};
}

static _Bool joins(const struct sl_stage_run *run, uint64_t from, uint64_t to, _Bool ours)
{
    uint64_t gap = from - (run->from + run->bytes);
    return ours && gap < UNIT && to - (run->to + run->bytes) == gap;
}

uint32_t sl_stage_runs(const struct sl_stage_plan *plan, uint32_t chunk, _Bool ours, uint32_t max,
                       struct sl_stage_run *ret)
{
    uint32_t count = 0;
    for (size_t i = plan->chunks[chunk].device; i < plan->chunks[chunk + 1].device; i++) {
        const struct sluice_copy *copy = &plan->device.copies[i];
        uint64_t from = copy->from.address + copy->from.begin, to = copy->to.address + copy->to.begin;
        if (!sl_strided_is_flat(&copy->from) || !sl_strided_is_flat(&copy->to))
            return 0;
        if (count > 0 && joins(&ret[count - 1], from, to, ours)) {
            ret[count - 1].bytes = from + copy->bytes - ret[count - 1].from;
            continue;
        }
        if (count == max)
            return 0;
        ret[count++] = (struct sl_stage_run){from, to, copy->bytes};
    }
    return count;
}
