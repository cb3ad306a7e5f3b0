/*
 * sealed.h: a sealed plan on one rank: schedule, staging, copy sets and message tables per window.
 *
 * - Made by the seal (seal_drive.c), on the scheduler thread; belongs to it until it is dropped there.
 * - Everything that a run needs is built here, so that nothing is allocated between launch and completion.
 * - Slot k mod S belongs to window k and to queue k mod S alone.
 */
#ifndef SL_CORE_SEALED_H
#define SL_CORE_SEALED_H

#include "runtime/control/seal.h"
#include "runtime/core/driver.h"
#include "runtime/core/plan_object.h"
#include "scheduler/schedule.h"

/* What one window submits, for one landing. Sets are NULL where there is nothing to do. */
struct sl_window_ops {
    struct sluice_set *pack, *unpack, *local;
    const struct sluice_message *messages;
    uint32_t message_count;
    uint32_t shared_pack; /* 1: `pack` belongs to the in_place table */
};

/* A destination parameter of this rank and the last window that brings it. */
struct sl_arrival {
    uint32_t window;
    uint32_t param;
};

/*
 * What runs submit: all parameters (`full` of a sealed plan), or those of one transfer. Windows and slots
 * are the full plan's; a message has the pieces of its parameters that are there, and none has no message.
 */
struct sl_view {
    const uint64_t *params; /* bitmap; NULL: all */
    size_t words;
    struct sl_window_ops *in_place; /* rule.windows of them */
    struct sl_window_ops *landed;   /* `staged` of them: into shadow; NULL without */
    struct sluice_message *messages;
    struct sluice_message *landed_messages;
    struct sluice_set *commit;
    uint8_t *flags;              /* SL_WINDOW_... per window */
    uint64_t *window_bytes;      /* sent, received and copied */
    uint64_t bytes;              /* their sum */
    uint64_t landing_bytes;      /* that arrive in the staged windows: what a commit copies */
    struct sl_arrival *arrivals; /* sorted by window */
    uint32_t arrival_count;
};

/* Where the destination pieces of a window go. */
struct sl_landing {
    const uint8_t *shadow; /* NULL: in place */
    uint64_t offset;
};

/* What buffers of this rank are known to hold (agree.h); NULL as long as nobody asks. */
struct sl_contents {
    uint64_t *digest; /* by parameter: of the source buffer when its content last arrived everywhere */
    uint8_t *known;   /* 2 * param + role; source: `digest` is of the version; destination: holds the version */
};

enum sl_seal_stage {
    SL_STAGE_QUEUED = 0,
    SL_STAGE_TERMS = 1, /* a round of seal.h is under way */
    SL_STAGE_READY = 2, /* everything is built; the ranks exchange addresses, or why not */
    SL_STAGE_GROUP = 3, /* the communicator is opening */
    SL_STAGE_OPENED = 4 /* the ranks tell each other that it is open */
};

/* A seal in progress. */
struct sl_sealing {
    struct sl_mem *mem;
    struct sl_seal *seal; /* NULL when the rank cannot take part */
    enum sl_seal_stage stage;
    uint32_t step; /* rounds given so far */
    uint32_t *window_of_task;
    uint64_t timeout_ns;
    uint64_t deadline;
    _Bool aborted;               /* the opening of the communicator */
    _Bool silent;                /* the caller has the failure already: no event */
    struct sluice_error failure; /* of this rank, to be told in the next round */
};

struct sl_sealed {
    struct sl_sealed *next; /* of driver->seals */
    atomic_uint references; /* the driver's and the transfers': of the tables */
    struct sl_driver *driver;
    struct sluice_plan *plan; /* a reference while this exists */
    struct sluice_runtime *runtime;
    struct sl_sealed *next_seal;  /* of driver->seal_head */
    struct sl_sealing *sealing;   /* NULL once it has ended */
    struct sl_order begin;        /* the seal begins */
    struct sl_order orphan;       /* no handle and no transfer of the plan is left */
    _Bool orphaned;               /* that order has come; scheduler thread */
    _Bool dropped;                /* nothing of it is left on the device; scheduler thread */
    uint32_t number;              /* alike on all ranks */
    uint32_t next_run;            /* under the plan's lock */
    uint64_t last_version;        /* submitted; under the plan's lock */
    uint32_t live;                /* transfers submitted and not released; under the plan's lock */
    struct sluice_transfer *last; /* newest live one; scheduler thread */
    uint32_t direct;              /* of the live ones, in a stream of the caller; under the plan's lock */

    /* Points at the end of the newest run's work in every queue, for streams of the caller to wait for. */
    struct sluice_point *tail[SL_LANES]; /* closed under the plan's lock; NULL: the backend has no points */
    atomic_uint tail_run;                /* number of the run that they belong to, plus one */

    struct sl_half half;
    struct sl_schedule schedule;
    _Bool half_built, schedule_built;
    uint32_t staged; /* W */
    uint32_t slots;
    enum sluice_memory shadow_memory_kind;
    uint8_t *slot_send[SL_SLOTS_MAX];
    uint8_t *slot_recv[SL_SLOTS_MAX];
    uint64_t staging_bytes; /* counted in the driver's total */
    uint64_t peak_bytes;    /* most that a window moves: the busier direction and local copies */
    uint8_t *shadow;
    uint64_t shadow_bytes;
    uint64_t *shadow_base; /* staged + 1 offsets */

    struct sl_view full;
    struct sluice_copy *scratch; /* pieces of one set while building */
    size_t scratch_count;

    uint32_t *first[2]; /* by role, per parameter */
    uint8_t *dirty;     /* 2 * param + role: rebound since the sets were built; NULL: none ever */
    _Bool any_dirty;
    struct sl_contents contents;
};

/* --- sealed.c: on the scheduler thread --- */
/* Builds everything from half, rule and bindings. NOMEM, LIMIT (names sizes and option), DEVICE. */
sluice_status sl_sealed_build(struct sl_sealed *sealed, const struct sl_seal_result *agreed,
                              const uint32_t *window_of_task);
/* Rebuilds the sets of parameters that were rebound. Before a run; NOMEM, DEVICE. */
sluice_status sl_sealed_refresh(struct sl_sealed *sealed);
/* Gives back all of the device and unlinks it; nothing of it is in flight. Tables live on with transfers. */
void sl_sealed_drop(struct sl_sealed *sealed);
/* Any thread. */
void sl_sealed_keep(struct sl_sealed *sealed);
void sl_sealed_release(struct sl_sealed *sealed);

/* --- sealed_view.c --- */
/* Tables of a view, flags, bytes and arrivals; pure. `params` outlives it. NOMEM. Drop it in any case. */
sluice_status sl_view_open(const struct sl_sealed *sealed, const uint64_t *params, size_t words, struct sl_view *ret);
void sl_view_drop(const struct sl_sealed *sealed, struct sl_view *view);
_Bool sl_view_has(const struct sl_view *view, uint32_t param);
/* Bytes on the wire of what the view has of a message; 0: it is not sent. */
uint64_t sl_view_message_bytes(const struct sl_sealed *sealed, const struct sl_view *view,
                               const struct sl_message *message);
/* All sets of a view, on the scheduler thread. NOMEM, DEVICE. */
sluice_status sl_view_build(struct sl_sealed *sealed, struct sl_view *view);
/* Room for the copies of one set while sets are built. */
sluice_status sl_sealed_scratch(struct sl_sealed *sealed);
void sl_sealed_scratch_drop(struct sl_sealed *sealed);
uint32_t sl_piece_param(const struct sl_sealed *sealed, const struct sl_piece *piece);

/* --- sealed_sets.c: windows to copy sets and messages, on the scheduler thread --- */
/* One window, both landings; old sets are closed first. */
sluice_status sl_view_build_window(struct sl_sealed *sealed, struct sl_view *view, uint32_t window);
sluice_status sl_view_build_commit(struct sl_sealed *sealed, struct sl_view *view);
void sl_view_close_sets(const struct sl_sealed *sealed, struct sl_view *view);
_Bool sl_sealed_window_dirty(const struct sl_sealed *sealed, uint32_t window);
/* User memory of the piece is such that a group moves it (table's is_direct). */
_Bool sl_sealed_is_direct(const struct sl_sealed *sealed, const struct sl_piece *piece, _Bool receive);
/* Where pieces are read and where they land; a view's destination pieces must be asked for in their order. */
struct sluice_strided sl_sealed_source(const struct sl_sealed *sealed, const struct sl_piece *piece);
struct sl_landing sl_sealed_landing(const struct sl_sealed *sealed, uint32_t window, _Bool landed);
struct sluice_strided sl_sealed_destination(const struct sl_sealed *sealed, const struct sl_piece *piece,
                                            struct sl_landing *landing);
/* Bytes of shadow memory that windows [0, staged) need; fills shadow_base. */
uint64_t sl_sealed_place_shadow(struct sl_sealed *sealed);

/* --- bindings.c: any thread, pure --- */
/* Every task of the half has a buffer that holds it; destinations overlap nothing. PLAN names both. */
sluice_status sl_bindings_check(const struct sluice_plan *plan, const struct sl_half *half);
/* The same for one buffer against all others. */
sluice_status sl_bindings_check_one(const struct sluice_plan *plan, const struct sl_half *half, uint32_t param,
                                    enum sluice_role role, const void *memory, uint64_t bytes);

/* --- seal_rounds.c --- */
enum sl_round_kind { SL_ROUND_TERMS = 1, SL_ROUND_READY = 2, SL_ROUND_OPENED = 3 };

/* The part of READY and OPENED: a failure's text, or this rank's address where a communicator is to be opened. */
struct sl_ready_part {
    int32_t status;
    uint32_t bytes;
    uint8_t data[SLUICE_ERROR_TEXT_MAX];
};
_Static_assert(SLUICE_ERROR_TEXT_MAX >= SLUICE_BLOB_MAX, "an address fits a part");

/* Rank 0: all parts one after the other, or the first failure with its rank in front. */
sluice_status sl_ready_reduce(const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem, uint8_t **ret_data,
                              size_t *ret_bytes, struct sluice_error *error);
void sl_ready_fill(const struct sluice_error *failure, const struct sluice_blob *blob, struct sl_ready_part *ret);
/* The addresses of all ranks out of the result; PROTOCOL. Free with sl_free. */
sluice_status sl_ready_blobs(const uint8_t *data, size_t bytes, uint32_t world, struct sl_mem *mem,
                             struct sluice_blob **ret);

/* --- seal_drive.c, plan_seal.c --- */
/* The last handle of a plan went: the sealed part follows on the scheduler thread. Any thread. */
void sl_sealed_orphan(struct sluice_plan *plan);
sluice_status sl_sealed_rebind(struct sluice_plan *plan, uint32_t param, enum sluice_role role, void *memory,
                               uint64_t bytes);
void sl_seal_begin_order(struct sl_driver *driver, struct sl_order *order);
void sl_seal_orphan_order(struct sl_driver *driver, struct sl_order *order);
/* The end of a round, on the scheduler thread. `error` NULL: success. */
void sl_seal_round_ended(struct sl_driver *driver, uint32_t kind, uint64_t id, const struct sluice_error *error,
                         const uint8_t *data, size_t bytes);
/* Starts the next seal and looks at deadlines; true when anything moved. */
_Bool sl_seal_advance(struct sl_driver *driver);
/* Its deadline; UINT64_MAX: none. */
uint64_t sl_seal_timer(const struct sl_driver *driver);
/* A rank is gone: a communicator that is opening will never be complete. */
void sl_seal_lost(struct sl_driver *driver, const struct sluice_error *error);
/* Another rank cannot open the communicator: this one need not wait for it. */
void sl_seal_heard(struct sl_driver *driver, const struct sl_note *note);
/* The end of group_open. */
void sl_seal_group_opened(struct sl_driver *driver, const struct sluice_completion *completion);
/*
 * Fails all seals in progress with `error`; those that only tell the other ranks of a failure here
 * (silent) go on unless `silent_too`.
 */
void sl_seal_fail_all(struct sl_driver *driver, const struct sluice_error *error, _Bool silent_too);

#endif
