/*
 * world.h: engines of several ranks, one arbiter and a made-up backend in one thread, driven by a seed.
 *
 * - Notes travel with random delay, in order per sender; nodes complete in random order within what
 *   queues and groups allow; time jumps to the next thing when nothing else can happen.
 * - A group ends only when all its ranks have it at the head of their communicator: launches in
 *   different orders hang, as they would with NCCL.
 * - After each step the oracles of world_check.c are asked; at the end everything must be released.
 */
#ifndef SL_FAULTS_WORLD_H
#define SL_FAULTS_WORLD_H

#include <stddef.h>
#include <stdint.h>

enum world_fault {
    WORLD_CANCEL = 1 << 0,      /* a rank cancels at a random step */
    WORLD_PAUSE = 1 << 1,       /* ranks pause and resume */
    WORLD_NODE_FAILS = 1 << 2,  /* a node ends with an error */
    WORLD_NODE_HANGS = 1 << 3,  /* a node never ends: stall */
    WORLD_LOSE = 1 << 4,        /* a rank without the arbiter is lost */
    WORLD_LOSE_FIRST = 1 << 5,  /* the rank of the arbiter is lost: with a majority left the next takes over */
    WORLD_BROKEN = 1 << 6,      /* a transport says that it broke */
    WORLD_GATE_CLOSED = 1 << 7, /* a gate never opens: gate deadline */
    WORLD_GATE_FAILS = 1 << 8,  /* a gate's query fails */
    WORLD_ABORT_FAILS = 1 << 9, /* an abort ends with an error */
    WORLD_MISMATCH = 1 << 10,   /* a rank submits with other options */
    WORLD_STRAY = 1 << 11,      /* completions are delivered twice */
    WORLD_DEADLINE = 1 << 12,   /* a short deadline of the whole transfer */
    WORLD_REFUSED = 1 << 13,    /* a rank cannot begin a run */
    WORLD_FAULTS = (1 << 14) - 1,
    WORLD_PACED = 1 << 14, /* no fault: runs have a pace */
    WORLD_ALONE = 1 << 15  /* no fault: a world of one without arbiter */
};

struct world_options {
    uint64_t seed;
    uint32_t faults; /* enum world_fault; the seed draws when and where */
};

struct world_result {
    uint64_t steps;
    uint64_t trace; /* hash of everything that happened: equal for equal seeds */
    uint32_t succeeded, cancelled, failed, torn, undecided;
    uint32_t launches, aborts, strays;
    char text[4096]; /* what went wrong, for people; "" when nothing did */
};

/* False when an oracle was violated or the world did not settle; `text` says how. */
_Bool world_run(const struct world_options *options, struct world_result *ret);

#endif
