/* engine_bench.h: one engine in a test: short calls for events, each answers with the words of what follows. */
#ifndef TESTS_SUPPORT_ENGINE_BENCH_H
#define TESTS_SUPPORT_ENGINE_BENCH_H

#include "support/words.h"

enum { BENCH_WINDOWS_MAX = 64 };

struct bench {
    struct sl_engine *engine;
    uint64_t now;
    uint8_t flags[BENCH_WINDOWS_MAX]; /* of the windows of runs added next; default: group alone */
};

/* Rank 2 of a world of 4, at time 1 s. */
void bench_open(struct bench *bench);
void bench_close(struct bench *bench);
/* A run in place with `windows` windows, 3 slots, key (1 << 32 | 1), no deadlines; change it before adding. */
struct sl_run_config bench_run(struct bench *bench, uint32_t windows);
const char *bench_add(struct bench *bench, const struct sl_run_config *config);
const char *bench_gate(struct bench *bench, uint32_t run, uint32_t gate);
/* The arbiter speaks, about run a (key 1 << 32 | 1) or its followers. */
const char *bench_note(struct bench *bench, uint32_t run, enum sl_note_kind kind, uint64_t a, uint64_t b);
const char *bench_grant(struct bench *bench, uint32_t run, uint64_t windows, uint64_t number);
const char *bench_outcome(struct bench *bench, uint32_t run, enum sl_phase phase, sluice_status status);
const char *bench_stop(struct bench *bench, uint32_t run, uint64_t window, enum sl_request request);
const char *bench_lost(struct bench *bench, uint32_t rank);
const char *bench_done(struct bench *bench, uint32_t run, uint32_t window, enum sl_node node);
const char *bench_failed(struct bench *bench, uint32_t run, uint32_t window, enum sl_node node);
/* The group of a window ended because a peer left it. */
const char *bench_deserted(struct bench *bench, uint32_t run, uint32_t window);
const char *bench_request(struct bench *bench, uint32_t run, enum sl_request request, uint64_t value);
const char *bench_aborted(struct bench *bench, _Bool failed);
const char *bench_broken(struct bench *bench);
/* A timer passes after `ns` more. */
const char *bench_time(struct bench *bench, uint64_t ns);
/* What sl_engine_explain says of the run. */
const char *bench_explain(struct bench *bench, uint32_t run);

#endif
