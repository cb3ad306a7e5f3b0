/*
 * wire.c: frames in and out of a socket.
 *
 * Invariants: lengths are checked before memory is taken for them; chunks of a large message arrive in
 * order and one message at a time; a frame once begun is finished before another begins, since frames are
 * appended whole to one output buffer and a chunk only when little waits. A wire closed in its own
 * handler is freed when that handler has returned. All on one thread.
 */
#include "runtime/control/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/control/wire_state.h"

struct sl_blob *sl_blob_of(struct sl_mem *mem, uint8_t *data, size_t bytes)
{
    struct sl_blob *blob = sl_new(mem, sizeof(*blob), "a message");
    if (blob == NULL) {
        sl_free(mem, data);
        return NULL;
    }
    *blob = (struct sl_blob){.mem = mem, .data = data, .bytes = bytes, .references = 1};
    return blob;
}

void sl_blob_drop(struct sl_blob *blob)
{
    if (blob == NULL || --blob->references > 0)
        return;
    sl_free(blob->mem, blob->data);
    sl_free(blob->mem, blob);
}

/* --- buffers --- */

_Bool sl_buffer_put(struct sl_mem *mem, struct sl_wire_buffer *b, const void *data, size_t bytes)
{
    if (b->first > 0 && b->first + b->bytes + bytes > b->capacity) {
        memmove(b->data, b->data + b->first, b->bytes);
        b->first = 0;
    }
    if (sl_grow(mem, &b->data, &b->capacity, b->first + b->bytes + bytes, 1, "a connection") != SLUICE_OK)
        return 0;
    memcpy(b->data + b->first + b->bytes, data, bytes);
    b->bytes += bytes;
    return 1;
}

void sl_buffer_take(struct sl_mem *mem, struct sl_wire_buffer *b, size_t bytes)
{
    b->first += bytes;
    b->bytes -= bytes;
    if (b->bytes > 0)
        return;
    b->first = 0;
    if (b->capacity > SL_KEEP_BYTES) {
        sl_free(mem, b->data);
        *b = (struct sl_wire_buffer){0};
    }
}

/* --- ends --- */

static void mark_dirty(struct sl_wire *wire)
{
    if (wire->dirty)
        return;
    wire->dirty = 1;
    LIST_INSERT_HEAD(&wire->wires->dirty, wire, dirty_link);
}

void sl_wire_end_later(struct sl_wire *wire, const char *why)
{
    if (wire->why[0] == '\0')
        (void)snprintf(wire->why, sizeof(wire->why), "%s", why);
    SL_IGNORE(event_del(&wire->read_event)); /* it stays readable, and nobody reads any more */
    mark_dirty(wire);
}

static void end_now(struct sl_wire *wire)
{
    if (wire->ended || wire->closing)
        return;
    char why[sizeof(wire->why)];
    memcpy(why, wire->why, sizeof(why)); /* the owner may close the wire before it reads this */
    wire->ended = 1;
    SL_IGNORE(event_del(&wire->read_event));
    SL_IGNORE(event_del(&wire->write_event));
    wire->handlers->on_end(wire->context, wire, why);
}

static void free_items(struct sl_wire *wire)
{
    while (wire->first_item != NULL) {
        struct sl_wire_item *item = wire->first_item;
        wire->first_item = item->next;
        sl_blob_drop(item->blob);
        sl_free(wire->wires->mem, item);
    }
}

static void unlink_dirty(struct sl_wire *wire)
{
    if (wire->dirty)
        LIST_REMOVE(wire, dirty_link);
    wire->dirty = 0;
}

void sl_wire_free(struct sl_wire *wire)
{
    struct sl_mem *mem = wire->wires->mem;
    unlink_dirty(wire);
    if (wire->lingering)
        LIST_REMOVE(wire, linger_link);
    free_items(wire);
    sl_free(mem, wire->in.data);
    sl_free(mem, wire->out.data);
    sl_free(mem, wire->message);
    sl_free(mem, wire);
}

void sl_wire_close(struct sl_wire *wire)
{
    if (wire == NULL || wire->closing)
        return;
    wire->closing = 1;
    SL_IGNORE(event_del(&wire->read_event));
    SL_IGNORE(event_del(&wire->write_event));
    SL_IGNORE(close(wire->fd));
    wire->fd = -1;
    if (!wire->busy)
        sl_wire_free(wire);
}

/* --- out --- */

static _Bool put_frame(struct sl_wire *wire, enum sl_frame type, const void *head, size_t head_bytes,
                       const void *payload, size_t bytes)
{
    size_t total = head_bytes + bytes;
    uint8_t frame[SL_HEAD_BYTES] = {(uint8_t)total, (uint8_t)(total >> 8), (uint8_t)(total >> 16),
                                    (uint8_t)(total >> 24), (uint8_t)type};
    struct sl_mem *mem = wire->wires->mem;
    _Bool good = sl_buffer_put(mem, &wire->out, frame, sizeof(frame));
    if (good && head_bytes > 0)
        good = sl_buffer_put(mem, &wire->out, head, head_bytes);
    if (good && bytes > 0)
        good = sl_buffer_put(mem, &wire->out, payload, bytes);
    if (!good)
        sl_wire_end_later(wire, "out of memory for what it is sent");
    return good;
}

void sl_wire_send(struct sl_wire *wire, enum sl_frame type, const void *payload, size_t bytes)
{
    SL_ASSERT(bytes <= SL_FRAME_MAX);
    if (sl_wire_stopped(wire))
        return;
    if (wire->out.bytes + bytes > SL_QUEUE_MAX)
        sl_wire_end_later(wire, "it does not read what it is sent");
    else
        SL_IGNORE(put_frame(wire, type, NULL, 0, payload, bytes));
    mark_dirty(wire);
}

void sl_wire_send_blob(struct sl_wire *wire, enum sl_frame type, struct sl_blob *blob)
{
    SL_ASSERT(blob->bytes <= SL_MESSAGE_MAX);
    if (sl_wire_stopped(wire))
        return;
    struct sl_wire_item *item = sl_new(wire->wires->mem, sizeof(*item), "a message");
    if (item == NULL) {
        sl_wire_end_later(wire, "out of memory for what it is sent");
        return;
    }
    blob->references++;
    *item = (struct sl_wire_item){.blob = blob, .type = type};
    if (wire->first_item == NULL)
        wire->first_item = item;
    else
        wire->last_item->next = item;
    wire->last_item = item;
    mark_dirty(wire);
}

/* Moves chunks into the output while little waits there. */
static void put_chunks(struct sl_wire *wire)
{
    while (wire->first_item != NULL && wire->out.bytes < SL_CHUNK_BYTES) {
        struct sl_wire_item *item = wire->first_item;
        size_t left = item->blob->bytes - item->sent;
        size_t bytes = left < SL_CHUNK_BYTES ? left : SL_CHUNK_BYTES;
        uint32_t total = (uint32_t)item->blob->bytes;
        uint32_t offset = (uint32_t)item->sent;
        uint8_t head[SL_CHUNK_HEAD_BYTES] = {(uint8_t)item->type,    (uint8_t)total,          (uint8_t)(total >> 8),
                                             (uint8_t)(total >> 16), (uint8_t)(total >> 24),  (uint8_t)offset,
                                             (uint8_t)(offset >> 8), (uint8_t)(offset >> 16), (uint8_t)(offset >> 24)};
        if (!put_frame(wire, SL_FRAME_CHUNK, head, sizeof(head), item->blob->data + item->sent, bytes))
            return;
        item->sent += bytes;
        if (item->sent == item->blob->bytes) {
            wire->first_item = item->next;
            sl_blob_drop(item->blob);
            sl_free(wire->wires->mem, item);
        }
    }
}

static void write_some(struct sl_wire *wire)
{
    put_chunks(wire);
    while (wire->out.bytes > 0) {
        ssize_t sent = send(wire->fd, wire->out.data + wire->out.first, wire->out.bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            SL_IGNORE(event_add(&wire->write_event, NULL));
            return;
        }
        if (sent < 0) {
            sl_wire_end_later(wire, sl_errno_words(errno));
            return;
        }
        sl_buffer_take(wire->wires->mem, &wire->out, (size_t)sent);
        put_chunks(wire);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    mark_dirty(context);
}

void sl_wires_flush(struct sl_wires *wires)
{
    struct sl_wire *wire = NULL;
    while ((wire = LIST_FIRST(&wires->dirty)) != NULL) {
        unlink_dirty(wire);
        if (wire->why[0] == '\0')
            write_some(wire);
        if (wire->why[0] != '\0') {
            unlink_dirty(wire);
            end_now(wire);
        } else if (wire->lingering && !wire->shut && wire->out.bytes == 0) {
            wire->shut = 1;
            SL_IGNORE(shutdown(wire->fd, SHUT_WR));
        }
    }
}

uint32_t sl_wire_activity(const struct sl_wire *wire)
{
    return wire->activity;
}

int sl_wire_fd(const struct sl_wire *wire)
{
    return wire->fd;
}

/* --- life --- */

sluice_status sl_wires_open(struct sl_wires *wires, struct event_base *base, struct sl_mem *mem)
{
    *wires = (struct sl_wires){.base = base, .mem = mem};
    wires->scratch = sl_new_aligned(mem, SL_SCRATCH_BYTES, 16, "the control plane's read buffer");
    return wires->scratch == NULL ? SLUICE_NOMEM : SLUICE_OK;
}

void sl_wires_close(struct sl_wires *wires)
{
    while (!LIST_EMPTY(&wires->lingering))
        sl_wire_close(LIST_FIRST(&wires->lingering));
    SL_ASSERT(LIST_EMPTY(&wires->dirty));
    if (wires->mem != NULL)
        sl_free(wires->mem, wires->scratch);
    wires->scratch = NULL;
}

sluice_status sl_wire_open(struct sl_wires *wires, int fd, const struct sl_wire_handlers *handlers, void *context,
                           struct sl_wire **ret)
{
    struct sl_wire *wire = sl_new(wires->mem, sizeof(*wire), "a connection");
    if (wire == NULL)
        return SLUICE_NOMEM;
    wire->wires = wires;
    wire->handlers = handlers;
    wire->context = context;
    wire->fd = fd;
    if (event_assign(&wire->read_event, wires->base, fd, EV_READ | EV_PERSIST, sl_wire_on_readable, wire) != 0 ||
        event_assign(&wire->write_event, wires->base, fd, EV_WRITE, on_writable, wire) != 0 ||
        event_add(&wire->read_event, NULL) != 0) {
        sl_free(wires->mem, wire);
        return sl_fail(SLUICE_NOMEM, "control", "the event loop takes no more connections");
    }
    *ret = wire;
    return SLUICE_OK;
}

void sl_wire_hand_over(struct sl_wire *wire, const struct sl_wire_handlers *handlers, void *context)
{
    wire->handlers = handlers;
    wire->context = context;
}

/* --- the last words of a wire --- */

static void ignore_frame(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload, size_t bytes)
{
    (void)context;
    (void)wire;
    (void)type;
    (void)payload;
    (void)bytes;
}

static void close_at_end(void *context, struct sl_wire *wire, const char *why)
{
    (void)context;
    (void)why;
    sl_wire_close(wire);
}

void sl_wire_linger(struct sl_wire *wire)
{
    static const struct sl_wire_handlers handlers = {.on_frame = ignore_frame, .on_end = close_at_end};
    if (wire->closing || wire->lingering)
        return;
    if (wire->ended) {
        sl_wire_close(wire);
        return;
    }
    sl_wire_hand_over(wire, &handlers, NULL);
    wire->lingering = 1;
    LIST_INSERT_HEAD(&wire->wires->lingering, wire, linger_link);
    mark_dirty(wire);
}

_Bool sl_wires_lingering(const struct sl_wires *wires)
{
    return !LIST_EMPTY(&wires->lingering);
}
