/*
 * wire.h: framed messages over one non-blocking socket, on the control thread.
 *
 * - A frame is a head of 8 bytes (payload bytes u32, type u8, three zeros) and a bounded payload. A
 *   large message travels in chunks, between which small frames pass, so that a heartbeat never waits
 *   behind 64 MiB.
 * - Output is queued and leaves with sl_wires_flush, once an iteration of the loop. Queues are bounded:
 *   a peer that does not read ends the connection.
 * - `on_end` comes at most once, never from inside a call of the owner; the owner then closes the wire.
 */
#ifndef SL_CONTROL_WIRE_H
#define SL_CONTROL_WIRE_H

#include <event2/event.h>
#include <sys/queue.h>

#include "runtime/base/memory.h"

#define SL_FRAME_MAX   (64u << 10)                 /* payload of one frame */
#define SL_MESSAGE_MAX ((64u << 20) + 64u * 1024u) /* a large message: a part of 64 MiB and what names it */
#define SL_QUEUE_MAX   (8u << 20)                  /* small frames that may wait for a peer to read */

enum sl_frame {
    SL_FRAME_JOIN = 1,    /* rank -> rank 0, once */
    SL_FRAME_WELCOME = 2, /* rank 0 -> rank, once: all are there */
    SL_FRAME_REFUSE = 3,  /* rank 0 -> rank: an error; the connection ends */
    SL_FRAME_NOTE = 4,
    SL_FRAME_BEAT = 5,
    SL_FRAME_GOODBYE = 6, /* the end that follows is no loss */
    SL_FRAME_PART = 7,    /* rank -> rank 0: of a round */
    SL_FRAME_RESULT = 8,  /* rank 0 -> rank */
    SL_FRAME_CHUNK = 9    /* wire.c's own: a piece of a large message */
};

struct sl_wire;

/* What all wires of one thread share. */
struct sl_wires {
    struct event_base *base;
    struct sl_mem *mem;
    uint8_t *scratch;                      /* what was read last */
    LIST_HEAD(, sl_wire) dirty, lingering; /* with output to flush; on their way out */
};

/* Bytes that several wires send, freed with the last of them. */
struct sl_blob;
/* Takes `data` (from `mem`) over, also when it fails. NULL: out of memory. One reference. */
struct sl_blob *sl_blob_of(struct sl_mem *mem, uint8_t *data, size_t bytes);
void sl_blob_drop(struct sl_blob *blob);

struct sl_wire_handlers {
    /* `payload` is valid during the call. The wire may be closed in it. */
    void (*on_frame)(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload, size_t bytes);
    /* The connection is over: `why` in words ("connection reset by peer"). */
    void (*on_end)(void *context, struct sl_wire *wire, const char *why);
};

sluice_status sl_wires_open(struct sl_wires *wires, struct event_base *base, struct sl_mem *mem);
void sl_wires_close(struct sl_wires *wires);
/* Sends what is queued on all wires, as far as sockets take it. */
void sl_wires_flush(struct sl_wires *wires);

/* Takes `fd` over on success. NOMEM. */
sluice_status sl_wire_open(struct sl_wires *wires, int fd, const struct sl_wire_handlers *handlers, void *context,
                           struct sl_wire **ret);
void sl_wire_close(struct sl_wire *wire);
/* Another owner from now on. */
void sl_wire_hand_over(struct sl_wire *wire, const struct sl_wire_handlers *handlers, void *context);
/* Queues a frame of at most SL_FRAME_MAX. A wire that cannot take it ends later. */
void sl_wire_send(struct sl_wire *wire, enum sl_frame type, const void *payload, size_t bytes);
/* Queues a large message (at most SL_MESSAGE_MAX), behind earlier ones; keeps a reference of its own. */
void sl_wire_send_blob(struct sl_wire *wire, enum sl_frame type, struct sl_blob *blob);
/*
 * Gives the wire up: what is queued still goes out, then our end is shut, and when the peer has closed
 * too (or at sl_wires_close) the wire is closed. Closing at once could make the peer lose the last words.
 */
void sl_wire_linger(struct sl_wire *wire);
/* Some wire has not ended yet. */
_Bool sl_wires_lingering(const struct sl_wires *wires);
/* Grows with everything that arrives; a peer is silent while it stands still. */
uint32_t sl_wire_activity(const struct sl_wire *wire);
int sl_wire_fd(const struct sl_wire *wire);

#endif
