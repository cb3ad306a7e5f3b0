/*
 * control_round.c: rounds: every rank gives bytes, the hub reduces them, everybody gets the result.
 *
 * Invariants: every round that this rank gave a part to ends with exactly one on_round. At the hub a round
 * is open from its first part until its result, its deadline or a loss; a failed round stays behind
 * without parts, so that a rank that comes later learns its end. Bounded: SL_ROUNDS_MAX records.
 * Rounds of survivors have no part of a rank that is gone, and are over without a trace when they fail.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/control/control_state.h"

/* --- this rank's side --- */

static void deliver(struct sl_control *control, uint32_t kind, uint64_t id, const struct sluice_error *error,
                    const uint8_t *data, size_t bytes)
{
    struct sl_waiting **link = &control->waiting;
    while (*link != NULL && ((*link)->kind != kind || (*link)->id != id))
        link = &(*link)->next;
    struct sl_waiting *waiting = *link;
    if (waiting == NULL)
        return; /* rank 0 answers all, also those who gave nothing */
    *link = waiting->next;
    sl_free(control->mem, waiting);
    const struct sl_control_handlers *h = &control->config.handlers;
    if (error == NULL)
        h->on_round(h->context, kind, id, SLUICE_OK, NULL, data, bytes);
    else
        h->on_round(h->context, kind, id, error->status, error, NULL, 0);
}

void sl_round_fail_all(struct sl_control *control, const struct sluice_error *error)
{
    while (control->waiting != NULL)
        deliver(control, control->waiting->kind, control->waiting->id, error, NULL, 0);
}

void sl_round_on_result(struct sl_control *control, const uint8_t *payload, size_t bytes)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint32_t kind = sl_get_u32(&r);
    uint64_t id = sl_get_u64(&r);
    _Bool failed = sl_get_u8(&r) != 0;
    struct sluice_error error;
    if (failed)
        sl_get_error(&r, &error);
    if (!r.failed)
        deliver(control, kind, id, failed ? &error : NULL, r.data, r.left);
}

static _Bool already_waiting(const struct sl_control *control, uint32_t kind, uint64_t id)
{
    for (const struct sl_waiting *w = control->waiting; w != NULL; w = w->next)
        if (w->kind == kind && w->id == id)
            return 1;
    return 0;
}

static struct sl_blob *part_message(struct sl_control *control, uint32_t kind, uint64_t id, uint64_t timeout_ns,
                                    const uint8_t *data, size_t bytes)
{
    struct sl_writer w;
    uint8_t *message = NULL;
    size_t message_bytes = 0;
    sl_writer_init(&w, control->mem);
    sl_put_u32(&w, kind);
    sl_put_u64(&w, id);
    sl_put_u64(&w, timeout_ns);
    sl_put_bytes(&w, data, bytes);
    if (sl_writer_take(&w, &message, &message_bytes) != SLUICE_OK)
        return NULL;
    return sl_blob_of(control->mem, message, message_bytes);
}

static void take_part(struct sl_control *control, uint32_t rank, uint32_t kind, uint64_t id, uint64_t timeout_ns,
                      const uint8_t *data, size_t bytes);

static _Bool of_survivors(uint32_t kind)
{
    return kind >= SL_ROUND_SURVIVORS;
}

static void say_alone(const struct sl_control *control, struct sluice_error *error)
{
    if (control->hub == SL_NOBODY)
        SL_IGNORE(sl_error_set(error, SLUICE_STATE, "control",
                               "%.300s, and no other rank of the %u has taken its place with a majority: close the "
                               "runtime and open it again",
                               control->gone.text, control->world));
}

static void send_part(struct sl_control *control, uint32_t kind, uint64_t id, uint64_t timeout_ns, const uint8_t *data,
                      size_t bytes)
{
    struct sl_wire *wire = control->peers[0].wire;
    struct sl_blob *blob = NULL;
    struct sluice_error error = control->gone;
    say_alone(control, &error);
    if (wire != NULL) {
        blob = part_message(control, kind, id, timeout_ns, data, bytes);
        SL_IGNORE(sl_error_set(&error, SLUICE_NOMEM, "control", "out of memory for a part of a round"));
    }
    if (blob == NULL) {
        deliver(control, kind, id, &error, NULL, 0);
        return;
    }
    sl_wire_send_blob(wire, SL_FRAME_PART, blob);
    sl_blob_drop(blob);
}

void sl_round_give(struct sl_control *control, struct sl_waiting *waiting, uint64_t timeout_ns, const uint8_t *data,
                   size_t bytes)
{
    uint32_t kind = waiting->kind;
    uint64_t id = waiting->id;
    SL_ASSERT(!already_waiting(control, kind, id));
    waiting->next = control->waiting;
    control->waiting = waiting;
    if (control->phase != SL_CONTROL_RUNNING) {
        struct sluice_error error;
        SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "control", "the runtime was closed"));
        deliver(control, kind, id, &error, NULL, 0);
    } else if (control->hub != 0 && !of_survivors(kind)) {
        deliver(control, kind, id, &control->gone, NULL, 0); /* it would need rank 0's part */
    } else if (sl_is_hub(control)) {
        take_part(control, control->rank, kind, id, timeout_ns, data, bytes);
    } else {
        send_part(control, kind, id, timeout_ns, data, bytes);
    }
}

/* --- the hub's side --- */

static struct sl_round *find(const struct sl_control *control, uint32_t kind, uint64_t id)
{
    struct sl_round *round = control->rounds;
    while (round != NULL && (round->kind != kind || round->id != id))
        round = round->next;
    return round;
}

static void free_part(struct sl_control *control, struct sl_bytes *bytes)
{
    union {
        const uint8_t *in;
        void *out;
    } part = {.in = bytes->data}; /* ours, though its readers may not write it */
    sl_free(control->mem, part.out);
    *bytes = (struct sl_bytes){0};
}

static void free_parts(struct sl_control *control, struct sl_round *round)
{
    for (uint32_t i = 0; round->parts != NULL && i < control->world; i++)
        free_part(control, &round->parts[i]);
    sl_free(control->mem, round->parts);
    round->parts = NULL;
}

static void drop(struct sl_control *control, struct sl_round *round)
{
    struct sl_round **link = &control->rounds;
    while (*link != round)
        link = &(*link)->next;
    *link = round->next;
    control->round_count--;
    free_parts(control, round);
    sl_free(control->mem, round);
}

void sl_round_drop(struct sl_control *control)
{
    while (control->rounds != NULL)
        drop(control, control->rounds);
    while (control->waiting != NULL) {
        struct sl_waiting *waiting = control->waiting;
        control->waiting = waiting->next;
        sl_free(control->mem, waiting);
    }
}

static struct sl_blob *result_message(struct sl_control *control, uint32_t kind, uint64_t id,
                                      const struct sluice_error *error, const uint8_t *data, size_t bytes)
{
    struct sl_writer w;
    uint8_t *message = NULL;
    size_t message_bytes = 0;
    sl_writer_init(&w, control->mem);
    sl_put_u32(&w, kind);
    sl_put_u64(&w, id);
    sl_put_u8(&w, error != NULL);
    if (error != NULL)
        sl_put_error(&w, error);
    sl_put_bytes(&w, data, bytes);
    if (sl_writer_take(&w, &message, &message_bytes) != SLUICE_OK)
        return NULL;
    return sl_blob_of(control->mem, message, message_bytes);
}

/* A result for which there is no memory: a small error instead, which needs none. */
static void send_no_memory(struct sl_control *control, uint32_t rank, uint32_t kind, uint64_t id)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_NOMEM, "control", "rank %u is out of memory for the result of a round",
                           control->rank));
    struct sl_writer *w = &control->scratch;
    w->bytes = 0;
    sl_put_u32(w, kind);
    sl_put_u64(w, id);
    sl_put_u8(w, 1);
    sl_put_error(w, &error);
    if (rank == UINT32_MAX)
        sl_peers_send(control, SL_FRAME_RESULT, w->data, w->bytes);
    else if (control->peers[rank].wire != NULL)
        sl_wire_send(control->peers[rank].wire, SL_FRAME_RESULT, w->data, w->bytes);
}

/* To one rank, or to all (rank UINT32_MAX). */
static void send_result(struct sl_control *control, uint32_t rank, uint32_t kind, uint64_t id,
                        const struct sluice_error *error, const uint8_t *data, size_t bytes)
{
    if (rank == control->rank || rank == UINT32_MAX)
        deliver(control, kind, id, error, data, bytes);
    if (rank == control->rank || control->world == 1)
        return;
    struct sl_blob *blob = result_message(control, kind, id, error, data, bytes);
    if (blob == NULL)
        send_no_memory(control, rank, kind, id);
    else if (rank == UINT32_MAX)
        sl_peers_send_blob(control, SL_FRAME_RESULT, blob);
    else if (control->peers[rank].wire != NULL)
        sl_wire_send_blob(control->peers[rank].wire, SL_FRAME_RESULT, blob);
    sl_blob_drop(blob);
}

/* The round failed; its record stays for those who come late, but that of survivors, who may try it again. */
static void fail_round(struct sl_control *control, struct sl_round *round, const struct sluice_error *error)
{
    round->error = *error;
    round->deadline = UINT64_MAX;
    free_parts(control, round);
    send_result(control, UINT32_MAX, round->kind, round->id, error, NULL, 0);
    if (of_survivors(round->kind))
        drop(control, round);
}

static void reduce(struct sl_control *control, struct sl_round *round)
{
    const struct sl_control_handlers *h = &control->config.handlers;
    uint8_t *data = NULL;
    size_t bytes = 0;
    struct sluice_error error = {0};
    sluice_status status =
        h->reduce(h->context, round->kind, round->parts, control->world, control->mem, &data, &bytes, &error);
    if (status == SLUICE_OK && bytes > SL_ROUND_MAX)
        status = sl_error_set(&error, SLUICE_LIMIT, "control", "the result of a round has %zu bytes: the limit is %u",
                              bytes, SL_ROUND_MAX);
    error.status = status;
    uint32_t kind = round->kind;
    uint64_t id = round->id;
    drop(control, round); /* all have given their part: nobody comes late */
    send_result(control, UINT32_MAX, kind, id, status == SLUICE_OK ? NULL : &error, data, bytes);
    sl_free(control->mem, data);
}

/* Forgets the oldest failed round when the table is full. */
static _Bool make_room(struct sl_control *control)
{
    struct sl_round *oldest = NULL;
    for (struct sl_round *round = control->rounds; round != NULL; round = round->next)
        if (round->parts == NULL)
            oldest = round; /* newest first in the list */
    if (control->round_count < SL_ROUNDS_MAX)
        return 1;
    if (oldest != NULL)
        drop(control, oldest);
    return oldest != NULL;
}

static sluice_status begin(struct sl_control *control, uint32_t kind, uint64_t id, uint64_t timeout_ns,
                           struct sl_round **ret)
{
    if (!make_room(control))
        return sl_fail(SLUICE_LIMIT, "control", "more than %u rounds are open at once", SL_ROUNDS_MAX);
    struct sl_round *round = sl_new(control->mem, sizeof(*round), "a round");
    if (round == NULL)
        return SLUICE_NOMEM;
    round->parts = sl_new_array(control->mem, control->world, sizeof(*round->parts), "the parts of a round");
    if (round->parts == NULL) {
        sl_free(control->mem, round);
        return SLUICE_NOMEM;
    }
    round->kind = kind;
    round->id = id;
    round->deadline = sl_deadline(sl_now(control->config.clock), timeout_ns);
    round->next = control->rounds;
    control->rounds = round;
    control->round_count++;
    *ret = round;
    return SLUICE_OK;
}

static sluice_status keep_part(struct sl_control *control, struct sl_round *round, uint32_t rank, const uint8_t *data,
                               size_t bytes)
{
    SL_ASSERT(round != NULL && round->parts != NULL);
    if (round->parts[rank].data != NULL)
        return sl_fail(SLUICE_PROTOCOL, "control", "rank %u gave its part of a round twice", rank);
    uint8_t *copy = sl_new_aligned(control->mem, bytes, 16, "a part of a round");
    if (copy == NULL)
        return SLUICE_NOMEM;
    if (bytes > 0)
        memcpy(copy, data, bytes);
    round->parts[rank] = (struct sl_bytes){.data = copy, .bytes = bytes};
    round->have++;
    return SLUICE_OK;
}

static void say_gone(const struct sl_control *control, uint32_t rank, struct sluice_error *error)
{
    *error = control->gone;
    if (rank != control->gone_rank)
        SL_IGNORE(sl_error_set(error, SLUICE_PEER_LOST, "control",
                               control->peers[rank].state == SL_PEER_LEFT ? "rank %u is gone: it closed its runtime"
                                                                          : "rank %u was lost",
                               rank));
}

/* A rank is gone whose part is not here. */
static _Bool cannot_end(const struct sl_control *control, const struct sl_round *round, struct sluice_error *error)
{
    if (control->gone.status == SLUICE_OK || of_survivors(round->kind))
        return 0;
    for (uint32_t i = 0; i < control->world; i++) {
        if (round->parts[i].data == NULL && control->peers[i].state >= SL_PEER_LEFT) {
            say_gone(control, i, error);
            return 1;
        }
    }
    return 0;
}

static _Bool complete(const struct sl_control *control, const struct sl_round *round)
{
    return round->have == (of_survivors(round->kind) ? control->present + 1 : control->world);
}

static void take_part(struct sl_control *control, uint32_t rank, uint32_t kind, uint64_t id, uint64_t timeout_ns,
                      const uint8_t *data, size_t bytes)
{
    struct sl_round *round = find(control, kind, id);
    struct sluice_error error;
    if (round != NULL && round->parts == NULL) {
        send_result(control, rank, kind, id, &round->error, NULL, 0);
        return;
    }
    sluice_status status = round == NULL ? begin(control, kind, id, timeout_ns, &round) : SLUICE_OK;
    if (status != SLUICE_OK) {
        sl_error_take(&error);
        send_result(control, rank, kind, id, &error, NULL, 0);
        return;
    }
    status = keep_part(control, round, rank, data, bytes);
    if (status != SLUICE_OK) {
        sl_error_take(&error);
        fail_round(control, round, &error);
    } else if (cannot_end(control, round, &error)) {
        fail_round(control, round, &error);
    } else if (complete(control, round)) {
        reduce(control, round);
    }
}

void sl_round_on_part(struct sl_control *control, uint32_t rank, const uint8_t *payload, size_t bytes)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    uint32_t kind = sl_get_u32(&r);
    uint64_t id = sl_get_u64(&r);
    uint64_t timeout_ns = sl_get_u64(&r);
    if (!r.failed && r.left <= SL_ROUND_MAX)
        take_part(control, rank, kind, id, timeout_ns, r.data, r.left);
}

/* Survivors go on without it. */
static void forget_part(struct sl_control *control, struct sl_round *round, uint32_t rank)
{
    if (round->parts[rank].data != NULL) {
        free_part(control, &round->parts[rank]);
        round->have--;
    }
    if (complete(control, round))
        reduce(control, round);
}

void sl_round_gone(struct sl_control *control, uint32_t rank, _Bool lost)
{
    if (!sl_is_hub(control)) { /* only the hub is our peer, and without it no round ends */
        sl_round_fail_all(control, &control->gone);
        return;
    }
    struct sluice_error error;
    say_gone(control, rank, &error);
    for (struct sl_round *round = control->rounds, *next; round != NULL; round = next) {
        next = round->next;
        if (round->parts != NULL && of_survivors(round->kind))
            forget_part(control, round, rank);
        else if (round->parts != NULL && (lost || round->parts[rank].data == NULL))
            fail_round(control, round, &error);
    }
}

/* --- deadlines --- */

uint64_t sl_round_timer(const struct sl_control *control)
{
    uint64_t next = UINT64_MAX;
    for (const struct sl_round *round = control->rounds; round != NULL; round = round->next)
        next = round->deadline < next ? round->deadline : next;
    return next;
}

struct missing {
    const struct sl_control *control;
    const struct sl_round *round;
};

static _Bool part_missing(const void *context, uint32_t rank)
{
    const struct missing *missing = context;
    _Bool needed = !of_survivors(missing->round->kind) || missing->control->peers[rank].state < SL_PEER_LEFT;
    return needed && missing->round->parts[rank].data == NULL;
}

void sl_round_due(struct sl_control *control, uint64_t now)
{
    for (struct sl_round *round = control->rounds, *next; round != NULL; round = next) {
        next = round->next;
        if (round->deadline > now)
            continue;
        char ranks[200];
        struct sluice_error error;
        struct missing missing = {control, round};
        sl_rank_list(control->world, part_missing, &missing, ranks, sizeof(ranks));
        SL_IGNORE(sl_error_set(&error, SLUICE_TIMEOUT, "control",
                               "%u of %u ranks took part in a round in time; missing: %s", round->have,
                               of_survivors(round->kind) ? control->present + 1 : control->world, ranks));
        fail_round(control, round, &error);
    }
}
