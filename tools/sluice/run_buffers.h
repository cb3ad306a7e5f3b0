/* run_buffers.h: one rank's buffers of a plan: two blocks of memory, one for each role. */
#ifndef SL_TOOL_RUN_BUFFERS_H
#define SL_TOOL_RUN_BUFFERS_H

#include "scheduler/plan.h"

#define RUN_NO_BUFFER UINT64_MAX

struct run_buffers {
    struct sl_mem *mem;
    uint8_t *memory[2];   /* by enum sluice_role */
    uint64_t *offsets[2]; /* per parameter; RUN_NO_BUFFER: none on this rank */
    uint64_t *bytes[2];
    uint64_t total[2];
};

/* As large as the plan says, or else as its tasks need. NOMEM, LIMIT. */
sluice_status run_buffers_open(const struct sl_plan *plan, uint32_t rank, struct run_buffers *ret);
void run_buffers_close(struct run_buffers *buffers);
/* Bytes of all buffers of all ranks of a plan; UINT64_MAX when they do not fit 64 bits. NOMEM. */
sluice_status run_buffers_measure(const struct sl_plan *plan, uint64_t *ret_bytes);

static inline uint8_t *run_buffer(const struct run_buffers *buffers, uint32_t param, enum sluice_role role)
{
    return buffers->memory[role] + buffers->offsets[role][param];
}

#endif
