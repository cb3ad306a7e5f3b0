/*
 * device.h: what the files of the CUDA backend share.
 *
 * Thread rules: every function but the abort runs on the thread that calls the backend table (one at a
 * time). Every entry of the table enters the device (sl_cuda_enter) and leaves it again, so that the
 * caller's current device and capture mode stay what they were.
 */
#ifndef SL_CUDA_DEVICE_H
#define SL_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/backend/cuda/kernels.h"
#include "runtime/backend/stage.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/memory_blocks.h"
#include "sluice/backend.h"

enum {
    SL_CUDA_QUEUES_MAX = 16,
    SL_CUDA_MARKERS_MAX = 64,
    SL_CUDA_OPS_MAX = 64,   /* of a queue, accepted and not complete */
    SL_CUDA_TICKETS = 4096, /* more than copies that can be in flight */
    SL_CUDA_TILE_BYTES = 32 * 1024,
    SL_CUDA_RUNS_MAX = 8 /* copies of the copy engine for one staged chunk; with more pieces the kernel takes it */
};

enum sl_cuda_op_state {
    SL_CUDA_WAITING, /* accepted; nothing of it is on the stream */
    SL_CUDA_ISSUING, /* a group that NCCL is still launching, or a set of which the processor does a part */
    SL_CUDA_ISSUED,  /* on the stream, its event recorded */
    SL_CUDA_FAILED   /* never ran or failed; its completion carries the error */
};

struct sl_cuda_op {
    struct sluice_op op;
    enum sl_cuda_op_state state;
    /*
     * GROUP: its place among the groups of its communicator. WAIT: the marker's record number that must be on its stream
     * first.
     */
    uint64_t record;
    cudaEvent_t done;  /* owned by the ring position */
    cudaEvent_t begin; /* only when tracing */
    _Bool aborted;     /* was in flight when the communicator was aborted */
};

struct sl_cuda_marker {
    cudaEvent_t event;
    uint64_t submitted; /* records accepted so far */
    uint64_t issued;    /* records that are on their stream */
};

/* Operations [head, issued) are on the stream, [issued, tail) are not. Numbers grow; position = number % OPS_MAX. */
struct sluice_queue {
    struct sluice_device *device;
    cudaStream_t stream;
    cudaStream_t notify; /* carries nothing but wake-ups behind this queue's events */
    uint64_t head, issued, tail;
    struct sl_cuda_op ops[SL_CUDA_OPS_MAX];
    struct sluice_error error; /* the first failure; everything behind it ends with it, up to a fence */
    _Bool reported;            /* a completion has carried it */
    struct sl_stage_op stage;  /* of the operation at `issued`, while it is a copy that is being staged */
    struct sl_crew_job digest; /* of the operation at `issued`, while the processor digests pieces of it */
    _Bool digesting;
};

struct sl_cuda_tiles {
    struct sl_mem *mem;
    struct sl_tile *list;
    size_t count, capacity;
    uint64_t tile_bytes;
};

/* The device's part of a staged chunk: a few contiguous copies, or tiles of the set. */
struct sl_cuda_part {
    uint32_t first_tile, tile_count;
    uint32_t run_count;
    struct sl_stage_run runs[SL_CUDA_RUNS_MAX];
};

struct sluice_set {
    struct sluice_device *device;
    struct sl_tile *tiles; /* device memory: `count` of pieces that the device reaches, then those of `parts` */
    uint32_t count;        /* of tiles of either kind */
    uint64_t bytes;
    enum sluice_copy_kind kind;
    /* Kind DIGEST. */
    uint32_t piece_count;
    struct sl_digest_tile *digest_tiles;   /* device memory */
    struct sl_digest_piece *digest_pieces; /* device memory */
    uint64_t *values;                      /* pinned: the kernel writes one a piece */
    struct sl_cuda_slab *slab;             /* where they lie */
    struct sluice_copy *hosted;            /* pieces in pageable memory, which the processor digests */
    uint32_t *hosted_at;                   /* their places in the set */
    uint64_t *hosted_values;
    uint32_t hosted_count;
    /* Pieces with an end in pageable memory: chunks that are staged through pinned slots. */
    struct sl_stage_plan staged;
    struct sl_cuda_part *parts; /* a chunk each; NULL: nothing is staged */
};

struct sluice_point {
    struct sluice_backend_config config;
    int ordinal;
    cudaEvent_t event;
    _Bool owned;
    atomic_bool set; /* recorded */
};

enum sl_cuda_group_state {
    SL_CUDA_GROUP_OPENING, /* the communicator is being made */
    SL_CUDA_GROUP_WARMING, /* the first messages of every pair are on their way */
    SL_CUDA_GROUP_READY,
    SL_CUDA_GROUP_ABORTING,
    SL_CUDA_GROUP_DEAD
};

struct sluice_group {
    struct sluice_device *device;
    ncclComm_t comm;
    _Bool lent;
    enum sl_cuda_group_state state;
    uint64_t open_cookie;
    _Bool open_pending;           /* its completion is still owed */
    struct sluice_queue *issuing; /* the queue whose group NCCL is launching; NULL: none */
    uint8_t *peers;
    uint32_t world, rank;
    uint64_t submitted; /* groups so far */
    uint32_t warm_next; /* the next distance between ranks to warm up */
    _Bool warm_recorded;
    void *warm_memory;
    cudaEvent_t warm_done;
    struct sluice_error error;
    /* The abort: any thread sets `abort_wanted`; a helper thread takes the communicator over. */
    atomic_bool abort_wanted;
    atomic_int abort_done;
    pthread_t abort_thread;
    struct takeover *job;
    _Bool abort_started;
    _Bool kept_aside;
    uint64_t abort_deadline;
};

struct sluice_device {
    struct sluice_backend_config config;
    struct sl_log log;
    struct sl_mem *mem;
    int ordinal;
    char identity[SLUICE_IDENTITY_MAX];
    uint32_t multiprocessors;
    uint32_t nccl_version;
    struct sluice_queue *queues[SL_CUDA_QUEUES_MAX];
    uint32_t queue_count;
    struct sluice_group *group; /* one communicator a device */
    struct sl_cuda_marker markers[SL_CUDA_MARKERS_MAX];
    cudaStream_t setup;    /* descriptors and warm-up; never between launch and completion */
    cudaEvent_t time_zero; /* tracing: host time `time_zero_ns` */
    uint64_t time_zero_ns;
    uint64_t staging_bytes;
    atomic_uint_least64_t nccl_ns;   /* tracing: CPU time within NCCL's calls for groups */
    struct sl_blocks *pinned;        /* all pinned memory */
    cudaError_t pinned_result;       /* of the last block of it */
    struct sl_cuda_staging *staging; /* NULL until a set has pageable memory */
    struct sl_ticket *tickets;       /* device memory; each launch takes the next */
    atomic_uint ticket;
    struct sl_cuda_slab *slabs; /* pinned memory of digest values */
    struct sluice_error sticky; /* the context is lost: everything ends with this */
};

/* What sl_cuda_leave puts back. */
struct sl_cuda_scope {
    int previous;
    enum cudaStreamCaptureMode mode;
};
sluice_status sl_cuda_enter_ordinal(int ordinal, struct sl_cuda_scope *ret);
sluice_status sl_cuda_enter(const struct sluice_device *device, struct sl_cuda_scope *ret);
void sl_cuda_leave(const struct sl_cuda_scope *scope);

/* Turns a CUDA result into a status and the thread's last error; OK for cudaSuccess. */
sluice_status sl_cuda_status(cudaError_t result, const char *what);
sluice_status sl_nccl_status(ncclResult_t result, const char *what);
/* Hands the thread's last error over to the library that opened the device; returns `status`. */
sluice_status sl_cuda_report(const struct sluice_backend_config *config, sluice_status status);
/* Keeps the first error after which the context is of no use. */
void sl_cuda_lose(struct sluice_device *device, cudaError_t result, const char *what);

/* pinned.c: memory of the host that the device reaches. The caller has entered the device. NOMEM, DEVICE. */
sluice_status sl_cuda_pinned_open(struct sluice_device *device);
sluice_status sl_cuda_pinned_alloc(struct sluice_device *device, uint64_t bytes, void **ret);

/* staging.c: pageable memory. The device is entered. */
/* The slots, and the threads that copy; opened with the first set that needs them. NOMEM, LIMIT, SYSTEM, DEVICE. */
sluice_status sl_cuda_staging_open(struct sluice_device *device, struct sl_stage_slots **ret);
void sl_cuda_staging_close(struct sluice_device *device);
/* Begins the processor's part of the set at `issued`; sl_cuda_issued tells its end. */
void sl_cuda_staging_begin(struct sluice_queue *queue);
_Bool sl_cuda_staging_advance(struct sluice_device *device);
/* The queue is about to be closed after a failure. */
void sl_cuda_staging_forget(struct sluice_queue *queue);

/* tiles.c */
sluice_status sl_cuda_tiles_add(struct sl_cuda_tiles *tiles, const struct sluice_copy *piece);

/* set.c */
sluice_status sl_cuda_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                               const struct sluice_copy *pieces, size_t count, struct sluice_set **ret);
void sl_cuda_set_close(struct sluice_set *set);
/*
 * Copies descriptors into device memory of their own; NULL for none. Blocks; no stream that carries work is touched.
 * The device is entered.
 */
sluice_status sl_cuda_upload(struct sluice_device *device, const void *from, size_t bytes, void **ret);
uint64_t sl_cuda_tile_bytes(const struct sluice_device *device, uint64_t bytes);

/* digest.c */
/* Pieces with an end in `ends` are digested by the processor. The device is entered. */
sluice_status sl_cuda_digest_prepare(struct sluice_set *set, const struct sluice_copy *pieces, const uint8_t *ends,
                                     size_t count);
/* The device is entered; harmless for sets of other kinds. */
void sl_cuda_digest_drop(struct sluice_set *set);
cudaError_t sl_cuda_launch_digest(struct sluice_device *device, const struct sluice_set *set, cudaStream_t stream);
/* Hands the values of an operation that is done to whoever asked for them. */
void sl_cuda_digest_take(const struct sluice_op *op);
/* The device is entered and no set is open. */
void sl_cuda_slabs_free(struct sluice_device *device);
/* 1 or 0. */
uint32_t sl_cuda_is_direct(struct sluice_device *device, uint64_t address);
uint32_t sl_cuda_set_is_staged(const struct sluice_set *set);

/* queue.c */
sluice_status sl_cuda_queue_open(struct sluice_device *device, struct sluice_queue **ret);
void sl_cuda_queue_close(struct sluice_queue *queue);
/* How many multiprocessors a kernel may take, and the counters of its launch. Any thread. */
uint32_t sl_cuda_ctas(const struct sluice_device *device);
struct sl_ticket *sl_cuda_next_ticket(struct sluice_device *device);
/* Enqueues a kernel that copies tiles (of device memory) in a stream. Any thread. */
cudaError_t sl_cuda_launch_tiles(struct sluice_device *device, const struct sl_tile *tiles, uint32_t count,
                                 cudaStream_t stream);
sluice_status sl_cuda_submit(struct sluice_queue *queue, const struct sluice_op *op);
/* Puts on the streams what may go there; true when anything moved. */
_Bool sl_cuda_issue(struct sluice_device *device);
/* The operation at `issued` was ISSUING and is on the stream now, or failed. */
void sl_cuda_issued(struct sluice_queue *queue, const struct sluice_error *error);

/* poll.c */
sluice_status sl_cuda_poll(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                           uint32_t *ret_count);
sluice_status sl_cuda_arm(struct sluice_device *device);

/* point.c: any thread */
sluice_status sl_cuda_point_open(const struct sluice_backend_config *config, enum sluice_point_kind kind, void *handle,
                                 struct sluice_point **ret);
sluice_status sl_cuda_point_query(struct sluice_point *point, struct sluice_error *error);
sluice_status sl_cuda_point_wait(struct sluice_point *point, void *stream);
void sl_cuda_point_close(struct sluice_point *point);
sluice_status sl_cuda_copy_on(struct sluice_set *set, void *stream);
sluice_status sl_cuda_copy_time(struct sluice_device *device, const struct sluice_copy *pieces, size_t count,
                                uint64_t *ret_ns);

/* group.c */
sluice_status sl_cuda_group_address(struct sluice_device *device, struct sluice_blob *ret);
sluice_status sl_cuda_group_open(struct sluice_device *device, const struct sluice_group_config *config,
                                 uint64_t cookie, struct sluice_group **ret);
void sl_cuda_group_close(struct sluice_group *group);
/* Lets another communicator have the device. */
void sl_cuda_group_give_device(const struct sluice_device *device);
_Bool sl_cuda_group_is_busy(const struct sluice_group *group);
/* Channels (and multiprocessors) of a communicator: a power of two within max_ctas. */
uint32_t sl_cuda_channels(const struct sluice_device *device);
/* Advances opening, warming, launching and aborting. */
void sl_cuda_group_advance(struct sluice_group *group);
/* Hands one window's messages to NCCL on the queue's stream. AGAIN: the communicator is busy. */
sluice_status sl_cuda_group_start(struct sluice_group *group, struct sluice_queue *queue, const struct sluice_op *op);
/* The completion that group_open promised, once it is due. */
_Bool sl_cuda_group_opened(struct sluice_group *group, struct sluice_completion *ret);

/* abort.c */
sluice_status sl_cuda_abort(struct sluice_group *group);
/* The abort has come back: nothing of NCCL's touches buffers of the communicator any more. */
_Bool sl_cuda_group_let_go(const struct sluice_group *group);
void sl_cuda_group_advance_abort(struct sluice_group *group);

#endif
