/*
 * driver.h: everything that a scheduler thread owns: engine, backend device, queues, gates, seals, runs.
 *
 * - One driver per runtime. All of it belongs to the thread that calls sl_driver_step; other threads
 *   reach it through sl_driver_post alone. It never reads a clock, sleeps, or touches a socket itself:
 *   time comes in with `step`, the control plane is the table `struct sl_link`. So the same driver runs
 *   on a thread (scheduler_thread.c) or inside a simulation of many ranks.
 * - Orders are intrusive: whoever posts one keeps it alive until its `act` has run.
 */
#ifndef SL_CORE_DRIVER_H
#define SL_CORE_DRIVER_H

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/memory.h"
#include "runtime/core/notices.h"
#include "runtime/core/trace.h"
#include "runtime/engine/engine.h"
#include "runtime/loop/delivery.h"
#include "sluice/backend.h"

struct sl_driver;

struct sl_sealed;

/* A message to the driver. */
struct sl_order {
    struct sl_mail mail;
    void (*act)(struct sl_driver *driver, struct sl_order *order);
};

/* The control plane as the driver sees it. */
struct sl_link {
    void *context;
    sluice_status (*tell)(void *context, const struct sl_note *note);
    sluice_status (*round)(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                           uint64_t timeout_ns);
};

struct sl_driver_config {
    struct sl_mem *mem;
    uint32_t rank, world;
    uint32_t transfers_max;
    uint32_t events_max; /* undelivered ones before a warning */
    uint64_t staging_bytes_max;
    uint64_t stall_timeout_ns;
    uint64_t abort_timeout_ns;
    const struct sluice_backend_ops *ops;
    struct sluice_backend_config backend; /* wake and wake_context are set by the driver */
    struct sl_link link;                  /* world > 1 */
    const struct sl_log *log;
    struct sl_delivery *delivery;
    struct sl_notices *notices;
    struct sl_trace *trace; /* NULL: not traced */
};

#define SL_SLOTS_MAX  8u
#define SL_LANE_LOCAL SL_SLOTS_MAX /* the queue of local copies and commits */
#define SL_LANES      (SL_SLOTS_MAX + 1u)

/* A window (or commit) whose operations are being handed to the backend. */
struct sl_launch {
    struct sluice_transfer *transfer;
    uint32_t window;
    uint32_t step; /* enum in launch.c */
    uint32_t lane; /* STEP_TAIL: the next queue */
    _Bool last;    /* of its run on this rank */
    _Bool absent;  /* a commit that has nothing to copy: its end is still to be told */
};

enum sl_group_state { SL_GROUP_NONE = 0, SL_GROUP_OPENING = 1, SL_GROUP_OPEN = 2 };

struct sl_driver {
    struct sl_driver_config config;
    struct sluice_device *device;
    struct sluice_backend_info info;
    struct sl_engine *engine;
    struct sl_mailbox box;
    uint64_t now; /* of the running step */

    /* launches: a ring in launch order; the head waits when the backend says AGAIN */
    struct sluice_queue *lanes[SL_LANES];
    struct sl_launch *launches;
    uint32_t launch_capacity, launch_head, launch_count;
    uint32_t in_flight; /* operations whose completion is to come */
    uint32_t marker;    /* of the last recorded group */
    uint32_t marker_lane;
    uint32_t markers; /* in rotation */

    /* the communicator of this runtime's plans */
    struct sluice_group *group;
    enum sl_group_state group_state;
    _Atomic(void *) lent; /* a communicator of the caller, set before the first seal; NULL: ours */
    struct sluice_error group_error;

    struct sluice_transfer **runs; /* by the engine's index */
    uint32_t run_count;            /* live */
    _Bool turn_came;               /* of a run that waited for an earlier one of its plan */
    _Bool touched;                 /* progress is to be published */

    uint32_t agreeing;                 /* transfers that agree on more than the engine does (agree.h) */
    _Bool chores;                      /* one of them may have something to do */
    struct sluice_transfer *digesting; /* whose sources are being read; NULL: nobody's */
    _Bool digests_flying;              /* the backend has that operation */

    struct sluice_transfer *leaving; /* ended, and wait for operations that complete no node */
    struct sluice_transfer *stuck;   /* over, but the device may still use their tables */
    struct sluice_gate *polled;      /* gates of kind value and query that a run waits for */
    uint64_t gate_poll_at;

    struct sl_sealed *seals;     /* all plans sealed or being sealed here */
    uint32_t seal_count;         /* started so far: numbers the plans alike on all ranks */
    struct sl_sealed *seal_head; /* in progress, one after the other; alike on all ranks */
    struct sl_sealed *seal_tail;
    uint32_t sealing; /* how many */

    atomic_bool missed; /* a word of the other ranks was lost for want of memory */
    _Bool tell_failed;  /* the control plane took no note */
    struct sluice_error tell_error;
    _Bool aborting;
    uint64_t abort_at; /* deadline */
    _Bool closing;
    uint32_t close_stage;
    uint64_t close_at;
    _Bool finished;  /* nothing lives any more; the thread may end */
    _Bool abandoned; /* the device was left open: it and the mailbox that it wakes must never be freed */
    /* Why no run can start any more. The errors are written once, before their flags. */
    atomic_bool poisoned, lost;
    struct sluice_error poison_error, lost_error;

    uint64_t stall_since; /* undelivered events wait since; UINT64_MAX: none */
    uint64_t stall_delivered;
    _Bool stall_warned;
};

/* Opens the device and the engine. On the scheduler thread. UNSUPPORTED, DEVICE, NOMEM, SYSTEM. */
sluice_status sl_driver_open(struct sl_driver *driver, const struct sl_driver_config *config);
/* After `finished`, or after a failed step of the opening; closes device, engine and mailbox. */
void sl_driver_close(struct sl_driver *driver);

/* Takes an order. Any thread. */
void sl_driver_post(struct sl_driver *driver, struct sl_order *order);
/* An order could not be made: what this rank waits for may never come. Any thread. */
void sl_driver_missed(struct sl_driver *driver);
/*
 * Does all that can be done at `now` and returns when it wants to be called again: `now` (at once), a
 * time, or UINT64_MAX (when the mailbox's descriptor becomes readable).
 */
uint64_t sl_driver_step(struct sl_driver *driver, uint64_t now);
/* Asks the backend to wake the mailbox at its next completion; false: poll again at once. */
_Bool sl_driver_arm(struct sl_driver *driver);
/* Starts the end: cancels runs, fails seals; `finished` is set by a later step. */
void sl_driver_begin_close(struct sl_driver *driver);

/* --- launch.c --- */
void sl_launch_window(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window);
void sl_launch_commit(struct sl_driver *driver, struct sluice_transfer *transfer);
/* The digests of the sources of driver->digesting. */
void sl_launch_sources(struct sl_driver *driver, struct sluice_transfer *transfer);
/* Hands operations to the backend as far as it takes them; true when any was taken. */
_Bool sl_launch_advance(struct sl_driver *driver);
/* Polls completions and passes them on; true when any came. */
_Bool sl_launch_collect(struct sl_driver *driver);
/* Forgets what was not handed over yet. */
void sl_launch_forget(struct sl_driver *driver);
/* Opens queues so that `slots` lanes and the local one exist. LIMIT, NOMEM, DEVICE. */
sluice_status sl_launch_lanes(struct sl_driver *driver, uint32_t slots);
#define SL_COOKIE_GROUP_OPEN (UINT64_C(1) << 63)
/* With the address of a transfer: one of its operations that completes no node. */
#define SL_COOKIE_PART (UINT64_C(1) << 62)

/* --- for the parts of the driver --- */
/* Something on the device or transport failed outside of an operation: tells the engine. */
void sl_driver_broken(struct sl_driver *driver, const struct sluice_error *error);
/* A rank of this runtime was lost. */
void sl_driver_lost(struct sl_driver *driver, const struct sluice_error *error);
void sl_driver_poison(struct sl_driver *driver, const struct sluice_error *error);
void sl_driver_engine_event(struct sl_driver *driver, struct sl_engine_event event);
/* Carries out what the engine wants; after add_run and every event. */
void sl_driver_engine_drain(struct sl_driver *driver);

#endif
