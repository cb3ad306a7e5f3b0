/* life.h: what a process takes, sampled from outside at the end of phases without faults; flat or not. */
#ifndef SL_BENCH_SOAK_LIFE_H
#define SL_BENCH_SOAK_LIFE_H

#include <stdint.h>
#include <sys/types.h>

enum { LIFE_SAMPLES_MAX = 4096 };

struct life_sample {
    uint32_t resident_kb, shared_kb, descriptors, threads;
};

struct life {
    uint32_t count;
    struct life_sample samples[LIFE_SAMPLES_MAX];
};

void life_sample(struct life *life, pid_t pid);
/* Resident memory of the last sample in KB; 0: none. */
uint32_t life_last(const struct life *life);
/* The process is over: prints its series, if it is long enough to be judged, and forgets it; false: it grew. */
_Bool life_end(struct life *life, uint32_t rank);

#endif
