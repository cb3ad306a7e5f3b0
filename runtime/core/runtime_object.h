/*
 * runtime_object.h: what a sluice_runtime handle is.
 *
 * Invariants: the struct lives until the last reference (the caller's, plans', gates', transfers') goes;
 * `driver` belongs to the scheduler thread; orders are taken while not `dead`, and an order that was
 * taken is acted on before the scheduler thread ends.
 */
#ifndef SL_CORE_RUNTIME_OBJECT_H
#define SL_CORE_RUNTIME_OBJECT_H

#include <sys/types.h>

#include "runtime/base/config.h"
#include "runtime/control/control.h"
#include "runtime/core/driver.h"
#include "runtime/core/notices.h"
#include "runtime/core/trace.h"

/*
 * What a simulation or a test gives in place of threads, clock, backend and control plane. Zero means
 * the real thing. With `threadless` the owner calls sl_runtime_step; blocking calls are not for it.
 */
struct sl_runtime_hooks {
    const struct sl_clock *clock;
    const struct sluice_backend_ops *backend;
    void *backend_extra;
    struct sl_link link; /* tell NULL: a control plane of our own */
    /* Used while opening. NULL: who we are comes from options and environment, and this is the first epoch. */
    const struct sl_identity *identity;
    const uint32_t *origin; /* by rank, as in the runtime */
    uint32_t origin_world;
    _Bool threadless;
    const atomic_uint *interrupt; /* opening ends with CANCELLED once it is not 0; NULL: nobody interrupts */
};

/* How a round of a recovery ended; `data` belongs to who waits. */
struct sl_round_end {
    _Bool ended;
    struct sluice_error error;
    uint8_t *data;
    size_t bytes;
};

struct sluice_runtime {
    atomic_uint references;
    struct sl_mem *mem;
    pid_t pid;
    struct sl_identity identity;
    struct sl_config settings;
    struct sluice_runtime_options options; /* every zero filled in */
    struct sl_runtime_hooks hooks;
    struct sl_log log;
    const struct sl_clock *clock;
    char *environment; /* variables that change NCCL, compared by the seal; NULL: none */

    struct sl_delivery delivery;
    struct sl_notices notices;
    struct sl_trace trace;
    struct sl_control *control; /* NULL in a world of one and with hooks.link */
    struct sl_driver_config driver_config;
    struct sl_driver driver;

    pthread_t thread;
    _Bool thread_started;
    pthread_mutex_t lock; /* dead, the opening's outcome */
    pthread_cond_t opened_changed;
    _Bool opened;
    struct sluice_error open_error;
    _Bool dead; /* the scheduler thread takes no orders any more */
    struct sl_order close_order;
    atomic_bool closing;
    atomic_uint_fast32_t live; /* transfers whose RELEASED was not delivered yet */

    /* recover.c */
    uint32_t *origin;      /* by rank: its number in the world that was opened first; NULL: the same */
    uint32_t origin_world; /* ranks of that world */
    atomic_bool recovering;
    struct sl_round_end recover_round; /* under `lock` */
};

void sl_runtime_keep(struct sluice_runtime *runtime);
void sl_runtime_release(struct sluice_runtime *runtime);

/* Hands an order to the scheduler thread; false when it has ended: the order was not taken. Any thread. */
_Bool sl_runtime_post(struct sluice_runtime *runtime, struct sl_order *order);
/* INVALID for NULL, FORKED in the child of a fork. */
sluice_status sl_runtime_check(const struct sluice_runtime *runtime, const char *where);
/* The same and CLOSED while it closes, POISONED when it can run nothing. */
sluice_status sl_runtime_check_live(const struct sluice_runtime *runtime, const char *where);

sluice_status sl_runtime_open_with(const struct sluice_runtime_options *options, const struct sl_runtime_hooks *hooks,
                                   struct sluice_runtime **ret_runtime);
/* hooks.threadless: what the scheduler thread does; see sl_driver_step. */
uint64_t sl_runtime_step(struct sluice_runtime *runtime, uint64_t now);

/* The control plane's handlers; `context` is the runtime. Any thread. */
void sl_runtime_on_round(void *context, uint32_t kind, uint64_t id, sluice_status status,
                         const struct sluice_error *error, const uint8_t *data, size_t bytes);
void sl_runtime_on_note(void *context, const struct sl_note *note);
sluice_status sl_runtime_reduce(void *context, uint32_t kind, const struct sl_bytes *parts, uint32_t world,
                                struct sl_mem *mem, uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error);

/* --- runtime_options.c --- */
/* Fills zero fields from settings and defaults. CONFIG, INVALID. */
sluice_status sl_runtime_fill_options(const struct sluice_runtime_options *given, const struct sl_config *settings,
                                      struct sluice_runtime_options *ret);

/* --- scheduler_thread.c --- */
/* Starts the thread and waits until the device is open, or why not. */
sluice_status sl_scheduler_start(struct sluice_runtime *runtime);
/* Waits for its end. */
void sl_scheduler_join(struct sluice_runtime *runtime);
/* The last acts of the scheduler thread: no more orders, everything freed, CLOSED. */
void sl_runtime_end(struct sluice_runtime *runtime);

#endif
