/*
 * frames.c: raw bytes on a connection of the control plane: the greeting, and frames behind it.
 *
 * However the bytes are cut on their way, the same frames come out, then the same end; none is larger than allowed.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/wire.h"

enum { BYTES_MAX = 64 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct heard {
    uint64_t hash; /* of all frames in their order */
    uint32_t frames;
    _Bool ended;
};

static void on_frame(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload, size_t bytes)
{
    struct heard *heard = context;
    (void)wire;
    SL_ASSERT(!heard->ended && bytes <= SL_MESSAGE_MAX);
    heard->frames++;
    heard->hash = sl_hash64(payload, bytes, sl_mix64(heard->hash ^ (uint64_t)type));
}

static void on_end(void *context, struct sl_wire *wire, const char *why)
{
    struct heard *heard = context;
    (void)wire;
    SL_ASSERT(!heard->ended && why[0] != '\0');
    heard->ended = 1;
}

static const struct sl_wire_handlers handlers = {on_frame, on_end};

/* Sends the bytes in pieces of `step` and hears what comes out. */
static struct heard listen_to(struct sl_wires *wires, const uint8_t *data, size_t bytes, size_t step)
{
    struct heard heard = {0};
    struct sl_wire *wire = NULL;
    int fds[2];
    SL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    SL_ASSERT(sl_wire_open(wires, fds[0], &handlers, &heard, &wire) == SLUICE_OK);
    for (size_t at = 0; at < bytes && !heard.ended; at += step) {
        size_t piece = bytes - at < step ? bytes - at : step;
        SL_ASSERT(send(fds[1], data + at, piece, MSG_NOSIGNAL) == (ssize_t)piece);
        SL_ASSERT(event_base_loop(wires->base, EVLOOP_NONBLOCK) >= 0);
        sl_wires_flush(wires);
    }
    sl_wire_close(wire);
    SL_ASSERT(close(fds[1]) == 0);
    return heard;
}

static void frames(const uint8_t *data, size_t bytes)
{
    static struct sl_wires wires;
    static struct event_base *base;
    if (base == NULL) {
        base = event_base_new();
        SL_ASSERT(base != NULL && sl_wires_open(&wires, base, sl_mem_default()) == SLUICE_OK);
    }
    if (bytes < 2 || bytes > BYTES_MAX)
        return;
    size_t step = 1 + (size_t)data[0] + (bytes / 16);
    struct heard whole = listen_to(&wires, data + 1, bytes - 1, bytes);
    struct heard cut = listen_to(&wires, data + 1, bytes - 1, step);
    SL_ASSERT(whole.frames == cut.frames && whole.hash == cut.hash && whole.ended == cut.ended);
}

/* What a stranger says first, to either side. */
static void greeting(const uint8_t *data, size_t bytes)
{
    uint8_t said[SL_GREET_HELLO + SL_GREET_ANSWER + SL_GREET_END] = {0};
    uint8_t out[SL_GREET_ANSWER];
    struct sl_greet greet = {0};
    struct sl_token token = {0};
    memcpy(said, data, bytes < sizeof said ? bytes : sizeof said);
    if (sl_greet_answer(&greet, &token, said, out) == SLUICE_OK)
        SL_ASSERT(sl_greet_finish(&greet, &token, said + SL_GREET_HELLO + SL_GREET_ANSWER) != SLUICE_OK);
    SL_ASSERT(!sl_greet_check(&greet, &token, 1, said + SL_GREET_HELLO, out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] % 8 == 7)
        greeting(data + 1, bytes - 1);
    else if (bytes > 0)
        frames(data + 1, bytes - 1);
    return 0;
}
