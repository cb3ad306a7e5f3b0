#include "support/check_schedule.h"

#include <string.h>

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* Adds up the bytes of each entry and requires that its pieces follow each other; windows come in order. */
static const char *check_coverage(const struct check_end *end)
{
    const struct sl_half *half = &end->half;
    const struct sl_schedule *schedule = &end->schedule;
    struct sl_mem *mem = sl_mem_default();
    uint64_t *next = sl_new_array(mem, half->entry_count, sizeof(*next), "covered bytes");
    const char *wrong = NULL;
    for (size_t i = 0; i < schedule->piece_count; i++) {
        const struct sl_piece *piece = &schedule->pieces[i];
        wrong = piece->begin >= piece->end ? "a piece without bytes" : wrong;
        wrong = piece->begin != next[piece->entry] ? "a gap or an overlap in a task" : wrong;
        next[piece->entry] = piece->end;
    }
    for (size_t i = 0; i < half->entry_count; i++) {
        wrong = next[i] != half->entries[i].bytes ? "a task is not covered" : wrong;
        next[i] = 0;
    }
    for (size_t i = 0; i < schedule->empty_count; i++) {
        const struct sl_empty *empty = &schedule->empties[i];
        wrong = half->entries[empty->entry].bytes != 0 || next[empty->entry]++ != 0 ? "an empty twice" : wrong;
        wrong = empty->window >= schedule->rule.windows ? "an empty without window" : wrong;
    }
    for (size_t i = 0; i < half->entry_count; i++) {
        wrong = half->entries[i].bytes == 0 && next[i] != 1 ? "a task without bytes was lost" : wrong;
    }
    sl_free(mem, next);
    return wrong;
}

static const char *check_message(const struct check_end *end, const struct sl_message *message, uint32_t index)
{
    const struct sl_half *half = &end->half;
    const struct sl_schedule *schedule = &end->schedule;
    const struct sl_stream *stream = sl_half_find(half, message->peer, message->receive);
    if (stream == NULL || message->piece_count == 0 || (message->single && message->piece_count != 1)) {
        return "a message without stream or pieces";
    }
    uint64_t at = 0;
    uint64_t direct_min = schedule->rule.direct_min;
    for (uint32_t i = message->first_piece; i < message->first_piece + message->piece_count; i++) {
        const struct sl_piece *piece = &schedule->pieces[i];
        uint64_t bytes = piece->end - piece->begin;
        if (piece->entry < stream->first || piece->entry >= stream->first + stream->count) {
            return "a piece of another stream";
        }
        if (piece->message != index || piece->offset != at || at % 16 != 0) {
            return "a piece in the wrong place";
        }
        if (message->single != (direct_min > 0 && bytes >= direct_min)) {
            return "direct_min was not kept";
        }
        at += padded(bytes);
    }
    uint64_t last = schedule->pieces[message->first_piece].end - schedule->pieces[message->first_piece].begin;
    return message->bytes == (message->single ? last : at) ? NULL : "a message of the wrong length";
}

static const char *check_window(const struct check_end *end, uint32_t w)
{
    const struct sl_schedule *schedule = &end->schedule;
    const struct sl_window *window = &schedule->windows[w];
    uint64_t bytes[2] = {0, 0}, slots[2] = {0, 0}, local = 0;
    _Bool receiving = 0;
    for (uint32_t i = 0; i < window->message_count; i++) {
        const struct sl_message *message = &schedule->messages[window->first_message + i];
        const char *wrong = check_message(end, message, i);
        if (wrong != NULL) {
            return wrong;
        }
        if (receiving && !message->receive) {
            return "a send after a receive";
        }
        receiving = message->receive;
        bytes[message->receive] += message->bytes;
        if (message->offset != SL_NO_SLOT) {
            if (message->offset != slots[message->receive]) {
                return "a message in the wrong place of the slot";
            }
            slots[message->receive] += (message->bytes + 255) / 256 * 256;
        } else if (!message->single) {
            return "a packed message without slot";
        }
    }
    for (uint32_t i = window->first_local; i < window->first_local + window->local_count; i++) {
        local += schedule->pieces[i].end - schedule->pieces[i].begin;
        if (schedule->pieces[i].message != SL_MESSAGE_NONE || schedule->pieces[i].entry < end->half.local.first) {
            return "a local piece that is not";
        }
    }
    if (bytes[0] != window->send_bytes || bytes[1] != window->recv_bytes || local != window->local_bytes) {
        return "a window's sums are wrong";
    }
    return slots[0] > schedule->slot_send_bytes || slots[1] > schedule->slot_recv_bytes ? "a slot is too small" : NULL;
}

const char *check_whole(const struct check_end *end)
{
    const struct sl_schedule *schedule = &end->schedule;
    size_t messages = 0;
    size_t pieces = 0;
    for (uint32_t w = 0; w < schedule->rule.windows; w++) {
        const struct sl_window *window = &schedule->windows[w];
        const char *wrong = check_window(end, w);
        if (wrong != NULL) {
            return wrong;
        }
        if (window->first_message != messages) {
            return "messages are not contiguous";
        }
        for (uint32_t i = 0; i < window->message_count; i++) {
            pieces += schedule->messages[messages + i].piece_count;
        }
        messages += window->message_count;
        pieces += window->local_count;
    }
    if (messages != schedule->message_count || pieces != schedule->piece_count) {
        return "messages or pieces outside of windows";
    }
    return check_coverage(end);
}

/* The next message of the window at or after *index to or from the peer; NULL when none. */
static const struct sl_message *next_message(const struct check_end *end, uint32_t window, uint32_t peer, _Bool receive,
                                             uint32_t *index)
{
    const struct sl_window *own = &end->schedule.windows[window];
    while (*index < own->message_count) {
        const struct sl_message *message = &end->schedule.messages[own->first_message + (*index)++];
        if (message->peer == peer && message->receive == receive) {
            return message;
        }
    }
    return NULL;
}

static const struct sluice_task *task_of(const struct check_end *end, const struct sl_piece *piece)
{
    return &end->plan->tasks[end->half.entries[piece->entry].task];
}

static _Bool same_message(const struct check_end *a, const struct sl_message *x, const struct check_end *b,
                          const struct sl_message *y)
{
    if (x->bytes != y->bytes || x->single != y->single || x->piece_count != y->piece_count) {
        return 0;
    }
    for (uint32_t i = 0; i < x->piece_count; i++) {
        const struct sl_piece *p = &a->schedule.pieces[x->first_piece + i];
        const struct sl_piece *q = &b->schedule.pieces[y->first_piece + i];
        if (p->begin != q->begin || p->end != q->end || p->offset != q->offset ||
            task_of(a, p)->id != task_of(b, q)->id || task_of(a, p)->part != task_of(b, q)->part) {
            return 0;
        }
    }
    return 1;
}

const char *check_pair(const struct check_end *sender, const struct check_end *receiver)
{
    if (sender->schedule.rule.windows != receiver->schedule.rule.windows) {
        return "different numbers of windows";
    }
    for (uint32_t w = 0; w < sender->schedule.rule.windows; w++) {
        uint32_t i = 0, j = 0;
        const struct sl_message *x;
        do {
            x = next_message(sender, w, receiver->half.rank, 0, &i);
            const struct sl_message *y = next_message(receiver, w, sender->half.rank, 1, &j);
            if ((x == NULL) != (y == NULL)) {
                return "a message without its other end";
            }
            if (x != NULL && !same_message(sender, x, receiver, y)) {
                return "the ends see different messages";
            }
        } while (x != NULL);
    }
    return NULL;
}

uint64_t check_pair_load(const struct check_end *end, uint32_t window, uint32_t peer, _Bool receive)
{
    uint64_t bytes = 0;
    uint32_t i = 0;
    for (const struct sl_message *message; (message = next_message(end, window, peer, receive, &i)) != NULL;) {
        bytes += padded(message->bytes);
    }
    return bytes;
}
