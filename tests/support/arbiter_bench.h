/* arbiter_bench.h: one arbiter in a test: short calls for notes, each answers with the words of what follows. */
#ifndef TESTS_SUPPORT_ARBITER_BENCH_H
#define TESTS_SUPPORT_ARBITER_BENCH_H

#include "support/words.h"

enum { MS = 1000000 };

extern struct sl_arbiter *arbiter;
extern uint64_t arbiter_now; /* each note comes a millisecond after the one before */

void arbiter_open_world(uint32_t world);
void arbiter_close_world(void);
const char *arbiter_told(struct sl_note note);
/* Runs a, b, c have the keys 1, 2, 3. */
const char *arbiter_join(uint32_t rank, uint32_t run, uint32_t windows);
const char *arbiter_join_shadow(uint32_t rank, uint32_t run, uint32_t windows, uint32_t staged);
const char *arbiter_ready(uint32_t rank, uint32_t run, uint32_t windows);
const char *arbiter_launched(uint32_t rank, uint32_t run, uint32_t windows, uint32_t freeze);
const char *arbiter_vote(uint32_t rank, uint32_t run, enum sl_phase phase);
const char *arbiter_asked(uint32_t rank, uint32_t run, enum sl_request request);
/* A VOTE or REQUEST FAIL with the text "rank N: a reason". */
const char *arbiter_failed(uint32_t rank, uint32_t run, uint32_t kind, sluice_status status);
const char *arbiter_lost(uint32_t rank);

#endif
