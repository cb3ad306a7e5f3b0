/* The model of NCCL's planner: plans, order by version, hangs and their cycles, the work FIFO, safety. */
#include <criterion/criterion.h>

#include "runtime/base/file.h"
#include "runtime/base/random.h"
#include "scheduler/messages.h"
#include "scheduler/nccl_model.h"

enum { WORLD_MAX = 16 };

struct group {
    struct sl_nccl_op *ops[WORLD_MAX];
    size_t counts[WORLD_MAX];
    size_t capacity;
    uint32_t world;
};

static struct sl_nccl_config config_of(uint32_t version, uint32_t p, uint32_t c, uint32_t nodes, uint32_t per_node,
                                       uint64_t chunk)
{
    return (struct sl_nccl_config){.version = version,
                                   .channels = p,
                                   .channels_per_peer = c,
                                   .nodes = nodes,
                                   .ranks_per_node = per_node,
                                   .chunk_bytes = chunk,
                                   .args_bytes = 4096,
                                   .fifo_bytes = 1 << 20,
                                   .known = 1};
}

static void group_init(struct group *g, uint32_t world, size_t capacity)
{
    *g = (struct group){.world = world, .capacity = capacity};
    for (uint32_t r = 0; r < world; r++)
        g->ops[r] = sl_new_array(sl_mem_default(), capacity, sizeof(struct sl_nccl_op), "test");
}

static void group_drop(struct group *g)
{
    for (uint32_t r = 0; r < g->world; r++)
        sl_free(sl_mem_default(), g->ops[r]);
}

static void group_add(struct group *g, uint32_t source, uint32_t destination, uint64_t bytes, uint32_t tag)
{
    cr_assert_lt(g->counts[source], g->capacity);
    g->ops[source][g->counts[source]++] = (struct sl_nccl_op){bytes, destination, tag, 0};
    cr_assert_lt(g->counts[destination], g->capacity);
    g->ops[destination][g->counts[destination]++] = (struct sl_nccl_op){bytes, source, tag, 1};
}

/* Plans and executes; the number of plans of each rank goes to `plans` when not NULL. */
static enum sl_nccl_verdict verdict_of(const struct sl_nccl_config *config, const struct group *g,
                                       uint32_t *plan_counts, uint32_t *ret_cycle)
{
    struct sl_nccl_plans plans[WORLD_MAX];
    for (uint32_t r = 0; r < g->world; r++) {
        cr_assert_eq(sl_nccl_plan(config, r, g->ops[r], g->counts[r], sl_mem_default(), &plans[r]), SLUICE_OK);
        if (plan_counts)
            plan_counts[r] = plans[r].plan_count;
    }
    struct sl_nccl_result result;
    const struct sl_nccl_op *const *ops = (const struct sl_nccl_op *const *)g->ops;
    cr_assert_eq(sl_nccl_execute(config, plans, ops, g->world, sl_mem_default(), &result), SLUICE_OK);
    enum sl_nccl_verdict verdict = result.verdict;
    for (uint32_t i = 0; i < result.cycle_count; i++) {
        const struct sl_nccl_wait *wait = &result.cycle[i];
        cr_assert_neq(wait->rank, wait->waits_for);
        cr_assert_eq(wait->waits_for, result.cycle[(i + 1) % result.cycle_count].rank);
    }
    if (ret_cycle)
        *ret_cycle = result.cycle_count;
    sl_nccl_result_drop(&result);
    for (uint32_t r = 0; r < g->world; r++)
        sl_nccl_plans_drop(&plans[r]);
    return verdict;
}

static void load_hang_list(struct group *g)
{
    struct sl_map map;
    struct sl_plan plan;
    cr_assert_eq(sl_map_open(SLUICE_TEST_DATA "/hang-4ranks.json", &map), SLUICE_OK);
    cr_assert_eq(sl_messages_read((const char *)map.data, map.bytes, "list", sl_mem_default(), &plan), SLUICE_OK);
    sl_map_close(&map);
    group_init(g, plan.world, plan.task_count * 2);
    for (size_t i = 0; i < plan.task_count; i++)
        group_add(g, plan.tasks[i].source, plan.tasks[i].destination, sl_task_bytes(&plan.tasks[i]), (uint32_t)i);
    cr_assert_eq(plan.task_count, 134);
    sl_plan_drop(&plan);
}

Test(nccl_model, the_134_messages_hang_as_one_group_before_2_29_7_only)
{
    struct group g;
    load_hang_list(&g);
    struct sl_nccl_config config = config_of(22809, 32, 32, 4, 1, 8192);
    uint32_t plans[4], cycle;
    cr_assert_eq(verdict_of(&config, &g, plans, &cycle), SL_NCCL_HANGS);
    cr_assert_geq(cycle, 2);
    cr_assert_gt(plans[0], 1);
    config.version = 22907;
    cr_assert_eq(verdict_of(&config, &g, NULL, &cycle), SL_NCCL_OK);
    cr_assert_eq(cycle, 0);
    config.version = 23007;
    cr_assert_eq(verdict_of(&config, &g, NULL, NULL), SL_NCCL_OK);
    group_drop(&g);
}

Test(nccl_model, too_much_work_for_the_fifo_hangs_the_host_on_every_version)
{
    const uint32_t versions[] = {22809, 22902, 22907, 23007};
    for (size_t v = 0; v < SL_COUNT(versions); v++) {
        struct sl_nccl_config config = config_of(versions[v], 2, 2, 2, 1, 131072);
        struct group g;
        group_init(&g, 2, 24000);
        for (uint32_t i = 0; i < 8000; i++)
            group_add(&g, 0, 1, 4096, i);
        cr_assert_eq(verdict_of(&config, &g, NULL, NULL), SL_NCCL_OK);
        for (uint32_t i = 8000; i < 24000; i++)
            group_add(&g, 0, 1, 4096, i);
        cr_assert_eq(verdict_of(&config, &g, NULL, NULL), SL_NCCL_HOST_HANGS);
        group_drop(&g);
    }
}

/* Items of the first plan, one node, P = C = 32, one direction 0 -> 1 (docs/nccl-model.md). */
static uint32_t first_plan_items(uint32_t version, _Bool low_latency, uint64_t bytes)
{
    struct sl_nccl_config config = config_of(version, 32, 32, 1, 2, 524288);
    config.low_latency = low_latency;
    struct group g;
    group_init(&g, 2, 600);
    for (uint32_t i = 0; i < 600; i++)
        group_add(&g, 0, 1, bytes, i);
    struct sl_nccl_plans plans;
    cr_assert_eq(sl_nccl_plan(&config, 0, g.ops[0], g.counts[0], sl_mem_default(), &plans), SLUICE_OK);
    uint32_t items = 0;
    while (items < 600 && plans.plan_of_op[items] == 0)
        items++;
    sl_nccl_plans_drop(&plans);
    group_drop(&g);
    return items;
}

Test(nccl_model, first_plan_holds_as_many_items_as_nccl_puts_there)
{
    cr_assert_eq(first_plan_items(22809, 1, 4096), 223);
    cr_assert_eq(first_plan_items(22809, 1, 65536), 28);
    cr_assert_eq(first_plan_items(22809, 1, 262144), 14);
    cr_assert_eq(first_plan_items(22809, 1, 1 << 20), 14);
    cr_assert_eq(first_plan_items(22809, 1, 16 << 20), 14);
    cr_assert_eq(first_plan_items(22809, 1, 128 << 20), 14);
    cr_assert_eq(first_plan_items(22809, 1, 512 << 20), 7);
}

Test(nccl_model, two_nodes_of_eight_hold_127_items_to_one_peer)
{
    struct sl_nccl_config config = config_of(22809, 32, 2, 2, 8, 131072);
    struct group g;
    group_init(&g, 16, 2000);
    for (uint32_t i = 0; i < 300; i++)
        group_add(&g, 0, 8, 131072, i);
    struct sl_nccl_plans plans;
    cr_assert_eq(sl_nccl_plan(&config, 0, g.ops[0], g.counts[0], sl_mem_default(), &plans), SLUICE_OK);
    cr_assert_eq(plans.plan_of_op[126], 0);
    cr_assert_eq(plans.plan_of_op[127], 1);
    sl_nccl_plans_drop(&plans);
    group_drop(&g);
}

Test(nccl_model, rounds_pair_up_on_both_ends_and_cover_every_rank_once)
{
    const uint32_t shapes[][2] = {{1, 1}, {1, 5}, {4, 1}, {2, 8}, {3, 4}, {2, 6}, {5, 3}};
    for (size_t s = 0; s < SL_COUNT(shapes); s++) {
        struct sl_nccl_config config = config_of(23007, 32, 2, shapes[s][0], shapes[s][1], 131072);
        uint32_t world = shapes[s][0] * shapes[s][1];
        uint32_t send[WORLD_MAX][WORLD_MAX], recv[WORLD_MAX][WORLD_MAX];
        for (uint32_t r = 0; r < world; r++)
            cr_assert_eq(sl_nccl_rounds(&config, r, send[r], recv[r]), SLUICE_OK);
        for (uint32_t r = 0; r < world; r++) {
            cr_assert_eq(send[r][0], r);
            uint32_t seen = 0;
            for (uint32_t round = 0; round < world; round++) {
                seen |= 1u << send[r][round];
                cr_assert_eq(recv[send[r][round]][round], r);
            }
            cr_assert_eq(seen, (1u << world) - 1);
        }
    }
}

Test(nccl_model, random_lists_never_hang_from_2_29_7_on_and_never_in_a_single_plan)
{
    struct sl_random random = {7};
    uint32_t hangs_before = 0;
    for (int round = 0; round < 200; round++) {
        uint32_t world = 3 + (uint32_t)sl_random_below(&random, 5);
        _Bool one_node = sl_random_below(&random, 2) == 0;
        struct sl_nccl_config config =
            config_of(22809, 32, 32, one_node ? 1 : world, one_node ? world : 1, one_node ? 524288 : 8192);
        struct group g;
        group_init(&g, world, 4000);
        uint32_t favourite = (uint32_t)sl_random_below(&random, world);
        for (uint32_t i = 0; i < 300; i++) {
            uint32_t source = sl_random_below(&random, 3) ? favourite : (uint32_t)sl_random_below(&random, world);
            uint32_t destination = (uint32_t)sl_random_below(&random, world);
            if (i % 50 == 0)
                favourite = (uint32_t)sl_random_below(&random, world);
            if (source != destination)
                group_add(&g, source, destination, 16 + sl_random_below(&random, 8 << 20), i);
        }
        uint32_t plans[WORLD_MAX], most = 0;
        enum sl_nccl_verdict before = verdict_of(&config, &g, plans, NULL);
        for (uint32_t r = 0; r < world; r++)
            most = plans[r] > most ? plans[r] : most;
        cr_assert(before == SL_NCCL_OK || most > 1);
        hangs_before += before == SL_NCCL_HANGS;
        config.version = 22907;
        cr_assert_eq(verdict_of(&config, &g, NULL, NULL), SL_NCCL_OK);
        group_drop(&g);
    }
    cr_assert_gt(hangs_before, 0);
}

Test(nccl_model, sufficient_bound_is_never_more_generous_than_the_planner)
{
    struct sl_random random = {11};
    for (int round = 0; round < 300; round++) {
        uint32_t p = 1u << sl_random_below(&random, 7);
        struct sl_nccl_config config = config_of(22809, p, p, 1, 8, 524288);
        config.known = 0;
        uint32_t most = sl_nccl_items_max(&config);
        struct sl_nccl_op ops[512];
        size_t count = most < 512 ? most : 512;
        for (size_t i = 0; i < count; i++)
            ops[i] =
                (struct sl_nccl_op){1 + sl_random_below(&random, UINT64_C(1) << 30),
                                    1 + (uint32_t)sl_random_below(&random, 7), 0, sl_random_below(&random, 2) == 0};
        struct sl_nccl_safety safety;
        cr_assert_eq(sl_nccl_safe(&config, 0, ops, count, sl_mem_default(), &safety), SLUICE_OK);
        cr_assert(safety.single_plan);
        /* Any true channel count up to the bound gives one plan. */
        config.known = 1;
        config.channels_per_peer = 1u << sl_random_below(&random, (uint64_t)__builtin_ctz(p) + 1);
        struct sl_nccl_plans plans;
        cr_assert_eq(sl_nccl_plan(&config, 0, ops, count, sl_mem_default(), &plans), SLUICE_OK);
        cr_assert_eq(plans.plan_count, 1);
        sl_nccl_plans_drop(&plans);
    }
}

Test(nccl_model, one_sided_and_unequal_messages_are_refused_by_name)
{
    struct sl_nccl_config config = config_of(23007, 2, 2, 2, 1, 131072);
    struct sl_nccl_op send = {64, 1, 0, 0};
    struct sl_nccl_op recv = {32, 0, 0, 1};
    struct sl_nccl_plans plans[2];
    struct sl_nccl_result result;
    const struct sl_nccl_op *ops[2] = {&send, &recv};
    cr_assert_eq(sl_nccl_plan(&config, 0, &send, 1, sl_mem_default(), &plans[0]), SLUICE_OK);
    cr_assert_eq(sl_nccl_plan(&config, 1, &recv, 1, sl_mem_default(), &plans[1]), SLUICE_OK);
    cr_assert_eq(sl_nccl_execute(&config, plans, ops, 2, sl_mem_default(), &result), SLUICE_INVALID);
    cr_assert_str_eq(sluice_last_error()->text, "rank 0 sends 64 bytes where rank 1 expects 32");
    sl_nccl_plans_drop(&plans[1]);
    cr_assert_eq(sl_nccl_plan(&config, 1, &recv, 0, sl_mem_default(), &plans[1]), SLUICE_OK);
    cr_assert_eq(sl_nccl_execute(&config, plans, ops, 2, sl_mem_default(), &result), SLUICE_INVALID);
    cr_assert_str_eq(sluice_last_error()->text, "rank 0 sends to rank 1 a message that the other rank does not expect");
    sl_nccl_plans_drop(&plans[0]);
    sl_nccl_plans_drop(&plans[1]);
}

Test(nccl_model, impossible_settings_are_refused_by_name)
{
    struct sl_nccl_config config = config_of(23007, 3, 1, 1, 2, 131072);
    uint32_t rounds[2];
    cr_assert_eq(sl_nccl_rounds(&config, 0, rounds, rounds), SLUICE_INVALID);
    cr_assert(strstr(sluice_last_error()->text, "channels 3"));
    config = config_of(23007, 4, 8, 1, 2, 131072);
    cr_assert_eq(sl_nccl_rounds(&config, 0, rounds, rounds), SLUICE_INVALID);
    config = config_of(23007, 4, 4, 0, 2, 131072);
    cr_assert_eq(sl_nccl_rounds(&config, 0, rounds, rounds), SLUICE_INVALID);
}
