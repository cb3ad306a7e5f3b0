/*
 * arbiter.c: the arbiter's entry: finds the run of a note, hands it on, keeps the notes that go out.
 *
 * - A record lives from the first JOIN until every live rank has joined and released the run, so a rank
 *   that submits late learns how the run ended. Records are bounded: the oldest that is over goes first.
 * - Notes go out in the order of the decisions; grants are made last, when they are taken, so that a
 *   freeze or a loss of the same moment comes before them.
 * - Room for the notes of one call is made when a run is added: nothing else allocates.
 */
#include "runtime/control/arbiter.h"

#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/arbiter_run.h"

/* The most notes that one call makes for one run (outcome, released, stop, resume), and beside them. */
enum { NOTES_PER_RUN = 4, NOTES_BASE = 16, RECORDS_PER_RUN = 8, RECORDS_BASE = 64 };

struct sl_arbiter *sl_arbiter_create(const struct sl_arbiter_config *config)
{
    SL_ASSERT(config->world > 0 && config->runs_max > 0);
    struct sl_arbiter *arbiter = sl_new(config->mem, sizeof *arbiter, "arbiter");
    if (!arbiter)
        return NULL;
    arbiter->mem = config->mem;
    arbiter->world = arbiter->live = config->world;
    arbiter->runs_max = config->runs_max * RECORDS_PER_RUN + RECORDS_BASE;
    arbiter->batch = UINT64_MAX;
    arbiter->host = config->host;
    arbiter->collecting = config->takeover;
    arbiter->lost = sl_new_array(config->mem, config->world, sizeof *arbiter->lost, "arbiter's ranks");
    arbiter->told = sl_new_array(config->mem, config->world, sizeof *arbiter->told, "arbiter's ranks");
    arbiter->queue = sl_new_array(config->mem, NOTES_BASE, sizeof *arbiter->queue, "arbiter's notes");
    arbiter->queue_max = NOTES_BASE;
    if (!arbiter->lost || !arbiter->told || !arbiter->queue) {
        sl_arbiter_destroy(arbiter);
        return NULL;
    }
    return arbiter;
}

void sl_arbiter_destroy(struct sl_arbiter *arbiter)
{
    if (!arbiter)
        return;
    while (arbiter->first) {
        struct arb_run *run = arbiter->first;
        arbiter->first = run->next;
        sl_free(arbiter->mem, run);
    }
    sl_free(arbiter->mem, arbiter->queue);
    sl_free(arbiter->mem, arbiter->told);
    sl_free(arbiter->mem, arbiter->lost);
    sl_free(arbiter->mem, arbiter);
}

struct sl_note *arb_push(struct sl_arbiter *arbiter, enum sl_note_kind kind, const struct arb_run *run)
{
    SL_ASSERT(arbiter->queue_count < arbiter->queue_max);
    size_t index = (arbiter->queue_first + arbiter->queue_count++) % arbiter->queue_max;
    struct sl_note *note = &arbiter->queue[index];
    memset(note, 0, sizeof *note);
    note->kind = kind;
    note->key = run ? run->key : 0;
    return note;
}

_Bool sl_arbiter_next(struct sl_arbiter *arbiter, struct sl_note *ret)
{
    if (arbiter->queue_count == 0)
        return arb_grant(arbiter, ret);
    *ret = arbiter->queue[arbiter->queue_first];
    arbiter->queue_first = (arbiter->queue_first + 1) % arbiter->queue_max;
    arbiter->queue_count--;
    return 1;
}

static void drop(struct sl_arbiter *arbiter, struct arb_run *run)
{
    struct arb_run **link = &arbiter->first;
    while (*link != run)
        link = &(*link)->next;
    *link = run->next;
    arbiter->runs--;
    sl_free(arbiter->mem, run);
}

static _Bool over(const struct arb_run *run)
{
    return arb_given(run, SL_PHASE_RELEASED) && run->unvoted[SL_PHASE_RELEASED] == 0;
}

void arb_drop_if_over(struct sl_arbiter *arbiter, struct arb_run *run)
{
    if (over(run) && run->unjoined == 0)
        drop(arbiter, run);
}

/* Room for one more record; false when all are alive. */
static _Bool make_room(struct sl_arbiter *arbiter)
{
    if (arbiter->runs < arbiter->runs_max)
        return 1;
    for (struct arb_run *run = arbiter->first; run; run = run->next) {
        if (over(run)) {
            drop(arbiter, run);
            return 1;
        }
    }
    return 0;
}

/* The queue is empty between calls, so growing it moves nothing. */
static _Bool grow_queue(struct sl_arbiter *arbiter)
{
    SL_ASSERT(arbiter->queue_count == 0);
    size_t need = NOTES_BASE + (size_t)NOTES_PER_RUN * (arbiter->runs + 1);
    arbiter->queue_first = 0;
    return sl_grow(arbiter->mem, &arbiter->queue, &arbiter->queue_max, need, sizeof *arbiter->queue,
                   "arbiter's notes") == SLUICE_OK;
}

static struct arb_run *add(struct sl_arbiter *arbiter, const struct sl_note *note)
{
    size_t bytes = sizeof(struct arb_run) + arbiter->world * sizeof(struct arb_rank);
    struct arb_run *run = NULL;
    if (grow_queue(arbiter))
        run = sl_new(arbiter->mem, bytes, "arbiter's run");
    if (!run)
        return NULL;
    run->key = note->key;
    run->digest = note->b;
    run->landing = note->f;
    run->windows = (uint32_t)note->a;
    run->priority = (uint32_t)note->c;
    run->state = ARB_OPEN;
    run->ready_low = arbiter->world;
    run->unjoined = arbiter->live;
    run->unvoted[SL_PHASE_STAGED] = run->unvoted[SL_PHASE_DECIDE] = run->unvoted[SL_PHASE_FINAL] = arbiter->live;
    struct arb_run **link = &arbiter->first;
    while (*link)
        link = &(*link)->next;
    *link = run;
    arbiter->runs++;
    return run;
}

/* A run that cannot be recorded fails for those who submitted it. */
static void refuse(struct sl_arbiter *arbiter, const struct sl_note *note, sluice_status status, const char *text)
{
    struct sl_note *outcome = arb_push(arbiter, SL_NOTE_OUTCOME, NULL);
    outcome->key = note->key;
    outcome->a = SL_PHASE_FINAL;
    outcome->status = status;
    memcpy(outcome->text, text, strlen(text) + 1);
}

static struct arb_run *find(const struct sl_arbiter *arbiter, uint64_t key)
{
    struct arb_run *run = arbiter->first;
    while (run && run->key != key)
        run = run->next;
    return run;
}

/* The run's record, a new one where there is none; NULL: refused. */
static struct arb_run *find_or_add(struct sl_arbiter *arbiter, const struct sl_note *note)
{
    struct arb_run *run = find(arbiter, note->key);
    if (run)
        return run;
    if (!make_room(arbiter)) {
        refuse(arbiter, note, SLUICE_LIMIT,
               "too many runs that not all ranks have submitted: submit alike on all ranks");
        return NULL;
    }
    run = add(arbiter, note);
    if (!run)
        refuse(arbiter, note, SLUICE_NOMEM, "rank 0 has no memory for another run");
    return run;
}

static void joined(struct sl_arbiter *arbiter, const struct sl_note *note)
{
    if (note->a > SLUICE_WINDOWS_MAX)
        return;
    struct arb_run *run = find_or_add(arbiter, note);
    if (run)
        arb_join(arbiter, run, note);
}

static void stands(struct sl_arbiter *arbiter, const struct sl_note *note)
{
    if (!arbiter->collecting || note->a > SLUICE_WINDOWS_MAX)
        return;
    struct arb_run *run = note->key == SL_KEY_NONE ? NULL : find_or_add(arbiter, note);
    if (note->key == SL_KEY_NONE)
        arb_told(arbiter, note->rank);
    else if (run)
        arb_standing(arbiter, run, note);
}

static _Bool says_failure(const struct sl_note *note)
{
    return (note->kind == SL_NOTE_REQUEST && note->a == SL_REQUEST_FAIL) ||
           (note->kind == SL_NOTE_VOTE && note->status != SLUICE_OK);
}

void sl_arbiter_note(struct sl_arbiter *arbiter, const struct sl_note *note, uint64_t now)
{
    arbiter->now = now > arbiter->now ? now : arbiter->now;
    if (note->rank >= arbiter->world || arbiter->lost[note->rank])
        return;
    if (note->kind == SL_NOTE_JOIN) {
        joined(arbiter, note);
        return;
    }
    if (note->kind == SL_NOTE_STANDING) {
        stands(arbiter, note);
        return;
    }
    if (note->kind == SL_NOTE_SEAL_FAILED) {
        *arb_push(arbiter, SL_NOTE_SEAL_FAILED, NULL) = *note;
        return;
    }
    if (note->kind == SL_NOTE_BROKEN) {
        arb_broken(arbiter, note);
        return;
    }
    struct arb_run *run = find(arbiter, note->key);
    if (!run || !run->ranks[note->rank].joined) {
        if (!arbiter->collecting && says_failure(note) && (run = find_or_add(arbiter, note)))
            arb_decline(arbiter, run, note);
        return;
    }
    if (arbiter->collecting && note->kind != SL_NOTE_VOTE)
        return;
    if (note->kind == SL_NOTE_READY)
        arb_ready(arbiter, run, note);
    else if (note->kind == SL_NOTE_LAUNCHED)
        arb_launched(arbiter, run, note);
    else if (note->kind == SL_NOTE_VOTE)
        arb_vote(arbiter, run, note);
    else if (note->kind == SL_NOTE_REQUEST)
        arb_request(arbiter, run, note);
}

void sl_arbiter_tick(struct sl_arbiter *arbiter, uint64_t now)
{
    arbiter->now = now > arbiter->now ? now : arbiter->now;
}

uint64_t sl_arbiter_timer(const struct sl_arbiter *arbiter)
{
    return arb_grant_timer(arbiter);
}
