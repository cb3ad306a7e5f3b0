/*
 * arbiter.h: rank 0's decisions about runs, as a pure step machine: notes in, notes out.
 *
 * Invariants: grants of all runs form one numbered stream; a grant is the minimum of READY over the
 * ranks; after FREEZE no grant is given until RESUME; an outcome is given once per phase; OK only if
 * every rank voted OK. No clock: time comes in. No allocation after create but per run (bounded).
 */
#ifndef SL_CONTROL_ARBITER_H
#define SL_CONTROL_ARBITER_H

#include "runtime/base/memory.h"
#include "runtime/control/note.h"

struct sl_arbiter;

struct sl_arbiter_config {
    uint32_t world;
    uint32_t runs_max;
    struct sl_mem *mem;
    uint32_t host; /* the rank that it runs on; 0 at first */
    /* The rank that hosted the last one is lost: tell sl_arbiter_lost of every lost rank before any note. It asks the
     * others how far their runs were, ends each alike, and lets none start. */
    _Bool takeover;
};

struct sl_arbiter *sl_arbiter_create(const struct sl_arbiter_config *config); /* NULL: out of memory */
void sl_arbiter_destroy(struct sl_arbiter *arbiter);
/* A note of rank note->rank arrived at `now`. */
void sl_arbiter_note(struct sl_arbiter *arbiter, const struct sl_note *note, uint64_t now);
/* A rank is gone: every run that it takes part in fails, once. */
void sl_arbiter_lost(struct sl_arbiter *arbiter, uint32_t rank, const char *text, uint64_t now);
/* Pace and coalescing: call at or after the time that `sl_arbiter_timer` gave. */
void sl_arbiter_tick(struct sl_arbiter *arbiter, uint64_t now);
/* When the next tick is wanted; UINT64_MAX: none. */
uint64_t sl_arbiter_timer(const struct sl_arbiter *arbiter);
/* Takes the next note for all ranks; false when there is none. After each call above: until there is none. */
_Bool sl_arbiter_next(struct sl_arbiter *arbiter, struct sl_note *ret);

#endif
