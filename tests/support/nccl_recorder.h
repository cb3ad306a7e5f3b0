/*
 * nccl_recorder.h: what NCCL puts into its kernel plans, by NCCL's profiler interface (version 5: NCCL 2.28 and later).
 * A program that links this and exports its symbols is the plugin itself when NCCL_PROFILER_PLUGIN is STATIC_PLUGIN.
 * One communicator at a time, whose groups one thread launches.
 */
#ifndef SL_TESTS_NCCL_RECORDER_H
#define SL_TESTS_NCCL_RECORDER_H

#include <stddef.h>
#include <stdint.h>

struct recorded_op {
    uint64_t bytes;
    uint32_t plan; /* counted since recorder_begin */
    uint32_t peer;
    uint32_t channels;
    _Bool receive;
};

/* Forgets everything. */
void recorder_begin(void);
/* Operations in the order of NCCL's plans, valid until recorder_begin. */
const struct recorded_op *recorder_ops(size_t *ret_count, uint32_t *ret_plans);
/* Nodes of the communicator that was opened last; 0: NCCL has not called the plugin. */
uint32_t recorder_nodes(void);

#endif
