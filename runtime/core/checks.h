/*
 * checks.h: digests of what a transfer reads and of what landed.
 *
 * Made on the scheduler thread before the first window is launched, dropped there when nothing is in flight.
 */
#ifndef SL_CORE_CHECKS_H
#define SL_CORE_CHECKS_H

#include "runtime/core/sealed.h"

/* Whose digest a value is. A piece has the same position at both ends. */
struct sl_mark {
    uint64_t position;
    uint32_t param;
    _Bool landed; /* 0: as it was read at the source */
};

/* Digest sets of one window; NULL where there is nothing. Numbers are indices into `digests`. */
struct sl_window_check {
    struct sluice_set *source, *landed, *local;
    size_t first_source, first_landed, first_local;
};

struct sl_checks {
    struct sl_sealed *sealed;
    struct sl_window_check *windows;
    uint64_t *digests;
    struct sl_mark *marks; /* of `digests` */
    size_t digest_count;
};

/* `staged`: windows that land in shadow. NOMEM, DEVICE. */
sluice_status sl_checks_new(struct sl_sealed *sealed, const struct sl_view *view, uint32_t staged,
                            struct sl_checks **ret);
void sl_checks_drop(struct sl_checks *checks);
/* Adds the digests of windows [first, end) to `sums`, one a parameter: what was read, less what landed. */
void sl_checks_sum(const struct sl_checks *checks, uint32_t first, uint32_t end, uint64_t *sums);

#endif
