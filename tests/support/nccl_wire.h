/*
 * nccl_wire.h: groups of several ranks with NCCL's semantics, executed with real bytes in one thread.
 *
 * A rank's group becomes kernel plans: NCCL walks over the peers round by round, takes one send and one receive of each
 * round, and cuts after `cut` operations; up to 2.29.3 it then begins at round 0 again. A plan's operations run at once,
 * plans and groups one after the other, and an operation ends only together with the other end of its message
 * (rendezvous). So ranks can wait for each other in a circle, as the kernels do.
 */
#ifndef TESTS_SUPPORT_NCCL_WIRE_H
#define TESTS_SUPPORT_NCCL_WIRE_H

#include "scheduler/nccl_model.h"

struct wire_message {
    uint8_t *data;
    uint64_t bytes;
    uint32_t peer;
    _Bool receive;
};

#define WIRE_WORLD 8u

/* One operation in the order in which its rank's kernels run. */
struct wire_op {
    struct wire_message message;
    uint32_t plan;  /* counted over all groups of the rank */
    uint32_t match; /* n-th message of its pair and direction */
    _Bool done;
};

struct wire_rank {
    struct wire_op *ops;
    uint32_t count, capacity;
    uint32_t plans;                  /* so far */
    uint32_t matches[2][WIRE_WORLD]; /* messages so far */
    uint32_t rounds_send[WIRE_WORLD], rounds_recv[WIRE_WORLD];
    uint32_t current; /* plan that runs */
};

struct wire {
    uint32_t world, cut;
    _Bool restart;
    struct wire_rank ranks[WIRE_WORLD];
};

/* One-GPU nodes: `world` nodes of one rank. */
void wire_open(struct wire *wire, uint32_t world, uint32_t cut, _Bool restart);
void wire_close(struct wire *wire);
/* The next group of a rank, in the order of its calls. */
void wire_group(struct wire *wire, uint32_t rank, const struct wire_message *messages, uint32_t count);
/* Runs until everything is done (true) or nobody can go on (false). Moves the bytes of every message that ends. */
_Bool wire_run(struct wire *wire);
/* Operations that have not ended. */
uint32_t wire_left(const struct wire *wire);

#endif
