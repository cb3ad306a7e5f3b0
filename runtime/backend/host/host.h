/*
 * host.h: what the files of the host backend share.
 *
 *   device.c   the table, memory, poll and arm          queue.c    worker threads and their operations
 *   set.c      copy sets                                segment.c  memory that other processes map
 *   socket.c   abstract sockets, descriptors in messages
 *   connect.c  the opening of a communicator            transfer.c one group operation
*   group.c    communicators, abort                    lane.c     one direction of one pair
 *   lease.c    staged messages that the receiver reads in the sender's memory
 *
 * Threads: the scheduler thread calls the table; each queue has one worker; each communicator has one thread while it
 * opens. A field says who may touch it: "scheduler", "worker" (of that queue), "turn" (the worker whose group operation
 * of that communicator runs), or it is atomic or never changes.
 */
#ifndef SL_HOST_HOST_H
#define SL_HOST_HOST_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend/host/bell.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "sluice/backend.h"

#define SL_HOST_QUEUES       64u        /* of one device */
#define SL_HOST_MARKERS      4096u      /* of one device */
#define SL_HOST_OPS          256u       /* of one queue, from submit to poll */
#define SL_HOST_MESSAGES_MAX (1u << 18) /* of one group operation */
#define SL_HOST_SEGMENTS     256u       /* SEND allocations of one device */
#define SL_HOST_POSTS        256u       /* messages that one end may be ahead of the other */
#define SL_HOST_LEASES       64u        /* messages of one lane that the receiver may read in place at a time */
#define SL_HOST_BOUNCE       (UINT64_C(1) << 20)       /* for messages from memory that is not shared */
#define SL_HOST_STEP         (UINT64_C(1) << 20)       /* bytes copied before other pairs get their turn */
#define SL_HOST_SLICE        (20 * SLUICE_MILLISECOND) /* longest sleep before a look at sockets and flags */
#define SL_HOST_END          UINT32_MAX                /* of a list of messages */
#define SL_HOST_WHERE        "host"

/* --- segment.c: memory of a memfd that cannot shrink --- */

struct sl_host_memory {
    uint8_t *base;
    uint64_t bytes;
    int fd; /* -1: mapped from a peer, or nothing */
};

/* Zeroed memory, its descriptor kept. `peers_write`: whoever gets the descriptor may map it for writing. NOMEM, SYSTEM. */
sluice_status sl_host_memory_open(uint64_t bytes, const char *what, bool peers_write, struct sl_host_memory *ret);
/* Maps what a peer sent; checks that it has `bytes` bytes and cannot shrink. Takes `fd` in any case. PROTOCOL, NOMEM. */
sluice_status sl_host_memory_map(int fd, uint64_t bytes, bool writable, struct sl_host_memory *ret);
void sl_host_memory_drop(struct sl_host_memory *memory);

/* A SEND allocation. The table is guarded by segments_lock: workers look addresses up. */
struct sl_host_segment {
    struct sl_host_memory memory;
    uint32_t id; /* unique in the device; 0: free entry */
};

/* --- what two processes share --- */

/* One per rank and communicator; its owner sleeps on the bell. */
struct sl_host_page {
    struct sl_bell bell;
    _Atomic uint32_t down;   /* the owner runs no more groups: minus the status */
    _Atomic uint32_t closed; /* 1: the owner reads nothing of its peers any more */
};

enum sl_host_how { SL_HOST_SHARED = 1, SL_HOST_BOUNCED = 2 };

#define SL_HOST_NO_LEASE UINT32_MAX

struct sl_host_post {
    uint64_t bytes;
    uint64_t offset; /* SHARED: in the segment */
    uint32_t segment;
    uint32_t how;
    uint32_t lease; /* SHARED: index into the lane's leases, or NO_LEASE: to be copied before the message is done */
    uint32_t reserved;
};

/*
 * One direction of a pair. Message i of the lane lies in entry i % SL_HOST_POSTS. Counters only grow.
 * The sender reuses an entry of send_posts when the receiver is done with its message, and the other way round.
 */
struct sl_host_lane {
    alignas(64) _Atomic uint64_t send_posted; /* sender */
    _Atomic uint64_t send_done;
    _Atomic uint64_t produced;                /* bytes put into `bounce` */
    alignas(64) _Atomic uint64_t recv_posted; /* receiver */
    _Atomic uint64_t recv_done;
    _Atomic uint64_t consumed;
    alignas(64) struct sl_host_post send_posts[SL_HOST_POSTS];
    uint64_t recv_posts[SL_HOST_POSTS]; /* bytes */
    _Atomic uint64_t
        leases[SL_HOST_LEASES]; /* receiver: i + 1 once message i, which had this lease, is not read any more */
    alignas(4096) uint8_t bounce[SL_HOST_BOUNCE];
};

struct sl_host_pair {
    struct sl_host_lane lanes[2]; /* [0]: from the lower rank to the higher */
};

/* --- one peer of a communicator --- */

/* A segment of the peer that we mapped. Changed in turn; `held` by any worker. */
struct sl_host_map {
    struct sl_host_map *next;
    struct sl_host_memory memory;
    uint32_t id;
    bool dropped;          /* the peer freed it; unmapped when nothing is held */
    _Atomic uint32_t held; /* landings that point into it */
};

/* Where one direction of a link stands. Turn. */
struct sl_host_side {
    struct sl_host_lane *lane; /* NULL: this direction was not asked for */
    uint64_t posted;           /* messages that this end posted */
    uint64_t done;             /* messages that this end finished */
    uint64_t moved;            /* bytes of the current message */
    uint32_t post;             /* next message of the group operation to post */
    uint32_t move;             /* the current one */
    uint32_t last;             /* end of the list while it is built */
};

struct sl_host_link {
    struct sluice_group *group;
    uint32_t peer;
    int fd;                     /* seqpacket socket; -1 until connected */
    struct sl_host_memory pair; /* struct sl_host_pair */
    struct sl_host_memory page; /* the peer's struct sl_host_page */
    struct sl_host_side sending, receiving;
    _Atomic bool lost;                    /* the socket is at its end */
    bool dirty;                           /* turn: the peer has something to see */
    bool doomed;                          /* turn: the peer is lost or has failed; what it left may still be enough */
    uint64_t leased[SL_HOST_LEASES];      /* turn: i + 1 when message i was the last to get this lease */
    struct sl_host_map *maps;             /* turn */
    uint32_t announced[SL_HOST_SEGMENTS]; /* ids of our segments that the peer was given; under segments_lock */
};

enum sl_host_open_state { SL_HOST_OPENING = 0, SL_HOST_OPEN = 1, SL_HOST_OPEN_FAILED = 2 };

/* A communicator. `refs` counts the handle and every landing and lease; the last one frees it. */
struct sluice_group {
    struct sluice_device *device;
    struct sluice_group *next; /* scheduler: groups of the device */
    _Atomic uint32_t refs;
    uint32_t rank, world;
    struct sl_host_link **links; /* by rank; NULL where no peer */
    uint32_t link_count;

    /* opening: the thread's, and after it ended the scheduler's */
    struct sluice_blob *blobs;
    uint8_t *peers;
    int listener;
    pthread_t thread;
    bool thread_started;
    uint64_t cookie;
    bool reported;          /* scheduler: poll delivered the completion */
    _Atomic uint32_t state; /* enum sl_host_open_state, written last */
    struct sluice_error open_error;

    struct sl_host_memory page; /* our struct sl_host_page */
    _Atomic bool aborted;
    _Atomic bool finished;        /* closed without an abort before: what peers have not read yet stays theirs */
    uint64_t tickets;             /* scheduler: group operations accepted */
    _Atomic uint64_t serving;     /* the ticket whose turn it is */
    struct sluice_error failure;  /* turn: why no further group can run; status OK while none */
    struct sl_host_link **active; /* turn: links that the current operation uses */
    uint32_t active_count;
};

static inline struct sl_host_page *sl_host_page(const struct sl_host_memory *memory)
{
    return (struct sl_host_page *)(void *)memory->base;
}

/* --- queues --- */

/* The last RECORD of a marker. */
struct sl_host_marker {
    uint64_t sequence;
    uint32_t queue; /* index */
    bool recorded;
};

/* Operations that the queue of one index has done. It goes on growing when the index is used by a later queue. */
struct sl_host_counter {
    alignas(64) _Atomic uint64_t done;
};

struct sl_host_op {
    struct sluice_op op;
    uint64_t ticket;             /* GROUP */
    struct sl_host_marker until; /* WAIT */
    struct sluice_completion completion;
};

/* Where the bytes of a received message are. Address of byte i: message address + delta + i. */
struct sl_host_landing {
    struct sl_host_link *link; /* NULL: in the memory that the message names */
    struct sl_host_map *map;
    uint64_t sequence;
    uint64_t delta;
    uint32_t lease;
};

/* A message that a peer may still read in our memory. */
struct sl_host_lease {
    struct sl_host_link *link;
    uint64_t sequence;
    uint32_t index;
};

struct sluice_queue {
    struct sluice_device *device;
    uint32_t index;
    pthread_t thread;
    struct sl_bell bell; /* something was submitted */
    _Atomic bool stop;
    _Atomic bool starved;                   /* submit said AGAIN: any finished operation is worth a wake-up */
    alignas(64) _Atomic uint64_t submitted; /* scheduler */
    struct sl_host_counter *counter;        /* worker */
    uint64_t reaped;                        /* scheduler */
    struct sl_host_op *ops;                 /* SL_HOST_OPS of them */

    /* worker: large arrays whose pages are touched only as far as they are used */
    struct sl_host_landing *landings;
    uint32_t landing_count;       /* messages of the last group operation, 0 after its unpack set */
    sluice_status landing_status; /* of the last group operation */
    struct sl_host_lease *leases;
    uint32_t lease_count;
    uint32_t *next;                 /* lists of messages per lane */
    struct sluice_error unreported; /* failure of an operation without a completion; the next one carries it */
};

/* A listener that group_address made and group_open has not taken yet. */
struct sl_host_listener {
    struct sl_host_listener *next;
    struct sluice_blob blob;
    int fd;
};

struct sluice_device {
    struct sl_mem *mem;
    struct sluice_backend_config config;
    struct sl_log log;
    uint64_t host; /* sl_host_identity: asked once, as there may be hundreds of peers */
    struct sluice_queue *queues[SL_HOST_QUEUES];
    struct sluice_group *groups;
    struct sl_host_listener *listeners;
    struct sl_host_marker *markers;   /* scheduler */
    struct sl_host_counter *counters; /* by index of the queue */
    struct sl_bell bell;              /* markers, turns, aborts */
    _Atomic bool armed;
    uint32_t next_queue; /* where poll begins, so that no queue starves */
    uint64_t staging_bytes;
    pthread_mutex_t segments_lock;
    struct sl_host_segment segments[SL_HOST_SEGMENTS];
    uint32_t next_segment;
};

static inline uint64_t sl_host_now(const struct sluice_device *device)
{
    return device->config.now(device->config.clock);
}

/* --- device.c --- */
/* After something became visible to poll. Any thread. */
void sl_host_notify(struct sluice_device *device);

/* --- queue.c --- */
sluice_status sl_host_queue_open(struct sluice_device *device, struct sluice_queue **ret);
void sl_host_queue_close(struct sluice_queue *queue);
sluice_status sl_host_submit(struct sluice_queue *queue, const struct sluice_op *op);
/* Takes finished operations; up to `max` completions. Scheduler. */
uint32_t sl_host_queue_reap(struct sluice_queue *queue, struct sluice_completion *ret, uint32_t max);
/* A completion or wanted room is waiting. Scheduler. */
bool sl_host_queue_pending(struct sluice_queue *queue);
/* Starts a thread with all signals blocked and a name. SYSTEM. */
sluice_status sl_host_thread(void *(*body)(void *), void *argument, const char *name, pthread_t *ret);

/* --- set.c --- */
sluice_status sl_host_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                               const struct sluice_copy *pieces, size_t count, struct sluice_set **ret);
void sl_host_set_close(struct sluice_set *set);
enum sluice_copy_kind sl_host_set_kind(const struct sluice_set *set);
/* Copies all pieces; an UNPACK set reads its messages where `queue` says that they landed. Worker. */
/* One value a piece. A worker. */
void sl_host_set_digest(const struct sluice_set *set, uint64_t *ret_digests);
sluice_status sl_host_set_run(const struct sluice_set *set, const struct sluice_queue *queue);

/* --- segment.c: SEND allocations and their way to peers --- */
sluice_status sl_host_segment_open(struct sluice_device *device, uint64_t bytes, void **ret);
void sl_host_segment_close(struct sluice_device *device, void *memory);
/*
 * Fills a post for a message inside one of our segments, after giving the segment to the peer where needed.
 * NOT_FOUND: the memory is not shared. AGAIN: the socket is full. Else the link is at its end. Turn.
 */
sluice_status sl_host_segment_post(struct sl_host_link *link, uint64_t address, uint64_t bytes,
                                   struct sl_host_post *ret);
/* The map that a post of the peer names. PROTOCOL when it was not announced or is too small. Turn. */
sluice_status sl_host_map_find(struct sl_host_link *link, const struct sl_host_post *post, struct sl_host_map **ret);
void sl_host_maps_drop(struct sl_host_link *link);

/* --- socket.c --- */
#define SL_HOST_FDS_MAX 2u
/* One datagram with descriptors; never blocks. AGAIN, PEER_LOST. */
sluice_status sl_host_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count);
/* AGAIN when nothing is there; PEER_LOST at the end; PROTOCOL on a wrong size. Descriptors are the caller's. */
sluice_status sl_host_receive(int fd, void *data, size_t bytes, int *fds, uint32_t *ret_fd_count);
/* Whether the process at the other end has our user id. */
bool sl_host_same_user(int fd);

/* What a blob holds. */
struct sl_host_address {
    uint32_t magic;
    uint32_t version;
    uint64_t host; /* sl_host_identity */
    char name[48]; /* of the abstract socket */
    uint8_t secret[32];
};
sluice_status sl_host_listener_open(struct sluice_device *device, struct sluice_blob *ret);
void sl_host_listener_drop(struct sluice_device *device, struct sl_host_listener *listener);
/* Takes the listener that `blob` names, or -1. */
int sl_host_listener_take(struct sluice_device *device, const struct sluice_blob *blob);
/* Reads the blob of `rank`. PROTOCOL; UNSUPPORTED when that rank is on another host. */
sluice_status sl_host_address_read(const struct sluice_device *device, const struct sluice_blob *blob, uint32_t rank,
                                   struct sl_host_address *ret);
/* Differs between machines, boots and network namespaces. */
uint64_t sl_host_identity(void);
/* Non-blocking connection. AGAIN when the listener's queue is full; PEER_LOST. */
sluice_status sl_host_dial(const struct sl_host_address *address, uint32_t rank, int *ret_fd);

/* --- connect.c --- */
/* The opening thread of a communicator; `argument` is the group. */
void *sl_host_connect(void *argument);

/* --- group.c --- */
sluice_status sl_host_group_open(struct sluice_device *device, const struct sluice_group_config *config,
                                 uint64_t cookie, struct sluice_group **ret);
void sl_host_group_close(struct sluice_group *group);
sluice_status sl_host_group_abort(struct sluice_group *group);
void sl_host_group_hold(struct sluice_group *group);
void sl_host_group_release(struct sluice_group *group);
/* INVALID when a message cannot belong to a group of this communicator. Scheduler. */
sluice_status sl_host_group_check(const struct sluice_group *group, const struct sluice_op *op);

/* --- transfer.c --- */
/* Runs one group operation to its end; always passes the turn on. Worker. */
sluice_status sl_host_group_run(struct sluice_queue *queue, struct sl_host_op *slot);

/* --- lane.c: one step of one direction; never sleeps. Turn. --- */
struct sl_host_step {
    struct sluice_queue *queue;
    const struct sluice_message *messages;
    bool moved; /* out: something was done */
};
sluice_status sl_host_step_send(struct sl_host_link *link, struct sl_host_step *step);
sluice_status sl_host_step_receive(struct sl_host_link *link, struct sl_host_step *step);

/* --- lease.c --- */
/* Waits until no peer reads what this queue sent. ABORTED. Worker. */
sluice_status sl_host_leases_wait(struct sluice_queue *queue);
/* Forgets leases that ended. Worker. */
void sl_host_leases_prune(struct sluice_queue *queue);
void sl_host_lease_add(struct sluice_queue *queue, struct sl_host_link *link, uint64_t sequence, uint32_t index);
/* Gives all messages of the last group back to their senders. Worker. */
void sl_host_landings_release(struct sluice_queue *queue);
/* Queue is closing: both of the above without waiting. */
void sl_host_leases_drop(struct sluice_queue *queue);
/* Reads nothing: says whether the peer's socket is at its end, and remembers it. Any worker. */
bool sl_host_link_lost(struct sl_host_link *link);

#endif
