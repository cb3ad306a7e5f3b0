/* run_rank.h: one rank of `sluice run` from the inside: run_rank.c, and run_recover.c for what comes after a loss. */
#ifndef SL_TOOL_RUN_RANK_H
#define SL_TOOL_RUN_RANK_H

#include "run_buffers.h"
#include "run_job.h"
#include "sluice/runtime.h"

/* How the seal ended; set by the callback thread. */
enum seal_end { SEAL_PENDING, SEAL_DONE, SEAL_FAILED };

#define RUN_NO_REFIT UINT32_MAX

struct rank {
    struct run_job *job;
    uint32_t number;
    struct run_seat *seat;
    sluice_runtime *runtime;
    sluice_plan *whole;    /* of all ranks */
    sluice_plan *plan;     /* what is sealed: the same, or that of a later epoch */
    uint32_t next;         /* refit */
    uint32_t recoveries;   /* begun so far */
    _Bool resume;          /* the first refit of an epoch that is not the first */
    uint32_t kept;         /* the refit that the buffers are of, in place; RUN_NO_REFIT: none */
    uint32_t kept_windows; /* its first windows that are here */
    struct run_buffers buffers;
    struct run_device device;
    _Bool device_opened;
    uint32_t device_shared; /* option of the runtime */
    struct run_place place;
    atomic_uint sealed; /* enum seal_end */
    struct sl_bell seal_bell;
    atomic_bool leaving; /* an epoch: whom its runtime loses from now on has only gone ahead */
    struct sluice_error seal_error;
};

/* Why the rank has to stop; OK: it has not. */
sluice_status run_rank_stopped(const struct rank *rank);
sluice_status run_rank_open(struct rank *rank);
sluice_status run_rank_seal(struct rank *rank);

/* --- run_recover.c --- */
/* Whether the failure may follow from the loss of a rank, and the run is to go on without it or with a new one. */
_Bool run_recover_wanted(const struct rank *rank, sluice_status status);
/* Joins the ranks of the next epoch, seals, and says where they go on. */
sluice_status run_recover(struct rank *rank);
/* A rank that was started again: where the others are. */
void run_recover_begin(struct rank *rank);

#endif
