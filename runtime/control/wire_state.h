/* wire_state.h: a wire's inside, shared by wire.c (life and output) and wire_in.c (input). */
#ifndef SL_CONTROL_WIRE_STATE_H
#define SL_CONTROL_WIRE_STATE_H

#include <event2/event_struct.h>

#include "runtime/base/error.h"
#include "runtime/control/wire.h"

enum {
    SL_HEAD_BYTES = 8,
    SL_CHUNK_HEAD_BYTES = 9,       /* type u8, total u32, offset u32 */
    SL_CHUNK_BYTES = 32 * 1024,    /* of a large message in one frame */
    SL_SCRATCH_BYTES = 128 * 1024, /* one read */
    SL_READS_MAX = 4,              /* per wake-up, so that one peer cannot starve the others */
    SL_KEEP_BYTES = 4096           /* a buffer larger than this is freed when it is empty */
};

struct sl_blob {
    struct sl_mem *mem;
    uint8_t *data;
    size_t bytes;
    uint32_t references;
};

/* A large message on its way out. */
struct sl_wire_item {
    struct sl_wire_item *next;
    struct sl_blob *blob;
    size_t sent;
    enum sl_frame type;
};

struct sl_wire_buffer {
    uint8_t *data;
    size_t first, bytes, capacity; /* bytes [first, first + bytes) wait */
};

struct sl_wire {
    struct sl_wires *wires;
    const struct sl_wire_handlers *handlers;
    void *context;
    struct event read_event, write_event;
    LIST_ENTRY(sl_wire) dirty_link, linger_link;
    struct sl_wire_buffer in, out;
    struct sl_wire_item *first_item, *last_item;
    uint8_t *message; /* a large message on its way in */
    size_t message_bytes, message_have;
    int fd;
    uint32_t activity;
    uint8_t message_type;
    _Bool dirty, busy, closing, ended, lingering, shut;
    char why[96]; /* not empty: ends at the next flush */
};

_Bool sl_buffer_put(struct sl_mem *mem, struct sl_wire_buffer *b, const void *data, size_t bytes);
void sl_buffer_take(struct sl_mem *mem, struct sl_wire_buffer *b, size_t bytes);
/* Ends the wire when the loop is back at its top: senders may be walking over all wires. */
void sl_wire_end_later(struct sl_wire *wire, const char *why);
void sl_wire_free(struct sl_wire *wire);
/* The event's callback: reads and delivers. */
void sl_wire_on_readable(evutil_socket_t fd, short what, void *context);
static inline _Bool sl_wire_stopped(const struct sl_wire *wire)
{
    return wire->closing || wire->ended || wire->why[0] != '\0';
}

#endif
