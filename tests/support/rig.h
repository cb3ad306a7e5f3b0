/*
 * rig.h: several ranks of one backend in one process, driven by the test's thread.
 *
 * Memory of a backend is written and read through copy sets, so the same tests run where it is not plain memory.
 * Everything here asserts: a call that fails ends the test with the backend's words.
 */
#ifndef TESTS_SUPPORT_RIG_H
#define TESTS_SUPPORT_RIG_H

#include <stdatomic.h>

#include "runtime/backend/sim/sim.h"
#include "sluice/backend.h"

#define RIG_RANKS   16u
#define RIG_QUEUES  6u
#define RIG_COOKIES 4096u

/* What became of the operation with one cookie. */
struct rig_end {
    uint32_t times; /* completions seen */
    sluice_status status;
    uint64_t begin_ns, end_ns;
    struct sluice_error error;
};

struct rig_block {
    void *memory;
    uint64_t bytes;
    enum sluice_memory kind;
};

struct rig_rank {
    struct rig *rig;
    uint32_t rank;
    struct sluice_device *device;
    struct sluice_queue *queues[RIG_QUEUES];
    struct sluice_group *group;
    atomic_uint wakes;
    uint32_t completions;
    struct rig_block *blocks; /* memory that rig_close frees */
    uint32_t block_count, block_capacity;
    struct rig_end ends[RIG_COOKIES];
};

struct rig {
    const struct sluice_backend_ops *ops;
    uint32_t ranks, queues; /* ranks of this process */
    uint32_t first, world;  /* rank[i] is rank first + i of world */
    uint32_t trace;
    struct rig_rank *rank; /* `ranks` of them */
    struct sl_sim *sim;    /* the world of simulated devices; NULL for real ones */
};

/* Names of backends that have code here, for ParameterizedTestParameters. */
struct rig_name {
    char text[16];
};
size_t rig_names(struct rig_name *ret, size_t max);

/* Opens `ranks` devices with `queues` queues each. Skips the test, with the reason, where the backend cannot run. */
void rig_open(struct rig *rig, const char *backend, uint32_t ranks, uint32_t queues, uint32_t trace);
/* Closes queues, groups and devices; frees what rig_memory gave. */
void rig_close(struct rig *rig);

/* The same for some ranks of a world that spans processes. */
void rig_open_part(struct rig *rig, const char *backend, uint32_t first, uint32_t ranks, uint32_t world,
                   uint32_t queues);
/* Writes the addresses of this process's ranks into a table of the whole world. */
void rig_addresses(struct rig *rig, struct sluice_blob *blobs);
/* Opens the communicator once the table is complete. `groups` has one entry a rank of this process. */
void rig_join(struct rig *rig, const struct sluice_blob *blobs, struct sluice_group **groups);

/* Opens a communicator over all ranks, all pairs, and waits for it. `groups` has one entry a rank. */
void rig_connect(struct rig *rig, struct sluice_group **groups);
/* The same into rank[i].group. */
void rig_connect_all(struct rig *rig);

void *rig_memory(struct rig_rank *rank, enum sluice_memory kind, uint64_t bytes);
void rig_free(struct rig_rank *rank, enum sluice_memory kind, void *memory, uint64_t bytes);
/* Copies between the test's memory and the backend's; use the rank's last queue. */
void rig_write(struct rig_rank *rank, void *to, const void *from, uint64_t bytes);
void rig_read(struct rig_rank *rank, void *to, const void *from, uint64_t bytes);

/* Submits; retries while the backend says AGAIN. */
void rig_submit(struct rig_rank *rank, uint32_t queue, const struct sluice_op *op);
void rig_copy(struct rig_rank *rank, uint32_t queue, struct sluice_set *set, uint64_t cookie);
void rig_group(struct rig_rank *rank, uint32_t queue, const struct sluice_message *messages, uint32_t count,
               uint64_t cookie);
void rig_mark(struct rig_rank *rank, uint32_t queue, enum sluice_op_kind kind, uint32_t marker);
void rig_fence(struct rig_rank *rank, uint32_t queue, uint64_t cookie);
struct sluice_set *rig_set(struct rig_rank *rank, enum sluice_copy_kind kind, const struct sluice_copy *pieces,
                           size_t count);

/* Contiguous piece. */
struct sluice_copy rig_piece(const void *from, void *to, uint64_t bytes, uint32_t message);
struct sluice_strided rig_flat(const void *address);

/* For loops that wait for something else than a completion: lets a simulated world go on. */
void rig_pass(struct rig *rig);
/* Takes what is there, on all ranks; never blocks. */
void rig_poll(struct rig *rig);
/* Waits for one completion, sleeping between wake-ups as a real driver does. Fails the test after 60 s. */
const struct rig_end *rig_wait_any(struct rig_rank *rank, uint64_t cookie);
/* The same, and it must be good. */
const struct rig_end *rig_wait(struct rig_rank *rank, uint64_t cookie);
/* Whether the completion has come; polls first. */
_Bool rig_ended(struct rig_rank *rank, uint64_t cookie);

/* Byte `at` of content number `seed`. */
uint8_t rig_byte(uint64_t seed, uint64_t at);
void rig_pattern(uint8_t *memory, uint64_t bytes, uint64_t seed);
/* First wrong byte, or `bytes`. */
uint64_t rig_compare(const uint8_t *memory, uint64_t bytes, uint64_t seed);

#endif
