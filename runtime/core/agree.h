/*
 * agree.h: what the ranks agree on about one transfer beside the engine's notes: which parameters changed, and that
 * the digests add up.
 *
 * Every rank gives its part of every round of a transfer exactly once, at the latest when the transfer ends here. A
 * part says whether the rank still takes part; if one does not, the round has no result.
 */
#ifndef SL_CORE_AGREE_H
#define SL_CORE_AGREE_H

#include "runtime/core/sealed.h"

/* Rounds beside those of the seal (sealed.h); their id is the key of the run. */
enum { SL_ROUND_CHANGED = 16, SL_ROUND_DIGESTS = 17, SL_ROUND_DIGESTS_REST = 18, SL_ROUND_RESUME = 19 };

enum { SL_CHECKS = 2 }; /* digests are compared once for the staged windows and once for the rest */

/* How a transfer with `changed_only` finds its parameters; one with `resume` its first window, from DIGESTED on. */
enum sl_changed {
    SL_CHANGED_NOT = 0,      /* it takes what it was given */
    SL_CHANGED_GATES = 1,    /* waits until its sources may be read */
    SL_CHANGED_DIGESTS = 2,  /* digests are under way */
    SL_CHANGED_DIGESTED = 3, /* there */
    SL_CHANGED_ROUND = 4,    /* the ranks exchange what changed */
    SL_CHANGED_KNOWN = 5     /* its gate is open */
};

struct sl_agree {
    enum sl_changed changed;
    uint32_t changed_gate; /* index of the run's gate that holds all windows until then */
    struct sluice_set *sources;
    uint32_t *source_params; /* of `sources` */
    uint64_t *source_digests;
    size_t source_count;
    uint8_t given;            /* bit: kind - SL_ROUND_CHANGED */
    uint8_t launched, passed; /* checks, bit: 0 the staged windows, 1 the rest */
    uint32_t left[SL_CHECKS]; /* operations whose end is to come before the digests are there */
};

struct sluice_transfer;

/*
 * Rank 0, pure. The result of CHANGED is the union, of DIGESTS the ids of parameters that do not add up, of RESUME the
 * least.
 */
sluice_status sl_agree_reduce(uint32_t kind, const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem,
                              uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error);

/* --- scheduler thread --- */
/* Does what is due for all runs; true when anything moved. */
_Bool sl_agree_advance(struct sl_driver *driver);
/* Counts the operations before each check, once flags are known. */
void sl_agree_count(struct sluice_transfer *transfer);
void sl_agree_launched(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window);
/* An operation of the transfer ended well. */
void sl_agree_done(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window);
/* The digests of the sources are there. */
void sl_agree_digested(struct sl_driver *driver, const struct sluice_completion *completion);
void sl_agree_round_ended(struct sl_driver *driver, uint32_t kind, uint64_t id, const struct sluice_error *error,
                          const uint8_t *data, size_t bytes);
/* The transfer is over here: gives the parts that it has not given, and notes what the buffers hold. */
void sl_agree_end(struct sl_driver *driver, struct sluice_transfer *transfer);
void sl_agree_drop(struct sluice_transfer *transfer);

/* resume.c */
/* How many of the windows that an application says to have are windows of this plan. */
uint32_t sl_resume_windows(const struct sl_sealed *sealed, uint32_t given);
/* Takes the work out of the windows that all ranks have; with flags and bytes of all windows filled in. */
void sl_resume_skip(struct sluice_transfer *transfer);
void sl_resume_progress(const struct sluice_transfer *transfer, struct sluice_progress *progress);

/* changed.c */
/* Opens the digest set of this rank's sources and hands it over. NOMEM, DEVICE. */
sluice_status sl_changed_start(struct sl_driver *driver, struct sluice_transfer *transfer);
/* This rank's part of the union. */
void sl_changed_fill(const struct sluice_transfer *transfer, uint64_t *words);
/* Remembers what the buffers hold after a transfer that ended well, or not. */
void sl_changed_note(struct sluice_transfer *transfer, _Bool good);

#endif
