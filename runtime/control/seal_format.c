/*
 * seal_format.c: the fields of a seal's parts and answers, written and read in one place each, so that
 * the two directions cannot drift apart.
 */
#include "runtime/control/seal_format.h"

void sl_seal_put_head(struct sl_writer *w, enum sl_seal_phase phase)
{
    sl_put_u32(w, SL_SEAL_FORMAT);
    sl_put_u32(w, sluice_version_number());
    sl_put_u32(w, (uint32_t)phase);
}

void sl_seal_put_proposal(struct sl_writer *w, const struct sl_seal_proposal *p)
{
    sl_put_u64(w, p->window_bytes);
    sl_put_u64(w, p->shadow_bytes);
    sl_put_u64(w, p->landing_bytes);
    sl_put_u32(w, p->windows);
    sl_put_u32(w, p->base);
    sl_put_u32(w, p->blocks);
    sl_put_u32(w, p->attempt);
    sl_put_u8(w, p->packed);
}

void sl_seal_get_proposal(struct sl_reader *r, struct sl_seal_proposal *ret)
{
    ret->window_bytes = sl_get_u64(r);
    ret->shadow_bytes = sl_get_u64(r);
    ret->landing_bytes = sl_get_u64(r);
    ret->windows = sl_get_u32(r);
    ret->base = sl_get_u32(r);
    ret->blocks = sl_get_u32(r);
    ret->attempt = sl_get_u32(r);
    ret->packed = sl_get_u8(r) != 0;
    if (ret->windows == 0 || ret->windows > SLUICE_WINDOWS_MAX || ret->blocks == 0)
        r->failed = 1;
}

void sl_seal_put_stream(struct sl_writer *w, const struct sl_seal_stream *stream)
{
    sl_put_u32(w, stream->peer);
    sl_put_u8(w, stream->receive);
    sl_put_u64(w, stream->digest);
    sl_put_u64(w, stream->units);
    sl_put_u64(w, stream->bytes);
    sl_put_u32(w, stream->count);
}

void sl_seal_get_stream(struct sl_reader *r, struct sl_seal_stream *ret)
{
    ret->peer = sl_get_u32(r);
    ret->receive = sl_get_u8(r) != 0;
    ret->digest = sl_get_u64(r);
    ret->units = sl_get_u64(r);
    ret->bytes = sl_get_u64(r);
    ret->count = sl_get_u32(r);
}

void sl_seal_put_task(struct sl_writer *w, const struct sl_seal_task *task)
{
    sl_put_u64(w, task->id);
    sl_put_u64(w, task->bytes);
    sl_put_u32(w, task->window);
    sl_put_u16(w, task->part);
    sl_put_u8(w, task->dtype);
}

void sl_seal_get_task(struct sl_reader *r, struct sl_seal_task *ret)
{
    ret->id = sl_get_u64(r);
    ret->bytes = sl_get_u64(r);
    ret->window = sl_get_u32(r);
    ret->part = sl_get_u16(r);
    ret->dtype = sl_get_u8(r);
}

void sl_seal_put_answer(struct sl_writer *w, const struct sl_seal_answer *answer)
{
    sl_put_u32(w, SL_SEAL_FORMAT);
    sl_put_u32(w, (uint32_t)answer->kind);
    sl_put_u32(w, answer->windows);
    sl_put_u32(w, answer->blocks);
    sl_put_u32(w, answer->attempt);
    sl_put_u32(w, answer->staged);
    sl_put_u8(w, answer->packed);
    sl_put_u32(w, answer->source);
    sl_put_u32(w, answer->destination);
    sl_put_u32(w, (uint32_t)answer->map_count);
}

void sl_seal_get_answer(struct sl_reader *r, struct sl_seal_answer *ret)
{
    uint32_t format = sl_get_u32(r);
    uint32_t kind = sl_get_u32(r);
    ret->kind = (enum sl_seal_kind)kind;
    ret->windows = sl_get_u32(r);
    ret->blocks = sl_get_u32(r);
    ret->attempt = sl_get_u32(r);
    ret->staged = sl_get_u32(r);
    ret->packed = sl_get_u8(r) != 0;
    ret->source = sl_get_u32(r);
    ret->destination = sl_get_u32(r);
    ret->map_count = sl_get_u32(r);
    ret->map = sl_get_bytes(r, ret->map_count * SL_SEAL_MAP_BYTES);
    if (format != SL_SEAL_FORMAT || kind < SL_SEAL_AGREED || kind > SL_SEAL_COMPARE || ret->blocks == 0)
        r->failed = 1;
}
