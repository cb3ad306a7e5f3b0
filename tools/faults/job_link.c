/*
 * job_link.c: the made-up control plane: notes and rounds that travel for a while.
 *
 * Invariants: notes of a rank reach the arbiter in their order, and its answers every rank in theirs; a rank that
 * gave its part of a round hears its end once. When the rank of the arbiter goes, what is on its way to it is lost,
 * and the lowest that lives takes its place some time later, if a majority lives.
 */
#include <stdio.h>
#include <string.h>

#include "tools/faults/job_state.h"

/* How long a note travels, and how long it takes until another rank is in the arbiter's place, at most. */
#define TRAVEL   (200 * SLUICE_MICROSECOND)
#define TAKEOVER (10 * SLUICE_MILLISECOND)

struct note_flight {
    struct job_rank *rank; /* sender, or who gets it */
    uint32_t host;         /* to whom the sender sent it */
    struct sl_note note;
};

struct round_flight {
    struct job_rank *rank;
    uint32_t kind;
    uint64_t id;
    struct sluice_error error; /* status OK: success */
    size_t bytes;
    uint8_t data[];
};

static void *must(void *memory)
{
    SL_ASSERT(memory != NULL); /* the harness's own memory never fails */
    return memory;
}

/* After everything that went the same way before. */
static void fly(struct job *job, uint64_t *last, sl_sim_act act, void *flight)
{
    uint64_t at = sl_sim_now(job->sim) + job_below(job, TRAVEL);
    *last = at > *last ? at : *last;
    SL_ASSERT(sl_sim_at(job->sim, *last, act, flight, 0) == SLUICE_OK);
}

/* --- notes --- */

static void note_arrives(void *context, uint64_t argument)
{
    struct note_flight *flight = context;
    struct job_rank *rank = flight->rank;
    (void)argument;
    if (job_live(rank)) {
        if (flight->note.kind == SL_NOTE_LOST && flight->note.a > 0)
            rank->host = (uint32_t)flight->note.a - 1;
        sl_runtime_on_note(rank->runtime, &flight->note);
        rank->woken = 1;
    }
    sl_free(rank->job->mem, flight);
}

static void send_down(struct job_rank *rank, const struct sl_note *note)
{
    struct job *job = rank->job;
    struct note_flight *flight = must(sl_new(job->mem, sizeof *flight, "note"));
    *flight = (struct note_flight){.rank = rank, .note = *note};
    fly(job, &rank->received, note_arrives, flight);
}

static void answer(struct job *job)
{
    struct sl_note note;
    while (sl_arbiter_next(job->arbiter, &note)) {
        if (note.kind == SL_NOTE_LOST && !job->rank[note.rank].dead)
            note.status = SLUICE_CLOSED;
        for (uint32_t r = 0; r < job->ranks; r++)
            if (job_live(&job->rank[r]))
                send_down(&job->rank[r], &note);
    }
}

static void note_arbitrated(void *context, uint64_t argument)
{
    struct note_flight *flight = context;
    struct job *job = flight->rank->job;
    (void)argument;
    if (job->arbiter != NULL && flight->host == job->host && !flight->rank->gone) {
        sl_arbiter_note(job->arbiter, &flight->note, sl_sim_now(job->sim));
        answer(job);
    }
    sl_free(job->mem, flight);
}

sluice_status job_tell(void *context, const struct sl_note *note)
{
    struct job_rank *rank = context;
    struct job *job = rank->job;
    struct note_flight *flight = must(sl_new(job->mem, sizeof *flight, "note"));
    *flight = (struct note_flight){rank, rank->host, *note};
    flight->note.rank = rank->number;
    if (note->kind == SL_NOTE_VOTE && note->a == SL_PHASE_DECIDE && note->status == SLUICE_OK) {
        struct job_run *run = job_find_run(rank, note->key);
        if (run != NULL)
            run->decided = 1;
    }
    fly(job, &rank->sent, note_arbitrated, flight);
    return SLUICE_OK;
}

/* --- rounds --- */

static void round_arrives(void *context, uint64_t argument)
{
    struct round_flight *flight = context;
    struct job_rank *rank = flight->rank;
    (void)argument;
    if (job_live(rank)) {
        _Bool good = flight->error.status == SLUICE_OK;
        sl_runtime_on_round(rank->runtime, flight->kind, flight->id, flight->error.status, good ? NULL : &flight->error,
                            good ? flight->data : NULL, good ? flight->bytes : 0);
        rank->woken = 1;
    }
    sl_free(rank->job->mem, flight);
}

static void send_result(struct job_rank *rank, uint32_t kind, uint64_t id, const struct sluice_error *error,
                        const uint8_t *data, size_t bytes)
{
    struct job *job = rank->job;
    struct round_flight *flight = must(sl_new(job->mem, sizeof *flight + bytes, "round"));
    *flight = (struct round_flight){.rank = rank, .kind = kind, .id = id, .bytes = bytes};
    if (error != NULL)
        flight->error = *error;
    if (bytes > 0)
        memcpy(flight->data, data, bytes);
    fly(job, &rank->received, round_arrives, flight);
}

/* Everybody who gave a part hears the end. */
static void end_round(struct job *job, struct job_round *round, const struct sluice_error *error, const uint8_t *data,
                      size_t bytes)
{
    for (uint32_t r = 0; r < job->ranks; r++) {
        if (round->part[r].data == NULL)
            continue;
        send_result(&job->rank[r], round->kind, round->id, error, data, bytes);
        sl_free(job->mem, (void *)(uintptr_t)round->part[r].data);
    }
    *round = (struct job_round){0};
}

static void reduce(struct job *job, struct job_round *round)
{
    struct sluice_error error = {0};
    uint8_t *data = NULL;
    size_t bytes = 0;
    sluice_status status =
        sl_runtime_reduce(NULL, round->kind, round->part, job->ranks, job->mem, &data, &bytes, &error);
    end_round(job, round, status == SLUICE_OK ? NULL : &error, data, status == SLUICE_OK ? bytes : 0);
    sl_free(job->mem, data);
}

static struct job_round *find_round(struct job *job, uint32_t kind, uint64_t id)
{
    struct job_round *unused = NULL;
    for (uint32_t i = 0; i < JOB_ROUNDS; i++) {
        struct job_round *round = &job->round[i];
        if (round->have > 0 && round->kind == kind && round->id == id)
            return round;
        if (round->have == 0)
            unused = round;
    }
    SL_ASSERT(unused != NULL);
    return unused;
}

static const struct job_rank *missing(const struct job *job, const struct job_round *round)
{
    for (uint32_t r = 0; r < job->ranks; r++)
        if (round->part[r].data == NULL && job->rank[r].gone)
            return &job->rank[r];
    return NULL;
}

static void say_gone(const struct job_rank *rank, struct sluice_error *error)
{
    SL_IGNORE(sl_error_set(error, SLUICE_PEER_LOST, "control", "rank %u is gone (made up)", rank->number));
}

struct part_flight {
    struct job_rank *rank;
    uint32_t kind;
    uint64_t id, timeout;
    size_t bytes;
    uint8_t data[];
};

static void part_arrives(void *context, uint64_t argument)
{
    struct part_flight *flight = context;
    struct job_rank *rank = flight->rank;
    struct job *job = rank->job;
    struct sluice_error error;
    (void)argument;
    struct job_round *round = find_round(job, flight->kind, flight->id);
    if (!rank->gone) {
        uint8_t *copy = must(sl_new(job->mem, flight->bytes, "part"));
        memcpy(copy, flight->data, flight->bytes);
        if (round->have++ == 0)
            round->deadline = sl_deadline(sl_sim_now(job->sim), flight->timeout);
        round->kind = flight->kind;
        round->id = flight->id;
        round->part[rank->number] = (struct sl_bytes){copy, flight->bytes};
        const struct job_rank *gone = missing(job, round);
        if (gone != NULL) {
            say_gone(gone, &error);
            end_round(job, round, &error, NULL, 0);
        } else if (round->have == job->ranks) {
            reduce(job, round);
        }
    }
    sl_free(job->mem, flight);
}

sluice_status job_give(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes, uint64_t timeout_ns)
{
    struct job_rank *rank = context;
    struct job *job = rank->job;
    struct part_flight *flight = must(sl_new(job->mem, sizeof *flight + bytes, "part"));
    *flight = (struct part_flight){.rank = rank, .kind = kind, .id = id, .timeout = timeout_ns, .bytes = bytes};
    memcpy(flight->data, data, bytes);
    fly(job, &rank->sent, part_arrives, flight);
    return SLUICE_OK;
}

/* --- ends --- */

static void fail_rounds(struct job *job, const struct job_rank *rank, sluice_status how)
{
    struct sluice_error error;
    say_gone(rank, &error);
    for (uint32_t i = 0; i < JOB_ROUNDS; i++) {
        struct job_round *round = &job->round[i];
        _Bool lost = how == SLUICE_PEER_LOST || rank->number == job->host;
        if (round->have > 0 && (lost || round->part[rank->number].data == NULL))
            end_round(job, round, &error, NULL, 0);
    }
}

/* No majority is left: every rank is alone with what it knows. */
static void leave_alone(struct job *job)
{
    struct sl_note note = {.kind = SL_NOTE_LOST};
    (void)snprintf(note.text, sizeof note.text, "a made-up end of a rank");
    for (note.rank = 0; note.rank < job->ranks; note.rank++) {
        note.status = job->rank[note.rank].dead ? SLUICE_PEER_LOST : SLUICE_CLOSED;
        for (uint32_t r = 0; job->rank[note.rank].gone && r < job->ranks; r++)
            if (job_live(&job->rank[r]))
                send_down(&job->rank[r], &note);
    }
}

static void take_over(void *context, uint64_t argument)
{
    struct job *job = context;
    uint32_t live = 0;
    (void)argument;
    for (uint32_t r = job->ranks; r-- > 0;)
        if (!job->rank[r].gone) {
            live++;
            job->host = r;
        }
    if (live * 2 <= job->ranks) {
        leave_alone(job);
        return;
    }
    const struct sl_arbiter_config config = {
        .world = job->ranks, .runs_max = 16, .mem = job->mem, .host = job->host, .takeover = 1};
    job->arbiter = must(sl_arbiter_create(&config));
    for (uint32_t r = 0; r < job->ranks; r++)
        if (job->rank[r].gone)
            sl_arbiter_lost(job->arbiter, r, "a made-up end of a rank", sl_sim_now(job->sim));
    answer(job);
}

void job_gone(struct job *job, struct job_rank *rank, sluice_status how)
{
    if (rank->gone)
        return;
    rank->gone = 1;
    fail_rounds(job, rank, how);
    if (job->arbiter == NULL)
        return; /* the next one hears of it, or nobody does */
    if (rank->number != job->host) {
        sl_arbiter_lost(job->arbiter, rank->number, "a made-up end of a rank", sl_sim_now(job->sim));
        answer(job);
        return;
    }
    sl_arbiter_destroy(job->arbiter);
    job->arbiter = NULL;
    job_later(job, TAKEOVER, take_over, job, 0);
}

uint64_t job_link_timer(const struct job *job)
{
    uint64_t next = job->arbiter != NULL ? sl_arbiter_timer(job->arbiter) : UINT64_MAX;
    for (uint32_t i = 0; i < JOB_ROUNDS; i++)
        if (job->round[i].have > 0 && job->round[i].deadline < next)
            next = job->round[i].deadline;
    return next;
}

void job_link_due(struct job *job)
{
    uint64_t now = sl_sim_now(job->sim);
    struct sluice_error error;
    if (job->arbiter != NULL && sl_arbiter_timer(job->arbiter) <= now) {
        sl_arbiter_tick(job->arbiter, now);
        answer(job);
    }
    SL_IGNORE(sl_error_set(&error, SLUICE_TIMEOUT, "control", "not all ranks took part in a round in time"));
    for (uint32_t i = 0; i < JOB_ROUNDS; i++)
        if (job->round[i].have > 0 && job->round[i].deadline <= now)
            end_round(job, &job->round[i], &error, NULL, 0);
}

void job_link_drop(struct job *job)
{
    sl_arbiter_destroy(job->arbiter);
    job->arbiter = NULL;
}
