/* plans.h: small plans for tests. */
#ifndef TESTS_SUPPORT_PLANS_H
#define TESTS_SUPPORT_PLANS_H

#include "runtime/base/random.h"
#include "scheduler/plan.h"

/* Adds task `id` = parameter `id` = next free: `bytes` bytes from one rank to another, buffers included. */
void plans_add(struct sl_plan *plan, uint32_t source, uint32_t destination, uint64_t bytes);
/* A validated plan of `tasks` random tasks of at most `bytes_max`, between `world` ranks, skewed between pairs. */
void plans_random(struct sl_random *random, uint32_t world, uint32_t tasks, uint64_t bytes_max, struct sl_plan *ret);

#endif
