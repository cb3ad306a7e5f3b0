/*
 * seal.h: how ranks agree on a plan before it first runs. Pure: no socket, clock or thread.
 *
 * One rank's seal is a small machine: give the part of the next round, feed the round's result, until
 * done. Rank 0 reduces the parts of a round without any memory of earlier rounds. A failed round
 * carries its error to every rank, so nobody waits for a rank that has found a fault.
 *
 *   begin ─► next_part ─► (round: sl_seal_reduce at rank 0) ─► feed ─► done? result : next_part
 *
 * Rounds: TERMS (options, versions, environment, a digest per pair stream, proposal of N), RECHECK
 * (N grew or pairs were dealt into blocks: everybody proposes again, at most SL_SEAL_RECHECKS times)
 * and DETAIL (two digests differ: both ranks of the pair list its tasks; it always ends in MISMATCH).
 */
#ifndef SL_CONTROL_SEAL_H
#define SL_CONTROL_SEAL_H

#include "runtime/control/control.h"
#include "scheduler/schedule.h"

#define SL_SEAL_RECHECKS 8u

/* What a rank brings beside its half of the plan. */
struct sl_seal_terms {
    /* Compared between all ranks. */
    enum sluice_policy policy;
    uint64_t window_bytes;
    uint64_t direct_min;
    uint32_t slots;
    _Bool force;
    uint32_t items_max;       /* streams a rank may have in one group; 0: no limit */
    uint32_t backend_version; /* of the transport's library (NCCL); 0: none */
    const char *environment;  /* sl_seal_environment's text; NULL: nothing to compare */
    /* This rank's own. */
    _Bool want_packed;              /* direct_min must become 0, or a group here would break its rule */
    uint64_t shadow_bytes;          /* memory for shadow landing; 0: none */
    uint32_t windows;               /* BALANCED: the fewest wanted here, or 0; others: N of sl_assign_windows */
    const uint32_t *window_of_task; /* the same call's; NULL for BALANCED; outlives the seal */
};

/* What was agreed: equal on all ranks, but for the map, which has this rank's streams only. */
struct sl_seal_result {
    struct sl_rule rule;             /* direct_min is 0 when a rank wanted everything packed */
    uint32_t staged;                 /* W: windows [0, W) fit the shadow memory of every destination rank */
    const uint16_t *block_of_stream; /* half->stream_count entries, owned by the seal; NULL with one block */
};

struct sl_seal;

/*
 * `plan` and `half` outlive the seal. NOMEM. When no N keeps window_bytes, the first part says so and the
 * round ends with LIMIT on every rank.
 */
sluice_status sl_seal_begin(const struct sl_plan *plan, const struct sl_half *half, const struct sl_seal_terms *terms,
                            struct sl_mem *mem, struct sl_seal **ret);
/* NULL is allowed. */
void sl_seal_end(struct sl_seal *seal);
/* The part for the next round; belongs to the seal until the next call. NOMEM. */
sluice_status sl_seal_next_part(struct sl_seal *seal, struct sl_bytes *ret);
/* The result of the round. `*ret_done`: sl_seal_result is valid. PROTOCOL, NOMEM. */
sluice_status sl_seal_feed(struct sl_seal *seal, const uint8_t *data, size_t bytes, _Bool *ret_done);
/* Valid once done, as long as the seal. */
const struct sl_seal_result *sl_seal_result(const struct sl_seal *seal);

/*
 * The part of a rank that cannot seal (its plan is invalid): every rank then gets this error
 * at once, with the rank in front. Give it in place of sl_seal_next_part's. Free `*ret_data` with sl_free.
 */
sluice_status sl_seal_failed_part(const struct sluice_error *failure, struct sl_mem *mem, uint8_t **ret_data,
                                  size_t *ret_bytes);

/*
 * Rank 0: reduces one round. Errors go to every rank: MISMATCH (names rank and option, variable or
 * task), LIMIT (rank and limit), PEER_FAILED, PROTOCOL (rank), NOMEM.
 */
sluice_status sl_seal_reduce(const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem, uint8_t **ret_data,
                             size_t *ret_bytes, struct sluice_error *error);

/*
 * The variables of an environment block that change how NCCL cuts and moves a group, as sorted lines
 * "NAME=value". Free `*ret_text` with sl_free. NOMEM.
 */
sluice_status sl_seal_environment(const char *const *environment, struct sl_mem *mem, char **ret_text);

#endif
