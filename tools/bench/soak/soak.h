/*
 * soak.h: what the supervisor (supervisor.c) and the ranks (rank.c, step.c, content.c) of bench_soak share.
 *
 * - A world lives for an epoch, in which its ranks move one version after the other (steps). The supervisor publishes an
 *   epoch's goal when every process that lives waits for one; nobody else changes it.
 * - What a step is follows from seed and version alone, so all ranks submit alike. Whether faults are on is decided by
 *   the first rank that comes to the step, for all.
 * - A hit (a rank killed, or stopped beyond the heartbeat's limit) is written down before it happens: without one in
 *   its epoch, no world may break.
 */
#ifndef SL_BENCH_SOAK_H
#define SL_BENCH_SOAK_H

#include <stdatomic.h>

#include "sluice/runtime.h"
#include "sluice/transfer.h"

enum { SOAK_RANKS = 4, SOAK_SOURCES = 2, SOAK_PARAMS = 24, SOAK_RING = 256, SOAK_TEXT = 1500, SOAK_SLOTS = 8 };
enum { SOAK_ALL = (1 << SOAK_RANKS) - 1, SOAK_STEP_BITS = 24 };

/* How a world begins, and which of the first ranks it has. */
enum soak_kind { SOAK_OPEN = 1, SOAK_RECOVER = 2, SOAK_END = 3 };

/* Bits of a step's decision. */
enum { SOAK_FAULTY = 1, SOAK_LEAVE = 2, SOAK_CANCELLED = 4 };

enum soak_outcome { SOAK_OK = 0, SOAK_CANCEL = 1, SOAK_GATE = 2, SOAK_LOSS = 3, SOAK_OUTCOMES = 4 };

/* One step as its ranks see it; a cell belongs to the highest version that came to it. */
struct soak_cell {
    atomic_uint_fast64_t decision;            /* version, then 8 bits */
    atomic_uint_fast64_t outcome[SOAK_RANKS]; /* version, 1 bit "holds it", 7 bits of status */
};

struct soak_seat {
    atomic_uint waiting; /* the epoch that is over for it */
    atomic_uint running; /* the epoch in which it moves versions */
    atomic_uint_fast64_t beat_ns;
    _Atomic(const char *) doing;
    atomic_uint_fast64_t outcomes[SOAK_OUTCOMES], verified_bytes;
};

struct soak_board {
    uint64_t seed, heartbeat_ns;
    atomic_uint goal_epoch; /* published last */
    uint32_t kind, mask, port;
    atomic_uint leave;   /* epochs up to it are to be left at the next step */
    atomic_uint hit;     /* the last epoch that lost a rank */
    atomic_uint victims; /* the ranks that were hit in that epoch */
    atomic_bool faults;
    atomic_uint violations;
    char violation[SOAK_TEXT]; /* the first one */
    struct soak_cell ring[SOAK_RING];
    struct soak_seat seats[SOAK_RANKS];
};

/* What a step is, alike on all ranks; ranks by their first numbers. */
struct soak_step {
    uint64_t version;
    _Bool first, faulty, shadow, verify, changed_only, partial, gated, at_staged;
    uint64_t asked, fresh; /* parameters that move, parameters with new content */
    uint64_t pace, gate_timeout_ns;
    uint64_t gate_delay_ns[SOAK_RANKS];
    uint32_t pauses, cancels, withholds; /* a rank, or SOAK_RANKS for none */
    uint64_t pause_ns, cancel_ns;
};

/* Events of one transfer. */
struct soak_events {
    sluice_gate *staged_gate; /* opened at STAGED; NULL: none */
    atomic_uint terminal, released, late;
    atomic_uint kind; /* of the terminal event */
    atomic_bool over;
};

struct soak_rank {
    struct soak_board *board;
    struct soak_seat *seat;
    uint32_t number, epoch, mask, step;
    sluice_runtime *runtime;
    sluice_plan *first, *plan; /* of the world of all ranks; of this world, may be the same */
    sluice_gate *gate;         /* of this world: source or consumer */
    uint64_t *buffers[SOAK_PARAMS];
    uint64_t stamp[SOAK_PARAMS];              /* the sources' content, by the version that brought it */
    uint64_t held[SOAK_PARAMS][SOAK_SOURCES]; /* a destination's; 0: not known */
    struct soak_events events[SOAK_SLOTS];
};

uint64_t soak_now(void);
void soak_nap(uint64_t ns);
/* Says that the rank is alive and what it does. */
void soak_beat(struct soak_rank *rank, const char *doing);
/* Something that may never be; ends the process. */
_Noreturn void soak_violation(const struct soak_rank *rank, const char *format, ...) SLUICE_PRINTF(2, 3);
/* Whether the rank's epoch has lost a rank. */
_Bool soak_hit(const struct soak_rank *rank);

/* content.c */
_Bool soak_is_source(uint32_t rank);
void soak_memory_open(struct soak_rank *rank);
void soak_memory_close(struct soak_rank *rank);
/* The plan of the world of all ranks, bound to the rank's buffers. */
sluice_status soak_plan(const struct soak_rank *rank, sluice_plan **ret_plan);
/* Writes the parameters of a source anew. */
void soak_fill(const struct soak_rank *rank, uint64_t params);
/* Whether a destination has what `held` says, or, of the parameters given, what `stamp` says. */
_Bool soak_holds(const struct soak_rank *rank);
_Bool soak_has_stamps(const struct soak_rank *rank, uint64_t params);

/* step.c */
struct soak_step soak_draw(const struct soak_rank *rank, uint64_t version, _Bool faulty);
/* One version; false: this world is over. */
_Bool soak_move(struct soak_rank *rank);
/* An event function, with a struct soak_events as user. */
void soak_on_event(const struct sluice_event *event, void *user);

/* rank.c: one process, which knows that the epochs up to `epoch` are over; its exit status. */
int soak_rank(struct soak_board *board, uint32_t number, uint32_t epoch);

#endif
