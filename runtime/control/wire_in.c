/*
 * wire_in.c: what arrives on a wire. Invariants: a length is checked before memory is taken for it; chunks
 * of a large message arrive in order, one message at a time; nothing is delivered after the end was decided.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/control/wire_bytes.h"
#include "runtime/control/wire_state.h"

/* A chunk of a large message; the last one delivers it. False: the peer broke the rules. */
static _Bool take_chunk(struct sl_wire *wire, const uint8_t *payload, size_t bytes)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint8_t type = sl_get_u8(&r);
    size_t total = sl_get_u32(&r);
    size_t offset = sl_get_u32(&r);
    if (r.failed || total > SL_MESSAGE_MAX || offset != wire->message_have || type == SL_FRAME_CHUNK)
        return 0;
    if (offset == 0) {
        if (wire->message != NULL)
            return 0;
        wire->message = sl_new_aligned(wire->wires->mem, total, 16, "a message");
        if (wire->message == NULL)
            return 0;
        wire->message_bytes = total;
        wire->message_type = type;
    }
    if (wire->message == NULL || total != wire->message_bytes || type != wire->message_type || r.left > total - offset)
        return 0;
    if (r.left > 0)
        memcpy(wire->message + offset, r.data, r.left);
    wire->message_have += r.left;
    if (wire->message_have < total)
        return r.left > 0; /* a chunk without bytes would never end */
    uint8_t *message = wire->message;
    wire->message = NULL;
    wire->message_have = 0;
    wire->handlers->on_frame(wire->context, wire, (enum sl_frame)type, message, total);
    sl_free(wire->wires->mem, message);
    return 1;
}

static void take_frame(struct sl_wire *wire, uint8_t type, const uint8_t *payload, size_t bytes)
{
    if (type != SL_FRAME_CHUNK)
        wire->handlers->on_frame(wire->context, wire, (enum sl_frame)type, payload, bytes);
    else if (!take_chunk(wire, payload, bytes))
        sl_wire_end_later(wire, "it sent a malformed or too large message");
}

/* Delivers the whole frames in `data`; returns how many bytes they had. */
static size_t take_frames(struct sl_wire *wire, const uint8_t *data, size_t bytes)
{
    size_t at = 0;
    while (!sl_wire_stopped(wire) && bytes - at >= SL_HEAD_BYTES) {
        struct sl_reader r = sl_reader_of(data + at, SL_HEAD_BYTES);
        size_t payload = sl_get_u32(&r);
        uint8_t type = sl_get_u8(&r);
        uint32_t zeros = (uint32_t)sl_get_u8(&r) | sl_get_u16(&r);
        if (payload > SL_FRAME_MAX || zeros != 0 || type < SL_FRAME_JOIN || type > SL_FRAME_CHUNK) {
            char why[96];
            (void)snprintf(why, sizeof(why), "it sent a frame of type %u and %zu bytes: the limit is %u", type, payload,
                           SL_FRAME_MAX);
            sl_wire_end_later(wire, why);
            break;
        }
        if (bytes - at - SL_HEAD_BYTES < payload)
            break;
        take_frame(wire, type, data + at + SL_HEAD_BYTES, payload);
        at += SL_HEAD_BYTES + payload;
    }
    return at;
}

static void take_bytes(struct sl_wire *wire, const uint8_t *data, size_t bytes)
{
    struct sl_mem *mem = wire->wires->mem;
    if (wire->in.bytes > 0) { /* a frame had begun */
        if (!sl_buffer_put(mem, &wire->in, data, bytes)) {
            sl_wire_end_later(wire, "out of memory for what it sent");
            return;
        }
        size_t taken = take_frames(wire, wire->in.data + wire->in.first, wire->in.bytes);
        sl_buffer_take(mem, &wire->in, taken);
        return;
    }
    size_t taken = take_frames(wire, data, bytes);
    if (!sl_wire_stopped(wire) && taken < bytes && !sl_buffer_put(mem, &wire->in, data + taken, bytes - taken))
        sl_wire_end_later(wire, "out of memory for what it sent");
}

static void read_some(struct sl_wire *wire)
{
    for (int i = 0; i < SL_READS_MAX && !sl_wire_stopped(wire); i++) {
        ssize_t got = recv(wire->fd, wire->wires->scratch, SL_SCRATCH_BYTES, 0);
        if (got > 0) {
            wire->activity++;
            take_bytes(wire, wire->wires->scratch, (size_t)got);
        } else if (got == 0) {
            sl_wire_end_later(wire, "it closed the connection");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            sl_wire_end_later(wire, sl_errno_words(errno));
        }
    }
}

void sl_wire_on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct sl_wire *wire = context;
    wire->busy = 1;
    read_some(wire);
    wire->busy = 0;
    if (wire->closing)
        sl_wire_free(wire);
}
