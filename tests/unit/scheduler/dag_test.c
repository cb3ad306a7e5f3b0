#include <criterion/criterion.h>

#include "scheduler/dag.h"
#include "support/taskplan.h"

static struct sl_plan plan;
static struct sl_half half;
static struct sl_schedule schedule;
static struct sl_dag dag;

static void build(uint32_t rank, struct sl_rule rule, uint32_t first, uint32_t end)
{
    rule.blocks = 1;
    cr_assert_eq(sl_half_build(&plan, rank, sl_mem_default(), &half), SLUICE_OK);
    cr_assert_eq(sl_schedule_build(&plan, &half, &rule, NULL, NULL, sl_mem_default(), &schedule), SLUICE_OK);
    cr_assert_eq(sl_dag_build(&schedule, first, end, sl_mem_default(), &dag), SLUICE_OK);
}

static void drop(void)
{
    sl_dag_drop(&dag);
    sl_schedule_drop(&schedule);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

static uint32_t node(uint32_t window, enum sl_dag_kind kind)
{
    uint32_t index = sl_dag_find(&dag, window, kind);
    cr_assert(index != SL_DAG_NO_NODE, "window %u has no %s", window, sl_dag_kind_name(kind));
    cr_assert(dag.nodes[index].window == window && dag.nodes[index].kind == kind);
    return index;
}

static _Bool has_edge(uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < dag.edge_count; i++) {
        if (dag.edges[i].from == from && dag.edges[i].to == to) {
            return 1;
        }
    }
    return 0;
}

static uint32_t edges_into(uint32_t to)
{
    uint32_t count = 0;
    for (size_t i = 0; i < dag.edge_count; i++) {
        cr_assert(dag.edges[i].from < dag.edges[i].to);
        count += dag.edges[i].to == to;
    }
    return count;
}

/* Rank 0 sends, receives and copies in every window. */
static void make_full(void)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 1600);
    taskplan_add(&plan, 1, 0, 1, 0, 1600);
    taskplan_add(&plan, 2, 0, 0, 0, 1600);
}

Test(dag, a_full_window_has_six_nodes_and_the_edges_of_the_design)
{
    make_full();
    build(0, (struct sl_rule){.slots = 3, .windows = 10}, 0, 10);
    cr_assert_eq(dag.node_count, 60);
    for (uint32_t k = 0; k < 10; k++) {
        cr_assert(has_edge(node(k, SL_DAG_READY), node(k, SL_DAG_PACK)));
        cr_assert(has_edge(node(k, SL_DAG_PACK), node(k, SL_DAG_GROUP)));
        cr_assert(has_edge(node(k, SL_DAG_GROUP), node(k, SL_DAG_UNPACK)));
        cr_assert(has_edge(node(k, SL_DAG_UNPACK), node(k, SL_DAG_DONE)));
        cr_assert(has_edge(node(k, SL_DAG_READY), node(k, SL_DAG_LOCAL)));
        cr_assert(has_edge(node(k, SL_DAG_LOCAL), node(k, SL_DAG_DONE)));
        cr_assert(k < 1 || has_edge(node(k - 1, SL_DAG_GROUP), node(k, SL_DAG_GROUP)));
        cr_assert(k < 3 || has_edge(node(k - 3, SL_DAG_GROUP), node(k, SL_DAG_PACK)));
        cr_assert(k < 3 || has_edge(node(k - 3, SL_DAG_UNPACK), node(k, SL_DAG_GROUP)));
    }
    cr_assert_eq(dag.edge_count, 10 * 6 + 9 + 7 + 7);
    drop();
}

Test(dag, gates_depend_on_nothing_and_packing_not_on_the_group_before)
{
    make_full();
    build(0, (struct sl_rule){.slots = 3, .windows = 4}, 0, 4);
    for (uint32_t k = 0; k < 4; k++) {
        cr_assert_eq(edges_into(node(k, SL_DAG_READY)), 0);
    }
    cr_assert_eq(edges_into(node(2, SL_DAG_PACK)), 1, "pack(2) may run while group(1) is on the wire");
    cr_assert(!has_edge(node(1, SL_DAG_UNPACK), node(2, SL_DAG_GROUP)));
    drop();
}

Test(dag, earlier_windows_count_as_done)
{
    make_full();
    build(0, (struct sl_rule){.slots = 3, .windows = 10}, 5, 8);
    cr_assert_eq(dag.node_count, 18);
    cr_assert_eq(edges_into(node(5, SL_DAG_GROUP)), 1);
    cr_assert_eq(dag.edge_count, 3 * 6 + 2);
    drop();
}

Test(dag, work_that_is_missing_is_left_out)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 0, 1, 32); /* two units in four shares: windows 1 and 3 */
    build(0, (struct sl_rule){.slots = 2, .windows = 4}, 0, 4);
    cr_assert_eq(sl_dag_find(&dag, 0, SL_DAG_GROUP), SL_DAG_NO_NODE);
    cr_assert(has_edge(node(0, SL_DAG_READY), node(0, SL_DAG_DONE)));
    cr_assert_eq(sl_dag_find(&dag, 1, SL_DAG_UNPACK), SL_DAG_NO_NODE);
    cr_assert(has_edge(node(1, SL_DAG_GROUP), node(1, SL_DAG_DONE)));
    cr_assert(has_edge(node(1, SL_DAG_GROUP), node(3, SL_DAG_GROUP)), "the nearest earlier group");
    cr_assert(has_edge(node(1, SL_DAG_GROUP), node(3, SL_DAG_PACK)), "the same slot");
    drop();
}

Test(dag, a_direct_message_needs_no_pack_and_a_free_slot_skips_windows_without_one)
{
    taskplan_open(&plan, 2, 1);
    taskplan_add(&plan, 0, 0, 1, 0, 1600);
    build(0, (struct sl_rule){.slots = 2, .windows = 2, .direct_min = 1}, 0, 2);
    cr_assert_eq(dag.node_count, 6); /* ready, group, done */
    cr_assert(has_edge(node(1, SL_DAG_READY), node(1, SL_DAG_GROUP)));
    cr_assert(has_edge(node(0, SL_DAG_GROUP), node(1, SL_DAG_GROUP)));
    drop();
}

Test(dag, kinds_have_names)
{
    cr_assert_str_eq(sl_dag_kind_name(SL_DAG_READY), "ready");
    cr_assert_str_eq(sl_dag_kind_name(SL_DAG_DONE), "done");
}
