/*
 * control_takeover.c: another rank in the place of the hub when that is lost.
 *
 * The lowest rank that is not known to be gone leads: it lets the others in at its listener, whose address all
 * know from bootstrap, and begins when everybody is there or the time of a silent peer has passed. With more than
 * half of all ranks it becomes the hub, and its arbiter (takeover.c) ends the runs. With fewer every rank is alone.
 * It does not wait for ranks at whose address nobody listens any more.
 *
 * Invariants: a rank follows one leader at a time, so no two leaders have more than half; a rank that comes after
 * the beginning is refused, and alone; what engines tell while nobody leads is dropped, since they tell the
 * standing of all runs when they hear of the loss.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/control/control_state.h"

/* Without heartbeats. */
#define PATIENCE_NS (5 * SLUICE_SECOND)
/* A leader looks after one that is missing, at first when the others had time to come. */
#define PROBE_FIRST_NS (200 * SLUICE_MILLISECOND)
#define PROBE_NS       (50 * SLUICE_MILLISECOND)

void sl_takeover_want(struct sl_control *control, const char *text)
{
    (void)snprintf(control->hub_text, sizeof(control->hub_text), "%s", text);
    control->lost_hub = control->hub;
    control->takeover = SL_TAKEOVER_WANTED;
}

/* As long as a peer may be silent, so long may a rank take to notice what this one has. */
static uint64_t patience(const struct sl_control *control, uint64_t now)
{
    uint64_t span = control->beat_ns == UINT64_MAX ? PATIENCE_NS : control->beat_ns * SL_SILENT_MAX;
    return sl_deadline(now, span < SLUICE_SECOND ? SLUICE_SECOND : span);
}

static uint32_t count_live(const struct sl_control *control)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < control->world; i++)
        live += control->fate[i] == 0;
    return live;
}

static const char *text_of(const struct sl_control *control, uint32_t rank, char *text, size_t capacity)
{
    if (rank == control->lost_hub)
        return control->hub_text;
    const char *how = (control->fate[rank] & SL_PEER_LOST) == SL_PEER_LOST ? "was lost" : "closed its runtime";
    (void)snprintf(text, capacity, "rank %u %s", rank, how);
    return text;
}

/* Fewer than half are left, or this rank was left out. */
static void be_alone(struct sl_control *control)
{
    char text[64];
    control->takeover = SL_TAKEOVER_NONE;
    control->hub = SL_NOBODY;
    sl_join_close(&control->join);
    SL_LOG(control->config.log, SLUICE_LOG_WARN, "control", "%s; no majority of the %u ranks is left",
           control->hub_text, control->world);
    for (uint32_t i = 0; i < control->world; i++)
        if (control->fate[i] != 0)
            sl_note_gone_alone(control, i, text_of(control, i, text, sizeof(text)));
}

/* --- a rank that follows --- */

static void on_joined(void *context, struct sl_wire *wire)
{
    struct sl_control *control = context;
    sl_join_close(&control->join);
    if (control->takeover != SL_TAKEOVER_JOINING) {
        sl_wire_close(wire);
        return;
    }
    struct sl_peer *peer = &control->peers[0];
    *peer = (struct sl_peer){.control = control, .wire = wire, .state = SL_PEER_PRESENT};
    control->hub = control->candidate;
    control->present = 1;
    control->takeover = SL_TAKEOVER_NONE;
    sl_wire_hand_over(wire, &sl_peer_handlers, peer);
    struct sl_writer *w = &control->scratch;
    w->bytes = 0;
    sl_put_u32(w, control->rank);
    sl_wire_send(wire, SL_FRAME_JOIN, w->data, w->bytes);
}

/* The candidate is as good as gone. */
static void pass_over(struct sl_control *control)
{
    sl_join_close(&control->join);
    control->fate[control->candidate] |= SL_PEER_LOST;
    control->takeover = SL_TAKEOVER_WANTED;
}

static void on_failed(void *context, sluice_status status)
{
    (void)status;
    struct sl_control *control = context;
    if (control->takeover == SL_TAKEOVER_JOINING)
        pass_over(control);
}

/* On the way to a rank's listener; false: it has none. */
static _Bool approach(struct sl_control *control, uint32_t candidate)
{
    struct sl_join *join = &control->join;
    sl_join_close(join);
    *join = (struct sl_join){.wires = &control->wires,
                             .clock = control->config.clock,
                             .token = control->accept.token,
                             .on_secure = on_joined,
                             .on_failed = on_failed,
                             .context = control};
    control->candidate = candidate;
    sl_join_open(join);
    return sl_address_decode(control->roster + (size_t)candidate * SL_ADDRESS_BYTES, &join->address);
}

static void follow(struct sl_control *control, uint32_t candidate, uint64_t now)
{
    control->takeover = SL_TAKEOVER_JOINING;
    control->takeover_at = patience(control, now);
    if (!approach(control, candidate))
        pass_over(control);
}

void sl_takeover_refused(struct sl_control *control)
{
    sl_wire_close(control->peers[0].wire);
    control->peers[0].wire = NULL;
    control->present = 0;
    sl_round_fail_all(control, &control->gone);
    be_alone(control);
}

/* --- the rank that leads --- */

static void refuse(struct sl_control *control, struct sl_wire *wire)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_PEER_LOST, "control", "rank %u goes on without this rank", control->rank));
    sl_bootstrap_send_error(control, wire, &error);
}

static void on_guest(void *context, struct sl_wire *wire, const char *address, const uint8_t *payload, size_t bytes)
{
    struct sl_control *control = context;
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint32_t rank = sl_get_u32(&r);
    if (!sl_reader_done(&r) || rank >= control->world) {
        sl_accept_log_refused(&control->accept, address, "its first message is malformed");
        sl_wire_close(wire);
        return;
    }
    struct sl_peer *peer = &control->peers[rank];
    if (control->takeover != SL_TAKEOVER_LEADING || peer->state != SL_PEER_ABSENT) {
        sl_accept_log_refused(&control->accept, address, "it comes too late, or its rank is here already");
        refuse(control, wire);
        return;
    }
    peer->wire = wire;
    peer->state = SL_PEER_PRESENT;
    control->present++;
    sl_wire_hand_over(wire, &sl_peer_handlers, peer);
}

/* Nobody's handler runs now, so the peers may move. */
static sluice_status make_peers(struct sl_control *control)
{
    struct sl_peer *peers = sl_new_array(control->mem, control->world, sizeof(*peers), "peers");
    if (peers == NULL)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < control->world; i++)
        peers[i] = (struct sl_peer){.control = control, .state = control->fate[i] & SL_PEER_LOST};
    peers[control->rank].state = SL_PEER_PRESENT;
    sl_free(control->mem, control->peers);
    control->peers = peers;
    control->peer_count = control->world;
    control->present = 0;
    return SLUICE_OK;
}

static void lead(struct sl_control *control, uint64_t now)
{
    if (make_peers(control) != SLUICE_OK) {
        be_alone(control);
        return;
    }
    control->hub = control->rank;
    control->accept.leading = 1;
    control->accept.on_guest = on_guest;
    control->accept.context = control;
    control->takeover = SL_TAKEOVER_LEADING;
    control->takeover_at = patience(control, now);
    control->probe_at = sl_deadline(now, PROBE_FIRST_NS);
    control->candidate = control->rank;
}

static _Bool is_missing(const struct sl_control *control, uint32_t rank)
{
    return control->peers[rank].state == SL_PEER_ABSENT && control->fate[rank] == 0;
}

/* Knocks at the doors of missing ranks, one after another: a rank that has ended has none. */
static void probe(struct sl_control *control, uint64_t now)
{
    uint32_t last = control->candidate, next = last;
    if (last != control->rank && control->join.unheard && is_missing(control, last))
        control->fate[last] |= SL_PEER_LOST;
    else if (now < control->probe_at)
        return;
    do
        next = (next + 1) % control->world;
    while (next != last && !is_missing(control, next));
    sl_join_close(&control->join);
    control->probe_at = sl_deadline(now, PROBE_NS);
    control->candidate = control->rank;
    if (!is_missing(control, next))
        return;
    if (!approach(control, next))
        control->fate[next] |= SL_PEER_LOST;
    control->join.pause_ns = 2 * PROBE_NS; /* one attempt */
}

static void give_up(struct sl_control *control)
{
    for (uint32_t i = 0; i < control->peer_count; i++) {
        if (control->peers[i].wire != NULL)
            refuse(control, control->peers[i].wire);
        control->peers[i].wire = NULL;
    }
    control->present = 0;
    be_alone(control);
}

/* Those who are here are all there are. The text of a rank that did not come says so. */
static void take_place(struct sl_control *control)
{
    char text[64];
    control->takeover = SL_TAKEOVER_NONE;
    sl_join_close(&control->join);
    if ((control->present + 1) * 2 > control->world)
        control->arbiter = sl_control_arbiter(control, 1);
    if (control->arbiter == NULL) {
        give_up(control);
        return;
    }
    for (uint32_t i = 0; i < control->world; i++)
        if (control->peers[i].state == SL_PEER_ABSENT)
            control->peers[i].state = control->fate[i] = SL_PEER_LOST;
    SL_LOG(control->config.log, SLUICE_LOG_WARN, "control", "%s; rank %u takes its place, with %u of %u ranks",
           control->hub_text, control->rank, control->present + 1, control->world);
    for (uint32_t i = 0; i < control->world; i++)
        if (control->fate[i] != 0)
            sl_note_gone(control, i, text_of(control, i, text, sizeof(text)));
}

/* --- in general --- */

static void begin(struct sl_control *control, uint64_t now)
{
    uint32_t lowest = 0;
    while (control->fate[lowest] != 0)
        lowest++;
    if (count_live(control) * 2 <= control->world)
        be_alone(control);
    else if (lowest == control->rank)
        lead(control, now);
    else
        follow(control, lowest, now);
}

uint64_t sl_takeover_timer(const struct sl_control *control)
{
    if (control->takeover == SL_TAKEOVER_NONE || control->phase != SL_CONTROL_RUNNING)
        return UINT64_MAX;
    if (control->takeover == SL_TAKEOVER_WANTED)
        return 0;
    _Bool probes = control->takeover == SL_TAKEOVER_LEADING && control->probe_at < control->takeover_at;
    return probes ? control->probe_at : control->takeover_at;
}

void sl_takeover_due(struct sl_control *control, uint64_t now)
{
    if (control->phase != SL_CONTROL_RUNNING)
        return;
    if (control->takeover == SL_TAKEOVER_JOINING && (control->join.unheard || control->takeover_at <= now))
        pass_over(control);
    while (control->takeover == SL_TAKEOVER_WANTED)
        begin(control, now);
    if (control->takeover == SL_TAKEOVER_LEADING)
        probe(control, now);
    if (control->takeover == SL_TAKEOVER_LEADING &&
        (control->present + 1 == count_live(control) || control->takeover_at <= now))
        take_place(control);
}
