/*
 * Random small models and layouts against a second, naive description of who holds what: every destination
 * byte arrives exactly once, from a rank that holds it, at the place where it belongs.
 *
 * - The naive side lists, for a rank, the index along the split dimension of each of its local indices, and
 *   finds a rank's coordinates by counting through the grid. It shares no code with the planner.
 * - Content is a byte's position in the whole tensor.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/random.h"
#include "support/layouts.h"

#define RANKS_MAX 64
#define LOCAL_MAX 512

struct side {
    uint32_t tp, cp, ep, etp, pp, dp, edp, world, offset;
    uint32_t stages[16]; /* layers of each stage */
    int pp_before_dp;    /* order tp-cp-ep-pp-dp */
    int kv;              /* 0: as the model says, 1: split, 2: replicate */
    char text[256];
};

struct place {
    uint32_t tp, etp, ep, pp;
};

static uint32_t below(struct sl_random *random, uint32_t bound)
{
    return (uint32_t)sl_random_below(random, bound);
}

static uint32_t pick(struct sl_random *random, const uint32_t *list, uint32_t count)
{
    return list[below(random, count)];
}

/* Coordinates of every rank, by counting. */
static void place_ranks(const struct side *side, struct place *places)
{
    uint32_t outer = side->pp_before_dp ? side->dp : side->pp;
    uint32_t inner = side->pp_before_dp ? side->pp : side->dp;
    uint32_t rank = 0;
    for (uint32_t a = 0; a < outer; a++)
        for (uint32_t b = 0; b < inner; b++)
            for (uint32_t c = 0; c < side->cp; c++)
                for (uint32_t t = 0; t < side->tp; t++, rank++) {
                    places[rank].tp = t;
                    places[rank].pp = side->pp_before_dp ? b : a;
                }
    uint32_t expert_outer = side->pp_before_dp ? side->edp : side->pp;
    uint32_t expert_inner = side->pp_before_dp ? side->pp : side->edp;
    rank = 0;
    for (uint32_t a = 0; a < expert_outer; a++)
        for (uint32_t b = 0; b < expert_inner; b++)
            for (uint32_t e = 0; e < side->ep; e++)
                for (uint32_t t = 0; t < side->etp; t++, rank++) {
                    places[rank].ep = e;
                    places[rank].etp = t;
                    cr_assert_eq(places[rank].pp, side->pp_before_dp ? b : a);
                }
}

/* Indices along the split dimension that a shard holds, in local order. */
struct indices {
    uint32_t count;
    uint32_t at[LOCAL_MAX];
};

static void add_range(struct indices *ret, uint64_t begin, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        ret->at[ret->count++] = (uint32_t)(begin + i);
    cr_assert_leq(ret->count, LOCAL_MAX);
}

static struct indices indices_of(const struct sl_tensor *tensor, const struct side *side, uint32_t shard,
                                 uint32_t shards)
{
    struct indices ret = {0};
    uint64_t whole = tensor->shape[tensor->dim];
    if (tensor->split == SL_SPLIT_NONE) {
        add_range(&ret, 0, whole);
    } else if (tensor->units > 0 && shards > tensor->units) {
        add_range(&ret, shard * tensor->units / shards * (whole / tensor->units), whole / tensor->units);
    } else if (tensor->kv > 0 && shards > tensor->kv && (side->kv == 2 || (side->kv == 0 && !tensor->even))) {
        uint64_t head = whole / (tensor->query + 2 * tensor->kv), per_group = tensor->query / tensor->kv;
        uint64_t own = tensor->query / shards, group = shard * tensor->kv / shards;
        uint64_t first = group * (per_group + 2) * head, within = shard % (shards / tensor->kv);
        add_range(&ret, first + within * own * head, own * head);
        add_range(&ret, first + per_group * head, 2 * head);
    } else {
        uint64_t begin = 0;
        for (uint32_t block = 0; block < tensor->block_count; block++)
            for (uint32_t i = 0; i < tensor->stride; i++) {
                uint64_t stretch = tensor->blocks[block] / tensor->stride;
                add_range(&ret, begin + shard * stretch / shards, stretch / shards);
                begin += stretch;
            }
    }
    return ret;
}

/* A side that fits the models below: 12 experts, 4 query heads and 2 key-value heads, dimensions of 24. */
static void random_side(struct sl_random *random, struct side *side)
{
    static const uint32_t tps[] = {1, 2, 4}, etps[] = {1, 1, 2}, eps[] = {1, 2, 3, 4}, small[] = {1, 1, 2};
    for (;;) {
        *side = (struct side){.tp = pick(random, tps, 3),
                              .cp = pick(random, small, 3),
                              .ep = pick(random, eps, 4),
                              .etp = pick(random, etps, 3),
                              .pp = 1 + below(random, 3),
                              .dp = 1 + below(random, 4),
                              .pp_before_dp = below(random, 4) == 0,
                              .kv = (int)below(random, 3)};
        side->world = side->tp * side->cp * side->pp * side->dp;
        uint32_t experts = side->etp * side->ep * side->pp;
        if (side->world > RANKS_MAX || side->world % experts != 0)
            continue;
        side->edp = side->world / experts;
        if (side->pp_before_dp && side->tp * side->cp != side->etp * side->ep)
            continue;
        return;
    }
}

static void random_text(struct sl_random *random, struct side *side, uint32_t layers, int with_offset)
{
    uint32_t left = layers;
    char splits[64] = "";
    for (uint32_t stage = 0; stage < side->pp; stage++) {
        side->stages[stage] = stage + 1 == side->pp ? left : below(random, left + 1);
        left -= side->stages[stage];
        snprintf(splits + strlen(splits), sizeof splits - strlen(splits), "%s%u", stage ? "+" : "",
                 side->stages[stage]);
    }
    int length = snprintf(side->text, sizeof side->text, "world=%u,tp=%u,cp=%u,ep=%u,etp=%u,pp=%u,splits=%s%s%s",
                          side->world, side->tp, side->cp, side->ep, side->etp, side->pp, splits,
                          side->pp_before_dp ? ",order=tp-cp-ep-pp-dp" : "",
                          side->kv == 2   ? ",kv=replicate"
                          : side->kv == 1 ? ",kv=split"
                                          : "");
    if (with_offset)
        snprintf(side->text + length, sizeof side->text - (size_t)length, ",offset=%u", side->offset);
}

static const char model_text[] =
    "{\"schema\":1,\"name\":\"tiny\",\"sources\":[],\"dtype\":\"bf16\",\"pattern\":\"AEMAEE\",\"first\":["
    "{\"name\":\"embed\",\"shape\":[48,3],\"split\":\"tp\",\"dim\":0}],\"layers\":{\"A\":["
    "{\"name\":\"{layer}.norm\",\"shape\":[5]},"
    "{\"name\":\"{layer}.qkv\",\"shape\":[24,3],\"split\":\"tp\",\"dim\":0,\"heads\":{\"query\":4,\"kv\":2}},"
    "{\"name\":\"{layer}.qkv2\",\"shape\":[8,2],\"split\":\"tp\",\"dim\":0,\"heads\":{\"query\":4,\"kv\":2,"
    "\"cut\":\"even\"}},"
    "{\"name\":\"{layer}.k\",\"shape\":[2,12],\"split\":\"tp\",\"dim\":1,\"units\":2},"
    "{\"name\":\"{layer}.proj\",\"shape\":[3,24],\"split\":\"tp\",\"dim\":1},"
    "{\"name\":\"{layer}.fc1\",\"shape\":[48,2],\"split\":\"tp\",\"dim\":0,\"stride\":2}],\"E\":["
    "{\"name\":\"{layer}.bias\",\"shape\":[12],\"dtype\":\"f32\"},"
    "{\"name\":\"{layer}.fc1.{expert}\",\"shape\":[24,2],\"split\":\"etp\",\"dim\":0,\"stride\":2,\"experts\":12},"
    "{\"name\":\"{layer}.norm.{expert}\",\"shape\":[3],\"experts\":12},"
    "{\"name\":\"{layer}.fc2.{expert}\",\"shape\":[2,24],\"split\":\"etp\",\"dim\":1,\"experts\":12}],\"M\":["
    "{\"name\":\"{layer}.in\",\"shape\":[48,2],\"split\":\"tp\",\"dim\":0,\"blocks\":[24,12,12]},"
    "{\"name\":\"{layer}.cube\",\"shape\":[2,24,3],\"split\":\"tp\",\"dim\":1,\"blocks\":[12,12]}]},"
    "\"last\":[{\"name\":\"final\",\"shape\":[5]},%s]}";

struct world {
    const struct sl_plan *plan;
    const struct side *from, *to;
    struct place from_places[RANKS_MAX], to_places[RANKS_MAX];
};

/* One parameter as the naive side knows it. */
struct param {
    const struct sl_tensor *tensor;
    uint32_t id, layer, expert;
    int ends;      /* tied: on the first and the last stage */
    int last_only; /* of "last" */
};

static uint32_t stage_of(const struct side *side, const struct param *param)
{
    if (param->last_only)
        return side->pp - 1;
    uint32_t stage = 0;
    for (uint32_t end = side->stages[0]; param->layer != UINT32_MAX && param->layer >= end; end += side->stages[stage])
        stage++;
    return stage;
}

static int holds(const struct side *side, const struct param *param, const struct place *place)
{
    if (param->ends ? place->pp != 0 && place->pp != side->pp - 1 : place->pp != stage_of(side, param))
        return 0;
    return param->tensor->experts == 0 || place->ep == param->expert / (param->tensor->experts / side->ep);
}

/* The bytes of a rank's buffer as positions in the whole tensor; NULL when it holds nothing. */
static uint32_t *content_of(const struct side *side, const struct param *param, const struct place *place,
                            uint64_t *ret_bytes)
{
    if (!holds(side, param, place))
        return NULL;
    const struct sl_tensor *tensor = param->tensor;
    struct indices local =
        indices_of(tensor, side, tensor->experts ? place->etp : place->tp, tensor->experts ? side->etp : side->tp);
    uint64_t outer = sl_tensor_span(tensor, 0, tensor->dim);
    uint64_t inner = sl_tensor_span(tensor, tensor->dim + 1u, tensor->dims) * sluice_dtype_bytes(tensor->dtype);
    uint32_t *content = sl_new_array(sl_mem_default(), outer * local.count * inner, sizeof *content, "content");
    uint64_t at = 0;
    for (uint64_t row = 0; row < outer; row++)
        for (uint32_t i = 0; i < local.count; i++)
            for (uint64_t b = 0; b < inner; b++)
                content[at++] = (uint32_t)((row * tensor->shape[tensor->dim] + local.at[i]) * inner + b);
    *ret_bytes = at;
    return content;
}

static uint64_t byte_at(const struct sluice_region *region, uint64_t i)
{
    return region->offset + i / region->row_bytes * region->pitch + i % region->row_bytes;
}

/* Marks what one task brings to its destination; checks its source and its origin on the way. */
static void play_task(const struct world *world, const struct param *param, const struct sluice_task *task,
                      const uint32_t *wanted, uint8_t *seen, uint64_t wanted_bytes)
{
    const struct sl_param *record = &world->plan->params[param->id];
    cr_assert(task->source - world->from->offset < world->from->world);
    uint64_t source_bytes = 0;
    uint32_t *source =
        content_of(world->from, param, &world->from_places[task->source - world->from->offset], &source_bytes);
    cr_assert_not_null(source, "task %" PRIu64 ": rank %u does not hold it", task->id, task->source);
    uint64_t bytes = task->from.rows * task->from.row_bytes;
    cr_assert_eq(bytes, task->to.rows * task->to.row_bytes);
    cr_assert_eq(sl_buffer_bytes(world->plan, task->source, SLUICE_ROLE_SOURCE, param->id), source_bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        uint64_t from = byte_at(&task->from, i), to = byte_at(&task->to, i);
        cr_assert(from < source_bytes && to < wanted_bytes);
        cr_assert_eq(seen[to]++, 0, "task %" PRIu64 ": byte %" PRIu64 " comes twice", task->id, to);
        cr_assert_eq(source[from], wanted[to], "task %" PRIu64 ": byte %" PRIu64, task->id, to);
        uint64_t origin = task->origin + i / task->to.row_bytes * record->row_bytes + i % task->to.row_bytes;
        cr_assert_eq(origin, wanted[to], "task %" PRIu64 ": origin of byte %" PRIu64, task->id, to);
    }
    sl_free(sl_mem_default(), source);
}

static void check_destination(const struct world *world, const struct param *param, uint32_t rank)
{
    uint64_t bytes = 0;
    uint32_t *wanted = content_of(world->to, param, &world->to_places[rank], &bytes);
    uint8_t *seen = sl_new(sl_mem_default(), bytes, "marks");
    for (size_t i = 0; i < world->plan->task_count; i++) {
        const struct sluice_task *task = &world->plan->tasks[i];
        if (task->param != param->id || task->destination != world->to->offset + rank)
            continue;
        cr_assert_not_null(wanted, "task %" PRIu64 ": rank %u wants none of it", task->id, task->destination);
        play_task(world, param, task, wanted, seen, bytes);
    }
    for (uint64_t i = 0; i < bytes; i++)
        cr_assert_eq(seen[i], 1, "parameter %u: byte %" PRIu64 " of rank %u never comes", param->id, i, rank);
    if (wanted)
        cr_assert_eq(sl_buffer_bytes(world->plan, world->to->offset + rank, SLUICE_ROLE_DESTINATION, param->id), bytes);
    sl_free(sl_mem_default(), wanted);
    sl_free(sl_mem_default(), seen);
}

static uint32_t check_range(const struct world *world, const struct sl_model *model, struct sl_tensors range,
                            struct param param)
{
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        param.tensor = &model->tensors[i];
        if (param.tensor->tied_to)
            continue;
        for (param.expert = 0; param.expert < (param.tensor->experts ? param.tensor->experts : 1); param.expert++) {
            for (uint32_t rank = 0; rank < world->to->world; rank++)
                check_destination(world, &param, rank);
            param.id++;
        }
    }
    return param.id;
}

static void check_plan(const struct world *world, const struct sl_model *model, int tied)
{
    for (size_t i = 0; i < world->plan->task_count; i++)
        cr_assert_eq(world->plan->tasks[i].id, i);
    uint32_t id = check_range(world, model, model->first, (struct param){.layer = UINT32_MAX, .ends = tied});
    for (uint32_t layer = 0; layer < model->layers; layer++)
        id = check_range(world, model, sl_model_layer(model, layer), (struct param){.id = id, .layer = layer});
    id = check_range(world, model, model->last, (struct param){.id = id, .last_only = 1});
    cr_assert_eq(id, world->plan->param_count);
}

struct draw {
    struct side from, to;
    struct sl_layout_options options;
    struct sl_model model;
    int tied;
};

static void draw_case(uint64_t seed, struct draw *ret)
{
    struct sl_random random = {.state = seed};
    char text[4096];
    ret->tied = below(&random, 2) == 0;
    snprintf(text, sizeof text, model_text,
             ret->tied ? "{\"name\":\"out\",\"tied_to\":\"embed\"}"
                       : "{\"name\":\"out\",\"shape\":[48,3],\"split\":\"tp\",\"dim\":0}");
    cr_assert_eq(sl_model_read(text, strlen(text), "tiny", sl_mem_default(), &ret->model), SLUICE_OK, "%s",
                 sluice_last_error()->text);
    random_side(&random, &ret->from);
    random_side(&random, &ret->to);
    int shared = below(&random, 2) == 0;
    ret->to.offset = shared ? below(&random, 3) : ret->from.world;
    random_text(&random, &ret->from, ret->model.layers, 0);
    random_text(&random, &ret->to, ret->model.layers, shared);
    ret->options = (struct sl_layout_options){
        .source_choice = below(&random, 2) ? SLUICE_SOURCE_FIRST : SLUICE_SOURCE_BALANCED,
        .id_order = below(&random, 2) ? SLUICE_ID_MODEL : SLUICE_ID_DESTINATION,
    };
}

Test(layout_property, every_destination_byte_comes_once_from_a_holder)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct draw draw = {0};
        draw_case(seed, &draw);
        struct sl_plan plan;
        layouts_plan(&draw.model, draw.from.text, draw.to.text, &draw.options, &plan);
        struct world world = {.plan = &plan, .from = &draw.from, .to = &draw.to};
        place_ranks(&draw.from, world.from_places);
        place_ranks(&draw.to, world.to_places);
        check_plan(&world, &draw.model, draw.tied);
        sl_plan_drop(&plan);
        sl_model_drop(&draw.model);
    }
}

/* What each byte of a buffer is, by the origins of the tasks that touch it; 0: none does. */
static void fill_by_origin(const struct sl_plan *plan, const struct sluice_task *task,
                           const struct sluice_region *region, uint32_t *buffer, uint64_t bytes, int may_repeat)
{
    for (uint64_t i = 0; i < region->rows * region->row_bytes; i++) {
        uint64_t at = byte_at(region, i);
        cr_assert_lt(at, bytes);
        uint32_t content = (uint32_t)(task->origin + i / region->row_bytes * plan->params[task->param].row_bytes +
                                      i % region->row_bytes) +
                           1;
        cr_assert_lt(content, plan->params[task->param].bytes + 1);
        cr_assert(buffer[at] == 0 || (may_repeat && buffer[at] == content), "task %" PRIu64, task->id);
        buffer[at] = content;
    }
}

/* All tasks of one buffer agree about its content, and destinations are filled without gaps. */
static void check_buffer(const struct sl_plan *plan, const struct sl_buffer *record, int may_have_gaps)
{
    int is_source = record->role == SLUICE_ROLE_SOURCE;
    uint32_t *buffer = sl_new_array(sl_mem_default(), record->bytes, sizeof *buffer, "content");
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        if (task->param == record->param && record->rank == (is_source ? task->source : task->destination))
            fill_by_origin(plan, task, is_source ? &task->from : &task->to, buffer, record->bytes, is_source);
    }
    for (uint64_t i = 0; i < record->bytes && !is_source && !may_have_gaps; i++)
        cr_assert_neq(buffer[i], 0, "byte %" PRIu64 " of parameter %u on rank %u", i, record->param, record->rank);
    sl_free(sl_mem_default(), buffer);
}

Test(layout_property, scaled_plans_keep_tasks_and_stay_consistent)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct draw draw = {0};
        draw_case(seed, &draw);
        struct sl_plan plan, scaled;
        layouts_plan(&draw.model, draw.from.text, draw.to.text, &draw.options, &plan);
        draw.options.scale = 2 + seed % 3;
        layouts_plan(&draw.model, draw.from.text, draw.to.text, &draw.options, &scaled);
        cr_assert_eq(plan.task_count, scaled.task_count);
        for (size_t i = 0; i < plan.task_count; i++) {
            uint64_t unit = 16 * draw.options.scale;
            cr_assert_eq(plan.tasks[i].from.rows, scaled.tasks[i].from.rows);
            cr_assert_eq(plan.tasks[i].source, scaled.tasks[i].source);
            cr_assert_eq(plan.tasks[i].destination, scaled.tasks[i].destination);
            cr_assert_eq(scaled.tasks[i].from.row_bytes, (plan.tasks[i].from.row_bytes + unit - 1) / unit * 16);
        }
        for (size_t i = 0; i < scaled.buffer_count; i++)
            check_buffer(&scaled, &scaled.buffers[i], draw.from.kv != 1 || draw.to.kv != 1);
        sl_plan_drop(&plan);
        sl_plan_drop(&scaled);
        sl_model_drop(&draw.model);
    }
}

static uint64_t busiest_of(const struct sl_plan *plan)
{
    struct layouts_rank *ranks = layouts_ranks(plan);
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < plan->world; rank++)
        most = ranks[rank].send_bytes > most ? ranks[rank].send_bytes : most;
    sl_free(sl_mem_default(), ranks);
    return most;
}

static uint64_t largest_of(const struct sl_plan *plan)
{
    uint64_t most = 0;
    for (size_t i = 0; i < plan->task_count; i++)
        most = sl_task_bytes(&plan->tasks[i]) > most ? sl_task_bytes(&plan->tasks[i]) : most;
    return most;
}

/* Whole pieces cannot be levelled exactly, so the bound leaves one piece of room. */
Test(layout_property, balanced_choice_is_never_busier_than_the_published_one)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct draw draw = {0};
        draw_case(seed, &draw);
        struct sl_plan plans[2];
        for (int i = 0; i < 2; i++) {
            draw.options.source_choice = i ? SLUICE_SOURCE_FIRST : SLUICE_SOURCE_BALANCED;
            layouts_plan(&draw.model, draw.from.text, draw.to.text, &draw.options, &plans[i]);
        }
        cr_assert_leq(busiest_of(&plans[0]), busiest_of(&plans[1]) + largest_of(&plans[1]), "seed %" PRIu64, seed);
        sl_plan_drop(&plans[0]);
        sl_plan_drop(&plans[1]);
        sl_model_drop(&draw.model);
    }
}

Test(layout_property, equal_inputs_give_equal_plans)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct draw draw = {0};
        draw_case(seed, &draw);
        struct sl_plan plans[2];
        for (int i = 0; i < 2; i++)
            layouts_plan(&draw.model, draw.from.text, draw.to.text, &draw.options, &plans[i]);
        cr_assert_eq(plans[0].task_count, plans[1].task_count);
        cr_assert_arr_eq(plans[0].tasks, plans[1].tasks, plans[0].task_count * sizeof *plans[0].tasks);
        cr_assert_eq(plans[0].buffer_count, plans[1].buffer_count);
        cr_assert_arr_eq(plans[0].buffers, plans[1].buffers, plans[0].buffer_count * sizeof *plans[0].buffers);
        for (int i = 0; i < 2; i++)
            sl_plan_drop(&plans[i]);
        sl_model_drop(&draw.model);
    }
}
