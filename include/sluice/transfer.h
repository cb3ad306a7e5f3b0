/*
 * transfer.h: gates, and running a sealed plan.
 *
 * - A gate is a condition of the application: a source may be read, a destination may be written.
 *   Every byte passes a gate check before it is read and before it is written; without a gate the
 *   submit itself says "open".
 * - Gates are observed by the host and never enqueued on a device. They are one-shot.
 * - A gate must not depend on a window at or after the first one that needs it (sluice_plan_first_window).
 * - A gate is for transfers on the runtime that it was made with. Making one may fail with NOMEM. All functions here
 *   may be called from any thread, callbacks too, but for sluice_transfer_wait.
 */
#ifndef SLUICE_TRANSFER_H
#define SLUICE_TRANSFER_H

#include "sluice/base.h"
#include "sluice/observe.h"
#include "sluice/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A gate that sluice_gate_open opens. Drop it with sluice_gate_destroy, as all gates. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_gate_host(sluice_runtime *runtime, sluice_gate **ret_gate);

/*
 * A gate that opens once *word >= value (read with acquire order). The word must outlive the gate. INVALID: it is not
 * aligned to 8 bytes.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_gate_value(sluice_runtime *runtime, const uint64_t *word,
                                                            uint64_t value, sluice_gate **ret_gate);

/*
 * A gate that opens when `query` returns OK; AGAIN: not yet; an error fails the transfers that wait
 * for it. Called from the scheduler thread while a run waits, every 50 microseconds; must not block or
 * call the library. `drop` (may be NULL) runs when the gate is freed, on whatever thread; where no gate could be made
 * `context` stays the caller's. cuda.h makes such gates of streams and events.
 */
typedef sluice_status (*sluice_gate_query_fn)(void *context, struct sluice_error *error);
typedef void (*sluice_gate_drop_fn)(void *context);
SLUICE_API SLUICE_NODISCARD sluice_status sluice_gate_query(sluice_runtime *runtime, sluice_gate_query_fn query,
                                                            sluice_gate_drop_fn drop, void *context,
                                                            sluice_gate **ret_gate);

/* Opens a host gate. Idempotent. Any thread, callbacks too. STATE for another kind of gate. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_gate_open(sluice_gate *gate);
/* Closes an open gate again, of any kind. BUSY while a transfer uses it, that is until its RELEASED event. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_gate_reset(sluice_gate *gate);
/* Re-checks a gate of kind value or query now instead of at the next poll; nothing for a host gate. Any thread. */
SLUICE_API void sluice_gate_poke(sluice_gate *gate);
/*
 * Drops the caller's reference; transfers hold their own, so it may follow the submit. NULL is allowed. The child of a
 * fork drops nothing.
 */
SLUICE_API void sluice_gate_destroy(sluice_gate *gate);

/* Where received bytes go first. */
enum sluice_landing {
    SLUICE_LANDING_IN_PLACE = 0, /* into the weights as windows run; a failure leaves a torn version */
    SLUICE_LANDING_SHADOW = 1    /* into memory of ours; the commit copies to the weights */
};

/* A gate for one parameter's buffer, beside the default gate of its role. */
struct sluice_param_gate {
    uint32_t param;
    uint32_t role; /* enum sluice_role */
    sluice_gate *gate;
};

/* Zero means the default. Arrays are copied by submit. Every rank submits alike but for gates. */
struct sluice_transfer_options {
    uint32_t size;
    uint32_t landing;           /* enum sluice_landing */
    uint64_t version;           /* > the plan's last; 0: last + 1 */
    sluice_gate *source_gate;   /* default gate of every source buffer; NULL: open */
    sluice_gate *consumer_gate; /* default gate of every destination buffer; NULL: open */
    const struct sluice_param_gate *param_gates;
    size_t param_gate_count;
    sluice_event_fn on_event; /* may be NULL */
    void *user;
    uint64_t gate_timeout_ns;       /* for gates of this rank; waiting for other ranks is none. 0: none */
    uint64_t timeout_ns;            /* of the whole transfer; 0: none */
    uint64_t pace_bytes_per_second; /* of each rank; 0: unlimited; rank 0's value counts */
    uint32_t priority;              /* higher first at each grant; rank 0's value counts */
    uint32_t allow_torn;            /* 1: shadow landing with less memory than the whole version */
    uint32_t window_events;         /* 1: an event per window */
    uint32_t param_events;          /* 1: an event per complete parameter */
    const uint64_t *params;         /* bitmap of parameters that move, all ranks alike; NULL: all */
    size_t params_words;            /* 64-bit words of `params` */
    uint32_t changed_only;          /* 1: only what changed since the version that the destinations have */
    uint32_t verify;                /* 1: digests of what was read and what landed must agree, else CORRUPT */
    /*
     * 1: goes on with a version that failed in place, on a plan of sluice_plan_recover; all ranks alike.
     * `resume_windows`: the first windows that this rank has (windows_done of the failed transfer's progress, or 0).
     * Windows that every rank has are not moved again, so its sources and destinations must be as that transfer left
     * them.
     */
    uint32_t resume;
    uint32_t resume_windows;
};
#define SLUICE_TRANSFER_OPTIONS_INIT SLUICE_SIZED(struct sluice_transfer_options)

/*
 * Starts one run of a sealed plan and returns at once. Every rank submits the same runs of a plan in
 * the same order; runs of one plan follow each other. `options` NULL: all defaults. `*ret_transfer` is
 * set before the first callback runs, and inside a callback none runs before submit has returned.
 * Allowed inside callbacks. The transfer is the caller's to destroy, also after its end. Errors: AGAIN
 * (transfers_max are pending: come back after a RELEASED event), STATE (not sealed), INVALID (an option, a gate of
 * another runtime, too little shadow memory), UNSUPPORTED (changed_only, verify: no digests on this backend), NOMEM,
 * CLOSED, POISONED, PEER_LOST (with the reason: recover the runtime, or open it again), FORKED.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_submit(sluice_plan *plan,
                                                        const struct sluice_transfer_options *options,
                                                        sluice_transfer **ret_transfer);

/*
 * Cancels on all ranks at a window boundary; COMPLETED or COMMITTED may still win. Idempotent; any
 * thread. Buffers are free at RELEASED, not before.
 */
SLUICE_API void sluice_transfer_cancel(sluice_transfer *transfer);
/* Pause and resume at window boundaries, on all ranks. Any thread. */
SLUICE_API void sluice_transfer_pause(sluice_transfer *transfer);
SLUICE_API void sluice_transfer_resume(sluice_transfer *transfer);
/* Changes the pace of all ranks from the next window on; 0: unlimited. Counts on rank 0 alone. Any thread. */
SLUICE_API void sluice_transfer_set_pace(sluice_transfer *transfer, uint64_t bytes_per_second);

/*
 * Waits until RELEASED was delivered, at most timeout_ns (UINT64_MAX: no limit), and returns the
 * transfer's final status: OK, CANCELLED, or the error that FAILED carried. With FD delivery it
 * dispatches events itself; with an event_base it returns when the transfer is released, and its last
 * events may still be to come on the loop. Inside a callback: STATE. TIMEOUT: it still runs.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_transfer_wait(sluice_transfer *transfer, uint64_t timeout_ns);

/* The error of a failed or cancelled transfer, copied (status OK while there is none). Any thread. */
SLUICE_API void sluice_transfer_error(const sluice_transfer *transfer, struct sluice_error *ret_error);

/*
 * Drops the caller's reference; a live transfer runs on. No callback of it runs after this returns
 * (inside a callback: after that one). On another thread it waits for the callback that is running, so
 * hold no lock that the callback takes. The child of a fork drops nothing.
 */
SLUICE_API void sluice_transfer_destroy(sluice_transfer *transfer);

#ifdef __cplusplus
}
#endif
#endif
