/*
 * stage_bench.h: staging through slots, with a device made of lists: it does what was enqueued at some later time, so a
 * slot that is used again too early brings wrong bytes. Everything asserts.
 */
#ifndef SL_TESTS_STAGE_BENCH_H
#define SL_TESTS_STAGE_BENCH_H

#include "runtime/backend/stage.h"
#include "runtime/base/random.h"

enum { STAGE_STREAMS = 4, STAGE_ENTRIES = 256, STAGE_SLOT = 128 << 10 };

/* One chunk's device part in a stream. */
struct stage_entry {
    const struct sl_stage_plan *plan;
    uint32_t chunk;
};

struct stage_stream {
    struct stage_entry entries[STAGE_ENTRIES]; /* number n at n % STAGE_ENTRIES */
    uint32_t count, done;
    struct sl_stage_op op;
    _Bool ended, lost;
};

struct stage_bench {
    struct sl_stage_slots slots;
    struct sl_crew *crew;
    struct sl_stage *stage;
    struct stage_stream streams[STAGE_STREAMS];
    uint32_t mark_stream[SL_STAGE_SLOTS_MAX], mark_entry[SL_STAGE_SLOTS_MAX];
    struct sl_random random;
    uint32_t fails_in; /* this enqueue fails; 0: none */
    _Bool broken;      /* the device says so */
};

struct stage_bench *stage_bench_open(uint32_t slots, uint64_t seed);
void stage_bench_close(struct stage_bench *bench);
void stage_bench_begin(struct stage_bench *bench, uint32_t stream, const struct sl_stage_plan *plan);
/* The stage does what it can, and the device the next thing of a stream that has one. */
void stage_bench_step(struct stage_bench *bench);
/* Every set has ended and the device has nothing left. */
_Bool stage_bench_done(const struct stage_bench *bench);
/*
 * Sets of random pieces, one a stream side by side, over and over; all bytes are compared. `ends`: which ones the
 * processor alone reaches (SL_STAGE_...), 0: either or both, as it happens.
 */
void stage_bench_windows(uint32_t slots, uint8_t ends, uint32_t rounds, uint64_t seed);

#endif
