/*
 * runtime.h: one rank's runtime: its threads, backend, control plane and delivery of events.
 *
 * - Every rank opens one runtime; opening is collective (bootstrap) and has a deadline.
 * - Functions may be called from any thread unless they say otherwise.
 * - Library threads block all signals. User code runs on the callback thread; queries of gates on the scheduler thread.
 */
#ifndef SLUICE_RUNTIME_H
#define SLUICE_RUNTIME_H

#include "sluice/base.h"
#include "sluice/observe.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base; /* libevent's */

/* How events reach the program. */
enum sluice_delivery {
    SLUICE_DELIVER_THREAD = 0,    /* on a callback thread of the library; the default */
    SLUICE_DELIVER_FD = 1,        /* poll sluice_runtime_fd, then call sluice_dispatch */
    SLUICE_DELIVER_EVENT_BASE = 2 /* on the loop of `event_base`, whichever thread runs it; open adds an event to it */
};

/*
 * The caller's own all-gather, in place of the TCP bootstrap: `send` of `bytes` from every rank,
 * in rank order, into `recv` of world * bytes. Called from the opening thread; returns 0 on success.
 */
typedef int (*sluice_allgather_fn)(const void *send, void *recv, size_t bytes, void *user);

/*
 * Zero means the default of a field. Settings of the environment (docs/settings.md) fill what is zero. The struct and
 * its texts need not outlive sluice_runtime_open; `event_base` and `user` stay in use.
 */
struct sluice_runtime_options {
    uint32_t size;
    uint32_t delivery;             /* enum sluice_delivery */
    const char *backend;           /* "host" (default without a GPU), "cuda", "sim" */
    struct event_base *event_base; /* for SLUICE_DELIVER_EVENT_BASE; must outlive the runtime */
    sluice_event_fn on_event;      /* events of plans and of the runtime; may be NULL */
    sluice_log_fn on_log;          /* NULL: errors and warnings to stderr */
    void *user;                    /* for the two above */
    uint32_t log_level;            /* enum sluice_log_level, plus one; 0: the default, WARN */

    /* Who we are. `world` 0: taken from the launcher's variables (docs/concepts.md). */
    uint32_t world;
    uint32_t rank;
    uint32_t local_rank;           /* used with `world` only */
    uint32_t local_world;          /* used with `world` only */
    const char *address;           /* of rank 0; default MASTER_ADDR */
    uint32_t port;                 /* default SLUICE_PORT, then MASTER_PORT */
    uint32_t device;               /* plus one; 0: local_rank modulo devices */
    const char *token_file;        /* default SLUICE_TOKEN_FILE */
    sluice_allgather_fn allgather; /* NULL: TCP to `address` */
    void *allgather_user;

    /* Deadlines; 0: the default, UINT64_MAX: none. */
    uint64_t bootstrap_timeout_ns; /* 60 s */
    uint64_t seal_timeout_ns;      /* 60 s */
    uint64_t stall_timeout_ns;     /* 30 s without progress after a launch */
    uint64_t abort_timeout_ns;     /* 5 s */
    uint64_t heartbeat_ns;         /* interval, 1 s; a peer is lost after 5 missed */

    uint64_t staging_bytes_max; /* device or host staging; default 4 GiB */
    uint32_t transfers_max;     /* queued and running; default 16 */
    uint32_t events_max;        /* undelivered events before STALLED; default 4096 */
    uint32_t max_ctas;          /* cuda: multiprocessors for kernels of ours; default 16 */
    uint32_t queue_priority;    /* cuda: 0 low (default), 1 high */
    uint32_t trace;             /* 1: record node times for sluice_runtime_trace_write */
    uint32_t device_shared;     /* cuda: 0: two ranks on one GPU are refused, 1: it may be shared (docs/run.md) */
    /* cuda: most pinned memory for staging buffers in pageable memory; taken with the first one; default 64 MiB */
    uint64_t host_staging_bytes_max;
};
#define SLUICE_RUNTIME_OPTIONS_INIT SLUICE_SIZED(struct sluice_runtime_options)

/*
 * Opens a runtime and joins the other ranks; blocks until all are there, at most the bootstrap
 * deadline. `options` NULL: all defaults. End it with sluice_runtime_close_wait. Errors: CONFIG (names option or
 * variable; two ranks on one GPU), INVALID (an option's value), TIMEOUT (names missing ranks), PEER_FAILED (another
 * rank cannot take part: why), MISMATCH (another version or world there), AUTH, NOT_FOUND (no such backend),
 * UNSUPPORTED (backend not usable: why), DEVICE, LIMIT, SYSTEM, NOMEM.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_runtime_open(const struct sluice_runtime_options *options,
                                                              sluice_runtime **ret_runtime);

/*
 * Starts the end: no new work is taken, live transfers are cancelled. SLUICE_EVENT_CLOSED confirms,
 * then sluice_runtime_destroy may be called. Idempotent; allowed inside a callback.
 */
SLUICE_API void sluice_runtime_close(sluice_runtime *runtime);
/*
 * Frees a closed runtime; waits for its threads. Handles of it may still be destroyed later. One thread, which is not
 * inside a callback of this runtime (there it does nothing but log an error). NULL is allowed.
 */
SLUICE_API void sluice_runtime_destroy(sluice_runtime *runtime);
/*
 * close, waits for the end, destroy. It dispatches events itself with FD delivery, and with an event_base
 * whose loop runs on no other thread: call it on the loop's thread, or while the loop runs elsewhere.
 * Inside a callback it only starts the closing. In the child of a fork it does nothing. NULL is allowed.
 */
SLUICE_API void sluice_runtime_close_wait(sluice_runtime *runtime);

/*
 * Forms a new epoch of the ranks that are left after others were lost, or after a communicator was. All that
 * are left call it, once their transfers are RELEASED; it blocks until they are there, at most `timeout_ns`
 * (0: the bootstrap deadline). The new runtime has the options of the old one; its ranks are numbered from 0 in
 * the order of the old numbers (sluice_runtime_origin), and plans follow by sluice_plan_recover. More than half
 * of the old runtime's ranks must be left; the loss of rank 0 is no different from another's.
 *
 * After success the old runtime is closing (sluice_runtime_close); destroy it before a plan is sealed on the new
 * one, which has nothing of a lost rank: a GPU takes the communicator of one runtime. After an error it is as it
 * was, and the call may be repeated. To go on with all ranks once the lost ones were started again, no call is
 * needed: close, open as at first, sluice_plan_recover.
 *
 * With an event_base call it where sluice_runtime_open is allowed. Not inside a callback, and not while another
 * thread closes the runtime. Errors: TIMEOUT (names the ranks that did not call), PEER_LOST (another loss came in
 * between), STATE (inside a callback; a world of one; no majority is left, or rank 0 closed its runtime), BUSY
 * (transfers are not released), CLOSED, FORKED, and those of sluice_runtime_open.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_runtime_recover(sluice_runtime *runtime, uint64_t timeout_ns,
                                                                 sluice_runtime **ret_runtime);

/* This rank's number, from 0. Any thread. */
SLUICE_API uint32_t sluice_runtime_rank(const sluice_runtime *runtime);
/* How many ranks there are; 0 for NULL. Any thread. */
SLUICE_API uint32_t sluice_runtime_world(const sluice_runtime *runtime);
/* The number that `rank` had in the world that was opened first; UINT32_MAX: no such rank. Any thread. */
SLUICE_API uint32_t sluice_runtime_origin(const sluice_runtime *runtime, uint32_t rank);
/* OK, or why no seal and no submit can run any more: POISONED, PEER_LOST, CLOSED, FORKED. Any thread. */
SLUICE_API sluice_status sluice_runtime_status(const sluice_runtime *runtime);

/* SLUICE_DELIVER_FD: readable while events wait. Owned by the runtime. -1 for other deliveries. Any thread. */
SLUICE_API int sluice_runtime_fd(const sluice_runtime *runtime);
/* SLUICE_DELIVER_FD: delivers all waiting events on the calling thread; returns how many. One thread at a time. */
SLUICE_API uint32_t sluice_dispatch(sluice_runtime *runtime);

/*
 * Writes what was traced so far as Chrome/Perfetto JSON (docs/run.md has the names). The file appears whole or not at
 * all. Any thread. Errors: STATE (opened without the option `trace`), IO.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_runtime_trace_write(sluice_runtime *runtime, const char *path);

/* The committed (or completed) version of a plan's destinations on this rank; 0 before. Any thread. */
SLUICE_API uint64_t sluice_version(const sluice_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
