/*
 * engine.h: all runs of one rank as a pure step machine: events in, actions out.
 *
 * - No clock, thread, I/O or backend in it; time comes in with events. No allocation after add_run.
 * - The driver (runtime/core/driver.c) turns actions into backend operations and notes, and completions
 *   and notes into events. The same engine runs over every backend, simulation included.
 * - A window launches only when all its gates are open here and the arbiter granted it; windows of a
 *   run launch in order; runs launch in grant order. At most `slots` windows are launched and not done.
 * - Exactly one terminal action per run, then RELEASE, the last.
 */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/control/note.h"
#include "sluice/observe.h"
#include "sluice/transfer.h"

/* What a window has on this rank. */
enum { SL_WINDOW_PACK = 1, SL_WINDOW_GROUP = 2, SL_WINDOW_UNPACK = 4, SL_WINDOW_LOCAL = 8, SL_WINDOW_VERIFY = 32 };

/* A gate as the engine sees it: windows at or after `first_window` need it. */
struct sl_run_gate {
    uint32_t first_window;
    _Bool consumer; /* with shadow landing: holds the decision, not the windows of the staged prefix */
    _Bool open;
    _Bool turn;       /* ours: an earlier run must end first; the gate deadline starts when the last such gate opens */
    _Bool word;       /* ours: the ranks must agree first; it has no deadline, like waiting for the grants of others */
    const char *name; /* for errors and explanations: "source of parameter 'x'"; may be NULL; outlives the run */
};

struct sl_run_config {
    uint64_t key;
    uint32_t windows;
    uint32_t slots;
    const uint8_t *window_flags; /* `windows` bytes; outlives the run; read at the launch of each window */
    uint32_t staged;             /* W: windows [0, W) land in shadow; 0 for in_place */
    _Bool shadow;                /* shadow landing, alike on all ranks; implied by staged > 0 or commit */
    _Bool commit;                /* shadow landing: a commit copy on this rank follows the decision */
    _Bool world_of_one;          /* no arbiter: grants and outcomes are our own */
    struct sl_run_gate *gates;   /* owned by the caller, outlives the run; engine sets `open` */
    uint32_t gate_count;
    uint32_t priority;
    uint64_t pace;         /* bytes per second and rank; 0: none */
    uint64_t window_bytes; /* most bytes that a window moves on this rank (the busier direction); for the pace */
    uint64_t options_digest;
    uint64_t version;
    uint64_t gate_timeout_ns, timeout_ns, stall_timeout_ns; /* UINT64_MAX: none */
    _Bool window_events;
    void *owner; /* comes back in actions */
};

enum sl_engine_event_kind {
    SL_EVENT_GATE = 1,    /* run, index of the gate: it opened (or error) */
    SL_EVENT_NOTE = 2,    /* note from the arbiter */
    SL_EVENT_DONE = 3,    /* run, window, node: the backend finished it (or error) */
    SL_EVENT_REQUEST = 4, /* run, enum sl_request from the application, value */
    SL_EVENT_TIME = 5,    /* a timer passed */
    SL_EVENT_ABORTED = 6, /* the backend's abort has ended: nothing is in flight (or error: POISONED) */
    SL_EVENT_BROKEN = 7,  /* device or transport failed: error */
    /* Nobody answers any more, or we shall not wait for it: error. value 1: whoever may ask for our standing will not be
     * heard, so it is told now. */
    SL_EVENT_ALONE = 8
};

/* VERIFY: the driver's: all ranks have compared the digests of the windows up to this one. */
enum sl_node {
    SL_NODE_PACK = 1,
    SL_NODE_GROUP = 2,
    SL_NODE_UNPACK = 3,
    SL_NODE_LOCAL = 4,
    SL_NODE_COMMIT = 5,
    SL_NODE_VERIFY = 6
};

struct sl_engine_event {
    enum sl_engine_event_kind kind;
    uint32_t run;
    uint32_t index; /* gate, window or request */
    uint32_t node;  /* enum sl_node */
    uint64_t value;
    uint64_t begin_ns, end_ns;        /* DONE: for stage times */
    const struct sluice_error *error; /* NULL: success */
    const struct sl_note *note;
};

enum sl_action_kind {
    SL_ACTION_LAUNCH = 1,  /* run, window: submit its nodes in order (pack, group, unpack; local) */
    SL_ACTION_COMMIT = 2,  /* run: submit the commit copy */
    SL_ACTION_TELL = 3,    /* note, to the arbiter */
    SL_ACTION_EMIT = 4,    /* run, event (enum sluice_event_kind), window, error: to the application */
    SL_ACTION_ABORT = 5,   /* end everything that is in flight; answer with SL_EVENT_ABORTED */
    SL_ACTION_RELEASE = 6, /* run: it is over; the slot may be reused after this. Comes after EMIT of RELEASED, or
                            * without it when an abort failed: then the buffers must never be reused */
    SL_ACTION_POISON = 7   /* error: the communicator is gone, the runtime takes no more work */
};

struct sl_action {
    enum sl_action_kind kind;
    uint32_t run;
    uint32_t window;
    uint32_t event;
    void *owner;
    struct sl_note note;
    struct sluice_error error; /* EMIT of a failure, POISON */
    _Bool holds_version;       /* EMIT of FAILED, shadow landing: the new version is whole in place on this rank */
    /* EMIT of FAILED and CANCELLED: bytes of windows below `whole` are in place, of those from `clean` on nothing is. */
    uint32_t whole, clean;
};

struct sl_engine;
struct sl_engine_config {
    struct sl_mem *mem;
    uint32_t rank, world;
    uint32_t runs_max;
};

struct sl_engine *sl_engine_create(const struct sl_engine_config *config); /* NULL: out of memory */
void sl_engine_destroy(struct sl_engine *engine);
/* AGAIN when runs_max are live; NOMEM; POISONED or PEER_LOST with the reason. `now` starts its deadlines. */
sluice_status sl_engine_add_run(struct sl_engine *engine, const struct sl_run_config *config, uint64_t now,
                                uint32_t *ret_run);
void sl_engine_event(struct sl_engine *engine, const struct sl_engine_event *event, uint64_t now);
/* Takes the next action; false when there is none. After add_run and every event: until there is none. */
_Bool sl_engine_next(struct sl_engine *engine, struct sl_action *ret);
/* When SL_EVENT_TIME is wanted; UINT64_MAX: never. */
uint64_t sl_engine_timer(const struct sl_engine *engine);
/* Nodes in flight: launched and not done. The driver may sleep without a backstop when 0. */
uint32_t sl_engine_in_flight(const struct sl_engine *engine);
/*
 * Since when a run has only had its last nodes in flight, up to a vote or its end: what the application waits for now.
 * The latest such time of all runs; UINT64_MAX: every run has something to launch, or nothing in flight.
 */
uint64_t sl_engine_tail(const struct sl_engine *engine);

/* Completions that no run waited for: after an abort, or sent twice. */
uint64_t sl_engine_stray(const struct sl_engine *engine);

/*
 * Progress and words of a run (progress.c, explain.c). Same thread as events. Progress fills all but
 * the parameters and bytes, which the driver counts. Explain is as snprintf.
 */
void sl_engine_progress(const struct sl_engine *engine, uint32_t index, uint64_t now, struct sluice_progress *ret);
size_t sl_engine_explain(const struct sl_engine *engine, uint32_t index, uint64_t now, char *data, size_t bytes);

#endif
