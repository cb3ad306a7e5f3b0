/*
 * bootstrap_accept.c: listener and guests.
 *
 * Invariants: a guest is in the list exactly while it lives; it holds either a bare descriptor (before
 * the proof) or a wire (after it); nothing that a guest does reaches the job before its first frame.
 */
#include "runtime/control/bootstrap_accept.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"

enum { ACCEPTS_MAX = 64, LOGGED_MAX = 32 };
#define PAUSE_NS (100 * SLUICE_MILLISECOND)

struct sl_guest {
    TAILQ_ENTRY(sl_guest) link;
    struct sl_accept *accept;
    struct sl_wire *wire; /* after the proof */
    struct event event;   /* before it */
    struct sl_greet greet;
    uint64_t deadline;
    int fd;
    uint32_t have;
    uint8_t answer[SL_GREET_ANSWER];
    char address[SL_ADDRESS_TEXT];
};

void sl_accept_log_refused(struct sl_accept *accept, const char *address, const char *why)
{
    accept->refused++;
    if (accept->refused <= LOGGED_MAX)
        SL_LOG(accept->log, SLUICE_LOG_WARN, "control", "refused %s: %s", address, why);
    else if ((accept->refused & (accept->refused - 1)) == 0)
        SL_LOG(accept->log, SLUICE_LOG_WARN, "control", "refused %" PRIu64 " connections, the last from %s: %s",
               accept->refused, address, why);
}

/* The guest leaves; what it held is closed unless it was handed on. */
static void drop(struct sl_guest *guest, const char *why)
{
    struct sl_accept *accept = guest->accept;
    if (why != NULL)
        sl_accept_log_refused(accept, guest->address, why);
    if (guest->fd >= 0) {
        if (event_initialized(&guest->event))
            SL_IGNORE(event_del(&guest->event));
        SL_IGNORE(close(guest->fd));
    }
    sl_wire_close(guest->wire);
    TAILQ_REMOVE(&accept->guests, guest, link);
    accept->guest_count--;
    sl_free(accept->wires->mem, guest);
}

/* --- after the proof --- */

static void on_first_frame(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload,
                           size_t bytes)
{
    struct sl_guest *guest = context;
    struct sl_accept *accept = guest->accept;
    if (type != SL_FRAME_JOIN) {
        drop(guest, "it did not say who it is");
        return;
    }
    char address[SL_ADDRESS_TEXT];
    memcpy(address, guest->address, sizeof(address));
    guest->wire = NULL;
    drop(guest, NULL);
    accept->on_guest(accept->context, wire, address, payload, bytes);
}

static void on_guest_end(void *context, struct sl_wire *wire, const char *why)
{
    (void)wire;
    drop(context, why);
}

static const struct sl_wire_handlers guest_handlers = {.on_frame = on_first_frame, .on_end = on_guest_end};

/* --- the proof --- */

static void check(struct sl_guest *guest)
{
    struct sl_accept *accept = guest->accept;
    uint8_t end[SL_GREET_END];
    _Bool good = sl_greet_check(&guest->greet, &accept->token, accept->leading, guest->answer, end);
    _Bool sent = send(guest->fd, end, sizeof(end), MSG_NOSIGNAL) == (ssize_t)sizeof(end);
    if (!good) {
        drop(guest, end[0] == SL_GREET_WRONG ? "it does not know this job's token" : "this rank takes nobody in");
        return;
    }
    SL_IGNORE(event_del(&guest->event));
    if (!sent || sl_wire_open(accept->wires, guest->fd, &guest_handlers, guest, &guest->wire) != SLUICE_OK) {
        drop(guest, "the connection broke");
        return;
    }
    guest->fd = -1; /* the wire has it */
}

static void on_answer(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct sl_guest *guest = context;
    ssize_t got = recv(fd, guest->answer + guest->have, sizeof(guest->answer) - guest->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0) {
        drop(guest, "it left before it proved anything");
        return;
    }
    guest->have += (uint32_t)got;
    if (guest->have == sizeof(guest->answer))
        check(guest);
}

static _Bool greet(struct sl_guest *guest)
{
    uint8_t hello[SL_GREET_HELLO];
    return sl_greet_hello(&guest->greet, hello) == SLUICE_OK &&
           send(guest->fd, hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) &&
           event_assign(&guest->event, guest->accept->wires->base, guest->fd, EV_READ | EV_PERSIST, on_answer, guest) ==
               0 &&
           event_add(&guest->event, NULL) == 0;
}

/* --- the listener --- */

static void make_room(struct sl_accept *accept)
{
    struct sl_guest *guest = TAILQ_FIRST(&accept->guests);
    while (guest != NULL && guest->wire != NULL)
        guest = TAILQ_NEXT(guest, link);
    if (guest != NULL)
        drop(guest, "too many connections at once, it was the oldest without a proof");
}

static void take_in(struct sl_accept *accept, int fd, const struct sl_address *address)
{
    int yes = 1;
    SL_IGNORE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)));
    if (accept->guest_count >= SL_GUESTS_MAX)
        make_room(accept);
    struct sl_guest *guest = NULL;
    if (accept->guest_count < SL_GUESTS_MAX)
        guest = sl_new(accept->wires->mem, sizeof(*guest), "a guest");
    if (guest == NULL) {
        SL_IGNORE(close(fd));
        return;
    }
    guest->accept = accept;
    guest->fd = fd;
    guest->deadline = sl_deadline(sl_now(accept->clock), SL_GUEST_NS);
    sl_address_text(address, guest->address, sizeof(guest->address));
    TAILQ_INSERT_TAIL(&accept->guests, guest, link);
    accept->guest_count++;
    if (!greet(guest))
        drop(guest, "the connection broke");
}

static void on_connection(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct sl_accept *accept = context;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sl_address address = {.bytes = sizeof(address.u)};
        int guest = accept4(fd, &address.u.any, &address.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (guest >= 0) {
            take_in(accept, guest, &address);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            SL_LOG(accept->log, SLUICE_LOG_WARN, "control", "cannot take a connection: %s", sl_errno_words(errno));
            SL_IGNORE(event_del(&accept->event));
            accept->resume_at = sl_deadline(sl_now(accept->clock), PAUSE_NS);
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* else: that one connection failed before it was taken */
    }
}

sluice_status sl_accept_open(struct sl_accept *accept, int fd)
{
    TAILQ_INIT(&accept->guests);
    accept->fd = -1;
    accept->resume_at = UINT64_MAX;
    if (event_assign(&accept->event, accept->wires->base, fd, EV_READ | EV_PERSIST, on_connection, accept) != 0 ||
        event_add(&accept->event, NULL) != 0)
        return sl_fail(SLUICE_NOMEM, "control", "the event loop takes no listener");
    accept->fd = fd;
    return SLUICE_OK;
}

void sl_accept_close(struct sl_accept *accept)
{
    if (accept->wires == NULL || accept->fd < 0)
        return;
    while (!TAILQ_EMPTY(&accept->guests))
        drop(TAILQ_FIRST(&accept->guests), NULL);
    SL_IGNORE(event_del(&accept->event));
    SL_IGNORE(close(accept->fd));
    accept->fd = -1;
    sl_token_forget(&accept->token);
}

uint64_t sl_accept_timer(const struct sl_accept *accept)
{
    if (accept->wires == NULL || accept->fd < 0)
        return UINT64_MAX;
    const struct sl_guest *oldest = TAILQ_FIRST(&accept->guests);
    uint64_t next = oldest == NULL ? UINT64_MAX : oldest->deadline;
    return accept->resume_at < next ? accept->resume_at : next;
}

void sl_accept_due(struct sl_accept *accept, uint64_t now)
{
    if (accept->wires == NULL || accept->fd < 0)
        return;
    while (!TAILQ_EMPTY(&accept->guests) && TAILQ_FIRST(&accept->guests)->deadline <= now) {
        struct sl_guest *late = TAILQ_FIRST(&accept->guests);
        drop(late, late->wire != NULL ? "it did not say in time who it is"
                                      : "it did not prove in time that it knows the job's token");
    }
    if (accept->resume_at <= now) {
        accept->resume_at = UINT64_MAX;
        SL_IGNORE(event_add(&accept->event, NULL));
    }
}
