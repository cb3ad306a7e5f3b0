/* taskplan.h: small plans for tests, made without the reader or the validator. They are sorted as they are added. */
#ifndef TEST_SUPPORT_TASKPLAN_H
#define TEST_SUPPORT_TASKPLAN_H

#include "runtime/base/random.h"
#include "scheduler/plan.h"

/* Uniform in [0, bound). */
static inline uint32_t taskplan_below(struct sl_random *random, uint32_t bound)
{
    return (uint32_t)sl_random_below(random, bound);
}

/* A whole plan of `params` BF16 parameters without tasks. */
void taskplan_open(struct sl_plan *plan, uint32_t world, uint32_t params);
/* A contiguous task; ids must not fall. A repeated id gets the next part. */
void taskplan_add(struct sl_plan *plan, uint64_t id, uint32_t param, uint32_t source, uint32_t destination,
                  uint64_t bytes);
/* The same with `rows` rows of `row_bytes`, strided at the source and at the destination as asked. */
void taskplan_add_rows(struct sl_plan *plan, uint64_t id, uint32_t param, uint32_t source, uint32_t destination,
                       uint64_t row_bytes, uint64_t rows, _Bool strided_source, _Bool strided_destination);
/* 1 to 6 ranks, up to 200 tasks: of no bytes, one byte, a few, many; strided, local, repeated ids, skewed pairs. */
void taskplan_random(struct sl_plan *plan, struct sl_random *random);
/* What `rank` alone knows: its own tasks, the other ends unknown. */
void taskplan_half(const struct sl_plan *whole, uint32_t rank, struct sl_plan *ret);
void taskplan_drop(struct sl_plan *plan);

#endif
