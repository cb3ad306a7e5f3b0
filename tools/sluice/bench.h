/* bench.h: what the commands of `sluice bench` share. */
#ifndef SL_TOOL_BENCH_H
#define SL_TOOL_BENCH_H

#include "run_job.h"

/* Each gets argv[0] = its own name and returns an exit status. */
int cmd_bench_host(int argc, char **argv);
int cmd_bench_local(int argc, char **argv);
int cmd_bench_group(int argc, char **argv);
int cmd_bench_overlap(int argc, char **argv);
int cmd_bench_refit(int argc, char **argv);

/* A plan of one rank: tensor i of sizes[i] bytes moves from from + places[i] to to + places[i]. */
sluice_status bench_local_plan(const uint64_t *sizes, const uint64_t *places, uint32_t count, uint8_t *from,
                               uint8_t *to, sluice_plan **ret);

/* Sorts the values and returns the middle one. */
double bench_median(double *values, uint32_t count);
/* The same for the value that 99 of 100 stay below. */
double bench_p99(double *values, uint32_t count);

/*
 * Two processes send `bytes` each to two others through shared memory: copied in by the source, out by the
 * destination, in parts of `part` bytes and `slots` of them a lane, and nothing else. The seconds of one pass, and the
 * CPU seconds of all four processes in it.
 * SYSTEM, NOMEM.
 */
sluice_status bench_bare_copy(uint64_t bytes, uint64_t part, uint32_t slots, double *ret_seconds, double *ret_cpu);

#endif
