/*
 * run.h: what the files of the engine share.
 *
 *   engine.c    create, add, events in            grant.c     the order of launches, completions
 *   flow.c      states, votes, ends, failures     note.c      what the arbiter says
 *   action.c    actions out                       deadline.c  what has its time
 *   progress.c, explain.c
 *
 * State of a run, and what leads from one to the next:
 *
 *   FREE        -> WINDOWS      added
 *   WINDOWS     -> FINAL_VOTE   in place: all windows are done here
 *   WINDOWS     -> STAGED_VOTE  shadow: windows [0, W) are done here
 *   STAGED_VOTE -> GATES        all ranks hold the staged prefix
 *   GATES       -> DECIDE_VOTE  every consumer gate is open here
 *   DECIDE_VOTE -> REST         all ranks agreed: the point of no return
 *   REST        -> COMMIT       windows [W, N) are done; this rank has something to copy
 *   REST        -> FINAL_VOTE   the same, nothing to copy
 *   COMMIT      -> FINAL_VOTE   copied
 *   any         -> ENDED        terminal event; then the buffers are released
 *   ENDED       -> FREE         released
 *
 * Beside the state: `frozen` (the arbiter asked how far we are, launch nothing), `paused`, `halt` (run to
 * `halt_at`, then end). A failure that leaves the communicator whole asks the arbiter (sl_fail_soft); one
 * that does not ends the run here at once and tells (sl_fail_hard). A group that failed because a peer left it
 * (`deserted`) is the consequence of something that the arbiter hears from others: its word is awaited for a
 * while, so that every rank names the cause and not its neighbour.
 */
#ifndef SL_ENGINE_RUN_H
#define SL_ENGINE_RUN_H

#include "runtime/base/pace.h"
#include "runtime/engine/engine.h"

enum run_state {
    RUN_FREE = 0,
    RUN_WINDOWS,
    RUN_STAGED_VOTE,
    RUN_GATES,
    RUN_DECIDE_VOTE,
    RUN_REST,
    RUN_COMMIT,
    RUN_FINAL_VOTE,
    RUN_ENDED,
    RUN_STATES
};

enum { READY_HOLD_NS = 200000 };

/* Windows below `limit` may launch; grants of all runs launch in the order of their numbers. */
struct grant {
    uint64_t number;
    uint32_t limit;
};

struct run {
    struct sl_run_config config;
    enum run_state state;

    uint32_t *closed;         /* per window: closed gates that it is the first to need */
    uint32_t gates_closed;    /* sum of `closed` */
    uint32_t turns_closed;    /* of `gates_closed`: an earlier run must end */
    uint32_t words_closed;    /* of `gates_closed`: the ranks must agree */
    uint32_t consumer_closed; /* shadow: closed consumer gates, which hold the decision */
    uint32_t ready;           /* leading windows with all gates open */
    uint32_t told_ready;
    uint64_t told_ready_ns; /* 0: never */

    struct grant *grants; /* ring of `windows` entries, not launched yet */
    uint32_t grant_first, grant_count;
    uint32_t granted;
    uint64_t unready;      /* from the last grant: ranks that held it back, and one of them */
    uint32_t unready_rank; /* valid with unready > 0 */
    struct sl_pace pace;   /* world of one */

    uint32_t launched;
    uint32_t done;    /* leading windows that are done */
    uint8_t *pending; /* by window modulo slots: flags of nodes in flight */
    uint32_t running; /* windows with nodes in flight */
    uint32_t nodes;   /* in flight, the commit too */
    uint32_t groups;  /* of them on the communicator */

    _Bool committing; /* the commit copy is in flight */
    _Bool commit_begun;
    uint8_t voted, seen; /* phases voted OK, outcomes OK; bit (1 << phase) */

    _Bool frozen, paused, decided;
    uint64_t freeze; /* number of the FREEZE to answer */
    enum sl_request halt;
    uint32_t halt_at;

    /* To tell and to emit; sl_engine_next clears them. */
    _Bool tell_join, tell_standing, tell_launched, tell_failed, tell_released;
    _Bool tell_pause, want_pause, tell_cancel, tell_fail, tell_pace;
    uint64_t want_pace;
    enum sl_phase tell_vote; /* 0: none */
    _Bool emit_started, started, emit_staged, emit_end, emit_released, want_commit;
    uint32_t windows_told;

    enum sluice_event_kind end;
    struct sluice_error error; /* of a soft failure that was asked for, then of the end */
    struct sluice_error cause; /* of a hard failure, as it is told */
    _Bool failing;             /* asked for a soft failure */
    _Bool deserted;            /* a peer left a group of it; the arbiter will say why */
    _Bool told_released;
    _Bool all_released; /* so the arbiter said */
    _Bool released;     /* the buffers are free: RELEASED and RELEASE follow */
    _Bool stuck;        /* an abort failed: RELEASE without RELEASED */

    uint64_t submit_ns, turn_ns, start_ns, staged_ns, decided_ns, committed_ns, end_ns;
    uint64_t alive_ns;     /* last launch or completion */
    uint64_t answer_by_ns; /* the arbiter must have answered a request; UINT64_MAX: none */
    uint64_t mark_ns;      /* waiting times are accounted up to here */
    struct sluice_stage_times stages;
};

enum abort_state { ABORT_NONE = 0, ABORT_WANTED, ABORT_SENT };

struct sl_engine {
    struct sl_mem *mem;
    uint32_t rank, world, runs_max;
    struct run *runs;
    uint32_t used; /* runs[used..] were never taken */
    uint64_t now;
    uint32_t running; /* windows with nodes in flight, over all runs */
    uint32_t nodes, groups;
    uint64_t stray;
    uint64_t self_grants; /* world of one: number of the last grant */
    enum abort_state abort;
    struct sluice_error over; /* status != OK: no run may start any more */
    struct sluice_error abort_cause;
    struct sluice_error desertion; /* status != OK: a peer left a group; then why, once that is known */
    uint64_t desertion_by_ns;      /* by when the reason must be known */
    _Bool poisoned, emit_poison, tell_broken, told_broken;
    uint32_t arbiter;     /* its rank */
    _Bool tell_standings; /* that the last standing was told */
    _Bool orphan;         /* the arbiter is gone */
    _Bool dirty;          /* an answer to ourselves changed something: look again */
};

static inline uint32_t sl_run_index(const struct sl_engine *engine, const struct run *run)
{
    return (uint32_t)(run - engine->runs);
}

/* Windows that this part of the run moves: with shadow landing the staged prefix until the decision. */
static inline uint32_t sl_run_goal(const struct run *run)
{
    return run->config.shadow && !run->decided ? run->config.staged : run->config.windows;
}

static inline uint32_t sl_run_ready(const struct run *run)
{
    uint32_t goal = sl_run_goal(run);
    return run->ready < goal ? run->ready : goal;
}

/* Staged whole and decided: this rank finishes without any other. */
static inline _Bool sl_run_independent(const struct run *run)
{
    return run->decided && run->config.staged == run->config.windows;
}

static inline _Bool sl_run_live(const struct run *run)
{
    return run->state != RUN_FREE && run->state != RUN_ENDED;
}

static inline uint64_t sl_later(uint64_t time, uint64_t span)
{
    return span > UINT64_MAX - time ? UINT64_MAX : time + span;
}

/* engine.c: frees what the run holds. */
void sl_run_release(struct sl_engine *engine, struct run *run);

/* flow.c */
void sl_run_enter(struct run *run, enum run_state state);
/* Moves the run on as far as it goes; after every change. */
void sl_run_advance(struct sl_engine *engine, struct run *run);
/* Every byte of the version is in place here. */
void sl_run_committed(struct sl_engine *engine, struct run *run);
void sl_run_gate_opened(struct run *run, uint32_t index, uint64_t now);
/* Ends the run with a terminal event; once. `cause` for all but success. */
void sl_run_end(struct sl_engine *engine, struct run *run, enum sluice_event_kind end,
                const struct sluice_error *cause);
/* The run cannot go on, the communicator is whole: asks the arbiter to stop it everywhere. */
void sl_fail_soft(struct sl_engine *engine, struct run *run, const struct sluice_error *cause);
/* The run cannot go on and others may wait for it: ends it at once, tells, aborts what cannot finish. */
void sl_fail_hard(struct sl_engine *engine, struct run *run, const struct sluice_error *cause);
/* The arbiter says that the run failed: as above, nothing to tell. */
void sl_fail_told(struct sl_engine *engine, struct run *run, const struct sluice_error *cause);
/* No completion for too long: as sl_fail_hard, and aborts copies too. */
void sl_run_stalled(struct sl_engine *engine, struct run *run, const struct sluice_error *cause);
/* A group of the run failed because a peer left it: waits for the reason. */
void sl_run_desert(struct sl_engine *engine, struct run *run, const struct sluice_error *cause);
/* After every event: a communicator that a peer left is given up once no run waits for the reason. */
void sl_engine_desert(struct sl_engine *engine);
/* The communicator is gone: every run that needs it fails, no other may start. */
void sl_engine_break(struct sl_engine *engine, const struct sluice_error *cause);
/* No run may start any more; says POISON once nothing is on the communicator. */
void sl_engine_poison(struct sl_engine *engine, const struct sluice_error *cause);
void sl_engine_aborted(struct sl_engine *engine, const struct sluice_error *error);
/* Adds the time since the last look to the waits of the run. */
void sl_run_account(struct run *run, uint64_t now);

/* grant.c */
void sl_run_grant(struct run *run, uint32_t limit, uint64_t number);
void sl_run_truncate(struct run *run, uint32_t limit);
_Bool sl_engine_launch(struct sl_engine *engine, struct sl_action *ret);
void sl_run_done(struct sl_engine *engine, struct run *run, const struct sl_engine_event *event);
void sl_run_commit(struct sl_engine *engine, struct run *run);

/* note.c */
void sl_engine_note(struct sl_engine *engine, const struct sl_note *note);
/* The arbiter is gone and will not answer: ends all runs, or one, as far as this rank can know how. */
void sl_engine_alone(struct sl_engine *engine, const struct sluice_error *cause);
void sl_engine_orphaned(struct sl_engine *engine, struct run *run);
/* A world of one: answers what would have gone to the arbiter. */
void sl_engine_answer(struct sl_engine *engine, struct run *run, const struct sl_note *note);
/* A world of one: something is ready that is not granted. */
_Bool sl_run_self_grants(const struct run *run);
/* A world of one: grants what is ready, at the pace. */
void sl_run_self_grant(struct sl_engine *engine, struct run *run);

/* deadline.c */
void sl_engine_deadlines(struct sl_engine *engine);
uint64_t sl_run_timer(const struct sl_engine *engine, const struct run *run);

/* explain.c: "window 5 of 40 is running here" and its like, for errors; returns as snprintf. */
size_t sl_run_words(const struct run *run, char *data, size_t bytes);
/* "window 5 of 40 waits for the source gate of 'x' and 2 more; granted 5" */
size_t sl_run_gate_words(const struct run *run, char *data, size_t bytes);
/* What a failure means for the destination: "; windows 0-4 done, 5-6 unknown, 7-39 untouched". */
size_t sl_run_damage(const struct run *run, char *data, size_t bytes);

#endif
