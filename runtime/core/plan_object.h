/*
 * plan_object.h: what a sluice_plan handle is.
 *
 * Invariants: `store` is changed before the seal only (or while `state` is OPEN); bindings are those of
 * this rank, indexed by 2 * param + role; a file that `store` borrows from stays mapped in `map` until
 * the last reference goes. The sealed half (`sealed`) belongs to the scheduler thread of `runtime`.
 */
#ifndef SL_CORE_PLAN_OBJECT_H
#define SL_CORE_PLAN_OBJECT_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/file.h"
#include "runtime/base/memory.h"
#include "scheduler/schedule.h"

struct sl_sealed; /* sealed.h */

struct sl_binding {
    uint8_t *memory;
    uint64_t bytes;
    _Bool bound;
};

enum sl_plan_state { SL_PLAN_OPEN = 0, SL_PLAN_SEALING = 1, SL_PLAN_SEALED = 2 };

struct sluice_plan {
    atomic_uint references; /* of the memory */
    atomic_uint users;      /* the caller's handle and live transfers; at 0 the sealed part goes */
    struct sl_mem *mem;     /* the process default: a plan may outlive a runtime */
    struct sl_plan store;
    struct sl_map map; /* data NULL: `store` owns its arrays */
    struct sl_binding *bindings;
    size_t binding_capacity; /* elements */

    pthread_mutex_t lock; /* state, run numbers, bindings after the seal */
    atomic_uint state;    /* enum sl_plan_state */
    atomic_uint_fast64_t version;
    atomic_uint_fast32_t windows; /* 0 before the seal */
    atomic_int owner;             /* the process in which it was sealed; 0: in none */
    struct sl_sealed *sealed;     /* while being sealed and after; NULL once its runtime has closed */
    struct sl_rule cuts;          /* of the last seal; windows 0: never sealed */
    struct sl_rule resumes;       /* of the plan that this one recovers; windows 0: none */
    atomic_bool seal_ended;       /* the last seal is over; how: */
    struct sluice_error seal_error;
};

/* A plan with one reference and an empty store; NOMEM. The file readers fill `store` and `map`. */
sluice_status sl_plan_object_new(uint32_t world, struct sluice_plan **ret);
/*
 * FORKED in the child of a fork, for a plan that was sealed before: a thread that is not here may hold its lock. To be
 * asked before the lock is taken.
 */
sluice_status sl_plan_check(const struct sluice_plan *plan, const char *where);
void sl_plan_keep(struct sluice_plan *plan);
void sl_plan_release(struct sluice_plan *plan);
void sl_plan_use(struct sluice_plan *plan);
/* Drops one user and its reference. NULL is allowed. Any thread. */
void sl_plan_unuse(struct sluice_plan *plan);

/* The binding, or NULL when it was never bound. */
const struct sl_binding *sl_plan_binding(const struct sluice_plan *plan, uint32_t param, enum sluice_role role);

#endif
