/* check_schedule.h: what must hold for every schedule, checked without the code that builds it. */
#ifndef TEST_SUPPORT_CHECK_SCHEDULE_H
#define TEST_SUPPORT_CHECK_SCHEDULE_H

#include "scheduler/schedule.h"

/* One rank's half and schedule, with the plan that they came from. */
struct check_end {
    const struct sl_plan *plan;
    struct sl_half half;
    struct sl_schedule schedule;
};

/* Every byte of every task in exactly one piece, empties once, sums and offsets right. NULL, or what is wrong. */
const char *check_whole(const struct check_end *end);
/* Both ends of the pair have the same messages, with the same pieces, in the same windows and order. */
const char *check_pair(const struct check_end *sender, const struct check_end *receiver);
/* Padded bytes of the messages to or from a peer in a window. */
uint64_t check_pair_load(const struct check_end *end, uint32_t window, uint32_t peer, _Bool receive);

#endif
