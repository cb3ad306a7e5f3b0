/*
 * bootstrap_join.c: connecting to rank 0.
 *
 * Invariants: at most one attempt at a time; `fd` is open exactly during one. What may change by itself
 * (nobody listens yet, no token file yet, a token file of an earlier job) is tried again; what will not
 * (a wrong token, a foreign service on the port) ends it.
 */
#include "runtime/control/bootstrap_join.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"

#define ATTEMPT_NS     (5 * SLUICE_SECOND) /* rank 0's control thread answers at once or not at all */
#define FIRST_PAUSE_NS (2 * SLUICE_MILLISECOND)
#define PAUSE_MAX_NS   (100 * SLUICE_MILLISECOND)

static void end_attempt(struct sl_join *join)
{
    if (join->fd < 0)
        return;
    if (event_initialized(&join->event))
        SL_IGNORE(event_del(&join->event));
    SL_IGNORE(close(join->fd));
    join->fd = -1;
}

static void again(struct sl_join *join, const char *reason)
{
    end_attempt(join);
    (void)snprintf(join->reason, sizeof(join->reason), "%s", reason);
    join->retry_at = sl_deadline(sl_now(join->clock), join->pause_ns);
    join->pause_ns = join->pause_ns * 2 > PAUSE_MAX_NS ? PAUSE_MAX_NS : join->pause_ns * 2;
}

static void fail(struct sl_join *join, sluice_status status)
{
    end_attempt(join);
    join->retry_at = UINT64_MAX;
    join->on_failed(join->context, status);
}

/* --- the greeting --- */

static void answer(struct sl_join *join)
{
    uint8_t out[SL_GREET_ANSWER];
    sluice_status status = sl_greet_answer(&join->greet, &join->token, join->in, out);
    if (status == SLUICE_PROTOCOL) {
        char text[SL_ADDRESS_TEXT];
        status = sl_fail(SLUICE_PROTOCOL, "bootstrap",
                         "another service, or another version of Sluice, listens on %s: choose another port with "
                         "SLUICE_PORT",
                         sl_address_text(&join->address, text, sizeof(text)));
    }
    if (status != SLUICE_OK) {
        fail(join, status);
        return;
    }
    join->answered = 1;
    join->have = 0;
    if (send(join->fd, out, sizeof(out), MSG_NOSIGNAL) != (ssize_t)sizeof(out))
        again(join, "the connection broke during the greeting");
}

static void finish(struct sl_join *join)
{
    sluice_status status = sl_greet_finish(&join->greet, &join->token, join->in);
    if (status == SLUICE_BUSY || (status == SLUICE_AUTH && join->token_path != NULL)) {
        again(join, sluice_last_error()->text); /* another rank, or an earlier job's token: rank 0 writes a new one */
        return;
    }
    struct sl_wire *wire = NULL;
    if (status == SLUICE_AUTH) {
        char text[SL_ADDRESS_TEXT];
        char why[64];
        (void)snprintf(why, sizeof(why), "%.60s", sluice_last_error()->text);
        status = sl_fail(SLUICE_AUTH, "bootstrap", "rank 0 at %s: %s; all ranks need the same token file",
                         sl_address_text(&join->address, text, sizeof(text)), why);
    }
    if (status == SLUICE_OK) {
        SL_IGNORE(event_del(&join->event));
        status = sl_wire_open(join->wires, join->fd, NULL, NULL, &wire);
    }
    if (status != SLUICE_OK) {
        fail(join, status);
        return;
    }
    join->fd = -1; /* the wire has it */
    join->retry_at = UINT64_MAX;
    join->on_secure(join->context, wire);
}

static void on_bytes(struct sl_join *join)
{
    uint32_t need = join->answered ? SL_GREET_END : SL_GREET_HELLO;
    ssize_t got = recv(join->fd, join->in + join->have, need - join->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0) {
        again(join, got == 0 ? "it closed the connection during the greeting" : sl_errno_words(errno));
        return;
    }
    join->have += (uint32_t)got;
    if (join->have < need)
        return;
    if (join->answered)
        finish(join);
    else
        answer(join);
}

/* A port of our own range can be given to our own end, which then talks to itself. */
static _Bool to_itself(int fd)
{
    struct sl_address self;
    struct sl_address peer;
    sl_address_of_self(fd, &self);
    sl_address_of_peer(fd, &peer);
    return self.bytes > 0 && self.bytes == peer.bytes && memcmp(&self.u, &peer.u, self.bytes) == 0;
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    struct sl_join *join = context;
    if (!join->connecting) {
        on_bytes(join);
        return;
    }
    (void)what;
    int code = 0;
    socklen_t bytes = sizeof(code);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &bytes) != 0)
        code = errno;
    join->unheard = code == ECONNREFUSED;
    if (code != 0 || to_itself(fd)) {
        again(join, code != 0 ? sl_errno_words(code) : "nobody listens");
        return;
    }
    join->connecting = 0;
    SL_IGNORE(event_del(&join->event));
    if (event_assign(&join->event, join->wires->base, fd, EV_READ | EV_PERSIST, on_socket, join) != 0 ||
        event_add(&join->event, NULL) != 0)
        again(join, "the event loop takes no more connections");
}

/* --- attempts --- */

static void attempt(struct sl_join *join, uint64_t now)
{
    join->retry_at = UINT64_MAX;
    join->give_up_at = sl_deadline(now, ATTEMPT_NS);
    join->have = 0;
    join->answered = 0;
    join->connecting = 1;
    int yes = 1;
    join->fd = socket(join->address.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (join->fd < 0) {
        fail(join, sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bootstrap", "cannot make a socket"));
        return;
    }
    SL_IGNORE(setsockopt(join->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)));
    int code = connect(join->fd, &join->address.u.any, join->address.bytes) == 0 ? 0 : errno;
    join->unheard = code == ECONNREFUSED;
    SL_IGNORE(event_assign(&join->event, join->wires->base, join->fd, EV_WRITE, on_socket, join));
    if (code != 0 && code != EINPROGRESS)
        again(join, sl_errno_words(code));
    else if (event_add(&join->event, NULL) != 0)
        again(join, "the event loop takes no more connections");
}

static void start(struct sl_join *join, uint64_t now)
{
    if (join->token_path != NULL) {
        sluice_status status = sl_token_read(join->token_path, &join->token);
        if (status == SLUICE_NOT_FOUND) {
            again(join, sluice_last_error()->text);
            return;
        }
        if (status != SLUICE_OK) {
            fail(join, status);
            return;
        }
    }
    attempt(join, now);
}

void sl_join_open(struct sl_join *join)
{
    join->fd = -1;
    join->pause_ns = FIRST_PAUSE_NS;
    join->retry_at = 0;
    join->unheard = 0;
    (void)snprintf(join->reason, sizeof(join->reason), "no answer yet");
}

void sl_join_close(struct sl_join *join)
{
    if (join->wires == NULL)
        return;
    end_attempt(join);
    join->retry_at = UINT64_MAX;
    sl_token_forget(&join->token);
}

uint64_t sl_join_timer(const struct sl_join *join)
{
    if (join->wires == NULL)
        return UINT64_MAX;
    return join->fd >= 0 ? join->give_up_at : join->retry_at;
}

void sl_join_due(struct sl_join *join, uint64_t now)
{
    if (join->wires == NULL)
        return;
    if (join->fd >= 0 && join->give_up_at <= now)
        again(join, join->connecting ? "no answer to the connection" : "it does not greet as Sluice does");
    else if (join->fd < 0 && join->retry_at <= now)
        start(join, now);
}
