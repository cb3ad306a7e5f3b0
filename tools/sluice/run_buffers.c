/*
 * Buffers of a rank.
 *
 * Invariants: a parameter has at most one buffer of each role; buffers begin at multiples of ALIGNMENT and
 * do not overlap; what no task touches keeps what it had.
 */
#include "run_buffers.h"

#include <string.h>

#include "runtime/base/parse.h"

enum { ALIGNMENT = 256, PAGE = 4096 };

static void need(struct run_buffers *buffers, uint32_t param, enum sluice_role role, uint64_t bytes)
{
    uint64_t *have = &buffers->bytes[role][param];
    if (buffers->offsets[role][param] == RUN_NO_BUFFER || bytes > *have)
        *have = bytes;
    buffers->offsets[role][param] = 0;
}

static void measure(const struct sl_plan *plan, uint32_t rank, struct run_buffers *buffers)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        if (task->source == rank)
            need(buffers, task->param, SLUICE_ROLE_SOURCE, sl_region_end(&task->from));
        if (task->destination == rank)
            need(buffers, task->param, SLUICE_ROLE_DESTINATION, sl_region_end(&task->to));
    }
    for (size_t i = 0; i < plan->buffer_count; i++) {
        const struct sl_buffer *buffer = &plan->buffers[i];
        if (buffer->rank == rank && buffers->offsets[buffer->role][buffer->param] != RUN_NO_BUFFER)
            need(buffers, buffer->param, (enum sluice_role)buffer->role, buffer->bytes);
    }
}

static sluice_status place(const struct sl_plan *plan, uint32_t rank, enum sluice_role role,
                           struct run_buffers *buffers)
{
    uint64_t total = 0;
    for (size_t p = 0; p < plan->param_count; p++) {
        if (buffers->offsets[role][p] == RUN_NO_BUFFER)
            continue;
        buffers->offsets[role][p] = total;
        if (buffers->bytes[role][p] > SLUICE_BYTES_MAX - total - ALIGNMENT)
            return sl_fail(SLUICE_LIMIT, "run", "rank %u: its buffers have more than 2^62 bytes", rank);
        total += (buffers->bytes[role][p] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    buffers->total[role] = total;
    return SLUICE_OK;
}

static sluice_status allocate(uint32_t rank, enum sluice_role role, struct run_buffers *buffers)
{
    char size[32];
    if (buffers->total[role] == 0)
        return SLUICE_OK;
    buffers->memory[role] = sl_new_aligned(buffers->mem, buffers->total[role], PAGE, "buffers");
    if (buffers->memory[role] == NULL)
        return sl_fail(SLUICE_NOMEM, "run", "rank %u: no memory for %s of %s buffers", rank,
                       sl_format_bytes(buffers->total[role], size, sizeof size),
                       role == SLUICE_ROLE_SOURCE ? "source" : "destination");
    return SLUICE_OK;
}

static sluice_status tables(const struct sl_plan *plan, struct run_buffers *buffers)
{
    for (int role = 0; role < 2; role++) {
        buffers->offsets[role] = sl_new_array(buffers->mem, plan->param_count, sizeof(uint64_t), "table of buffers");
        buffers->bytes[role] = sl_new_array(buffers->mem, plan->param_count, sizeof(uint64_t), "table of buffers");
        if (buffers->offsets[role] == NULL || buffers->bytes[role] == NULL)
            return SLUICE_NOMEM;
        memset(buffers->offsets[role], 0xff, plan->param_count * sizeof(uint64_t));
    }
    return SLUICE_OK;
}

/* Sizes and places, no memory yet. */
static sluice_status lay_out(const struct sl_plan *plan, uint32_t rank, struct run_buffers *buffers)
{
    sluice_status status = tables(plan, buffers);
    if (status != SLUICE_OK)
        return status;
    measure(plan, rank, buffers);
    for (int role = 0; role < 2 && status == SLUICE_OK; role++)
        status = place(plan, rank, (enum sluice_role)role, buffers);
    return status;
}

sluice_status run_buffers_measure(const struct sl_plan *plan, uint64_t *ret_bytes)
{
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        struct run_buffers buffers = {.mem = sl_mem_default()};
        sluice_status status = lay_out(plan, rank, &buffers);
        for (int role = 0; role < 2; role++)
            if (__builtin_add_overflow(total, buffers.total[role], &total))
                total = UINT64_MAX;
        run_buffers_close(&buffers);
        if (status != SLUICE_OK)
            return status;
    }
    *ret_bytes = total;
    return SLUICE_OK;
}

sluice_status run_buffers_open(const struct sl_plan *plan, uint32_t rank, struct run_buffers *ret)
{
    struct run_buffers buffers = {.mem = sl_mem_default()};
    sluice_status status = lay_out(plan, rank, &buffers);
    for (int role = 0; role < 2 && status == SLUICE_OK; role++)
        status = allocate(rank, (enum sluice_role)role, &buffers);
    if (status != SLUICE_OK) {
        run_buffers_close(&buffers);
        return status;
    }
    *ret = buffers;
    return SLUICE_OK;
}

void run_buffers_close(struct run_buffers *buffers)
{
    if (buffers->mem == NULL)
        return;
    for (int role = 0; role < 2; role++) {
        sl_free(buffers->mem, buffers->memory[role]);
        sl_free(buffers->mem, buffers->offsets[role]);
        sl_free(buffers->mem, buffers->bytes[role]);
    }
    *buffers = (struct run_buffers){0};
}
