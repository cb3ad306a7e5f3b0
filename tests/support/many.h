/*
 * many.h: several runtimes in one process, one thread a rank, on the host backend, joined by an
 * all-gather of the test's own.
 *
 * Each rank's thread runs `many_fn`; what it returns is not looked at, it asserts. The content of a
 * parameter is a function of parameter and byte, so that destinations verify without their source.
 */
#ifndef TESTS_SUPPORT_MANY_H
#define TESTS_SUPPORT_MANY_H

#include <pthread.h>

#include "sluice/backend.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"

enum { MANY_RANKS = 8 };

struct many;
struct many_rank {
    struct many *many;
    uint32_t rank;
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t **buffers; /* 2 * param + role; NULL: none */
    uint64_t *bytes;
    uint32_t params;
    pthread_mutex_t lock;
    uint32_t kinds[32]; /* events by kind */
    uint32_t order[64]; /* kinds in order, the first ones */
    uint32_t count;
    char error[512]; /* of the last FAILED */
    pthread_t thread;
    void (*run)(struct many_rank *rank);
};

struct many {
    uint32_t world;
    struct sluice_runtime_options options; /* for all; world, rank and delivery of events are set by many_run */
    void *context;
    const struct sluice_backend_ops *backends[MANY_RANKS]; /* NULL: the host backend */
    struct many_rank ranks[MANY_RANKS];
    pthread_barrier_t barrier;
    uint8_t *gathered;
};

/* Opens `world` runtimes, runs `run` on each rank's thread, closes them. */
void many_run(struct many *many, uint32_t world, void (*run)(struct many_rank *rank));
/* All ranks wait here for each other. */
void many_meet(struct many_rank *rank);

/* Every source rank sends each of `params` parameters' rows to every destination rank: a plan of sources + destinations. */
void many_plan(struct many_rank *rank, uint32_t sources, uint32_t params, uint64_t bytes);
/* Fills sources with the content of `seed`, destinations with 0xee. */
void many_fill(struct many_rank *rank, uint64_t seed);
_Bool many_holds(const struct many_rank *rank, uint64_t seed);
_Bool many_untouched(const struct many_rank *rank);
void many_seal(struct many_rank *rank, const struct sluice_seal_options *options);
struct sluice_transfer_options many_options(struct many_rank *rank);
sluice_transfer *many_submit(sluice_plan *plan, const struct sluice_transfer_options *options);
/* Waits for the end, which is success, and destroys. */
void many_complete(sluice_transfer *transfer);
void many_drop(struct many_rank *rank);
uint32_t many_count(struct many_rank *rank, uint32_t kind);

#endif
