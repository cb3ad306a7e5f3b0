/*
 * observe.h: events, progress and explanations.
 *
 * - Events are delivered one at a time, in order per transfer, on the runtime's delivery thread
 *   (runtime.h), never from inside the call that caused them.
 * - A transfer has exactly one terminal event (COMPLETED, COMMITTED, FAILED or CANCELLED), then
 *   RELEASED, the last one: from there on no buffer of the caller is touched.
 */
#ifndef SLUICE_OBSERVE_H
#define SLUICE_OBSERVE_H

#include "sluice/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sluice_event_kind {
    SLUICE_EVENT_SEALED = 1,    /* plan: it can run */
    SLUICE_EVENT_STARTED = 2,   /* transfer: its first window was launched */
    SLUICE_EVENT_WINDOW = 3,    /* transfer: `window` is done on this rank (option window_events) */
    SLUICE_EVENT_PARAM = 4,     /* transfer: `param` arrived whole on this rank (option param_events) */
    SLUICE_EVENT_STAGED = 5,    /* transfer: all ranks hold the staged prefix; open consumer gates */
    SLUICE_EVENT_COMPLETED = 6, /* terminal: in_place landing, all ranks have every byte */
    SLUICE_EVENT_COMMITTED = 7, /* terminal: all destination ranks switched to `version` */
    SLUICE_EVENT_FAILED = 8,    /* terminal for a transfer; also ends a seal. `error` says why */
    SLUICE_EVENT_CANCELLED = 9, /* terminal */
    SLUICE_EVENT_RELEASED = 10, /* last event of a transfer */
    SLUICE_EVENT_CLOSED = 11,   /* last event of a runtime */
    SLUICE_EVENT_STALLED = 12,  /* runtime: warning; nobody drains events, or no progress */
    SLUICE_EVENT_PEER_LOST = 13 /* runtime: `rank` is gone */
};

struct sluice_event {
    uint32_t size;
    uint32_t kind; /* enum sluice_event_kind */
    sluice_runtime *runtime;
    sluice_plan *plan;         /* NULL where none */
    sluice_transfer *transfer; /* NULL for events of a plan or runtime */
    uint64_t version;          /* of the transfer */
    uint32_t window;
    uint32_t param;
    uint32_t rank;
    uint32_t reserved;
    uint64_t time_ns;                 /* monotonic clock when it happened */
    const struct sluice_error *error; /* FAILED, STALLED, PEER_LOST; valid during the callback */
};

/* `event` is valid during the call only. May call any function of the library but close_wait. */
typedef void (*sluice_event_fn)(const struct sluice_event *event, void *user);

/* Where time went, in nanoseconds summed over windows (busy time, stages overlap each other). */
struct sluice_stage_times {
    uint64_t gate_ns;  /* waiting for gates of this rank */
    uint64_t grant_ns; /* gates open here, waiting for other ranks */
    uint64_t pack_ns;
    uint64_t group_ns;
    uint64_t unpack_ns;
    uint64_t local_ns;
    uint64_t commit_ns;
};

/* A snapshot of one transfer on this rank. */
struct sluice_progress {
    uint32_t size;
    uint32_t state; /* enum sluice_transfer_state */
    uint64_t version;
    uint32_t windows_done;
    uint32_t windows_total;
    uint32_t params_done; /* destination parameters of this rank that arrived whole */
    uint32_t params_total;
    uint64_t bytes_done; /* sent, received and copied by this rank */
    uint64_t bytes_total;
    double bytes_per_second; /* since the first launch */
    uint64_t elapsed_ns;     /* since submit */
    uint64_t left_ns;        /* estimate; UINT64_MAX when unknown */
    struct sluice_stage_times stages;
    uint64_t gate_wait_ns; /* waiting for consumer gates after the prefix was staged */
    uint64_t commit_ns;    /* from the decision to the last committed byte */
    /* Option `resume`: windows that all ranks had, so that none moved them again; of those that moved, windows and
     * their bytes that this rank had already. */
    uint32_t windows_skipped;
    uint32_t windows_again;
    uint64_t bytes_again;
};

#define SLUICE_PROGRESS_INIT SLUICE_SIZED(struct sluice_progress)

enum sluice_transfer_state {
    SLUICE_TRANSFER_QUEUED = 0,
    SLUICE_TRANSFER_RUNNING = 1,
    SLUICE_TRANSFER_PAUSED = 2,
    SLUICE_TRANSFER_STAGED = 3, /* waits for consumer gates or the decision */
    SLUICE_TRANSFER_COMMITTING = 4,
    SLUICE_TRANSFER_DONE = 5,
    SLUICE_TRANSFER_FAILED = 6,
    SLUICE_TRANSFER_CANCELLED = 7
};

enum sluice_log_level {
    SLUICE_LOG_ERROR = 0,
    SLUICE_LOG_WARN = 1,
    SLUICE_LOG_INFO = 2,
    SLUICE_LOG_DEBUG = 3,
    SLUICE_LOG_TRACE = 4
};

/* May be called from any library thread, one line without a newline; must not call the library. */
typedef void (*sluice_log_fn)(enum sluice_log_level level, const char *topic, const char *text, void *user);

/* Fills a snapshot, which `ret` has room for as its `size` says. Any thread. INVALID: `ret->size` is not set. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_transfer_progress(const sluice_transfer *transfer,
                                                                   struct sluice_progress *ret);

/*
 * Says in words what an unfinished transfer waits for: window, stage, gates, ranks. Writes at most
 * `bytes` including the terminator; returns the length that the whole text has. Any thread.
 */
SLUICE_API size_t sluice_transfer_explain(const sluice_transfer *transfer, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
