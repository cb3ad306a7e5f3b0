/*
 * builder.c: from the pieces of one stream in one window to messages.
 *
 * Invariants
 * - Byte counts alone decide what becomes a message and in which order, so both ends come to the same messages
 *   without a word: pieces of at least direct_min bytes are singles, largest first and in stream order where equal;
 *   all others form one packed message, in stream order, each at the next multiple of SLUICE_UNIT.
 * - A window's messages are contiguous, a message's pieces as well.
 * - Every piece has bytes.
 */
#include "scheduler/builder.h"

#include <stdlib.h>

static sluice_status grow(struct sl_builder *builder, void *array, size_t *capacity, size_t need, size_t bytes,
                          const char *what)
{
    if (need >= UINT32_MAX) {
        return sl_fail(SLUICE_LIMIT, "schedule", "rank %u would need 2^32 %s; use fewer windows", builder->half->rank,
                       what);
    }
    return sl_grow(builder->schedule->mem, array, capacity, need, bytes, what);
}

sluice_status sl_builder_add(struct sl_builder *builder, uint32_t entry, uint64_t begin, uint64_t end)
{
    SL_ASSERT(begin < end);
    sluice_status status = grow(builder, &builder->scratch, &builder->scratch_capacity, builder->scratch_count + 1,
                                sizeof(*builder->scratch), "pieces");
    if (status == SLUICE_OK) {
        builder->scratch[builder->scratch_count++] = (struct sl_piece){.begin = begin, .end = end, .entry = entry};
    }
    return status;
}

sluice_status sl_builder_add_empty(struct sl_builder *builder, uint32_t entry, uint32_t window)
{
    struct sl_schedule *schedule = builder->schedule;
    sluice_status status = grow(builder, &schedule->empties, &builder->empty_capacity, schedule->empty_count + 1,
                                sizeof(*schedule->empties), "tasks without bytes");
    if (status == SLUICE_OK) {
        schedule->empties[schedule->empty_count++] = (struct sl_empty){.entry = entry, .window = window};
    }
    return status;
}

static _Bool is_single(const struct sl_builder *builder, const struct sl_piece *piece)
{
    uint64_t direct_min = builder->schedule->rule.direct_min;
    return direct_min > 0 && piece->end - piece->begin >= direct_min;
}

static int largest_first(const void *a, const void *b)
{
    const struct sl_piece *x = a;
    const struct sl_piece *y = b;
    uint64_t x_bytes = x->end - x->begin;
    uint64_t y_bytes = y->end - y->begin;
    if (x_bytes != y_bytes) {
        return x_bytes > y_bytes ? -1 : 1;
    }
    return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Appends the scratch pieces that are singles, or those that are not, and returns how many. Capacity is there. */
static uint32_t append_pieces(struct sl_builder *builder, _Bool singles)
{
    struct sl_schedule *schedule = builder->schedule;
    size_t before = schedule->piece_count;
    for (size_t i = 0; i < builder->scratch_count; i++) {
        if (is_single(builder, &builder->scratch[i]) == singles) {
            schedule->pieces[schedule->piece_count++] = builder->scratch[i];
        }
    }
    return (uint32_t)(schedule->piece_count - before);
}

/* Makes the last `count` pieces one message. */
static sluice_status add_message(struct sl_builder *builder, struct sl_window *window, const struct sl_stream *stream,
                                 uint32_t first, uint32_t count, _Bool single)
{
    struct sl_schedule *schedule = builder->schedule;
    sluice_status status = grow(builder, &schedule->messages, &builder->message_capacity, schedule->message_count + 1,
                                sizeof(*schedule->messages), "messages");
    if (status != SLUICE_OK) {
        return status;
    }
    uint64_t offset = 0;
    for (uint32_t i = first; i < first + count; i++) {
        struct sl_piece *piece = &schedule->pieces[i];
        piece->offset = offset;
        piece->message = window->message_count;
        offset += (piece->end - piece->begin + SLUICE_UNIT - 1) / SLUICE_UNIT * SLUICE_UNIT;
    }
    uint64_t bytes = single ? schedule->pieces[first].end - schedule->pieces[first].begin : offset;
    schedule->messages[schedule->message_count++] = (struct sl_message){
        .bytes = bytes,
        .offset = SL_NO_SLOT,
        .peer = stream->peer,
        .first_piece = first,
        .piece_count = count,
        .receive = stream->receive,
        .single = single,
    };
    window->message_count++;
    *(stream->receive ? &window->recv_bytes : &window->send_bytes) += bytes;
    return SLUICE_OK;
}

static sluice_status reserve_pieces(struct sl_builder *builder)
{
    struct sl_schedule *schedule = builder->schedule;
    return grow(builder, &schedule->pieces, &builder->piece_capacity, schedule->piece_count + builder->scratch_count,
                sizeof(*schedule->pieces), "pieces");
}

sluice_status sl_builder_flush(struct sl_builder *builder, uint32_t window, const struct sl_stream *stream)
{
    struct sl_schedule *schedule = builder->schedule;
    struct sl_window *own = &schedule->windows[window];
    sluice_status status = reserve_pieces(builder);
    if (status != SLUICE_OK) {
        return status;
    }
    uint32_t first = (uint32_t)schedule->piece_count;
    uint32_t singles = append_pieces(builder, 1);
    if (singles > 1) {
        qsort(&schedule->pieces[first], singles, sizeof(*schedule->pieces), largest_first);
    }
    for (uint32_t i = 0; i < singles && status == SLUICE_OK; i++) {
        status = add_message(builder, own, stream, first + i, 1, 1);
    }
    uint32_t packed = append_pieces(builder, 0);
    if (packed > 0 && status == SLUICE_OK) {
        status = add_message(builder, own, stream, first + singles, packed, 0);
    }
    builder->scratch_count = 0;
    return status;
}

sluice_status sl_builder_flush_local(struct sl_builder *builder, uint32_t window)
{
    struct sl_schedule *schedule = builder->schedule;
    struct sl_window *own = &schedule->windows[window];
    sluice_status status = reserve_pieces(builder);
    if (status != SLUICE_OK) {
        return status;
    }
    own->first_local = (uint32_t)schedule->piece_count;
    for (size_t i = 0; i < builder->scratch_count; i++) {
        struct sl_piece *piece = &builder->scratch[i];
        piece->message = SL_MESSAGE_NONE;
        own->local_bytes += piece->end - piece->begin;
        schedule->pieces[schedule->piece_count++] = *piece;
    }
    own->local_count = (uint32_t)builder->scratch_count;
    builder->scratch_count = 0;
    return SLUICE_OK;
}
