/*
 * Plans for tests.
 *
 * Invariant: a random plan is valid: every destination slot of a (rank, parameter) is handed out once.
 */
#include "support/plan_maker.h"

#include <stdio.h>
#include <stdlib.h>

struct sluice_region maker_range(uint64_t offset, uint64_t bytes)
{
    return (struct sluice_region){.offset = offset, .row_bytes = bytes, .rows = 1, .pitch = bytes};
}

struct sluice_region maker_rows(uint64_t offset, uint64_t row_bytes, uint64_t rows, uint64_t pitch)
{
    return (struct sluice_region){.offset = offset, .row_bytes = row_bytes, .rows = rows, .pitch = pitch};
}

struct sluice_task maker_task(uint64_t id, uint32_t source, uint32_t destination, uint32_t param,
                              struct sluice_region region)
{
    return (struct sluice_task){.id = id,
                                .source = source,
                                .destination = destination,
                                .param = param,
                                .source_dtype = SLUICE_DTYPE_BF16,
                                .destination_dtype = SLUICE_DTYPE_BF16,
                                .from = region,
                                .to = region,
                                .origin = SLUICE_ORIGIN_NONE};
}

void maker_open(struct sl_plan *plan, uint32_t world, uint32_t params)
{
    sl_plan_init(plan, sl_mem_default(), world);
    for (uint32_t i = 0; i < params; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%u", i);
        struct sluice_param param = {.id = i, .dtype = SLUICE_DTYPE_BF16, .bytes = 4096, .name = name};
        SL_ASSERT(sl_plan_add_param(plan, &param) == SLUICE_OK);
    }
}

void maker_add(struct sl_plan *plan, struct sluice_task task)
{
    SL_ASSERT(sl_plan_add_task(plan, &task) == SLUICE_OK);
}

/* Slot `slot` of a destination buffer of 64-byte lines: a column of 16 bytes over 8 lines, or a range. */
static struct sluice_region slot_region(uint64_t slot, _Bool strided)
{
    uint64_t block = slot / 4 * 512;
    return strided ? maker_rows(block + slot % 4 * 16, 16, 8, 64) : maker_range(block + slot % 4 * 128, 128);
}

static struct sluice_task random_task(struct sl_random *random, uint64_t id, uint64_t slot, uint32_t param)
{
    struct sluice_task task = maker_task(id, (uint32_t)sl_random_below(random, 4), (uint32_t)(4 + slot % 4), param,
                                         maker_range(sl_random_below(random, 8) * 128, 128));
    task.to = slot_region(slot / 4, slot / 16 % 2 == 0);
    if (sl_random_below(random, 3) == 0)
        task.from = maker_rows(sl_random_below(random, 8) * 16, 32, 4, 256);
    if (sl_random_below(random, 16) == 0)
        task.from = task.to = maker_range(sl_random_below(random, 64), 0);
    if (sl_random_below(random, 2) == 0)
        task.origin = sl_random_below(random, 4096);
    if (sl_random_below(random, 8) == 0)
        task.source_dtype = task.destination_dtype = SLUICE_DTYPE_BYTES;
    return task;
}

void maker_random(struct sl_plan *plan, uint64_t seed, uint32_t tasks)
{
    struct sl_random random = {seed};
    uint32_t params = 1 + (uint32_t)sl_random_below(&random, 5);
    maker_open(plan, 8, params);
    for (uint32_t param = 0; param < params; param++)
        for (uint32_t rank = 0; rank < 8; rank++)
            if (sl_random_below(&random, 4) != 0)
                SL_ASSERT(sl_plan_add_buffer(plan, param, rank, rank < 4 ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION,
                                             2048 + (uint64_t)tasks * 128) == SLUICE_OK);
    uint64_t first = sl_random_below(&random, 1000), step = 1 + 2 * sl_random_below(&random, 1000);
    for (uint32_t i = 0; i < tasks; i++) {
        uint64_t id = first + i * step % (UINT64_C(1) << 32);
        maker_add(plan, random_task(&random, id, i / params, i % params));
    }
}
