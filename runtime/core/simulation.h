/*
 * simulation.h: runtimes of all ranks of a plan in one process and one thread, in virtual time.
 *
 * The same engine, driver, seal and arbiter as in a real run, on the sim backend; only threads, sockets and
 * the clock are replaced. For small worlds: scheduler/cost.h walks the same schedule for large ones.
 */
#ifndef SL_CORE_SIMULATION_H
#define SL_CORE_SIMULATION_H

#include "runtime/backend/sim/sim.h"
#include "scheduler/plan.h"

struct sl_simulation_options {
    struct sl_sim_options world;
    struct sluice_seal_options seal;
    uint64_t note_ns; /* how long a note of the control plane travels each way */
};

struct sl_simulation {
    double makespan; /* seconds from submit to the last rank's terminal event */
    uint64_t trace;  /* equal for equal inputs */
    uint32_t windows;
    sluice_status status; /* of the transfer: the first rank that did not complete */
    struct sluice_error error;
};

enum { SL_SIMULATION_RANKS_MAX = 64 };

/*
 * Seals and runs a whole, validated plan once. A transfer that fails is a result, not an error: a group that hangs
 * ends with TIMEOUT, after the stall deadline. LIMIT for larger worlds; STATE when nothing can happen any more and a
 * rank has not ended (the error has its words); NOMEM.
 */
sluice_status sl_simulate(const struct sl_plan *plan, const struct sl_simulation_options *options, struct sl_mem *mem,
                          struct sl_simulation *ret);

#endif
