/*
 * bootstrap.c: how ranks find each other.
 *
 * Rank 0 listens, takes one JOIN from every other rank and, when all are there, welcomes them with the
 * roster of listeners. Every other rank connects until rank 0 takes it in.
 *
 * Invariants: a rank is taken in at most once; a claim that is refused changes nothing; whatever ends
 * bootstrap is told to every rank that joined, and to those that come within SL_REFUSE_NS, so that all
 * fail alike and at once. Rank 0's deadline is the earliest of all who joined, so that the one who knows
 * which ranks are missing speaks first.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/control/control_state.h"

#define LOOK_NS    (100 * SLUICE_MILLISECOND)
#define VERDICT_NS (500 * SLUICE_MILLISECOND) /* a rank that joined waits this much longer for rank 0's words */

/* --- words --- */

void sl_rank_list(uint32_t world, _Bool (*missing)(const void *context, uint32_t rank), const void *context, char *text,
                  size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t first = 0; first < world; first++) {
        if (!missing(context, first))
            continue;
        uint32_t last = first;
        while (last + 1 < world && missing(context, last + 1))
            last++;
        if (length + 32 > capacity) {
            (void)snprintf(text + length, capacity - length, "...");
            return;
        }
        const char *comma = length > 0 ? ", " : "";
        int put = first == last ? snprintf(text + length, capacity - length, "%s%u", comma, first)
                                : snprintf(text + length, capacity - length, "%s%u-%u", comma, first, last);
        length += (size_t)put;
        first = last;
    }
}

static const char *place(const struct sl_control *control, char *text, size_t capacity)
{
    return sl_address_text(&control->address, text, capacity);
}

/* --- before the thread --- */

static sluice_status default_token(struct sl_control *control)
{
    char text[SL_ADDRESS_TEXT];
    place(control, text, sizeof(text));
    if (!sl_address_loopback(&control->address))
        return sl_fail(SLUICE_CONFIG, "bootstrap",
                       "rank 0's address %s is not a loopback address, so a token is needed: put at least 16 random "
                       "bytes into a file that only you can read and name it in SLUICE_TOKEN_FILE on all ranks",
                       text);
    sluice_status status =
        sl_token_path(&control->config.identity, text, control->token_path, sizeof(control->token_path));
    if (status == SLUICE_OK && control->rank == 0) /* we hold the port, so no other job of ours uses this name */
        status = sl_token_write(control->token_path, &control->token);
    return status;
}

sluice_status sl_bootstrap_prepare(struct sl_control *control)
{
    const struct sl_control_config *config = &control->config;
    if (control->world == 1)
        return config->failure == NULL ? SLUICE_OK : sl_fail_copy(config->failure);
    if (config->allgather != NULL)
        return sl_bootstrap_gather(control);
    if (config->identity.port == 0 || config->identity.port > 65535)
        return sl_fail(SLUICE_CONFIG, "bootstrap", "port %u: rank 0 needs one from 1 to 65535", config->identity.port);
    sluice_status status = sl_address_resolve(config->identity.address, config->identity.port, &control->address);
    if (status == SLUICE_OK && control->rank == 0)
        status = sl_address_listen(&control->address, &control->listen_fd);
    if (status != SLUICE_OK)
        return status;
    if (config->identity.token_file[0] == '\0')
        return default_token(control);
    status = sl_token_read(config->identity.token_file, &control->token);
    return status == SLUICE_NOT_FOUND
               ? sl_fail(SLUICE_CONFIG, "bootstrap", "token file %.300s does not exist", config->identity.token_file)
               : status;
}

/* --- ends --- */

void sl_bootstrap_forget_devices(struct sl_control *control)
{
    for (uint32_t i = 0; control->devices != NULL && i < control->world; i++)
        sl_free(control->mem, control->devices[i]);
    sl_free(control->mem, control->devices);
    control->devices = NULL;
}

void sl_bootstrap_remove_token(struct sl_control *control)
{
    if (control->rank == 0 && control->token_path[0] != '\0' && control->config.allgather == NULL)
        sl_token_remove(control->token_path);
    control->token_path[0] = '\0';
}

void sl_bootstrap_drop(struct sl_control *control)
{
    if (control->listen_fd >= 0)
        SL_IGNORE(close(control->listen_fd));
    sl_bootstrap_remove_token(control);
    sl_join_close(&control->join);
    sl_accept_close(&control->accept);
    sl_bootstrap_forget_devices(control);
    sl_free(control->mem, control->roster);
    sl_token_forget(&control->token);
}

void sl_bootstrap_send_error(struct sl_control *control, struct sl_wire *wire, const struct sluice_error *error)
{
    struct sl_writer *w = &control->scratch;
    w->bytes = 0;
    sl_put_error(w, error);
    sl_wire_send(wire, SL_FRAME_REFUSE, w->data, w->bytes);
    sl_wire_linger(wire);
}

void sl_bootstrap_fail(struct sl_control *control, const struct sluice_error *error)
{
    if (control->phase != SL_CONTROL_JOINING)
        return;
    sl_control_decide(control, error);
    if (control->rank != 0) {
        sl_control_leave(control);
        return;
    }
    uint64_t now = sl_now(control->config.clock);
    uint64_t stay = sl_deadline(now, SL_REFUSE_NS);
    control->phase = SL_CONTROL_REFUSING;
    control->refuse_at = control->deadline < stay ? control->deadline : stay;
    for (uint32_t i = 0; i < control->peer_count; i++) {
        if (control->peers[i].wire == NULL)
            continue;
        sl_bootstrap_send_error(control, control->peers[i].wire, error);
        control->peers[i].wire = NULL;
        control->told++;
    }
    control->present = 0;
}

/* --- the other ranks --- */

static void fail_from_last_error(struct sl_control *control)
{
    struct sluice_error error;
    sl_error_take(&error);
    sl_bootstrap_fail(control, &error);
}

/* Our own listener: others find us there if rank 0 is lost. It faces the way that rank 0 is. */
static sluice_status listen_too(struct sl_control *control, struct sl_wire *wire, uint32_t *ret_port)
{
    struct sl_address self;
    sl_address_of_self(sl_wire_fd(wire), &self);
    sl_address_set_port(&self, 0);
    sluice_status status = sl_address_listen(&self, &control->listen_fd);
    if (status == SLUICE_OK)
        *ret_port = sl_address_port(&self);
    return status;
}

static void say_who_we_are(struct sl_control *control, struct sl_wire *wire, uint32_t port)
{
    const struct sl_control_config *config = &control->config;
    uint64_t now = sl_now(config->clock);
    struct sl_writer *w = &control->scratch;
    w->bytes = 0;
    sl_put_u32(w, SL_PROTOCOL);
    sl_put_u32(w, sluice_version_number());
    sl_put_u32(w, control->rank);
    sl_put_u32(w, control->world);
    sl_put_u16(w, (uint16_t)port);
    sl_put_u64(w, control->deadline > now ? control->deadline - now : 0);
    sl_put_u8(w, config->failure != NULL);
    sl_put_text(w, config->identity.job, sizeof(config->identity.job) - 1);
    sl_put_text(w, config->device == NULL ? "" : config->device, SL_DEVICE_MAX - 1);
    if (config->failure != NULL)
        sl_put_error(w, config->failure);
    sl_wire_send(wire, SL_FRAME_JOIN, w->data, w->bytes);
}

static void on_secure(void *context, struct sl_wire *wire)
{
    struct sl_control *control = context;
    struct sl_peer *peer = &control->peers[0];
    uint32_t port = 0;
    peer->wire = wire;
    peer->state = SL_PEER_PRESENT;
    sl_wire_hand_over(wire, &sl_peer_handlers, peer);
    control->present = 1;
    if (listen_too(control, wire, &port) != SLUICE_OK) {
        fail_from_last_error(control);
        return;
    }
    say_who_we_are(control, wire, port);
    if (control->config.failure != NULL)
        sl_bootstrap_fail(control, control->config.failure);
    else
        control->deadline = sl_deadline(control->deadline, VERDICT_NS);
}

static void on_join_failed(void *context, sluice_status status)
{
    (void)status;
    fail_from_last_error(context);
}

void sl_bootstrap_on_refuse(struct sl_control *control, const uint8_t *payload, size_t bytes)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    struct sluice_error error;
    sl_get_error(&r, &error);
    if (!sl_reader_done(&r))
        SL_IGNORE(sl_error_set(&error, SLUICE_PROTOCOL, "bootstrap", "rank 0 refused us without a reason"));
    sl_bootstrap_fail(control, &error);
}

static sluice_status open_own_listener(struct sl_control *control)
{
    struct sl_accept *accept = &control->accept;
    sl_token_derive(&control->join.token, control->job_nonce, &accept->token);
    accept->leading = 0;
    sluice_status status = sl_accept_open(accept, control->listen_fd);
    if (status == SLUICE_OK)
        control->listen_fd = -1;
    return status;
}

void sl_bootstrap_on_welcome(struct sl_control *control, const uint8_t *payload, size_t bytes)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint64_t beat_ns = sl_get_u64(&r);
    const uint8_t *nonce = sl_get_bytes(&r, sizeof(control->job_nonce));
    uint32_t world = sl_get_u32(&r);
    size_t roster_bytes = (size_t)control->world * SL_ADDRESS_BYTES;
    const uint8_t *roster = sl_get_bytes(&r, roster_bytes);
    struct sluice_error error;
    if (!sl_reader_done(&r) || world != control->world || control->phase != SL_CONTROL_JOINING) {
        SL_IGNORE(sl_error_set(&error, SLUICE_PROTOCOL, "bootstrap", "rank 0's welcome is malformed"));
        sl_bootstrap_fail(control, &error);
        return;
    }
    memcpy(control->job_nonce, nonce, sizeof(control->job_nonce));
    control->roster = sl_new_array(control->mem, control->world, SL_ADDRESS_BYTES, "addresses of ranks");
    if (control->roster == NULL || open_own_listener(control) != SLUICE_OK) {
        fail_from_last_error(control);
        return;
    }
    memcpy(control->roster, roster, roster_bytes);
    sl_join_close(&control->join);
    control->phase = SL_CONTROL_RUNNING;
    control->beat_ns = beat_ns; /* rank 0's: both ends must expect the same */
    sl_heartbeat_start(control);
    sl_control_decide(control, NULL);
}

static void start_other_rank(struct sl_control *control)
{
    struct sl_join *join = &control->join;
    join->wires = &control->wires;
    join->clock = control->config.clock;
    join->address = control->address;
    join->token = control->token;
    join->token_path = control->token_path[0] == '\0' ? NULL : control->token_path;
    join->on_secure = on_secure;
    join->on_failed = on_join_failed;
    join->context = control;
    sl_join_open(join);
}

/* --- the thread --- */

void sl_bootstrap_start(struct sl_control *control)
{
    if (control->world == 1) {
        control->phase = SL_CONTROL_RUNNING;
        sl_control_decide(control, NULL);
        return;
    }
    uint64_t now = sl_now(control->config.clock);
    control->phase = SL_CONTROL_JOINING;
    control->deadline = sl_deadline(now, control->config.bootstrap_timeout_ns);
    control->accept.wires = &control->wires;
    control->accept.clock = control->config.clock;
    control->accept.log = control->config.log;
    if (control->rank != 0)
        start_other_rank(control);
    else if (sl_bootstrap_lead(control) != SLUICE_OK)
        fail_from_last_error(control);
    else if (control->config.failure != NULL)
        sl_bootstrap_fail(control, control->config.failure);
}

static _Bool absent(const void *context, uint32_t rank)
{
    const struct sl_control *control = context;
    return control->peers[rank].state == SL_PEER_ABSENT;
}

static void too_late(struct sl_control *control)
{
    char text[SL_ADDRESS_TEXT];
    char ranks[200];
    struct sluice_error error;
    place(control, text, sizeof(text));
    if (control->rank == 0) {
        sl_rank_list(control->world, absent, control, ranks, sizeof(ranks));
        SL_IGNORE(sl_error_set(&error, SLUICE_TIMEOUT, "bootstrap",
                               "%u of %u ranks joined rank 0 at %s in time; missing: %s", control->present + 1,
                               control->world, text, ranks));
    } else if (control->present > 0) {
        SL_IGNORE(sl_error_set(&error, SLUICE_TIMEOUT, "bootstrap",
                               "joined rank 0 at %s, but it did not start the job in time", text));
    } else {
        SL_IGNORE(sl_error_set(&error, SLUICE_TIMEOUT, "bootstrap", "rank %u did not reach rank 0 at %s in time: %s",
                               control->rank, text, control->join.reason));
    }
    sl_bootstrap_fail(control, &error); /* the deadline has passed: late comers get no grace */
}

static _Bool may_be_interrupted(const struct sl_control *control)
{
    return control->phase == SL_CONTROL_JOINING && control->config.interrupt != NULL;
}

/* A flag that a signal handler sets is all that an interrupt needs to be: it is looked at ten times a second. */
static void look_for_interrupt(struct sl_control *control, uint64_t now)
{
    struct sluice_error error;
    control->look_at = sl_deadline(now, LOOK_NS);
    if (atomic_load(control->config.interrupt) == 0)
        return;
    SL_IGNORE(sl_error_set(&error, SLUICE_CANCELLED, "bootstrap", "interrupted while it waited for the other ranks"));
    control->deadline = now;
    sl_bootstrap_fail(control, &error);
}

uint64_t sl_bootstrap_timer(const struct sl_control *control)
{
    uint64_t next = sl_accept_timer(&control->accept);
    uint64_t join = sl_join_timer(&control->join);
    next = join < next ? join : next;
    if (control->phase == SL_CONTROL_JOINING && control->deadline < next)
        next = control->deadline;
    if (may_be_interrupted(control) && control->look_at < next)
        next = control->look_at;
    if (control->phase == SL_CONTROL_REFUSING && control->refuse_at < next)
        next = control->refuse_at;
    return next;
}

void sl_bootstrap_due(struct sl_control *control, uint64_t now)
{
    sl_accept_due(&control->accept, now);
    sl_join_due(&control->join, now);
    if (may_be_interrupted(control) && control->look_at <= now)
        look_for_interrupt(control, now);
    if (control->phase == SL_CONTROL_JOINING && control->deadline <= now)
        too_late(control);
    if (control->phase == SL_CONTROL_REFUSING && (control->refuse_at <= now || control->told >= control->world - 1))
        sl_control_leave(control);
}
