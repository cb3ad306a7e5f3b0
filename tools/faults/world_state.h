/* world_state.h: what the files of the made-up world share. */
#ifndef SL_FAULTS_WORLD_STATE_H
#define SL_FAULTS_WORLD_STATE_H

#include <stdarg.h>

#include "runtime/base/random.h"
#include "runtime/control/arbiter.h"
#include "runtime/engine/engine.h"
#include "tools/faults/world.h"

enum { RANKS_MAX = 5, RUNS_MAX = 4, WINDOWS_MAX = 12, GATES_MAX = 6, ENTRIES_MAX = 256, STEPS_MAX = 40000 };

struct inbox {
    struct sl_note *notes;
    size_t first, count, capacity;
};

/* A window (or commit) on a rank's queues. */
struct entry {
    uint32_t run; /* of the world */
    uint32_t window;
    uint8_t pending; /* window flags; COMMIT_BIT */
    _Bool hangs;
};
enum { COMMIT_BIT = 16 };

/* One run on one rank. */
struct part {
    struct sl_run_config config;
    uint8_t flags[WINDOWS_MAX];
    struct sl_run_gate gates[GATES_MAX];
    _Bool gate_stuck[GATES_MAX];
    _Bool submitted, refused, started, staged, released, gone;
    uint32_t ends; /* terminal events */
    enum sluice_event_kind end;
    struct sluice_error error;
    uint32_t index; /* in the engine */
    uint32_t launched, windows_told, in_flight, windows_in_flight;
    _Bool committed, commit_begun, rest_begun, decided_vote, final_vote, paused;
};

struct run_spec {
    uint32_t windows, slots, staged;
    _Bool shadow;
    _Bool matched[WINDOWS_MAX];
    uint32_t granted;                 /* by the arbiter, when last told */
    uint32_t granted_at[WINDOWS_MAX]; /* position in the world's order; 0: not granted */
    struct part part[RANKS_MAX];
};

struct rank {
    struct sl_engine *engine;
    _Bool dead, aborting, broken, poisoned;
    struct inbox to_arbiter, from_arbiter;
    struct entry entries[ENTRIES_MAX]; /* in order of launch */
    size_t entry_count;
    uint32_t submit_order[RUNS_MAX], submitted;
    uint32_t last_launch; /* position in the world's order of grants */
};

struct world {
    struct sl_random random;
    struct world_options options;
    struct world_result *result;
    struct sl_mem *mem;
    uint64_t now;
    uint32_t ranks, runs;
    struct run_spec run[RUNS_MAX];
    struct rank rank[RANKS_MAX];
    struct sl_arbiter *arbiter; /* NULL: its rank is lost */
    uint32_t arbiter_rank;
    uint32_t order;      /* windows granted so far, over all runs */
    uint32_t unreported; /* rank + 1 that is dead and not yet reported */
    uint32_t faults_left, pauses_left;
    _Bool failed;
};

uint32_t world_below(struct world *world, uint32_t bound);
_Bool world_chance(struct world *world, uint32_t percent);
void world_trace(struct world *world, uint64_t value);
void world_violated(struct world *world, const char *format, ...) SLUICE_PRINTF(2, 3);

/* world_plan.c: draws runs and gates. */
void world_draw(struct world *world);

/* world_backend.c */
void backend_launch(struct world *world, uint32_t rank, uint32_t run, uint32_t window, uint8_t flags);
/* How many nodes may end now. */
uint32_t backend_candidates(struct world *world, uint32_t rank);
/* Ends the n-th candidate. */
void backend_complete(struct world *world, uint32_t rank, uint32_t n);
void backend_clear(struct world *world, uint32_t rank);

/* world_check.c */
void check_launch(struct world *world, uint32_t rank, uint32_t run, uint32_t window);
void check_commit(struct world *world, uint32_t rank, uint32_t run);
void check_emit(struct world *world, uint32_t rank, uint32_t run, const struct sl_action *action);
void check_release(struct world *world, uint32_t rank, uint32_t run);
void check_end(struct world *world);

/* world_fault.c: a pause, or one of the faults of the options; or nothing. */
void fault_strike(struct world *world, uint32_t rank);
/* The loss of a rank becomes known. */
void fault_report_loss(struct world *world);
void fault_end_abort(struct world *world, uint32_t rank);

/* world.c */
void world_put(struct world *world, struct inbox *inbox, const struct sl_note *note);
void world_drain_arbiter(struct world *world);
void world_request(struct world *world, uint32_t rank, struct part *part, enum sl_request kind);
/* An event for a rank's engine, and everything that follows. */
void world_event(struct world *world, uint32_t rank, const struct sl_engine_event *event);

#endif
