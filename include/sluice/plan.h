/*
 * plan.h: who sends which bytes to whom.
 *
 * - A plan holds the world size, parameters, buffers and tasks. It comes from a file, from the
 *   planner (layout.h) or from calls. It is built by one thread, validated, bound, then sealed.
 * - A whole plan knows both ends of every task. A partial plan (add_send, add_recv) knows the
 *   tasks of one rank only; the seal compares it with the other ranks' halves.
 * - Tasks of a pair of ranks run in task-id order, whatever the order of the calls.
 * - A plan is not thread-safe before it is sealed; a sealed plan is immutable but for `rebind`.
 */
#ifndef SLUICE_PLAN_H
#define SLUICE_PLAN_H

#include "sluice/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The two kinds of buffer that a parameter can have on a rank. */
enum sluice_role { SLUICE_ROLE_SOURCE = 0, SLUICE_ROLE_DESTINATION = 1 };

/*
 * A strided piece of a buffer: `rows` rows of `row_bytes`, `pitch` bytes from row to row, beginning
 * at `offset`. It is contiguous when rows <= 1 or pitch == row_bytes. Otherwise pitch > row_bytes.
 */
struct sluice_region {
    uint64_t offset;
    uint64_t row_bytes;
    uint64_t rows;
    uint64_t pitch;
};

/* No global position: a task's content position is its source region's (struct sluice_task). */
#define SLUICE_ORIGIN_NONE UINT64_MAX

/*
 * One transfer of one parameter slice, 96 bytes, the record of the binary plan file. Both regions
 * hold the same number of bytes. `origin` is the byte offset of the slice's first byte in the whole
 * parameter; rows follow each other there at the parameter's `row_bytes`. It serves generated
 * content and digests only.
 */
struct sluice_task {
    uint64_t id;
    uint32_t source;      /* rank */
    uint32_t destination; /* rank */
    uint32_t param;       /* parameter id */
    uint16_t part;        /* order among tasks of one id; 0 in files */
    uint8_t source_dtype; /* enum sluice_dtype; NONE: that end is unknown here */
    uint8_t destination_dtype;
    struct sluice_region from;
    struct sluice_region to;
    uint64_t origin;
};

/* A parameter. `bytes` and `row_bytes` describe the whole (unsharded) tensor seen as rows. */
struct sluice_param {
    uint32_t id;   /* dense: 0, 1, 2 ... in model order */
    uint8_t dtype; /* enum sluice_dtype */
    uint64_t bytes;
    uint64_t row_bytes; /* of the whole tensor; 0: one row */
    const char *name;   /* copied by the call; owned by the plan when returned */
};

/* A new, empty plan. `world` is 1..SLUICE_WORLD_MAX. Free with sluice_plan_destroy. Errors: INVALID, NOMEM. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_create(uint32_t world, sluice_plan **ret_plan);

/*
 * Reads a plan file of either form (binary or JSON, told apart by the first bytes) and validates
 * it. Free with sluice_plan_destroy. Errors: IO, PARSE (with offset, or line and column), PLAN (names the task),
 * LIMIT, NOMEM.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_load(const char *path, sluice_plan **ret_plan);

/*
 * Validates a plan and writes its file: JSON when the name ends in ".json", else binary. The file appears whole or
 * not at all. Errors: IO, PLAN, STATE (a partial plan cannot be written), NOMEM.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_save(const sluice_plan *plan, const char *path);

/*
 * Drops the caller's reference. Transfers that run keep the plan alive. NULL is allowed. Any thread. Of a plan that was
 * sealed the child of a fork drops nothing.
 */
SLUICE_API void sluice_plan_destroy(sluice_plan *plan);

/* Parameters are added in id order: 0, 1, 2 ... Errors: INVALID, LIMIT, STATE (sealed), NOMEM. */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_add_param(sluice_plan *plan, const struct sluice_param *param);

/*
 * The size of one parameter's buffer on one rank; lets validation check bounds before binding. Errors: INVALID, LIMIT,
 * STATE (sealed), NOMEM; a buffer that is given twice, or of a parameter that is not there, is found by validation.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_add_buffer(sluice_plan *plan, uint32_t param, uint32_t rank,
                                                                 enum sluice_role role, uint64_t bytes);

/*
 * Adds a task of which both ends are known; it is copied. Ids must be unique. Errors: LIMIT, STATE (sealed, or the plan
 * has halves), NOMEM; what is wrong with a task is found by validation.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_add_task(sluice_plan *plan, const struct sluice_task *task);

/*
 * The rank's own half of a task, for callers where each rank knows only its own tasks. A repeated id
 * to the same peer gets part numbers in order of addition. A local task needs both calls. Parameters
 * that were not added are created with the region's dtype and an empty name. Errors: INVALID (dtype, rank), LIMIT,
 * STATE (sealed, or the plan has whole tasks), NOMEM; the rest is found by validation.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_add_send(sluice_plan *plan, uint64_t id, uint32_t param,
                                                               uint8_t dtype, uint32_t destination,
                                                               const struct sluice_region *from);
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_add_recv(sluice_plan *plan, uint64_t id, uint32_t param,
                                                               uint8_t dtype, uint32_t source,
                                                               const struct sluice_region *to);

/*
 * Checks a plan: ids, sizes and dtypes of both ends, bounds, wrap-around, overlapping destinations.
 * O(n log n). Error: PLAN, and the text names the task or tasks. Loading and sealing do this.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_validate(const sluice_plan *plan);

/* What a plan holds. Any thread on a plan that nobody changes; 0 for NULL. */
/* Ranks. */
SLUICE_API uint32_t sluice_plan_world(const sluice_plan *plan);
/* Tasks; of a partial plan this rank's halves. */
SLUICE_API uint64_t sluice_plan_tasks(const sluice_plan *plan);
/* Parameters: ids are 0 to this less one. */
SLUICE_API uint32_t sluice_plan_params(const sluice_plan *plan);
/* Bytes of all tasks. */
SLUICE_API uint64_t sluice_plan_bytes(const sluice_plan *plan);

/*
 * One parameter, to find a program's tensor by its name. The name is the plan's, and stays where it is until the plan
 * changes or is destroyed. Any thread on a plan that nobody changes. NOT_FOUND: no such parameter.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_param(const sluice_plan *plan, uint32_t param,
                                                            struct sluice_param *ret_param);

/*
 * The size in bytes of a parameter's buffer on a rank, as the plan says; plans of the planner say it for every buffer
 * that a task touches. NOT_FOUND: the plan names no such buffer. STATE: tasks or buffers were added since the plan was
 * validated. Any thread on a plan that nobody changes.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_buffer(const sluice_plan *plan, uint32_t param, uint32_t rank,
                                                             enum sluice_role role, uint64_t *ret_bytes);

/*
 * Says where this rank's buffer of a parameter is. The memory stays the caller's and must live until
 * the plan is destroyed or rebound; backend cuda takes memory of the device, pinned and pageable memory, the host
 * backend memory of the process. Zero-byte buffers may be NULL. Binding again replaces. The seal checks that every
 * task has a buffer that is large enough and that no destination overlaps another buffer. Errors: INVALID, STATE
 * (sealed; use rebind), NOMEM.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_bind(sluice_plan *plan, uint32_t param, enum sluice_role role,
                                                           void *memory, uint64_t bytes);

/*
 * Moves a binding of a sealed plan, without a new seal; the next submit uses it. Any thread. Errors: INVALID, PLAN (too
 * small for its tasks, or overlaps another buffer), STATE (not sealed, not bound before, or a transfer of
 * this plan runs), NOMEM.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_rebind(sluice_plan *plan, uint32_t param, enum sluice_role role,
                                                             void *memory, uint64_t bytes);

/* How windows are cut (docs/scheduling.md). */
enum sluice_policy {
    SLUICE_POLICY_BALANCED = 0, /* equal shares of every pair stream; the default */
    SLUICE_POLICY_ORDERED = 1,  /* every pair cut at common parameter boundaries */
    SLUICE_POLICY_LOCKSTEP = 2, /* batches of 32 parameters, then windows of 256 task ids */
    SLUICE_POLICY_WINDOWS = 3,  /* windows of 256 task ids */
    SLUICE_POLICY_SINGLE = 4    /* one group; refused where it would hang, unless forced */
};

/* Sealed options: compared between the ranks. Zero means the default. */
struct sluice_seal_options {
    uint32_t size;
    uint32_t policy;        /* enum sluice_policy */
    uint64_t window_bytes;  /* most bytes a rank moves each way per window; default 256 MB (10^6) */
    uint64_t direct_min;    /* pieces at least this large are messages of their own; 0: all packed */
    uint64_t shadow_bytes;  /* memory for shadow landing on this rank; 0: none. Not compared */
    uint32_t shadow_memory; /* enum sluice_memory (backend.h): DEVICE (default) or PINNED. Not compared */
    uint32_t slots;         /* rotating staging slots, 2..8; default 3 */
    uint32_t force;         /* 1: run policy SINGLE even where the model says it hangs */
    uint32_t reserved;
    /*
     * BALANCED: most bytes (at least 16) that a rank copies within itself per window; 0: no limit, so copies alone are
     * one window, and a pace or a pause finds no boundary in them. Not compared.
     */
    uint64_t local_window_bytes;
};
#define SLUICE_SEAL_OPTIONS_INIT SLUICE_SIZED(struct sluice_seal_options)

/*
 * The plan for the ranks of a recovered runtime, or of one opened again: the tasks among them, with their new
 * numbers, and this rank's bindings. `plan` is the one of the world that was opened first (of which the runtime
 * may have lost ranks again and again). The new plan is open. Where `plan` was sealed, its windows are cut as they
 * were, so that a transfer can go on (option `resume`), if no rank is missing, or the policy is BALANCED and the pairs
 * are in one block (docs/scheduling.md); else everything moves.
 * Errors: INVALID, PLAN (for another world), LIMIT, NOMEM. Call it when no other thread uses `plan`.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_recover(const sluice_plan *plan, const sluice_runtime *runtime,
                                                              sluice_plan **ret_plan);

/*
 * Agrees on the plan with all ranks: every rank calls it, in the same order for several plans. Ends
 * with the event SLUICE_EVENT_SEALED or SLUICE_EVENT_FAILED on the runtime's event function. After a
 * mismatch every rank has an error that names the first differing task, both sizes and both ranks,
 * and nothing was launched. What this rank can find out alone is the result of the call, without an
 * event; the other ranks then fail at once with this rank's words. After a failure the plan is as before.
 * Never blocks; any thread. `options` are copied; NULL: all defaults. Errors: INVALID, STATE, PLAN, NOMEM, LIMIT (31
 * seals under way), CLOSED, POISONED, PEER_LOST, HANG (policy SINGLE).
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_seal(sluice_plan *plan, sluice_runtime *runtime,
                                                           const struct sluice_seal_options *options);

/*
 * The same and waits for the end, at most `timeout_ns` (0: the runtime's seal deadline). Errors: those of the call
 * above, STATE (inside a callback), TIMEOUT, and what the ranks found out together: MISMATCH, LIMIT (staging),
 * PEER_FAILED, PEER_LOST, DEVICE, TRANSPORT.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_seal_wait(sluice_plan *plan, sluice_runtime *runtime,
                                                                const struct sluice_seal_options *options,
                                                                uint64_t timeout_ns);

/* Windows of a sealed plan; 0 before. Any thread. */
SLUICE_API uint32_t sluice_plan_windows(const sluice_plan *plan);

/*
 * The first window that needs this parameter's buffer of that role on this rank; a gate on it must
 * not depend on any window at or after it. Any thread. NOT_FOUND: no task touches it. STATE: the plan is not sealed.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_first_window(const sluice_plan *plan, uint32_t param,
                                                                   enum sluice_role role, uint32_t *ret_window);

#ifdef __cplusplus
}
#endif
#endif
