/*
 * backend.h: the table that a backend implements. For implementers; may change between minor versions.
 *
 * - Every call is made by one thread, the scheduler thread, unless its comment says otherwise.
 * - An accepted operation completes exactly once, through `poll`, never inside `submit`.
 * - A queue runs its operations in order. The backend may hold operations back (a communicator that
 *   is still launching) as long as that order and the WAIT rule hold.
 * - Gates are not here: the engine submits nothing whose gates are closed.
 * - An operation without `notify` that fails is reported by the next operation of its queue that has it.
 * - Where staged messages really lie between a GROUP and the UNPACK set behind it on the same queue is the backend's
 *   business: that one set, and nothing else, may read them, through the addresses of the messages. A pack set may
 *   have to wait until the peer has unpacked what the same queue sent before.
 */
#ifndef SLUICE_BACKEND_H
#define SLUICE_BACKEND_H

#include "sluice/base.h"
#include "sluice/observe.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_BACKEND_ABI 1u

struct sluice_device; /* private to the backend */
struct sluice_queue;
struct sluice_group;
struct sluice_set;
struct sluice_point;

enum sluice_memory {
    SLUICE_MEMORY_DEVICE = 0, /* where kernels run: GPU memory, or plain memory on the host backend */
    SLUICE_MEMORY_PINNED = 1, /* host memory that the device reaches */
    SLUICE_MEMORY_SEND = 2,   /* staging that a group sends from (host backend: the shared pool) */
    SLUICE_MEMORY_RECV = 3    /* staging that a group receives into */
};

#define SLUICE_BLOB_MAX 256u
/* Opaque bytes that ranks exchange to open a communicator: NCCL id, socket name. */
struct sluice_blob {
    uint32_t bytes;
    uint8_t data[SLUICE_BLOB_MAX];
};

#define SLUICE_IDENTITY_MAX 64u

struct sluice_backend_info {
    uint32_t size;
    uint32_t usable; /* 1: open would work here */
    uint32_t devices;
    uint32_t threads_per_queue; /* informational */
    uint32_t queues_max;
    uint32_t markers_max;
    uint32_t alignment;         /* of addresses for full speed */
    uint32_t version;           /* transport: NCCL version as 23007 style number (2.30.7 -> 23007); 0: no NCCL */
    uint32_t channels;          /* NCCL: P if fixed by us; 0 unknown */
    uint32_t channels_per_peer; /* NCCL: C */
    uint64_t chunk_bytes;       /* NCCL: p2p chunk */
    uint32_t nodes;             /* NCCL: nodes of the communicator; 0 unknown */
    char reason[SLUICE_ERROR_TEXT_MAX]; /* why not usable; or a description of the device */
    uint32_t digests;                   /* 1: takes operations of kind DIGEST */
    uint32_t late_wake;                 /* 1: `wake` may come some hundred microseconds late, so looking early pays */
    /* By `describe`: equal texts are one device, whatever number processes know it by. "": ranks may share it. */
    char identity[SLUICE_IDENTITY_MAX];
    uint64_t transport_cpu_ns;   /* by `describe`, when tracing: CPU time within calls of the transport so far */
    uint64_t host_staging_bytes; /* pinned memory that an open device has taken */
};

struct sluice_backend_config {
    uint32_t size;
    uint32_t device; /* index */
    uint32_t rank;   /* of this runtime */
    uint32_t world;
    uint32_t max_ctas;
    uint32_t high_priority;
    uint32_t trace; /* 1: completions carry begin and end times */
    uint32_t reserved;
    uint64_t staging_bytes_max;
    uint64_t abort_timeout_ns;
    uint64_t (*now)(void *clock); /* monotonic nanoseconds */
    void *clock;
    void (*wake)(void *wake_context); /* any thread: poll has something; coalesces */
    void *wake_context;
    sluice_log_fn log;
    void *log_user;
    void *extra; /* sim: its world; else NULL */
    /*
     * Makes `error` the calling thread's last error in the library that opened the device. A backend in a module of
     * its own calls it before it returns an error; one that is linked in may leave it alone. May be NULL.
     */
    void (*fail)(const struct sluice_error *error);
    uint64_t host_staging_bytes_max; /* cuda: of pinned memory for pageable buffers; 0: the default */
};

/* What a rank is to another one in a communicator. The pairs to warm up are connected when it opens. */
enum sluice_peer {
    SLUICE_PEER_SEND = 1,    /* we may send to it */
    SLUICE_PEER_RECEIVE = 2, /* we may receive from it */
    SLUICE_PEER_WARM_SEND = 4,
    SLUICE_PEER_WARM_RECEIVE = 8,
};

struct sluice_group_config {
    uint32_t size;
    uint32_t rank;
    uint32_t world;
    uint32_t reserved;
    const struct sluice_blob *blobs; /* one per rank, as group_address gave them */
    const uint8_t *peers;            /* world bytes of enum sluice_peer; both ends of a pair say the same */
    void *lent;                      /* a communicator of the caller (cuda: ncclComm_t); NULL: make one */
};

/*
 * A run of bytes inside a strided region: stream byte i is at address + (i / row_bytes) * pitch +
 * i % row_bytes, and the run begins at stream byte `begin`. Contiguous: row_bytes = UINT64_MAX.
 */
struct sluice_strided {
    uint64_t address;
    uint64_t row_bytes;
    uint64_t pitch;
    uint64_t begin;
};

#define SLUICE_MESSAGE_NONE UINT32_MAX

/* One piece of a copy set. Pieces of a set never overlap in their destinations. */
struct sluice_copy {
    struct sluice_strided from;
    struct sluice_strided to;
    uint64_t bytes;
    uint32_t message; /* PACK, UNPACK: index of the group's message whose staging this touches */
    uint32_t param;
};

enum sluice_copy_kind {
    SLUICE_COPY_LOCAL = 0,
    SLUICE_COPY_PACK = 1,
    SLUICE_COPY_UNPACK = 2,
    SLUICE_COPY_COMMIT = 3,
    SLUICE_COPY_DIGEST = 4 /* nothing is copied: `from` is read (`to` is the same), for operations of kind DIGEST */
};

/* One send or receive. k-th send to a peer matches the peer's k-th receive from us, over all groups. */
struct sluice_message {
    uint64_t address; /* staging or user memory */
    uint64_t bytes;   /* > 0 */
    uint32_t peer;
    uint8_t receive; /* 0: send */
    uint8_t staged;  /* 1: address is SEND or RECV staging that only this window's PACK or UNPACK touches */
    uint16_t slot;
};

enum sluice_op_kind {
    SLUICE_OP_COPY = 1,   /* a copy set of any kind */
    SLUICE_OP_GROUP = 2,  /* messages of one window, all progress together; the queue waits for all */
    SLUICE_OP_WAIT = 3,   /* later operations of this queue wait until `marker` has passed */
    SLUICE_OP_RECORD = 4, /* `marker` passes when earlier operations of this queue are done */
    SLUICE_OP_FENCE = 5,  /* completes when earlier operations of this queue are done; nothing else */
    /* Only where the table has points; like WAIT and RECORD they never have a completion. */
    SLUICE_OP_AFTER = 6, /* later operations of this queue wait until `point`, which is set, has passed */
    SLUICE_OP_POINT = 7, /* sets `point`: it passes when earlier operations of this queue are done */
    SLUICE_OP_DIGEST = 8 /* where the backend says so: a digest of each piece of a set of kind DIGEST */
};

/* What a point stands for when it is opened. */
enum sluice_point_kind {
    SLUICE_POINT_EMPTY = 0,  /* nothing yet: SLUICE_OP_POINT sets it */
    SLUICE_POINT_STREAM = 1, /* all work that is now in a stream of the caller (cuda: cudaStream_t) */
    SLUICE_POINT_EVENT = 2   /* an event of the caller (cuda: cudaEvent_t), which must outlive the point */
};

struct sluice_op {
    uint32_t kind;   /* enum sluice_op_kind */
    uint32_t marker; /* WAIT, RECORD: 0..markers_max-1. A WAIT refers to the last RECORD submitted before it;
                        without one it is refused (INVALID) */
    uint64_t cookie; /* comes back in the completion */
    uint32_t notify; /* 1: a completion is wanted. WAIT and RECORD never have one */
    uint32_t message_count;
    struct sluice_set *set;                /* COPY, DIGEST */
    struct sluice_group *group;            /* GROUP; its opening must have completed (STATE) */
    const struct sluice_message *messages; /* GROUP: must live until completion */
    struct sluice_point *point;            /* AFTER, POINT: must outlive the queue's operations */
    /*
     * DIGEST: one value a piece of the set, there when the operation is done; must live until then, and the set has no
     * other operation meanwhile. A function of the piece's bytes in order alone, whatever their layout, alike on all
     * ranks and backends: n bytes, filled up with zeros to units of two little-endian 64-bit words a[i], b[i], give
     *     mix(n + sum over i of fold(a[i] + (i + 1) * 0x9e3779b97f4a7c15, b[i] + (i + 1) * 0xd6e8feb86659fd93))
     * modulo 2^64, where fold(x, y) is the upper half of the 128-bit product x * y exclusive-or its lower half, and
     * mix(x) does twice: x ^= x >> 32, x *= 0xd6e8feb86659fd93; and then x ^= x >> 32. The terms may be taken in any
     * order and by any number of threads.
     */
    uint64_t *digests;
};

struct sluice_completion {
    uint64_t cookie;
    uint64_t begin_ns; /* when tracing, else 0 */
    uint64_t end_ns;
    sluice_status status;
    uint32_t reserved;
    struct sluice_error error; /* when status is not OK */
};

struct sluice_backend_ops {
    uint32_t size; /* of this struct */
    uint32_t abi;  /* SLUICE_BACKEND_ABI */
    const char *name;

    /* Any thread, may load a library. Always OK; `usable` and `reason` tell. */
    sluice_status (*query)(struct sluice_backend_info *ret);
    /* May block for a bounded time. UNSUPPORTED, DEVICE, NOMEM. `config` is copied. */
    sluice_status (*open)(const struct sluice_backend_config *config, struct sluice_device **ret);
    /* Everything else was closed before. May block for the abort deadline at most. */
    void (*close)(struct sluice_device *device);

    /* Never between launch and completion. NOMEM, LIMIT. Contents are undefined. */
    sluice_status (*mem_alloc)(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret);
    void (*mem_free)(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes);

    sluice_status (*queue_open)(struct sluice_device *device, struct sluice_queue **ret);
    /* Drained before, or the device failed. */
    void (*queue_close)(struct sluice_queue *queue);

    /*
     * A copy set: the pieces are copied; kernels' descriptors are built here, not at submit. Any memory of the process
     * will do, pageable memory on a GPU too. NOMEM, LIMIT.
     */
    sluice_status (*set_open)(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret);
    void (*set_close)(struct sluice_set *set);

    /* This rank's part of what ranks exchange before group_open. */
    sluice_status (*group_address)(struct sluice_device *device, struct sluice_blob *ret);
    /* Begins a communicator; never blocks: poll advances it and delivers a completion with `cookie` at the end. */
    sluice_status (*group_open)(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret);
    /* Its operations, and the unpack sets behind them, have completed; or it was aborted. */
    void (*group_close)(struct sluice_group *group);

    /* OK: accepted, completes once. AGAIN: nothing taken, retry after poll. Else: refused. Never blocks. */
    sluice_status (*submit)(struct sluice_queue *queue, const struct sluice_op *op);
    /* Fills up to `max` completions; never blocks; advances launches that are in progress. */
    sluice_status (*poll)(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                          uint32_t *ret_count);
    /* OK: `wake` will be called at the next completion. BUSY: completions or launches are pending, poll again. */
    sluice_status (*arm)(struct sluice_device *device);
    /*
     * Every accepted group operation of the communicator ends, with ABORTED if not done; so does its opening. After an
     * abort, or after a group operation that failed, later ones end with ABORTED. An operation of which the device or
     * the transport does not let go never ends: its memory stays in use. Any thread. Idempotent.
     */
    sluice_status (*abort)(struct sluice_group *group);

    /*
     * Optional from here on: NULL where the device has no streams that a program could share with us.
     *
     * A point in a program's stream of work, or in one of ours. Any thread; blocks on nothing. INVALID: a stream of
     * another device, an event that was never recorded. STATE: the stream is being captured. DEVICE: with native code.
     */
    sluice_status (*point_open)(const struct sluice_backend_config *config, enum sluice_point_kind kind, void *handle,
                                struct sluice_point **ret);
    /* OK: it has passed. AGAIN: not yet, or not set. Else `error` says what became of the work before. Any thread. */
    sluice_status (*point_query)(struct sluice_point *point, struct sluice_error *error);
    /* Makes a stream of the caller wait for the point. AGAIN: not set yet. Any thread. */
    sluice_status (*point_wait)(struct sluice_point *point, void *stream);
    /* Any thread; no operation uses it any more. */
    void (*point_close)(struct sluice_point *point);
    /* Enqueues a copy set in a stream of the caller, in whose order it runs. Any thread; the set must stay open. */
    sluice_status (*copy_on)(struct sluice_set *set, void *stream);
    /*
     * What only an open device knows: `identity`, `transport_cpu_ns`, `host_staging_bytes`; `channels`, unless
     * variables of NCCL say other numbers. Any thread.
     */
    void (*describe)(struct sluice_device *device, struct sluice_backend_info *ret);
    /*
     * For benchmarks: copies contiguous pieces by the device's own asynchronous copy call, one call a piece, waits, and
     * gives the nanoseconds by the device's clock.
     */
    sluice_status (*copy_time)(struct sluice_device *device, const struct sluice_copy *pieces, size_t count,
                               uint64_t *ret_ns);
    /* 1: a set that needs the processor, for memory that the device doesn't reach: copy_on refuses it (UNSUPPORTED). */
    uint32_t (*is_staged)(const struct sluice_set *set);
    /* 1: a group sends from and receives into memory at `address`; 0: only from staging. NULL: any memory will do. */
    uint32_t (*is_direct)(struct sluice_device *device, uint64_t address);
};

#ifdef __cplusplus
}
#endif
#endif
