/*
 * arbiter_run.h: what the files of the arbiter share: arbiter.c (entry, queue), ready.c (join, readiness,
 * grants), freeze.c (pause, cancel, soft failure), vote.c (votes, outcomes, losses), takeover.c
 * (after the loss of the last arbiter's rank).
 *
 * State of a run, and what leads from one to the next:
 *
 *   OPEN      -> FREEZING  a request to pause, cancel or fail; windows were granted
 *   OPEN      -> PAUSED    a request to pause; nothing was granted
 *   OPEN      -> STOPPED   a request to cancel or fail; nothing was granted
 *   FREEZING  -> PAUSED    all ranks answered a pause
 *   FREEZING  -> STOPPED   all ranks answered a cancel or a failure
 *   FREEZING, PAUSED -> OPEN   resumed
 *   PAUSED    -> STOPPED   cancelled or failed while paused
 *   any       -> ENDED     the outcome of the run is given: OK, or the first error
 *
 * Grants are given in OPEN only, the outcomes STAGED and DECIDE too. The outcome OK may come in every
 * state but after a STOP_AT for a failure: when all ranks have every byte there is nothing left to stop.
 */
#ifndef SL_CONTROL_ARBITER_RUN_H
#define SL_CONTROL_ARBITER_RUN_H

#include "runtime/base/pace.h"
#include "runtime/control/arbiter.h"

enum arb_state { ARB_OPEN = 1, ARB_FREEZING = 2, ARB_PAUSED = 3, ARB_STOPPED = 4, ARB_ENDED = 5 };

enum { ARB_PHASES = SL_PHASE_RELEASED + 1 };

struct arb_rank {
    uint32_t ready;
    uint32_t launched; /* its answer to the freeze */
    _Bool joined;
    _Bool answered; /* the freeze in progress */
    uint8_t voted;  /* bit (1 << phase) */
};

struct arb_run {
    struct arb_run *next; /* in order of the first JOIN */
    uint64_t key, digest;
    uint64_t landing; /* 0: in place; staged windows + 1 */
    uint32_t windows;
    uint32_t priority;
    struct sl_pace pace;
    enum arb_state state;
    enum sl_request request; /* FREEZING, PAUSED, STOPPED: what for */
    uint32_t granted;
    uint64_t last_grant;           /* its number in the stream; 0: none yet */
    uint32_t ready_min, ready_low; /* the least READY, and how many ranks are there */
    uint32_t freeze;               /* number of the last one */
    uint32_t stop;                 /* most windows launched on a rank, as far as answered */
    uint32_t unjoined;             /* live ranks that have not joined */
    uint32_t unanswered;           /* live ranks that have not answered the freeze */
    uint32_t unvoted[ARB_PHASES];  /* live ranks that have not voted; RELEASED: of those that joined */
    uint8_t given;                 /* outcomes, bit (1 << phase) */
    uint8_t seen;                  /* takeover: outcomes OK that a rank has seen, bit (1 << phase) */
    _Bool undecided;               /* a rank was lost between the decision and its last vote */
    struct sl_note cause;          /* of a failure, then the note that ended the run: for ranks that join late */
    struct arb_rank ranks[];
};

struct sl_arbiter {
    struct sl_mem *mem;
    uint32_t world;
    uint32_t runs, runs_max; /* records, and their limit */
    struct arb_run *first;
    uint64_t now;
    uint64_t grants;      /* number of the last one */
    uint64_t batch, hold; /* grants go out at time `batch`, the next not before `hold` */
    uint32_t host;
    _Bool collecting;      /* takeover: not all live ranks have told their standings */
    _Bool *told;           /* takeover: by rank, its standings are complete */
    _Bool *lost;           /* by rank */
    uint32_t live;         /* ranks not lost */
    struct sl_note over;   /* kind != 0: LOST or POISON; no run can start any more */
    _Bool poisoned;        /* POISON was said */
    struct sl_note *queue; /* notes not taken, a ring */
    size_t queue_max, queue_first, queue_count;
};

static inline _Bool arb_given(const struct arb_run *run, enum sl_phase phase)
{
    return (run->given >> phase) & 1u;
}

/* The whole version was staged before the decision: committing needs no other rank. */
static inline _Bool arb_atomic(const struct arb_run *run)
{
    return run->landing == (uint64_t)run->windows + 1;
}

/* arbiter.c: a new note for all ranks; run may be NULL. */
struct sl_note *arb_push(struct sl_arbiter *arbiter, enum sl_note_kind kind, const struct arb_run *run);
/* arbiter.c: drops the record when every live rank has joined and released the run. */
void arb_drop_if_over(struct sl_arbiter *arbiter, struct arb_run *run);

/* ready.c */
void arb_join(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
void arb_ready(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
_Bool arb_grant(struct sl_arbiter *arbiter, struct sl_note *ret);
uint64_t arb_grant_timer(const struct sl_arbiter *arbiter);
/* Appends the ranks that hold the run back to a text of SL_NOTE_TEXT_MAX bytes. */
void arb_say_unready(const struct arb_run *run, uint32_t world, char *text);

/* freeze.c */
void arb_request(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
void arb_launched(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);

/* vote.c */
void arb_vote(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
void arb_broken(struct sl_arbiter *arbiter, const struct sl_note *note);
/* takeover.c */
void arb_standing(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
/* The run failed at a rank, so it ends in failure unless a rank saw it succeed. */
void arb_set_cause(struct arb_run *run, const struct sl_note *note);
/* The standings of a rank are complete. */
void arb_told(struct sl_arbiter *arbiter, uint32_t rank);
/* Ends all runs once the standings of every live rank are there. */
void arb_take_over(struct sl_arbiter *arbiter);

/* vote.c. Gives the outcomes that are due. */
void arb_decide(struct sl_arbiter *arbiter, struct arb_run *run);
/* When all that joined have released: says so; again for each that joins later. May drop the record. */
void arb_release(struct sl_arbiter *arbiter, struct arb_run *run);
/* A rank that has not joined says that it will not: the run fails, the rank is done with it. */
void arb_decline(struct sl_arbiter *arbiter, struct arb_run *run, const struct sl_note *note);
/* Ends the run with an outcome for everybody; once. */
void arb_end(struct sl_arbiter *arbiter, struct arb_run *run, sluice_status status, uint32_t rank, const char *text);

#endif
