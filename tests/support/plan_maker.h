/* plan_maker.h: plans for tests: small ones by hand, random valid ones by seed. */
#ifndef SL_TESTS_PLAN_MAKER_H
#define SL_TESTS_PLAN_MAKER_H

#include "runtime/base/random.h"
#include "scheduler/plan.h"

/* One row of `bytes` at `offset`. */
struct sluice_region maker_range(uint64_t offset, uint64_t bytes);
struct sluice_region maker_rows(uint64_t offset, uint64_t row_bytes, uint64_t rows, uint64_t pitch);
/* A bf16 task between two ranks with equal regions at both ends and no origin. */
struct sluice_task maker_task(uint64_t id, uint32_t source, uint32_t destination, uint32_t param,
                              struct sluice_region region);
/* An empty plan of `world` ranks with `params` bf16 parameters named "p0", "p1" ... of 4096 bytes. */
void maker_open(struct sl_plan *plan, uint32_t world, uint32_t params);
void maker_add(struct sl_plan *plan, struct sluice_task task);
/* A valid random plan, tasks in random order, buffers given, strided and empty tasks among them. */
void maker_random(struct sl_plan *plan, uint64_t seed, uint32_t tasks);

#endif
