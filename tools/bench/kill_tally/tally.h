/* tally.h: what the parent (tally.c) and the ranks (rank.c) of bench_kill_tally share. */
#ifndef SL_BENCH_KILL_TALLY_H
#define SL_BENCH_KILL_TALLY_H

#include <stdatomic.h>

#include "sluice/base.h"

enum { TALLY_RANKS = 4, TALLY_TEXT = 512 };

/* When a rank is hit: once it is as far. */
enum tally_phase {
    TALLY_BOOTSTRAP = 0,
    TALLY_SEAL = 1,
    TALLY_FIRST = 2,
    TALLY_MIDDLE = 3,
    TALLY_DECISION = 4, /* shadow landing; in place: its last window */
    TALLY_SHUTDOWN = 5,
    TALLY_PHASES = 6
};

/* One rank's. `phase` is live, the rest is read when it has ended. */
struct tally_seat {
    atomic_uint phase;      /* reached, plus one */
    uint64_t said_ns;       /* when it knew that something was wrong; 0: never */
    char said[TALLY_TEXT];  /* its words */
    _Bool named;            /* they name the lost rank and no other */
    _Bool recovered;        /* what came after was moved and verified */
    char after[TALLY_TEXT]; /* how that ended */
    uint64_t again_bytes;   /* moved twice */
};

struct tally_board {
    uint32_t phase, victim;
    _Bool stop; /* SIGSTOP, else SIGKILL */
    uint64_t heartbeat_ns;
    uint32_t ports[2];              /* of the first job, and of those who open again */
    atomic_uint_fast64_t killed_ns; /* CLOCK_MONOTONIC */
    struct tally_seat seats[TALLY_RANKS];
};

/* Within this a survivor has to know: the bootstrap's own deadline, or five heartbeats. */
uint64_t tally_deadline(const struct tally_board *board);
/* One rank, in its process; the exit status. */
int tally_rank(struct tally_board *board, uint32_t number);

#endif
