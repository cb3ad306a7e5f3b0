/*
 * note.h: the small messages between a rank's engine and the arbiter of rank 0. Pure data, fixed size.
 *
 * A run is named by its key, alike on all ranks: (seal number of the plan << 32) | run number. Notes of
 * one rank arrive in the order they were sent; the arbiter's answers arrive at every rank in one order.
 */
#ifndef SL_CONTROL_NOTE_H
#define SL_CONTROL_NOTE_H

#include "sluice/base.h"

enum sl_note_kind {
    /* rank -> arbiter */
    /* The run was submitted here. a: windows N, b: options digest, c: priority, d: pace in bytes per second (0: none),
     * e: most bytes that a window moves here, f: shadow landing: staged windows + 1, in place: 0. */
    SL_NOTE_JOIN = 1,
    SL_NOTE_READY = 2,    /* a: the first a windows have all gates open here; monotone */
    SL_NOTE_LAUNCHED = 3, /* answer to FREEZE. a: windows launched here, b: the number of the FREEZE */
    SL_NOTE_VOTE = 4,     /* a: enum sl_phase, status, text. An error fails the run on all ranks at once */
    /* a: enum sl_request, b: its value; FAIL: status, text. FAIL instead of JOIN: the run cannot begin here, and
     * this rank has nothing to release. */
    SL_NOTE_REQUEST = 5,
    SL_NOTE_BROKEN = 6, /* no run: the communicator of this rank is gone; status, text */
    /* To an arbiter that takes over, for every run here. a: windows, b: options digest, c: phases voted OK, d: outcomes
     * OK seen (bit 1 << phase), f: as in JOIN; status, text: the run has failed here. SL_KEY_NONE: that was the last. */
    SL_NOTE_STANDING = 7,
    /* arbiter -> all ranks */
    SL_NOTE_GRANT = 16,   /* a: windows that may launch, b: number in the grant stream, c: ranks not ready for the
                           * window after, rank: one of them */
    SL_NOTE_FREEZE = 17,  /* a: enum sl_request (PAUSE, CANCEL or FAIL), b: number: launch no more, answer LAUNCHED */
    SL_NOTE_STOP_AT = 18, /* a: all ranks run to window a and stop there; b: the request; status, rank, text */
    SL_NOTE_OUTCOME = 19, /* a: enum sl_phase, status (OK: all voted OK), rank: the first that did not, text */
    SL_NOTE_RESUME = 20,
    /* No run: rank is gone; text says how it was noticed; a: rank of the arbiter + 1, 0: none left; b: 1 when this rank
     * was told before. */
    SL_NOTE_LOST = 21,
    /* Both ways, no run: the communicator cannot be opened on `rank`. a: number of the seal, status, text. */
    SL_NOTE_SEAL_FAILED = 23,
    SL_NOTE_POISON = 22 /* no run: the communicator of `rank` is gone, so it is everybody's; status, text */
};

enum sl_phase {
    SL_PHASE_STAGED = 1,  /* windows [0, W) landed in shadow and verified */
    SL_PHASE_DECIDE = 2,  /* consumer gates open everywhere: the point of no return */
    SL_PHASE_FINAL = 3,   /* every byte is in place */
    SL_PHASE_RELEASED = 4 /* no rank touches buffers any more */
};

enum sl_request {
    SL_REQUEST_PAUSE = 1,
    SL_REQUEST_RESUME = 2,
    SL_REQUEST_CANCEL = 3,
    SL_REQUEST_FAIL = 4,
    SL_REQUEST_PACE = 5
};

#define SL_NOTE_TEXT_MAX 256

#define SL_KEY_NONE UINT64_MAX /* of no run; the first run of the first plan has key 0 */

struct sl_note {
    uint64_t key;
    uint64_t a, b, c, d, e, f;
    uint32_t kind;               /* enum sl_note_kind */
    uint32_t rank;               /* sender, or the rank that a note is about */
    int32_t status;              /* sluice_status */
    char text[SL_NOTE_TEXT_MAX]; /* of an error */
};

#endif
