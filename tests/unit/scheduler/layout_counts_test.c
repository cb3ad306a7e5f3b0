/*
 * The shapes that published systems move, by the published rules: task counts, receives and bytes of the
 * models under tools/models are literals here.
 */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "support/layouts.h"

struct shape {
    const char *model, *from, *to;
    uint64_t params, tasks;
    uint64_t recvs; /* of every destination */
    uint64_t sends_least, sends_most;
    uint64_t busiest_megabytes; /* sent by the busiest source */
    uint64_t recv_megabytes;    /* received by the first destination */
    uint32_t sources;           /* that send at all */
};

static const struct shape shapes[] = {
    {"moe-67b", "tp=8,ep=16,world=16", "tp=4,ep=4,world=16", 45766, 209952, 13122, 13122, 13122, 32635, 32635, 16},
    {"qwen3-30b-a3b", "tp=1,ep=8,pp=2,world=16", "tp=2,ep=8,world=16", 12627, 30000, 1875, 1536, 4256, 19678, 8801, 16},
    {"qwen3-30b-a3b", "tp=4,ep=8,world=16", "tp=2,ep=4,world=16", 12627, 56144, 3509, 437, 6581, 30544, 16049, 16},
    {"nemotron3-nano-30b", "tp=2,ep=8,world=16", "tp=4,ep=4,world=16", 6231, 31984, 1999, 99, 3899, 31586, 15801, 16},
    {"nemotron3-nano-30b", "tp=2,ep=8,world=8", "tp=4,ep=4,world=8", 6231, 15992, 1999, 1571, 2427, 16898, 15801, 8},
    {"nemotron3-super-120b", "tp=8,ep=16,world=16", "tp=4,ep=4,world=16", 41627, 191440, 11965, 11965, 11965, 60964,
     60964, 16},
    {"nemotron3-super-120b", "tp=4,ep=32,world=32", "tp=8,ep=8,world=32", 41627, 195424, 6107, 5369, 6845, 32778, 30901,
     32},
    {"nemotron3-ultra-550b", "tp=8,ep=32,pp=2,world=64", "tp=8,ep=8,world=64", 49959, 469440, 7335, 7334, 7336, 140499,
     140499, 64},
    {"qwen3-235b-a22b", "tp=4,ep=16,pp=8,splits=11+12*6+11,world=128", "tp=8,ep=8,world=128", 24725, 469632, 3669, 3256,
     3936, 61506, 58861, 128},
    {"deepseek-v3", "tp=1,ep=16,pp=16,splits=3+4*14+2,world=256", "tp=32,ep=32,world=256", 30486, 455424, 1779, 512,
     15360, 93718, 43936, 241},
    {"llama3-70b", "tp=8,world=8", "tp=4,world=8", 483, 7720, 965, 965, 965, 35278, 35278, 8},
};

struct totals {
    uint64_t recvs_least, recvs_most, sends_least, sends_most, busiest;
    uint32_t sources;
};

/* Sources that send nothing count as sources that are not there. */
static struct totals totals_of(const struct sl_plan *plan, const struct layouts_rank *ranks, uint32_t first_target)
{
    struct totals totals = {.recvs_least = UINT64_MAX, .sends_least = UINT64_MAX};
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        const struct layouts_rank *at = &ranks[rank];
        if (rank >= first_target) {
            totals.recvs_least = at->recvs < totals.recvs_least ? at->recvs : totals.recvs_least;
            totals.recvs_most = at->recvs > totals.recvs_most ? at->recvs : totals.recvs_most;
        }
        if (at->sends == 0)
            continue;
        totals.sources++;
        totals.sends_least = at->sends < totals.sends_least ? at->sends : totals.sends_least;
        totals.sends_most = at->sends > totals.sends_most ? at->sends : totals.sends_most;
        totals.busiest = at->send_bytes > totals.busiest ? at->send_bytes : totals.busiest;
    }
    return totals;
}

Test(layout_counts, published_choice_gives_published_counts)
{
    struct sl_layout_options options = {.source_choice = SLUICE_SOURCE_FIRST};
    for (size_t i = 0; i < SL_COUNT(shapes); i++) {
        const struct shape *shape = &shapes[i];
        struct sl_plan plan;
        layouts_named_plan(shape->model, shape->from, shape->to, &options, &plan);
        struct layouts_rank *ranks = layouts_ranks(&plan);
        struct totals totals = totals_of(&plan, ranks, plan.world / 2);
        cr_expect_eq(plan.param_count, shape->params, "%s: %zu parameters", shape->model, plan.param_count);
        cr_expect_eq(plan.task_count, shape->tasks, "%s: %zu tasks", shape->model, plan.task_count);
        cr_expect_eq(totals.recvs_least, shape->recvs, "%s: %" PRIu64 " receives", shape->model, totals.recvs_least);
        cr_expect_eq(totals.recvs_most, shape->recvs, "%s: %" PRIu64 " receives", shape->model, totals.recvs_most);
        cr_expect_eq(totals.sends_least, shape->sends_least, "%s: %" PRIu64 " sends", shape->model, totals.sends_least);
        cr_expect_eq(totals.sends_most, shape->sends_most, "%s: %" PRIu64 " sends", shape->model, totals.sends_most);
        cr_expect_eq(totals.busiest / 1000000, shape->busiest_megabytes, "%s: %" PRIu64 " MB", shape->model,
                     totals.busiest / 1000000);
        cr_expect_eq(ranks[plan.world / 2].recv_bytes / 1000000, shape->recv_megabytes, "%s: %" PRIu64 " MB",
                     shape->model, ranks[plan.world / 2].recv_bytes / 1000000);
        cr_expect_eq(totals.sources, shape->sources, "%s: %u sources", shape->model, totals.sources);
        sl_free(sl_mem_default(), ranks);
        sl_plan_drop(&plan);
    }
}

/* The floor of this layout is 48.14 GB: each expert has one owner, and most stages hold four MoE layers. */
Test(layout_counts, balanced_choice_brings_deepseek_to_its_floor)
{
    struct sl_plan plan;
    layouts_named_plan("deepseek-v3", "tp=1,ep=16,pp=16,splits=3+4*14+2,world=256", "tp=32,ep=32,world=256", NULL,
                       &plan);
    struct layouts_rank *ranks = layouts_ranks(&plan);
    struct totals totals = totals_of(&plan, ranks, 256);
    cr_expect_eq(plan.task_count, 455424);
    cr_expect_eq(totals.sources, 256);
    cr_expect_geq(totals.busiest, 48140000000 - 10000000);
    cr_expect_leq(totals.busiest, 48140000000 / 100 * 102, "%" PRIu64, totals.busiest);
    sl_free(sl_mem_default(), ranks);
    sl_plan_drop(&plan);
}

/* Where every expert has copies enough, all sources send the same. */
Test(layout_counts, balanced_choice_levels_replicated_experts)
{
    struct sl_plan plan;
    layouts_named_plan("qwen3-30b-a3b", "tp=4,ep=8,world=16", "tp=2,ep=4,world=16", NULL, &plan);
    struct layouts_rank *ranks = layouts_ranks(&plan);
    for (uint32_t rank = 0; rank < 16; rank++)
        cr_expect_eq(ranks[rank].send_bytes / 1000000, 16049, "rank %u: %" PRIu64, rank, ranks[rank].send_bytes);
    sl_free(sl_mem_default(), ranks);
    sl_plan_drop(&plan);
}

/* On shared ranks, what a rank holds itself never crosses the wire, and the rest stays within nodes of 8. */
Test(layout_counts, balanced_choice_stays_near_on_shared_ranks)
{
    struct sl_plan plan;
    layouts_named_plan("qwen3-30b-a3b", "tp=4,ep=8,world=16", "tp=2,ep=4,world=16,offset=0", NULL, &plan);
    cr_expect_eq(plan.world, 16);
    size_t local = 0, node = 0;
    for (size_t i = 0; i < plan.task_count; i++) {
        local += plan.tasks[i].source == plan.tasks[i].destination;
        node += plan.tasks[i].source / 8 == plan.tasks[i].destination / 8;
    }
    cr_expect_eq(plan.task_count, 56144);
    cr_expect_eq(local, 10784, "%zu local tasks", local);
    cr_expect_geq(node * 100, plan.task_count * 99, "%zu tasks in their node", node);
    sl_plan_drop(&plan);
}

Test(layout_counts, all_shipped_models_hold_what_their_names_say)
{
    static const struct {
        const char *name;
        uint32_t layers;
        uint64_t params;
        uint64_t millions; /* of 2-byte elements */
    } models[] = {
        {"llama3-70b", 80, 483, 70553},
        {"qwen3-30b-a3b", 48, 12627, 30532},
        {"qwen3-235b-a22b", 94, 24725, 235093},
        {"nemotron3-nano-30b", 52, 6231, 31577},
        {"nemotron3-super-120b", 88, 41627, 120668},
        {"nemotron3-ultra-550b", 108, 49959, 549309},
        {"deepseek-v3", 61, 30486, 671026},
        {"moe-67b", 89, 45766, 64577},
    };
    for (size_t i = 0; i < SL_COUNT(models); i++) {
        struct sl_model model;
        layouts_model(models[i].name, &model);
        uint64_t bytes = 0;
        cr_expect_str_eq(model.name, models[i].name);
        cr_expect_eq(model.layers, models[i].layers, "%s", models[i].name);
        cr_expect_eq(sl_model_params(&model, &bytes), models[i].params, "%s", models[i].name);
        cr_expect_eq(bytes / 2000000, models[i].millions, "%s: %" PRIu64, models[i].name, bytes / 2000000);
        sl_model_drop(&model);
    }
}
