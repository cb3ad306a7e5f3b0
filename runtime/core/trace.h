/*
 * trace.h: node times of one rank, kept in memory that was taken at open.
 *
 * The scheduler thread appends; published records never change, so any thread may read up to `count`.
 * When the memory is full, later records are counted and dropped.
 */
#ifndef SL_CORE_TRACE_H
#define SL_CORE_TRACE_H

#include <stdatomic.h>
#include <stdio.h>

#include "runtime/base/memory.h"
#include "sluice/base.h"

enum sl_trace_node {
    SL_TRACE_GATE = 0,
    SL_TRACE_PACK = 1,
    SL_TRACE_GROUP = 2,
    SL_TRACE_UNPACK = 3,
    SL_TRACE_LOCAL = 4,
    SL_TRACE_COMMIT = 5
};

/* Times are of CLOCK_MONOTONIC, which all processes of a host share. */
struct sl_trace_record {
    uint64_t begin_ns, end_ns;
    uint32_t run; /* number of the run in its plan */
    uint32_t window;
    uint16_t node; /* enum sl_trace_node */
    uint16_t queue;
    uint32_t rank;
};

struct sl_trace {
    struct sl_mem *mem;
    uint32_t rank;
    size_t capacity;
    struct sl_trace_record *records;
    atomic_size_t count;
    atomic_size_t dropped;
};

enum { SL_TRACE_CAPACITY = 1 << 17 };

/* NOMEM. */
sluice_status sl_trace_open(struct sl_mem *mem, uint32_t rank, size_t capacity, struct sl_trace *ret);
void sl_trace_close(struct sl_trace *trace);
/* Scheduler thread. NULL is allowed and does nothing. */
void sl_trace_add(struct sl_trace *trace, const struct sl_trace_record *record);

/*
 * Writes records as one Chrome/Perfetto JSON document of complete events: pid is the rank, tid the
 * queue, times are microseconds. Records of several ranks may be given in one array. IO.
 */
sluice_status sl_trace_write(const struct sl_trace_record *records, size_t count, size_t dropped, FILE *file);

/* The runtime's records so far, for programs that merge ranks; NULL and 0 when it does not trace. Any thread. */
const struct sl_trace_record *sl_runtime_trace(const sluice_runtime *runtime, size_t *ret_count);

#endif
