/*
 * control_note.c: notes between engines and the hub's arbiter.
 *
 * Invariants: notes of one rank reach the arbiter in the order they were told, but that of several READY
 * of a run within SL_COALESCE_NS only the newest is sent; the arbiter's answers reach every rank, the hub
 * too, in one order. The arbiter is emptied after each call, as it asks. While a rank takes over there is no
 * arbiter and notes are dropped: engines tell everything again once they hear of it.
 */
#include <string.h>

#include "runtime/control/control_state.h"

/* --- on the wire --- */

void sl_note_encode(const struct sl_note *note, struct sl_writer *w)
{
    const uint64_t numbers[] = {note->key, note->a, note->b, note->c, note->d, note->e, note->f};
    for (size_t i = 0; i < SL_COUNT(numbers); i++)
        sl_put_u64(w, numbers[i]);
    sl_put_u32(w, note->kind);
    sl_put_u32(w, note->rank);
    sl_put_u32(w, (uint32_t)note->status);
    sl_put_text(w, note->text, sizeof(note->text) - 1);
}

_Bool sl_note_decode(const uint8_t *payload, size_t bytes, struct sl_note *ret)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint64_t *const numbers[] = {&ret->key, &ret->a, &ret->b, &ret->c, &ret->d, &ret->e, &ret->f};
    for (size_t i = 0; i < SL_COUNT(numbers); i++)
        *numbers[i] = sl_get_u64(&r);
    ret->kind = sl_get_u32(&r);
    ret->rank = sl_get_u32(&r);
    ret->status = (int32_t)sl_get_u32(&r);
    sl_get_text(&r, ret->text, sizeof(ret->text));
    return sl_reader_done(&r);
}

/* --- the hub --- */

/* Another arbiter says again who is gone; `b` keeps that apart from the first time. */
static void deliver(struct sl_control *control, const struct sl_note *note)
{
    struct sl_note said = *note;
    if (said.kind == SL_NOTE_LOST && said.rank < control->world && said.rank != control->rank) {
        uint8_t *fate = &control->fate[said.rank];
        said.b = (*fate & SL_FATE_TOLD) != 0;
        *fate |= said.status == SLUICE_CLOSED ? SL_PEER_LEFT : SL_PEER_LOST;
        *fate |= SL_FATE_TOLD;
    }
    control->config.handlers.on_note(control->config.handlers.context, &said);
}

/* Passes on what the arbiter decided. A rank that said goodbye is gone, but it was no loss. */
static void pass_on(struct sl_control *control)
{
    struct sl_note note;
    while (sl_arbiter_next(control->arbiter, &note)) {
        if (note.kind == SL_NOTE_LOST && control->peers[note.rank].state == SL_PEER_LEFT)
            note.status = SLUICE_CLOSED;
        struct sl_writer *w = &control->scratch;
        w->bytes = 0;
        sl_note_encode(&note, w);
        sl_peers_send(control, SL_FRAME_NOTE, w->data, w->bytes);
        deliver(control, &note);
    }
}

static void to_arbiter(struct sl_control *control, const struct sl_note *note)
{
    if (control->arbiter == NULL)
        return;
    sl_arbiter_note(control->arbiter, note, sl_now(control->config.clock));
    pass_on(control);
}

void sl_note_on_frame(struct sl_control *control, uint32_t rank, const uint8_t *payload, size_t bytes)
{
    struct sl_note note = {0};
    if (!sl_note_decode(payload, bytes, &note))
        return;
    if (!sl_is_hub(control)) {
        deliver(control, &note);
        return;
    }
    note.rank = rank; /* a rank speaks for itself alone */
    to_arbiter(control, &note);
}

void sl_note_gone(struct sl_control *control, uint32_t rank, const char *text)
{
    if (control->arbiter == NULL)
        return;
    sl_arbiter_lost(control->arbiter, rank, text, sl_now(control->config.clock));
    pass_on(control);
}

void sl_note_gone_alone(struct sl_control *control, uint32_t rank, const char *text)
{
    struct sl_note note = {.kind = SL_NOTE_LOST, .rank = rank};
    note.status = (control->fate[rank] & SL_PEER_LOST) == SL_PEER_LOST ? SLUICE_PEER_LOST : SLUICE_CLOSED;
    (void)strncpy(note.text, text, sizeof(note.text) - 1);
    deliver(control, &note);
}

/* --- this rank --- */

static void send_up(struct sl_control *control, const struct sl_note *note)
{
    if (sl_is_hub(control)) {
        to_arbiter(control, note);
        return;
    }
    struct sl_writer *w = &control->scratch;
    w->bytes = 0;
    sl_note_encode(note, w);
    if (control->peers[0].wire != NULL)
        sl_wire_send(control->peers[0].wire, SL_FRAME_NOTE, w->data, w->bytes);
}

static void release(struct sl_control *control, struct sl_ready *ready, uint64_t now)
{
    ready->held = 0;
    ready->sent_at = now;
    send_up(control, &ready->note);
}

/* The record of a run; when there is none, the one that was told longest ago and holds nothing. */
static struct sl_ready *record_of(struct sl_control *control, uint64_t key)
{
    struct sl_ready *oldest = NULL;
    for (size_t i = 0; i < SL_READY_MAX; i++) {
        struct sl_ready *ready = &control->ready[i];
        if (ready->used && ready->note.key == key)
            return ready;
        if (!ready->used || (!ready->held && (oldest == NULL || (oldest->used && ready->sent_at < oldest->sent_at))))
            oldest = ready;
    }
    if (oldest != NULL)
        *oldest = (struct sl_ready){0};
    return oldest;
}

static void tell_ready(struct sl_control *control, const struct sl_note *note)
{
    uint64_t now = sl_now(control->config.clock);
    struct sl_ready *ready = record_of(control, note->key);
    if (ready == NULL) { /* more runs than records: not coalesced */
        send_up(control, note);
        return;
    }
    _Bool wait = ready->used && now - ready->sent_at < SL_COALESCE_NS;
    if (!ready->held || note->a >= ready->note.a)
        ready->note = *note; /* monotone: the newest says all */
    ready->used = 1;
    ready->held = wait;
    if (!wait)
        release(control, ready, now);
}

void sl_note_tell(struct sl_control *control, const struct sl_note *note)
{
    if (control->phase != SL_CONTROL_RUNNING)
        return;
    if (note->kind == SL_NOTE_READY) {
        tell_ready(control, note);
        return;
    }
    uint64_t now = sl_now(control->config.clock);
    for (size_t i = 0; i < SL_READY_MAX; i++) /* order is kept: what is held of this run goes first */
        if (control->ready[i].held && control->ready[i].note.key == note->key)
            release(control, &control->ready[i], now);
    send_up(control, note);
}

/* --- timers --- */

uint64_t sl_note_timer(const struct sl_control *control)
{
    uint64_t next = control->arbiter == NULL ? UINT64_MAX : sl_arbiter_timer(control->arbiter);
    for (size_t i = 0; i < SL_READY_MAX; i++) {
        const struct sl_ready *ready = &control->ready[i];
        if (ready->held && ready->sent_at + SL_COALESCE_NS < next)
            next = ready->sent_at + SL_COALESCE_NS;
    }
    return next;
}

void sl_note_due(struct sl_control *control, uint64_t now)
{
    if (control->phase != SL_CONTROL_RUNNING)
        return;
    for (size_t i = 0; i < SL_READY_MAX; i++)
        if (control->ready[i].held && control->ready[i].sent_at + SL_COALESCE_NS <= now)
            release(control, &control->ready[i], now);
    if (control->arbiter != NULL && sl_arbiter_timer(control->arbiter) <= now) {
        sl_arbiter_tick(control->arbiter, now);
        pass_on(control);
    }
}
