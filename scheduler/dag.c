/*
 * dag.c: builds the graph of dag.h in one pass over the windows.
 *
 * A window has at most 6 nodes and 10 edges: 7 within it and 3 from earlier windows. The nearest earlier node of a kind is
 * remembered for groups (over all windows) and for groups and unpacks of each slot.
 */
#include "scheduler/dag.h"

#define EDGES_PER_WINDOW 10

struct dag_builder {
    struct sl_dag *dag;
    uint32_t last_group;
    uint32_t *slot_group;  /* of each slot */
    uint32_t *slot_unpack; /* of each slot */
};

static _Bool has_work(const struct sl_schedule *schedule, uint32_t w, enum sl_dag_kind kind)
{
    const struct sl_window *window = &schedule->windows[w];
    if (kind == SL_DAG_GROUP) {
        return window->message_count > 0;
    }
    if (kind == SL_DAG_LOCAL) {
        return window->local_count > 0;
    }
    if (kind != SL_DAG_PACK && kind != SL_DAG_UNPACK) {
        return 1;
    }
    for (uint32_t i = window->first_message; i < window->first_message + window->message_count; i++) {
        const struct sl_message *message = &schedule->messages[i];
        if (message->offset != SL_NO_SLOT && message->receive == (kind == SL_DAG_UNPACK)) {
            return 1;
        }
    }
    return 0;
}

static void add_nodes(struct sl_dag *dag, const struct sl_schedule *schedule, uint32_t window)
{
    uint32_t *index = &dag->index[(size_t)(window - dag->first) * SL_DAG_KINDS];
    for (uint32_t i = 0; i < SL_DAG_KINDS; i++) {
        enum sl_dag_kind kind = (enum sl_dag_kind)i;
        index[i] = SL_DAG_NO_NODE;
        if (has_work(schedule, window, kind)) {
            index[i] = dag->node_count;
            dag->nodes[dag->node_count++] = (struct sl_dag_node){.kind = kind, .window = window};
        }
    }
}

static void add_edge(struct sl_dag *dag, uint32_t from, uint32_t to)
{
    if (from != SL_DAG_NO_NODE && to != SL_DAG_NO_NODE) {
        SL_ASSERT(from < to);
        dag->edges[dag->edge_count++] = (struct sl_dag_edge){.from = from, .to = to};
    }
}

/* The edges into each node of the window, in node order. */
static void add_edges(struct dag_builder *builder, uint32_t window)
{
    struct sl_dag *dag = builder->dag;
    const uint32_t *index = &dag->index[(size_t)(window - dag->first) * SL_DAG_KINDS];
    uint32_t *slot_group = &builder->slot_group[window % dag->slots];
    uint32_t *slot_unpack = &builder->slot_unpack[window % dag->slots];
    uint32_t group = index[SL_DAG_GROUP];
    uint32_t packed = index[SL_DAG_PACK] != SL_DAG_NO_NODE ? index[SL_DAG_PACK] : index[SL_DAG_READY];
    uint32_t received = index[SL_DAG_UNPACK] != SL_DAG_NO_NODE ? index[SL_DAG_UNPACK] : group;
    uint32_t copied = index[SL_DAG_LOCAL];
    add_edge(dag, index[SL_DAG_READY], index[SL_DAG_PACK]);
    add_edge(dag, *slot_group, index[SL_DAG_PACK]);
    add_edge(dag, packed, group);
    add_edge(dag, builder->last_group, group);
    add_edge(dag, *slot_unpack, group);
    add_edge(dag, group, index[SL_DAG_UNPACK]);
    add_edge(dag, index[SL_DAG_READY], copied);
    add_edge(dag, received, index[SL_DAG_DONE]);
    add_edge(dag, copied, index[SL_DAG_DONE]);
    if (received == SL_DAG_NO_NODE && copied == SL_DAG_NO_NODE) {
        add_edge(dag, index[SL_DAG_READY], index[SL_DAG_DONE]);
    }
    if (group != SL_DAG_NO_NODE) {
        builder->last_group = group;
        *slot_group = group;
    }
    *slot_unpack = index[SL_DAG_UNPACK] != SL_DAG_NO_NODE ? index[SL_DAG_UNPACK] : *slot_unpack;
}

static sluice_status allocate(struct sl_dag *dag, uint32_t **ret_slots)
{
    size_t windows = dag->end - dag->first;
    dag->nodes = sl_new_array(dag->mem, windows, SL_DAG_KINDS * sizeof(*dag->nodes), "nodes of a graph");
    dag->edges = sl_new_array(dag->mem, windows, EDGES_PER_WINDOW * sizeof(*dag->edges), "edges of a graph");
    dag->index = sl_new_array(dag->mem, windows, SL_DAG_KINDS * sizeof(*dag->index), "index of a graph");
    uint32_t *slots = sl_new_array(dag->mem, dag->slots, 2 * sizeof(*slots), "slots of a graph");
    if (dag->nodes == NULL || dag->edges == NULL || dag->index == NULL || slots == NULL) {
        sl_free(dag->mem, slots);
        return SLUICE_NOMEM;
    }
    *ret_slots = slots;
    return SLUICE_OK;
}

sluice_status sl_dag_build(const struct sl_schedule *schedule, uint32_t first, uint32_t end, struct sl_mem *mem,
                           struct sl_dag *ret)
{
    SL_ASSERT(first <= end && end <= schedule->rule.windows && schedule->rule.slots > 0);
    struct sl_dag dag = {.mem = mem, .first = first, .end = end, .slots = schedule->rule.slots};
    uint32_t *slots = NULL;
    if (allocate(&dag, &slots) != SLUICE_OK) {
        sl_dag_drop(&dag);
        return SLUICE_NOMEM;
    }
    struct dag_builder builder = {&dag, SL_DAG_NO_NODE, slots, slots + dag.slots};
    for (uint32_t i = 0; i < 2 * dag.slots; i++) {
        slots[i] = SL_DAG_NO_NODE;
    }
    for (uint32_t window = first; window < end; window++) {
        add_nodes(&dag, schedule, window);
        add_edges(&builder, window);
    }
    sl_free(mem, slots);
    *ret = dag;
    return SLUICE_OK;
}

void sl_dag_drop(struct sl_dag *dag)
{
    if (dag == NULL || dag->mem == NULL) {
        return;
    }
    sl_free(dag->mem, dag->nodes);
    sl_free(dag->mem, dag->edges);
    sl_free(dag->mem, dag->index);
    *dag = (struct sl_dag){0};
}

uint32_t sl_dag_find(const struct sl_dag *dag, uint32_t window, enum sl_dag_kind kind)
{
    SL_ASSERT(window >= dag->first && window < dag->end);
    return dag->index[(size_t)(window - dag->first) * SL_DAG_KINDS + (size_t)kind];
}

const char *sl_dag_kind_name(enum sl_dag_kind kind)
{
    static const char *const names[SL_DAG_KINDS] = {"ready", "pack", "group", "unpack", "local", "done"};
    SL_ASSERT((unsigned)kind < SL_DAG_KINDS);
    return names[kind];
}
