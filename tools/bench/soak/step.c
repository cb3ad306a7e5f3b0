/*
 * step.c: one version: its options by seed, what is done to it on the way, and whether its end is right.
 *
 * Invariants: a transfer has exactly one terminal event, then RELEASED, then none. Where an epoch has lost no rank, a
 * step ends alike on all ranks, and not well only by what was done to it (a cancel, a gate that stays closed). With
 * shadow landing a version that did not come leaves all bytes as they were.
 */
#include <stdio.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/random.h"
#include "soak.h"

/* A transfer that takes longer has hung: beyond the stall deadline and a stopped rank. */
#define TRANSFER_LIMIT (60 * SLUICE_SECOND)
#define GATE_LIMIT     (30 * SLUICE_SECOND)
#define GATE_SHORT     (100 * SLUICE_MILLISECOND)
#define EVERYTHING     ((UINT64_C(1) << SOAK_PARAMS) - 1)

/* --- what a step is --- */

static _Bool one_in(struct sl_random *random, uint64_t count)
{
    return sl_random_below(random, count) == 0;
}

static uint64_t some(struct sl_random *random)
{
    uint64_t bits = sl_random_next(random) & EVERYTHING;
    return bits != 0 ? bits : 1;
}

/* One of the world's ranks. */
static uint32_t member(struct sl_random *random, uint32_t mask)
{
    uint32_t rank = 0;
    do
        rank = (uint32_t)sl_random_below(random, SOAK_RANKS);
    while ((mask >> rank & 1) == 0);
    return rank;
}

struct soak_step soak_draw(const struct soak_rank *rank, uint64_t version, _Bool faulty)
{
    struct sl_random random = {sl_mix64(rank->board->seed) ^ version};
    uint64_t few = some(&random);
    few &= some(&random);
    struct soak_step step = {
        .version = version,
        .first = rank->step == 0,
        .faulty = faulty,
        .shadow = one_in(&random, 2),
        .verify = one_in(&random, 2),
        .changed_only = one_in(&random, 3),
        .partial = one_in(&random, 3),
        .gated = one_in(&random, 2),
        .at_staged = one_in(&random, 2),
        .asked = some(&random),
        .fresh = few,
        .gate_timeout_ns = GATE_LIMIT,
        .pauses = SOAK_RANKS,
        .cancels = SOAK_RANKS,
        .withholds = SOAK_RANKS,
        .pause_ns = sl_random_below(&random, 10 * SLUICE_MILLISECOND),
        .cancel_ns = sl_random_below(&random, 15 * SLUICE_MILLISECOND),
    };
    if (one_in(&random, 4))
        step.pace = 100000000 + sl_random_below(&random, 300000000);
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        step.gate_delay_ns[r] = sl_random_below(&random, 5 * SLUICE_MILLISECOND);
    if (one_in(&random, 5))
        step.pauses = member(&random, rank->mask);
    if (step.faulty && one_in(&random, 4))
        step.cancels = member(&random, rank->mask);
    else if (step.faulty && one_in(&random, 8))
        step.withholds = member(&random, rank->mask);
    if (step.withholds != SOAK_RANKS)
        step.gate_timeout_ns = GATE_SHORT;
    step.gated = step.gated || step.withholds != SOAK_RANKS;
    step.partial = step.partial && !step.first;
    step.asked = step.partial ? step.asked : EVERYTHING;
    step.fresh = step.first ? EVERYTHING : step.fresh;
    return step;
}

/* The version's decision; false: the world is over. */
static _Bool decide(const struct soak_rank *rank, uint64_t version, _Bool *ret_faulty)
{
    struct soak_board *board = rank->board;
    struct soak_cell *cell = &board->ring[version % SOAK_RING];
    uint_fast64_t value = atomic_load(&cell->decision);
    while (value >> 8 < version) {
        uint64_t bits = atomic_load(&board->faults) ? SOAK_FAULTY : 0;
        bits |= atomic_load(&board->leave) >= rank->epoch ? SOAK_LEAVE : 0;
        if (atomic_compare_exchange_strong(&cell->decision, &value, version << 8 | bits))
            value = version << 8 | bits;
    }
    *ret_faulty = (value & SOAK_FAULTY) != 0;
    return value >> 8 == version && (value & SOAK_LEAVE) == 0;
}

static void note_cancel(const struct soak_rank *rank, const struct soak_step *step)
{
    atomic_fetch_or(&rank->board->ring[step->version % SOAK_RING].decision, SOAK_CANCELLED);
}

static _Bool was_cancelled(const struct soak_rank *rank, const struct soak_step *step)
{
    return (atomic_load(&rank->board->ring[step->version % SOAK_RING].decision) & SOAK_CANCELLED) != 0;
}

/* --- events --- */

static void open_gate(sluice_gate *gate)
{
    SL_ASSERT(sluice_gate_open(gate) == SLUICE_OK);
}

void soak_on_event(const struct sluice_event *event, void *user)
{
    struct soak_events *events = user;
    if (atomic_load(&events->over))
        atomic_fetch_add(&events->late, 1);
    switch (event->kind) {
    case SLUICE_EVENT_STAGED:
        if (events->staged_gate != NULL)
            open_gate(events->staged_gate);
        break;
    case SLUICE_EVENT_COMPLETED:
    case SLUICE_EVENT_COMMITTED:
    case SLUICE_EVENT_FAILED:
    case SLUICE_EVENT_CANCELLED:
        atomic_store(&events->kind, event->kind);
        atomic_fetch_add(&events->terminal, 1);
        break;
    case SLUICE_EVENT_RELEASED:
        atomic_fetch_add(&events->released, 1);
        atomic_fetch_add(&events->late, atomic_load(&events->terminal) != 1);
        break;
    default:
        break;
    }
}

static struct soak_events *events_of(struct soak_rank *rank)
{
    struct soak_events *events = &rank->events[rank->step % SOAK_SLOTS];
    if (atomic_load(&events->late) != 0)
        soak_violation(rank, "a transfer had events after its end");
    events->staged_gate = NULL;
    atomic_store(&events->terminal, 0);
    atomic_store(&events->released, 0);
    atomic_store(&events->over, 0);
    return events;
}

static void check_events(const struct soak_rank *rank, const struct soak_step *step, struct soak_events *events,
                         sluice_status status)
{
    uint32_t kind = atomic_load(&events->kind), good = step->shadow ? SLUICE_EVENT_COMMITTED : SLUICE_EVENT_COMPLETED;
    uint32_t expected = status == SLUICE_OK          ? good
                        : status == SLUICE_CANCELLED ? SLUICE_EVENT_CANCELLED
                                                     : SLUICE_EVENT_FAILED;
    if (atomic_load(&events->terminal) != 1 || atomic_load(&events->released) != 1 || kind != expected)
        soak_violation(rank, "version %llu: %u terminal events, %u RELEASED, kind %u for %s",
                       (unsigned long long)step->version, atomic_load(&events->terminal),
                       atomic_load(&events->released), kind, sluice_status_name(status));
    atomic_store(&events->over, 1);
}

/* --- running it --- */

static void do_to_it(const struct soak_rank *rank, const struct soak_step *step, sluice_transfer *transfer)
{
    const struct soak_events *events = &rank->events[rank->step % SOAK_SLOTS];
    if (step->gated && events->staged_gate == NULL && step->withholds != rank->number) {
        soak_nap(step->gate_delay_ns[rank->number]);
        open_gate(rank->gate);
    }
    if (step->pauses == rank->number) {
        sluice_transfer_pause(transfer);
        soak_nap(step->pause_ns);
        sluice_transfer_resume(transfer);
    }
    if (step->cancels == rank->number) {
        soak_nap(step->cancel_ns);
        note_cancel(rank, step);
        sluice_transfer_cancel(transfer);
    }
}

static struct sluice_transfer_options options_of(const struct soak_rank *rank, const struct soak_step *step,
                                                 struct soak_events *events)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    _Bool source = soak_is_source(rank->number);
    options.version = step->version;
    options.landing = step->shadow ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    options.verify = step->verify;
    options.changed_only = step->changed_only;
    options.params = step->partial ? &step->asked : NULL;
    options.params_words = step->partial ? 1 : 0;
    options.pace_bytes_per_second = step->pace;
    options.gate_timeout_ns = step->gate_timeout_ns;
    options.source_gate = step->gated && source ? rank->gate : NULL;
    options.consumer_gate = step->gated && !source ? rank->gate : NULL;
    options.on_event = soak_on_event;
    options.user = events;
    options.window_events = 1;
    if (step->shadow && step->gated && step->at_staged && !source && step->withholds != rank->number)
        events->staged_gate = rank->gate;
    return options;
}

static void await(struct soak_rank *rank, const struct soak_step *step, sluice_transfer *transfer,
                  sluice_status *ret_status, struct sluice_error *ret_error)
{
    char text[SOAK_TEXT / 2];
    *ret_status = sluice_transfer_wait(transfer, TRANSFER_LIMIT);
    sluice_transfer_error(transfer, ret_error);
    if (*ret_status != SLUICE_TIMEOUT || ret_error->status != SLUICE_OK)
        return;
    SL_IGNORE(sluice_transfer_explain(transfer, text, sizeof text));
    soak_violation(rank, "version %llu hangs: %s", (unsigned long long)step->version, text);
}

/* --- whether its end is right --- */

static _Bool is_allowed(const struct soak_rank *rank, const struct soak_step *step, sluice_status status)
{
    static const sluice_status of_loss[] = {SLUICE_PEER_LOST, SLUICE_PEER_FAILED, SLUICE_POISONED, SLUICE_ABORTED,
                                            SLUICE_TRANSPORT, SLUICE_UNDECIDED,   SLUICE_TORN};
    if (status == SLUICE_OK || (status == SLUICE_CANCELLED && was_cancelled(rank, step)) ||
        (status == SLUICE_GATE_TIMEOUT && step->withholds != SOAK_RANKS))
        return 1;
    for (size_t i = 0; i < SL_COUNT(of_loss); i++)
        if (status == of_loss[i])
            return soak_hit(rank);
    return 0;
}

static enum soak_outcome outcome_of(sluice_status status)
{
    return status == SLUICE_OK             ? SOAK_OK
           : status == SLUICE_CANCELLED    ? SOAK_CANCEL
           : status == SLUICE_GATE_TIMEOUT ? SOAK_GATE
                                           : SOAK_LOSS;
}

/* What a destination has now: all of it, none of it, or what nobody knows. */
static void settle(struct soak_rank *rank, const struct soak_step *step, sluice_status status)
{
    _Bool untouched =
        step->shadow && (status == SLUICE_CANCELLED || status == SLUICE_GATE_TIMEOUT || status == SLUICE_PEER_LOST);
    for (uint32_t p = 0; p < SOAK_PARAMS && !untouched; p++)
        for (uint32_t s = 0; s < SOAK_SOURCES; s++)
            if ((step->asked >> p & 1) != 0 && (rank->mask >> s & 1) != 0)
                rank->held[p][s] = status == SLUICE_OK ? rank->stamp[p] : 0;
    if (!soak_holds(rank))
        soak_violation(rank, "version %llu ended with %s, and bytes are not what they should be",
                       (unsigned long long)step->version, sluice_status_name(status));
}

static _Bool is_victim(const struct soak_rank *rank, uint32_t other)
{
    return soak_hit(rank) && (atomic_load(&rank->board->victims) >> other & 1) != 0;
}

/* Writes down how it ended here, and compares with what the others have written: the last one sees all. */
static void compare(struct soak_rank *rank, const struct soak_step *step, sluice_status status)
{
    struct soak_cell *cell = &rank->board->ring[step->version % SOAK_RING];
    _Bool holds = status == SLUICE_OK || soak_is_source(rank->number) || soak_has_stamps(rank, step->asked);
    atomic_store(&cell->outcome[rank->number], step->version << 8 | (uint64_t)holds << 7 | (uint64_t)-status);
    _Bool came = 0, hit = soak_hit(rank);
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        uint64_t outcome = atomic_load(&cell->outcome[r]);
        came = came || (outcome >> 8 == step->version && (outcome & 127) == SLUICE_OK);
    }
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        uint64_t outcome = atomic_load(&cell->outcome[r]);
        if (outcome >> 8 != step->version || (outcome & 127) == SLUICE_OK || !came || is_victim(rank, r))
            continue;
        sluice_status other = (sluice_status) - (int)(outcome & 127);
        if ((outcome >> 7 & 1) == 0 || !hit)
            soak_violation(rank, "version %llu came on one rank, and rank %u ended with %s%s",
                           (unsigned long long)step->version, r, sluice_status_name(other),
                           (outcome >> 7 & 1) == 0 ? " and does not have it" : "");
    }
}

static _Bool run(struct soak_rank *rank, const struct soak_step *step)
{
    struct soak_events *events = events_of(rank);
    struct sluice_transfer_options options = options_of(rank, step, events);
    sluice_transfer *transfer = NULL;
    struct sluice_error error = {0};
    soak_beat(rank, "submit");
    sluice_status status = sluice_submit(rank->plan, &options, &transfer);
    if (status != SLUICE_OK) {
        if (!soak_hit(rank))
            soak_violation(rank, "submit: %s", sluice_last_error()->text);
        return 0;
    }
    soak_beat(rank, "transfer");
    do_to_it(rank, step, transfer);
    await(rank, step, transfer, &status, &error);
    check_events(rank, step, events, status);
    sluice_transfer_destroy(transfer);
    soak_beat(rank, "verify");
    if (!is_allowed(rank, step, status))
        soak_violation(rank, "version %llu (%s%s): %s: %s", (unsigned long long)step->version,
                       step->shadow ? "shadow" : "in place", step->faulty ? ", faults on" : "",
                       sluice_status_name(status), error.text);
    atomic_fetch_add(&rank->seat->outcomes[outcome_of(status)], 1);
    if (!soak_is_source(rank->number))
        settle(rank, step, status);
    compare(rank, step, status);
    return 1;
}

_Bool soak_move(struct soak_rank *rank)
{
    uint64_t version = ((uint64_t)rank->epoch << SOAK_STEP_BITS) + rank->step + 1;
    _Bool faulty = 0;
    if (!decide(rank, version, &faulty))
        return 0;
    struct soak_step step = soak_draw(rank, version, faulty);
    for (uint32_t p = 0; p < SOAK_PARAMS; p++)
        rank->stamp[p] = (step.fresh >> p & 1) != 0 ? version : rank->stamp[p];
    soak_fill(rank, step.fresh);
    if (!run(rank, &step))
        return 0;
    rank->step++;
    sluice_status status = sluice_runtime_status(rank->runtime);
    if (status == SLUICE_OK && sluice_gate_reset(rank->gate) != SLUICE_OK)
        soak_violation(rank, "a gate that no transfer uses: %s", sluice_last_error()->text);
    if (status != SLUICE_OK && !soak_hit(rank))
        soak_violation(rank, "the runtime broke without a fault: %s", sluice_status_name(status));
    return status == SLUICE_OK;
}
