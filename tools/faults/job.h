/*
 * job.h: a made-up job by a seed: the real runtimes of some ranks on simulated devices, in one thread and in
 * virtual time, with an application that does what applications do, and faults that strike anywhere.
 *
 * - Only threads, sockets and the clock are replaced: driver, engine, seal, arbiter and delivery are those of a
 *   real run. The seed draws plans, options, what the application does and when, and each fault.
 * - After a second of virtual time no fault is left: then everything must settle within a bound.
 * - After each step the oracles of job_check.c are asked; world.h does the same for engines alone.
 */
#ifndef SL_FAULTS_JOB_H
#define SL_FAULTS_JOB_H

#include <stddef.h>
#include <stdint.h>

enum job_fault {
    JOB_AGAIN = 1 << 0,      /* storms of back-pressure: a device takes nothing for a while */
    JOB_REFUSED = 1 << 1,    /* a device refuses an operation */
    JOB_FAILS = 1 << 2,      /* an operation ends with an error */
    JOB_STICKY = 1 << 3,     /* from some time on everything on a device fails */
    JOB_DEAF = 1 << 4,       /* wake-ups of a device are lost */
    JOB_SLOW = 1 << 5,       /* a rank's thread is late, again and again */
    JOB_LATE = 1 << 6,       /* completions come late, perhaps after the stall deadline */
    JOB_ABORT_LATE = 1 << 7, /* aborts take long, perhaps longer than their deadline */
    JOB_CANCEL = 1 << 8,     /* a rank cancels a transfer */
    JOB_PAUSE = 1 << 9,      /* ranks pause and resume */
    JOB_CLOSE = 1 << 10,     /* a rank closes its runtime in the middle */
    JOB_NOMEM = 1 << 11,     /* an allocation fails */
    JOB_LOSE = 1 << 12,      /* a rank dies */
    JOB_GATE = 1 << 13,      /* gates stay closed until faults end, with and without a deadline */
    JOB_DESTROY = 1 << 14,   /* a rank lets go of a plan at any time */
    JOB_FAULTS = (1 << 15) - 1,
    JOB_HARMLESS = JOB_AGAIN | JOB_DEAF | JOB_SLOW | JOB_PAUSE /* every transfer succeeds all the same */
};

struct job_options {
    uint64_t seed;
    uint32_t faults; /* enum job_fault; the seed draws when and where */
    /* Beside those, from the opening of the first rank on: the n-th fails, the first is 1; 0: none. */
    uint64_t fail_allocation; /* of the library's */
    uint64_t fail_call;       /* of a backend */
};

struct job_result {
    uint64_t steps;
    uint64_t trace; /* equal for equal options */
    _Bool struck;   /* there was an n-th */
    uint32_t succeeded, cancelled, failed, aborts, seals_failed;
    char text[4096]; /* what went wrong, for people; "" when nothing did */
};

/* False when an oracle was violated or the job did not settle; `text` says how. One thread at a time. */
_Bool job_run(const struct job_options *options, struct job_result *ret);

#endif
