/*
 * run_board.h: memory that a run's processes share: how far each rank is, how it ended, and the all-gather
 * that joins them. Made before the ranks are forked, so it needs no name, file or port.
 */
#ifndef SL_TOOL_RUN_BOARD_H
#define SL_TOOL_RUN_BOARD_H

#include <stdatomic.h>

#include "runtime/backend/host/bell.h"
#include "runtime/base/error.h"
#include "sluice/observe.h"

/* A runtime makes RUN_GATHERS all-gathers when it opens; each epoch has its own. */
enum { RUN_GATHER_BYTES = 2048, RUN_GATHERS = 2, RUN_EPOCHS = 8, RUN_PLACES = RUN_GATHERS * RUN_EPOCHS };

/* Begin and end of one refit on one rank, CLOCK_MONOTONIC nanoseconds. */
struct run_time {
    uint64_t begin_ns, end_ns;
};

/* One rank. Atomics are live; the rest is valid once `ended`. */
struct run_seat {
    atomic_uint refit;                            /* refits begun */
    atomic_uint done;                             /* refits moved and verified here */
    atomic_uint_fast64_t bytes_done, bytes_total; /* of the current refit */
    atomic_bool ended;
    atomic_uint lost;          /* --recover: it was lost in this epoch, plus one; 0: it was not */
    struct sluice_error error; /* status OK: it did all */
    uint64_t failed_ns;        /* when it failed: before it told anybody */
    uint32_t windows;
    uint64_t verified_bytes;
    uint64_t host_staging_bytes; /* pinned memory of the backend after the seal */
    struct sluice_stage_times stages;
    uint64_t process_ns;   /* CPU time of all its threads in the last refit, from submit to its end */
    uint64_t scheduler_ns; /* CPU time of its scheduler thread in all refits */
    uint64_t transport_ns; /* what of it went into calls of the transport's library; only when traced */
    uint64_t trace_count, trace_dropped;
    uint64_t again_bytes; /* moved twice */
    atomic_uint parts;    /* places of `gather` up to the last one that it has filled */
    uint8_t gather[RUN_PLACES][RUN_GATHER_BYTES];
};

/* Why ranks are asked to stop. */
enum run_stop { RUN_GO = 0, RUN_INTERRUPTED = 1, RUN_PEER_FAILED = 2 };

struct run_board {
    uint32_t world, refits;
    atomic_uint stop;  /* enum run_stop */
    atomic_uint epoch; /* ranks that were lost and noticed by the parent */
    atomic_uint gathered[RUN_PLACES];
    struct sl_bell all_there; /* the last part of an all-gather came */
    size_t bytes;
    struct run_seat *seats; /* world of them */
    struct run_time *times; /* refits of rank r: times[r * refits ...] */
};

/* NOMEM. Freed by run_board_close, in every process on its own. */
sluice_status run_board_open(uint32_t world, uint32_t refits, struct run_board **ret);
void run_board_close(struct run_board *board);

/* A rank's part in the all-gather; `place` is what sluice_allgather_fn gets as its user. */
struct run_place {
    struct run_board *board;
    uint32_t rank;
    uint32_t epoch;
    uint32_t gathers;    /* of the epoch */
    uint64_t timeout_ns; /* of one all-gather */
    _Bool late;          /* it has passed: somebody's part of place `gathers` - 1 is missing */
};
/* Whether the all-gather that was late still misses the rank. */
_Bool run_board_misses(const struct run_place *place, uint32_t rank);
/* ETIMEDOUT, ECANCELED (the run stops, or the epoch is over) or EINVAL. */
int run_board_gather(const void *send, void *recv, size_t bytes, void *place);

static inline enum run_stop run_board_stopped(const struct run_board *board)
{
    return (enum run_stop)atomic_load(&board->stop);
}

#endif
