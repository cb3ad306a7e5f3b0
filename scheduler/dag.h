/*
 * dag.h: one rank's windows as an explicit graph, for simulation, documentation and tests. Pure.
 *
 * Nodes of a window, of which those without work are left out (ready and done never are):
 *   ready ─► pack ─► group ─► unpack ─► done,   ready ─► local ─► done
 * and between windows, S slots:
 *   group(k-1) ─► group(k)    group(k-S) ─► pack(k)    unpack(k-S) ─► group(k)
 * where a node that is left out is stood for by the nearest earlier one of its kind (on the same slot).
 *
 * Invariant: every edge leads from a lower to a higher index, so the graph has no cycle and index order is an
 * order of execution.
 */
#ifndef SL_SCHEDULER_DAG_H
#define SL_SCHEDULER_DAG_H

#include "scheduler/schedule.h"

enum sl_dag_kind {
    SL_DAG_READY = 0,
    SL_DAG_PACK = 1,
    SL_DAG_GROUP = 2,
    SL_DAG_UNPACK = 3,
    SL_DAG_LOCAL = 4,
    SL_DAG_DONE = 5
};
#define SL_DAG_KINDS 6

#define SL_DAG_NO_NODE UINT32_MAX

struct sl_dag_node {
    enum sl_dag_kind kind;
    uint32_t window;
};

struct sl_dag_edge {
    uint32_t from, to; /* indices of nodes */
};

struct sl_dag {
    struct sl_mem *mem;
    uint32_t first, end; /* windows */
    uint32_t slots;
    struct sl_dag_node *nodes; /* window by window */
    uint32_t node_count;
    struct sl_dag_edge *edges; /* by `to`, ascending */
    size_t edge_count;
    uint32_t *index; /* SL_DAG_KINDS a window; SL_DAG_NO_NODE where left out */
};

/* The graph of windows [first, end) with the schedule's slots; earlier windows count as done. NOMEM. */
sluice_status sl_dag_build(const struct sl_schedule *schedule, uint32_t first, uint32_t end, struct sl_mem *mem,
                           struct sl_dag *ret);
void sl_dag_drop(struct sl_dag *dag);
/* The node's index; SL_DAG_NO_NODE when the window has none of that kind. */
uint32_t sl_dag_find(const struct sl_dag *dag, uint32_t window, enum sl_dag_kind kind);
/* "pack". */
const char *sl_dag_kind_name(enum sl_dag_kind kind);

#endif
