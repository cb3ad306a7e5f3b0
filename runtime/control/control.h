/*
 * control.h: the control plane of one rank: a thread with its own libevent base, a TCP star to a hub.
 *
 * - Carries rounds (every rank gives bytes, the hub reduces, everybody gets the result), notes (note.h)
 *   and heartbeats. Nothing else is on the wire.
 * - The hub is rank 0. When it is lost, the lowest rank that lives takes its place, if more than half of all
 *   ranks come to it; otherwise each is alone, and hears so by SL_NOTE_LOST without an arbiter.
 * - Handlers run on the control thread and must not block or call back into control but to post.
 * - `round`, `tell` and `close` may be called from any thread.
 */
#ifndef SL_CONTROL_CONTROL_H
#define SL_CONTROL_CONTROL_H

#include <stdatomic.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/control/note.h"
#include "sluice/runtime.h"

/* Who we are and where rank 0 is (identity.c fills it from options, settings and launcher variables). */
struct sl_identity {
    uint32_t rank, world, local_rank, local_world;
    char address[256];
    uint32_t port;
    char token_file[512]; /* "" : the default file for loopback */
    const char *source;   /* "options", "torchrun", "Open MPI", "PMI", "Slurm", "one rank" */
    /* local_world 0: how many ranks share the host is not known; it is never guessed. */
    const char *local_missing;   /* NULL: local_rank is known; else the variable or option that would say it */
    char job[128];               /* the launcher's name of this job, so that two jobs on one port never mix; "": none */
    char runtime_directory[256]; /* XDG_RUNTIME_DIR; "": /run/user/UID or /tmp/sluice-UID, for the default token */
};
/* CONFIG naming the variable and its value. Opens nothing. docs/concepts.md has the rule. */
sluice_status sl_identity_find(const struct sluice_runtime_options *options, const char *const *environment,
                               struct sl_identity *ret);

struct sl_bytes {
    const uint8_t *data;
    size_t bytes;
};

/* The hub: reduces the parts of all ranks (in rank order) into a result that it allocates from `mem`. */
typedef sluice_status (*sl_reduce_fn)(void *context, uint32_t kind, const struct sl_bytes *parts, uint32_t world,
                                      struct sl_mem *mem, uint8_t **ret_data, size_t *ret_bytes,
                                      struct sluice_error *error);

struct sl_control_handlers {
    void *context;
    /* The end of a round: status OK and the result, or an error (mismatch, lost peer, deadline). */
    void (*on_round)(void *context, uint32_t kind, uint64_t id, sluice_status status, const struct sluice_error *error,
                     const uint8_t *data, size_t bytes);
    /*
     * A note for this rank's engine. SL_NOTE_LOST comes with status PEER_LOST, or with CLOSED when the
     * rank said goodbye: then it is a loss only for runs that still need it. It comes once more, with b = 1,
     * when another rank takes the arbiter's place.
     */
    void (*on_note)(void *context, const struct sl_note *note);
    sl_reduce_fn reduce;
};

struct sl_control_config {
    struct sl_identity identity;
    struct sl_control_handlers handlers;
    const struct sl_clock *clock;
    const struct sl_log *log;
    struct sl_mem *mem;
    sluice_allgather_fn allgather; /* NULL: TCP bootstrap by identity */
    void *allgather_user;
    uint64_t bootstrap_timeout_ns;
    const atomic_uint *interrupt; /* joining ends with CANCELLED once it is not 0; NULL: nobody interrupts */
    uint64_t heartbeat_ns;        /* UINT64_MAX: none; a peer is lost after 5 silent intervals */
    uint32_t runs_max;            /* live runs of the arbiter; 0: 256 */
    /*
     * What must not be shared between ranks, named so that equal texts mean the same device (a GPU's UUID). Two ranks
     * with one device are refused, both named. NULL or "": sharing is no fault.
     */
    const char *device;
    /* This rank cannot take part: it joins only to tell the others why. open then returns this error. */
    const struct sluice_error *failure;
};

struct sl_control;

/* Joins all ranks; blocks at most the bootstrap deadline. TIMEOUT names missing ranks; AUTH; CONFIG; SYSTEM. */
sluice_status sl_control_open(const struct sl_control_config *config, struct sl_control **ret);
/* Says goodbye (so that peers know it was no loss), stops the thread, frees. Bounded. */
void sl_control_close(struct sl_control *control);

/*
 * Gives this rank's part of a round. Rounds are matched by (kind, id); all ranks give each round once.
 * The data is copied. `timeout_ns` counts from the first part at the hub; on_round always comes, once.
 * A round of a kind below SL_ROUND_SURVIVORS fails when a rank is gone; others end with the parts of those
 * that are left (`data` of the gone is NULL), and one that failed may be given again.
 */
#define SL_ROUND_SURVIVORS 64u
sluice_status sl_control_round(struct sl_control *control, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                               uint64_t timeout_ns);

/*
 * Sends a note to the arbiter at the hub (which may be this process). Never blocks. READY notes of a run
 * that follow each other within 200 us become one, the newest. NOMEM; CLOSED after close.
 */
sluice_status sl_control_tell(struct sl_control *control, const struct sl_note *note);

/* "127.0.0.1:4711", where a rank listens; every rank knows it of every rank. "" in a world of one. */
void sl_control_address(const struct sl_control *control, uint32_t rank, char *text, size_t capacity);

#endif
