/*
 * transfer_object.h: what a sluice_transfer handle is.
 *
 * Invariants: everything that a run needs is allocated by submit; fields are written by the scheduler
 * thread alone unless they say otherwise; the engine's run is live from `run != SL_NO_RUN` to its
 * RELEASE; events are pushed by the scheduler thread and pulled by the delivery's consumer.
 */
#ifndef SL_CORE_TRANSFER_OBJECT_H
#define SL_CORE_TRANSFER_OBJECT_H

#include "runtime/core/agree.h"
#include "runtime/core/checks.h"
#include "runtime/core/gates.h"
#include "runtime/core/sealed.h"

#define SL_NO_RUN UINT32_MAX

/* STARTED, STAGED, the terminal event and RELEASED are all there can be. */
enum { SL_TRANSFER_EVENTS = 8 };

struct sl_transfer_event {
    uint32_t kind;
    uint32_t windows; /* done before it: their events come first */
    uint64_t time_ns;
};

enum { SL_PROGRESS_WORDS = sizeof(struct sluice_progress) / sizeof(uint64_t) + 1 };

/* A snapshot that readers retry while it is written; the last word is its time. */
struct sl_snapshot {
    atomic_uint_fast32_t sequence;
    atomic_uint_fast64_t words[SL_PROGRESS_WORDS];
};

/* What the application asked for since the scheduler thread looked last. */
enum { SL_ASKED_CANCEL = 1, SL_ASKED_PAUSE = 2, SL_ASKED_RESUME = 4, SL_ASKED_PACE = 8 };

/* The engine's nodes, and one of the driver's own: the digests of the sources. */
enum { SL_NODE_SOURCES = SL_NODE_VERIFY + 1, SL_NODES = SL_NODE_SOURCES + 1 };

struct sluice_transfer {
    struct sl_source source; /* first: the delivery hands this back */
    atomic_uint references;
    struct sluice_runtime *runtime;
    struct sluice_plan *plan; /* a user of it */
    struct sl_sealed *sealed;
    struct sl_view *view; /* &sealed->full, or &part */
    struct sl_view part;  /* of a partial transfer */
    uint64_t *params;     /* our copy of the bitmap; NULL: all */

    _Bool verify, changed_only, resume;
    uint32_t resume_windows;   /* resume: the first windows that this rank has */
    uint32_t skipped;          /* resume: those that all ranks have, once that is known */
    uint64_t bytes_again;      /* resume: of windows that this rank has and others do not */
    uint64_t *moved;           /* changed_only: the bitmap of what changed, once that is known */
    struct sl_view moved_part; /* of it */
    uint8_t *flags;            /* config.window_flags where they are not the view's */
    struct sl_checks *checks;  /* verify */
    struct sl_agree agree;
    uint32_t parts;                  /* operations on the device that complete no node */
    uint32_t launches;               /* that are not handed over yet */
    struct sluice_error part_error;  /* of the first of them that failed */
    _Bool leaving, leaving_released; /* it is over but for those, or for the digests of its sources */
    uint64_t leave_by;

    struct sl_order submit;
    struct sl_order ask;
    atomic_uint asked;
    atomic_bool ask_posted;
    atomic_uint_fast64_t asked_pace;

    struct sl_run_config config;
    struct sl_run_gate *gates;  /* config.gates */
    struct sl_gate_wait *waits; /* one per gate; the last is the plan's turn (`gate` NULL) */
    char *gate_names;
    uint32_t number;  /* of the run in its plan */
    uint32_t landing; /* enum sluice_landing */
    uint32_t run;     /* the engine's index, or SL_NO_RUN */
    _Bool window_events, param_events;
    _Bool told_released;
    /* Runs in a stream of the caller: the point behind its copies there. The transfer only waits for it. */
    struct sluice_point *after;
    struct sluice_transfer *leader;   /* the plan's earlier run that this one waits for; NULL: none */
    struct sluice_transfer *follower; /* the one that waits for this run */
    _Bool turn_came;
    struct sluice_transfer *next; /* driver.leaving, driver.stuck */

    uint64_t submitted_ns;
    uint64_t first_launch_ns; /* 0: none yet */
    uint64_t gate_begin_ns;   /* trace: since when the next window waits */
    uint64_t node_begin[SL_SLOTS_MAX][SL_NODES];

    uint8_t *window_done;
    uint64_t *window_time;        /* NULL without window and parameter events */
    atomic_uint_fast32_t windows; /* [0, windows) are done */
    uint32_t arrived;             /* parameters */
    uint64_t bytes_done, bytes_total;
    struct sl_snapshot snapshot;

    struct sl_transfer_event events[SL_TRANSFER_EVENTS];
    atomic_uint_fast32_t event_tail;
    uint32_t event_head;       /* consumer */
    uint32_t window_cursor;    /* consumer: events of windows below are delivered */
    uint32_t arrival_cursor;   /* consumer */
    struct sluice_error error; /* final once `ended` is set */
    atomic_uint ended;         /* the terminal event's kind; 0 before */
    atomic_bool over;          /* nothing of it is left in the driver */
    atomic_bool delivered;     /* its last event was delivered (or there will be none) */
};

void sl_transfer_keep(struct sluice_transfer *transfer);
void sl_transfer_release(struct sluice_transfer *transfer);

/* --- transfer.c --- */
/* sluice_submit; `stream` not NULL: local copies are enqueued in *stream of the caller (direct.c). */
sluice_status sl_submit(struct sluice_plan *plan, const struct sluice_transfer_options *options, void *const *stream,
                        struct sluice_transfer **ret);

/* --- direct.c: with the plan's lock held --- */
/* Whether a run of this plan may go into a stream of the caller now: UNSUPPORTED, INVALID, STATE, AGAIN. */
sluice_status sl_direct_check(const struct sl_sealed *sealed, const struct sluice_transfer_options *options);
/* Enqueues all copies of a prepared run in `stream` and sets `after`. */
sluice_status sl_direct_enqueue(struct sluice_transfer *transfer, void *stream);

/* --- transfer_prepare.c: allocation at submit, any thread --- */
sluice_status sl_transfer_prepare(struct sluice_plan *plan, struct sl_sealed *sealed,
                                  const struct sluice_transfer_options *given, struct sluice_transfer **ret);

/* Lets go of the application's gates. Nobody waits at them any more. */
void sl_transfer_drop_gates(struct sluice_transfer *transfer);

/* --- transfer_drive.c: scheduler thread --- */
void sl_transfer_begin(struct sl_driver *driver, struct sl_order *order);
void sl_transfer_asked(struct sl_driver *driver, struct sl_order *order);
void sl_transfer_action(struct sl_driver *driver, const struct sl_action *action);
void sl_transfer_publish(struct sl_driver *driver, struct sluice_transfer *transfer);
/* Makes the sets of a transfer's own view and digests, once the view is known. NOMEM, DEVICE. */
sluice_status sl_transfer_tables(struct sluice_transfer *transfer);
/* Transfers that were never released, once the device has given everything back after all. */
void sl_transfer_free_stuck(struct sl_driver *driver);
/* The rest of the end of a transfer some of whose operations were still on the device. */
void sl_transfer_leave(struct sl_driver *driver, struct sluice_transfer *transfer);
/* When the first of those that leave has waited long enough. */
uint64_t sl_transfer_leave_timer(const struct sl_driver *driver);
/* One that is late at `now` goes without RELEASED; false: there is none. */
_Bool sl_transfer_leave_late(struct sl_driver *driver, uint64_t now);

/* It has rounds of its own. */
static inline _Bool sl_transfer_agrees(const struct sluice_transfer *transfer)
{
    return transfer->verify || transfer->changed_only || transfer->resume;
}

static inline _Bool sl_transfer_asked_for(const struct sluice_transfer *transfer, uint32_t param)
{
    return transfer->params == NULL || ((transfer->params[param / 64] >> (param % 64)) & 1u);
}

/* --- transfer_events.c --- */
extern const struct sl_source_ops sl_transfer_source_ops;
void sl_transfer_push(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t kind);
void sl_transfer_window_done(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window);

#endif
