/* Invariant: what comes out is valid; a failure here ends the test. */
#include "support/plans.h"

void plans_add(struct sl_plan *plan, uint32_t source, uint32_t destination, uint64_t bytes)
{
    uint32_t id = (uint32_t)plan->task_count;
    struct sluice_param param = {.id = id, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "p"};
    struct sluice_region region = {.offset = 0, .row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = id,
                               .source = source,
                               .destination = destination,
                               .param = id,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8,
                               .from = region,
                               .to = region,
                               .origin = 0};
    SL_ASSERT(sl_plan_add_param(plan, &param) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_buffer(plan, id, source, SLUICE_ROLE_SOURCE, bytes) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_buffer(plan, id, destination, SLUICE_ROLE_DESTINATION, bytes) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_task(plan, &task) == SLUICE_OK);
}

void plans_random(struct sl_random *random, uint32_t world, uint32_t tasks, uint64_t bytes_max, struct sl_plan *ret)
{
    sl_plan_init(ret, sl_mem_default(), world);
    uint32_t favourite = (uint32_t)sl_random_below(random, world);
    for (uint32_t i = 0; i < tasks; i++) {
        if (sl_random_below(random, 20) == 0)
            favourite = (uint32_t)sl_random_below(random, world);
        uint32_t source = sl_random_below(random, 3) == 0 ? favourite : (uint32_t)sl_random_below(random, world);
        uint32_t destination = (uint32_t)sl_random_below(random, world);
        uint64_t bytes = sl_random_below(random, 16) == 0 ? 0 : sl_random_below(random, bytes_max + 1);
        plans_add(ret, source, destination, bytes);
    }
    SL_ASSERT(sl_plan_validate(ret) == SLUICE_OK);
}
