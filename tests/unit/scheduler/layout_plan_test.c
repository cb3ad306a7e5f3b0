/* Small plans by hand: the pieces of each kind of tensor, the numbering, and what does not fit. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "support/layouts.h"

/* A model of one layer, "A", with one tensor. */
static void tiny(const char *tensor, struct sl_model *ret)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"schema\":1,\"name\":\"tiny\",\"sources\":[],\"dtype\":\"bf16\",\"pattern\":\"A\",\"first\":[],"
             "\"layers\":{\"A\":[%s]},\"last\":[]}",
             tensor);
    cr_assert_eq(sl_model_read(text, strlen(text), "tiny", sl_mem_default(), ret), SLUICE_OK, "%s",
                 sluice_last_error()->text);
}

static void tiny_plan(const char *tensor, const char *from, const char *to, uint64_t scale, struct sl_plan *ret)
{
    struct sl_model model;
    struct sl_layout_options options = {.scale = scale};
    tiny(tensor, &model);
    layouts_plan(&model, from, to, &options, ret);
    sl_model_drop(&model);
}

static void is_task(const struct sl_plan *plan, size_t id, uint32_t source, uint32_t destination,
                    struct sluice_region from, struct sluice_region to, uint64_t origin)
{
    const struct sluice_task *task = &plan->tasks[id];
    cr_expect_eq(task->id, id);
    cr_expect_eq(task->source, source, "task %zu: source %u", id, task->source);
    cr_expect_eq(task->destination, destination, "task %zu: destination %u", id, task->destination);
    cr_expect_arr_eq(&task->from, &from, sizeof from, "task %zu: from %" PRIu64 "+%" PRIu64 "x%" PRIu64 "/%" PRIu64, id,
                     task->from.offset, task->from.rows, task->from.row_bytes, task->from.pitch);
    cr_expect_arr_eq(&task->to, &to, sizeof to, "task %zu: to %" PRIu64 "+%" PRIu64 "x%" PRIu64 "/%" PRIu64, id,
                     task->to.offset, task->to.rows, task->to.row_bytes, task->to.pitch);
    cr_expect_eq(task->origin, origin, "task %zu: origin %" PRIu64, id, task->origin);
}

#define REGION(...) ((struct sluice_region){__VA_ARGS__})

Test(layout_plan, column_parallel_tensors_split_into_contiguous_pieces)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.w\",\"shape\":[8,4],\"split\":\"tp\",\"dim\":0}", "tp=1,world=1", "tp=2,world=2", 1,
              &plan);
    cr_assert_eq(plan.world, 3);
    cr_assert_eq(plan.task_count, 2);
    is_task(&plan, 0, 0, 1, REGION(0, 32, 1, 32), REGION(0, 32, 1, 32), 0);
    is_task(&plan, 1, 0, 2, REGION(32, 32, 1, 32), REGION(0, 32, 1, 32), 32);
    cr_expect_str_eq(sl_param_name(&plan, 0), "0.w");
    cr_expect_eq(plan.params[0].bytes, 64);
    cr_expect_eq(sl_buffer_bytes(&plan, 0, SLUICE_ROLE_SOURCE, 0), 64);
    cr_expect_eq(sl_buffer_bytes(&plan, 2, SLUICE_ROLE_DESTINATION, 0), 32);
    sl_plan_drop(&plan);
}

Test(layout_plan, row_parallel_tensors_split_into_strided_pieces)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.w\",\"shape\":[3,8],\"split\":\"tp\",\"dim\":1}", "tp=2,world=2", "tp=1,world=1", 1,
              &plan);
    cr_assert_eq(plan.task_count, 2);
    is_task(&plan, 0, 0, 2, REGION(0, 8, 3, 8), REGION(0, 8, 3, 16), 0);
    is_task(&plan, 1, 1, 2, REGION(0, 8, 3, 8), REGION(8, 8, 3, 16), 8);
    cr_expect_eq(plan.params[0].row_bytes, 16);
    sl_plan_drop(&plan);
}

Test(layout_plan, fused_tensors_move_stretch_by_stretch_even_at_equal_tp)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.w\",\"shape\":[8,1],\"split\":\"tp\",\"dim\":0,\"stride\":2}", "tp=2,world=2",
              "tp=2,world=2", 1, &plan);
    cr_assert_eq(plan.task_count, 4);
    is_task(&plan, 0, 0, 2, REGION(0, 4, 1, 4), REGION(0, 4, 1, 4), 0);
    is_task(&plan, 1, 0, 2, REGION(4, 4, 1, 4), REGION(4, 4, 1, 4), 8);
    is_task(&plan, 2, 1, 3, REGION(0, 4, 1, 4), REGION(0, 4, 1, 4), 4);
    is_task(&plan, 3, 1, 3, REGION(4, 4, 1, 4), REGION(4, 4, 1, 4), 12);
    sl_plan_drop(&plan);
}

/* Three to two: tiles are sixths, so the middle shard gives one tile to each. */
Test(layout_plan, uneven_degrees_are_tiled_by_their_least_common_multiple)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.w\",\"shape\":[6],\"split\":\"tp\",\"dim\":0}", "tp=3,world=3", "tp=2,world=2", 1,
              &plan);
    cr_assert_eq(plan.task_count, 6);
    static const uint32_t sources[] = {0, 0, 1, 1, 2, 2}, destinations[] = {3, 3, 3, 4, 4, 4};
    for (size_t i = 0; i < 6; i++) {
        cr_expect_eq(plan.tasks[i].source, sources[i]);
        cr_expect_eq(plan.tasks[i].destination, destinations[i]);
        cr_expect_eq(plan.tasks[i].origin, 2 * i);
        cr_expect_eq(plan.tasks[i].from.row_bytes, 2);
    }
    sl_plan_drop(&plan);
}

/* Heads of 1 row: q0 q1 k v | q2 q3 k v. Two groups on four ranks: each has one query head, its key and value. */
Test(layout_plan, replicated_heads_give_every_rank_its_key_and_value)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.qkv\",\"shape\":[8,1],\"split\":\"tp\",\"dim\":0,\"heads\":{\"query\":4,\"kv\":2}}",
              "tp=2,world=2", "tp=4,world=4", 1, &plan);
    cr_assert_eq(plan.task_count, 8);
    is_task(&plan, 2, 0, 3, REGION(2, 2, 1, 2), REGION(0, 2, 1, 2), 2);
    is_task(&plan, 3, 0, 3, REGION(4, 4, 1, 4), REGION(2, 4, 1, 4), 4);
    is_task(&plan, 6, 1, 5, REGION(2, 2, 1, 2), REGION(0, 2, 1, 2), 10);
    is_task(&plan, 7, 1, 5, REGION(4, 4, 1, 4), REGION(2, 4, 1, 4), 12);
    cr_expect_eq(sl_buffer_bytes(&plan, 3, SLUICE_ROLE_DESTINATION, 0), 6);
    sl_plan_drop(&plan);
}

/* The published systems cut the fused tensor evenly and gather activations: here 2 of 8 rows a rank. */
Test(layout_plan, fused_tensors_are_cut_evenly_where_model_or_layout_says_so)
{
    static const char *const heads[] = {"\"cut\":\"even\",", ""};
    static const char *const layouts[] = {"tp=4,world=4", "tp=4,world=4,kv=split"};
    for (int i = 0; i < 2; i++) {
        char tensor[200];
        struct sl_plan plan;
        snprintf(tensor, sizeof tensor,
                 "{\"name\":\"{layer}.qkv\",\"shape\":[8,1],\"split\":\"tp\",\"dim\":0,\"heads\":{%s\"query\":4,"
                 "\"kv\":2}}",
                 heads[i]);
        tiny_plan(tensor, "tp=2,world=2", layouts[i], 1, &plan);
        cr_assert_eq(plan.task_count, 4);
        is_task(&plan, 1, 0, 3, REGION(4, 4, 1, 4), REGION(0, 4, 1, 4), 4);
        is_task(&plan, 3, 1, 5, REGION(4, 4, 1, 4), REGION(0, 4, 1, 4), 12);
        sl_plan_drop(&plan);
    }
}

Test(layout_plan, kv_of_a_layout_overrides_the_model)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.qkv\",\"shape\":[8,1],\"split\":\"tp\",\"dim\":0,"
              "\"heads\":{\"query\":4,\"kv\":2,\"cut\":\"even\"}}",
              "tp=2,world=2", "tp=4,world=4,kv=replicate", 1, &plan);
    cr_expect_eq(plan.task_count, 8);
    sl_plan_drop(&plan);
}

Test(layout_plan, unfused_key_heads_are_replicated_above_their_number)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.k\",\"shape\":[4,1],\"split\":\"tp\",\"dim\":0,\"units\":2}", "tp=1,world=1",
              "tp=4,world=4", 1, &plan);
    cr_assert_eq(plan.task_count, 4);
    is_task(&plan, 1, 0, 2, REGION(0, 4, 1, 4), REGION(0, 4, 1, 4), 0);
    is_task(&plan, 2, 0, 3, REGION(4, 4, 1, 4), REGION(0, 4, 1, 4), 4);
    sl_plan_drop(&plan);
}

Test(layout_plan, packed_blocks_are_cut_one_by_one)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.in\",\"shape\":[12],\"split\":\"tp\",\"dim\":0,\"blocks\":[8,4]}", "tp=1,world=1",
              "tp=2,world=2", 1, &plan);
    cr_assert_eq(plan.task_count, 4);
    is_task(&plan, 2, 0, 2, REGION(8, 8, 1, 8), REGION(0, 8, 1, 8), 8);
    is_task(&plan, 3, 0, 2, REGION(20, 4, 1, 4), REGION(8, 4, 1, 4), 20);
    sl_plan_drop(&plan);
}

Test(layout_plan, scale_shrinks_rows_and_keeps_everything_else)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.w\",\"shape\":[3,200],\"split\":\"tp\",\"dim\":1}", "tp=2,world=2", "tp=1,world=1",
              10, &plan);
    cr_assert_eq(plan.task_count, 2);
    is_task(&plan, 0, 0, 2, REGION(0, 32, 3, 32), REGION(0, 32, 3, 64), 0);
    is_task(&plan, 1, 1, 2, REGION(0, 32, 3, 32), REGION(32, 32, 3, 64), 32);
    cr_expect_eq(plan.params[0].bytes, 192);
    cr_expect_eq(plan.params[0].row_bytes, 64);
    sl_plan_drop(&plan);
}

/* Two bytes a row become sixteen, which is too much for 2^60 rows. */
Test(layout_plan, scale_that_would_overflow_is_refused)
{
    static struct sl_layout sides[2];
    struct sl_layout_options options = {.scale = 2};
    struct sl_model model;
    struct sl_plan plan;
    tiny("{\"name\":\"{layer}.w\",\"shape\":[1152921504606846976,2],\"split\":\"tp\",\"dim\":1}", &model);
    cr_assert_eq(sl_layout_parse("tp=2,world=2", "--from", &sides[0]), SLUICE_OK);
    cr_assert_eq(sl_layout_parse("world=1", "--to", &sides[1]), SLUICE_OK);
    cr_expect_eq(sl_plan_make(&model, &sides[0], &sides[1], &options, sl_mem_default(), &plan), SLUICE_LIMIT);
    sl_model_drop(&model);
}

Test(layout_plan, ids_follow_parameters_or_destinations)
{
    static const char two[] = "{\"name\":\"{layer}.a\",\"shape\":[4]},{\"name\":\"{layer}.b\",\"shape\":[4]}";
    static const uint32_t params[2][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
    static const uint32_t destinations[2][4] = {{1, 2, 1, 2}, {1, 1, 2, 2}};
    for (int order = 0; order < 2; order++) {
        struct sl_model model;
        struct sl_plan plan;
        struct sl_layout_options options = {.id_order = order ? SLUICE_ID_DESTINATION : SLUICE_ID_MODEL};
        tiny(two, &model);
        layouts_plan(&model, "world=1", "world=2", &options, &plan);
        cr_assert_eq(plan.task_count, 4);
        for (size_t i = 0; i < 4; i++) {
            cr_expect_eq(plan.tasks[i].param, params[order][i]);
            cr_expect_eq(plan.tasks[i].destination, destinations[order][i]);
        }
        sl_plan_drop(&plan);
        sl_model_drop(&model);
    }
}

Test(layout_plan, offset_of_the_destination_follows_the_source_ranks)
{
    struct sl_plan plan;
    tiny_plan("{\"name\":\"{layer}.a\",\"shape\":[4]}", "world=2,offset=3", "world=1", 1, &plan);
    cr_expect_eq(plan.world, 6);
    cr_expect_eq(plan.tasks[0].destination, 5);
    cr_expect_eq(plan.tasks[0].source, 3);
    sl_plan_drop(&plan);
}

static void refused(const char *tensor, const char *from, const char *to, const char *words)
{
    static struct sl_layout sides[2];
    struct sl_layout_options options = {0};
    struct sl_model model;
    struct sl_plan plan;
    tiny(tensor, &model);
    cr_assert_eq(sl_layout_parse(from, "--from", &sides[0]), SLUICE_OK);
    cr_assert_eq(sl_layout_parse(to, "--to", &sides[1]), SLUICE_OK);
    cr_expect_eq(sl_plan_make(&model, &sides[0], &sides[1], &options, sl_mem_default(), &plan), SLUICE_INVALID);
    cr_expect_str_eq(sluice_last_error()->text, words);
    sl_model_drop(&model);
}

Test(layout_plan, what_does_not_divide_names_dimension_parameter_and_sizes)
{
    refused("{\"name\":\"{layer}.w\",\"shape\":[8,4],\"split\":\"tp\",\"dim\":0}", "tp=3,world=3", "world=1",
            "--from: tp=3 x stride 1 does not divide dimension 0 of {layer}.w (block 1 of 1, 8 elements)");
    refused("{\"name\":\"{layer}.w\",\"shape\":[2,6],\"split\":\"tp\",\"dim\":1,\"stride\":2}", "world=1",
            "tp=2,world=2",
            "--to: tp=2 x stride 2 does not divide dimension 1 of {layer}.w (block 1 of 1, 6 elements)");
    refused("{\"name\":\"{layer}.w{expert}\",\"shape\":[8,4],\"experts\":12}", "ep=8,world=8", "world=1",
            "--from: ep=8 does not divide the 12 experts of {layer}.w{expert}");
    refused("{\"name\":\"{layer}.qkv\",\"shape\":[8,1],\"split\":\"tp\",\"dim\":0,\"heads\":{\"query\":4,\"kv\":2}}",
            "tp=8,world=8", "world=1", "--from: tp=8 does not divide the 4 query heads of {layer}.qkv");
    refused("{\"name\":\"{layer}.k\",\"shape\":[24],\"split\":\"tp\",\"dim\":0,\"units\":2}", "tp=3,world=3", "world=1",
            "--from: tp=3 does not divide the 2 units of {layer}.k, nor is it a multiple of them");
    refused("{\"name\":\"{layer}.w\",\"shape\":[8]}", "pp=2,world=2", "world=1",
            "--from: pp=2 does not divide 1 layers; give splits=");
    refused("{\"name\":\"{layer}.w\",\"shape\":[8]}", "world=40000", "world=40000",
            "--to: offset=40000 + world=40000: more than 65536 ranks");
}
