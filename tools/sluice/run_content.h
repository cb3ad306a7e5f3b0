/*
 * run_content.h: what the bytes of a parameter are, so that a destination is verified without its source.
 *
 * Content is a function of parameter, byte index in the whole parameter, and version; or the bytes of a
 * checkpoint, to which later versions add a mask. Any thread.
 */
#ifndef SL_TOOL_RUN_CONTENT_H
#define SL_TOOL_RUN_CONTENT_H

#include "scheduler/plan.h"

struct run_content {
    const struct sl_plan *plan;
    const uint8_t *const *tensors; /* by parameter, whole, from a checkpoint; NULL: generated */
};

/* Where a destination differs from what it should hold. */
struct run_difference {
    uint64_t offset; /* in the destination buffer */
    uint8_t have, want;
};

/* Writes the source region of a task into its buffer. */
void run_content_fill(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                      uint8_t *buffer);
/* Writes into the destination region of a task what it must not hold afterwards, byte by byte. */
void run_content_poison(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                        uint8_t *buffer);
/* Whether the destination region of a task holds its content. */
_Bool run_content_verify(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                         const uint8_t *buffer, struct run_difference *ret);

#endif
