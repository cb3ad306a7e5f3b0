/*
 * sim.h: a world of simulated devices in virtual time, in one thread.
 *
 * - Time is nanoseconds; it moves only in sl_sim_next, from event to event. Events of one time run in the
 *   order in which they were made, so a world with the same inputs has the same trace.
 * - Links are those of scheduler/cost.h: the ranks that a group's messages join begin together, when the
 *   last of them has posted its part, and end together.
 * - The backend's table (sl_sim_backend) needs the world in sluice_backend_config.extra.
 */
#ifndef SL_SIM_SIM_H
#define SL_SIM_SIM_H

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "scheduler/nccl_model.h"
#include "sluice/backend.h"

struct sl_sim_options {
    double link;                       /* bytes per second, each way */
    double pack_rate;                  /* bytes per second */
    double group_overhead;             /* seconds */
    _Bool move_bytes;                  /* copies and messages move real memory; else addresses are never touched */
    const struct sl_nccl_config *nccl; /* groups that NCCL would not get through never end; NULL: all end */
};

/* The time at which a world begins. */
#define SL_SIM_BEGIN SLUICE_SECOND

struct sl_sim;

/* NULL when out of memory. Options are copied, but for `nccl`, which must outlive the world. */
struct sl_sim *sl_sim_create(const struct sl_sim_options *options, uint32_t world, struct sl_mem *mem);
void sl_sim_destroy(struct sl_sim *sim);
const struct sluice_backend_ops *sl_sim_backend(void);

uint64_t sl_sim_now(const struct sl_sim *sim);
const struct sl_clock *sl_sim_clock(struct sl_sim *sim);
/* Calls `act` at a time (not before now). NOMEM. */
typedef void (*sl_sim_act)(void *context, uint64_t argument);
sluice_status sl_sim_at(struct sl_sim *sim, uint64_t time, sl_sim_act act, void *context, uint64_t argument);
/* Runs the next event; false when there is none at or before `until`, and the time is `until` then. */
_Bool sl_sim_next(struct sl_sim *sim, uint64_t until);
/* A hash of every operation that began or ended: equal for equal inputs. */
uint64_t sl_sim_trace(const struct sl_sim *sim);

#endif
