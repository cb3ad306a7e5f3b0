/*
 * heartbeat.c: who is still there.
 *
 * Invariants: a peer is lost or leaves once; a goodbye is no loss. Silence is counted in our own
 * heartbeats, not in time: a process that was stopped for a minute and goes on has missed one of its own
 * beats, not sixty of its peers'. What a loss means for rounds and runs is decided by their own files.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/control/control_state.h"

uint32_t sl_peer_rank(const struct sl_peer *peer)
{
    const struct sl_control *control = peer->control;
    return sl_is_hub(control) ? (uint32_t)(peer - control->peers) : control->hub;
}

void sl_peers_send(struct sl_control *control, enum sl_frame type, const void *payload, size_t bytes)
{
    for (uint32_t i = 0; i < control->peer_count; i++)
        if (control->peers[i].wire != NULL)
            sl_wire_send(control->peers[i].wire, type, payload, bytes);
}

void sl_peers_send_blob(struct sl_control *control, enum sl_frame type, struct sl_blob *blob)
{
    for (uint32_t i = 0; i < control->peer_count; i++)
        if (control->peers[i].wire != NULL)
            sl_wire_send_blob(control->peers[i].wire, type, blob);
}

/* --- ends of peers --- */

static void disconnect(struct sl_peer *peer, enum sl_peer_state state)
{
    struct sl_control *control = peer->control;
    sl_wire_close(peer->wire);
    peer->wire = NULL;
    peer->state = (uint8_t)state;
    control->present--;
}

static void end_of_bootstrap(struct sl_peer *peer, const char *why)
{
    struct sl_control *control = peer->control;
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_PEER_LOST, "bootstrap", "rank %u was lost during bootstrap: %s",
                           sl_peer_rank(peer), why));
    disconnect(peer, SL_PEER_LOST);
    sl_bootstrap_fail(control, &error);
}

/* Rank 0 closed its runtime: it had ended all runs, and nobody takes its place. */
static void leave_alone(struct sl_control *control, const char *text)
{
    control->hub = SL_NOBODY;
    sl_note_gone_alone(control, 0, text);
}

static void gone(struct sl_peer *peer, enum sl_peer_state state, const char *why)
{
    struct sl_control *control = peer->control;
    uint32_t rank = sl_peer_rank(peer);
    if (control->phase == SL_CONTROL_JOINING) {
        end_of_bootstrap(peer, why);
        return;
    }
    disconnect(peer, state);
    if (control->phase != SL_CONTROL_RUNNING)
        return;
    char text[SL_NOTE_TEXT_MAX];
    if (state == SL_PEER_LEFT)
        (void)snprintf(text, sizeof(text), "rank %u is gone: it closed its runtime", rank);
    else
        (void)snprintf(text, sizeof(text), "rank %u was lost: %s", rank, why);
    SL_LOG(control->config.log, state == SL_PEER_LEFT ? SLUICE_LOG_INFO : SLUICE_LOG_WARN, "control", "%s", text);
    if (control->gone.status == SLUICE_OK) {
        SL_IGNORE(sl_error_set(&control->gone, SLUICE_PEER_LOST, "control", "%s", text));
        control->gone_rank = rank;
    }
    control->fate[rank] |= (uint8_t)state;
    sl_round_gone(control, rank, state == SL_PEER_LOST);
    if (sl_is_hub(control))
        sl_note_gone(control, rank, text);
    else if (state == SL_PEER_LOST || control->hub != 0)
        sl_takeover_want(control, text);
    else
        leave_alone(control, text);
}

static void broke_rules(struct sl_peer *peer, const char *what)
{
    gone(peer, SL_PEER_LOST, what);
}

/* --- frames of peers --- */

static void from_hub(struct sl_peer *peer, enum sl_frame type, const uint8_t *payload, size_t bytes)
{
    struct sl_control *control = peer->control;
    if (type == SL_FRAME_WELCOME && control->phase == SL_CONTROL_JOINING)
        sl_bootstrap_on_welcome(control, payload, bytes);
    else if (type == SL_FRAME_REFUSE && control->phase == SL_CONTROL_JOINING)
        sl_bootstrap_on_refuse(control, payload, bytes);
    else if (type == SL_FRAME_REFUSE && control->phase == SL_CONTROL_RUNNING && control->hub != 0)
        sl_takeover_refused(control);
    else if (type == SL_FRAME_RESULT && control->phase == SL_CONTROL_RUNNING)
        sl_round_on_result(control, payload, bytes);
    else
        broke_rules(peer, "it sent a message that does not belong here");
}

static void on_frame(void *context, struct sl_wire *wire, enum sl_frame type, const uint8_t *payload, size_t bytes)
{
    (void)wire;
    struct sl_peer *peer = context;
    struct sl_control *control = peer->control;
    if (type == SL_FRAME_BEAT)
        return;
    if (type == SL_FRAME_GOODBYE)
        gone(peer, SL_PEER_LEFT, "it closed its runtime");
    else if (type == SL_FRAME_NOTE)
        sl_note_on_frame(control, sl_peer_rank(peer), payload, bytes);
    else if (!sl_is_hub(control))
        from_hub(peer, type, payload, bytes);
    else if (type == SL_FRAME_PART && control->phase == SL_CONTROL_RUNNING)
        sl_round_on_part(control, sl_peer_rank(peer), payload, bytes);
    else
        broke_rules(peer, "it sent a message that does not belong here");
}

static void on_end(void *context, struct sl_wire *wire, const char *why)
{
    (void)wire;
    gone(context, SL_PEER_LOST, why);
}

const struct sl_wire_handlers sl_peer_handlers = {.on_frame = on_frame, .on_end = on_end};

/* --- beats --- */

void sl_heartbeat_start(struct sl_control *control)
{
    if (control->beat_ns < SLUICE_MILLISECOND) /* it comes from rank 0: no value may make us spin */
        control->beat_ns = SLUICE_MILLISECOND;
    control->beat_at = control->beat_ns == UINT64_MAX ? UINT64_MAX : sl_now(control->config.clock);
}

static void beat(struct sl_peer *peer, uint64_t beat_ns)
{
    uint32_t activity = sl_wire_activity(peer->wire);
    peer->silent = activity == peer->activity ? (uint8_t)(peer->silent + 1) : 0;
    peer->activity = activity;
    if (peer->silent < SL_SILENT_MAX) {
        sl_wire_send(peer->wire, SL_FRAME_BEAT, NULL, 0);
        return;
    }
    char why[96];
    (void)snprintf(why, sizeof(why), "no sign of life in %d heartbeats of %llu ms", SL_SILENT_MAX,
                   (unsigned long long)(beat_ns / SLUICE_MILLISECOND));
    gone(peer, SL_PEER_LOST, why);
}

void sl_heartbeat_due(struct sl_control *control, uint64_t now)
{
    if (control->phase != SL_CONTROL_RUNNING || control->beat_at > now)
        return;
    control->beat_at = sl_deadline(now, control->beat_ns);
    for (uint32_t i = 0; i < control->peer_count && control->phase == SL_CONTROL_RUNNING; i++)
        if (control->peers[i].wire != NULL)
            beat(&control->peers[i], control->beat_ns);
}
