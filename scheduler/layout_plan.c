/*
 * layout_plan.c: from a model and two layouts to tasks.
 *
 * - Parameters are numbered in model order: first, layers, last; within an expert tensor by expert.
 * - Tasks are emitted in the order of their ids, so the plan needs no sort.
 * - Buffers are listed for ranks that have a task of the parameter only: a copy that nobody asks for need
 *   not be bound.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "scheduler/layout_cut.h"
#include "scheduler/layout_source.h"

/* One parameter. */
struct instance {
    const struct sl_tensor *tensor;
    const struct sl_cut *cut;
    uint32_t layer;
    uint32_t expert;
    uint32_t from_stage; /* or SL_STAGE_ENDS */
    uint32_t to_stage;
};

struct maker {
    struct sl_mem *mem;
    const struct sl_model *model;
    struct sl_layout from, to; /* stages and offset filled in */
    struct sl_layout_options options;
    struct sl_cut *cuts; /* one per tensor of the model */
    struct instance *instances;
    size_t instance_count, instance_capacity;
    struct sl_sources sources;
    struct sluice_task *tasks;
    struct sl_source_want *wants; /* of tasks */
    size_t task_count, task_capacity, want_capacity;
    uint64_t bytes;
    struct sl_plan plan;
};

static sluice_status place_layouts(struct maker *maker)
{
    sluice_status status = sl_layout_stages(&maker->from, maker->model->layers);
    if (status == SLUICE_OK)
        status = sl_layout_stages(&maker->to, maker->model->layers);
    if (status != SLUICE_OK)
        return status;
    if (!maker->to.offset_given)
        maker->to.offset = maker->from.offset + maker->from.world;
    if (maker->to.offset > SLUICE_WORLD_MAX - maker->to.world)
        return sl_fail(SLUICE_INVALID, "layout", "%s: offset=%u + world=%u: more than %u ranks", maker->to.what,
                       maker->to.offset, maker->to.world, SLUICE_WORLD_MAX);
    return SLUICE_OK;
}

static uint32_t world_of(const struct maker *maker)
{
    uint32_t from = maker->from.offset + maker->from.world;
    uint32_t to = maker->to.offset + maker->to.world;
    return from > to ? from : to;
}

static sluice_status check_experts(const struct sl_tensor *tensor, const struct sl_layout *layout)
{
    if (tensor->experts % layout->ep == 0)
        return SLUICE_OK;
    return sl_fail(SLUICE_INVALID, "layout", "%s: ep=%u does not divide the %u experts of %s", layout->what, layout->ep,
                   tensor->experts, tensor->name);
}

static sluice_status make_cuts(struct maker *maker)
{
    maker->cuts = sl_new_array(maker->mem, maker->model->tensor_count, sizeof *maker->cuts, "cuts of a model");
    if (!maker->cuts)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < maker->model->tensor_count; i++) {
        const struct sl_tensor *tensor = &maker->model->tensors[i];
        if (tensor->tied_to)
            continue;
        sluice_status status = check_experts(tensor, &maker->from);
        if (status == SLUICE_OK)
            status = check_experts(tensor, &maker->to);
        if (status == SLUICE_OK)
            status = sl_cut_make(tensor, &maker->from, &maker->to, maker->options.scale, maker->mem, &maker->cuts[i]);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

/* Whether a tensor of the last stage is a second copy of this one of the first. */
static _Bool is_tied(const struct sl_model *model, const struct sl_tensor *tensor)
{
    for (uint32_t i = model->last.first; i < model->last.first + model->last.count; i++)
        if (model->tensors[i].tied_to && strcmp(model->tensors[i].tied_to, tensor->name) == 0)
            return 1;
    return 0;
}

static sluice_status add_param(struct maker *maker, const struct instance *instance)
{
    char name[SLUICE_NAME_MAX];
    SL_ASSERT(sl_tensor_name(instance->tensor, instance->layer, instance->expert, name, sizeof name));
    const struct sl_cut *cut = instance->cut;
    struct sluice_param param = {.id = (uint32_t)maker->instance_count,
                                 .dtype = instance->tensor->dtype,
                                 .bytes = cut->rows * cut->row,
                                 .row_bytes = cut->rows > 1 ? cut->row : 0,
                                 .name = name};
    sluice_status status = sl_plan_add_param(&maker->plan, &param);
    if (status == SLUICE_OK)
        status = sl_grow(maker->mem, &maker->instances, &maker->instance_capacity, maker->instance_count + 1,
                         sizeof *maker->instances, "parameters of a model");
    if (status == SLUICE_OK)
        maker->instances[maker->instance_count++] = *instance;
    return status;
}

/* All parameters of a run of tensors; `proto` has the layer and the stages. */
static sluice_status add_params(struct maker *maker, struct sl_tensors range, struct instance proto)
{
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        const struct sl_tensor *tensor = &maker->model->tensors[i];
        if (tensor->tied_to)
            continue;
        struct instance instance = proto;
        instance.tensor = tensor;
        instance.cut = &maker->cuts[i];
        if (range.first == maker->model->first.first && is_tied(maker->model, tensor))
            instance.from_stage = instance.to_stage = SL_STAGE_ENDS;
        for (uint32_t expert = 0; expert < (tensor->experts ? tensor->experts : 1); expert++) {
            instance.expert = expert;
            sluice_status status = add_param(maker, &instance);
            if (status != SLUICE_OK)
                return status;
        }
    }
    return SLUICE_OK;
}

/* The stage of a layer, given that of the layer before it. */
static uint32_t stage_of(const struct sl_layout *layout, uint32_t layer)
{
    uint32_t stage = 0;
    for (uint32_t end = layout->splits[0]; layer >= end; end += layout->splits[stage])
        stage++;
    return stage;
}

static sluice_status make_instances(struct maker *maker)
{
    sluice_status status = add_params(maker, maker->model->first, (struct instance){0});
    for (uint32_t layer = 0; layer < maker->model->layers && status == SLUICE_OK; layer++)
        status = add_params(maker, sl_model_layer(maker->model, layer),
                            (struct instance){.layer = layer,
                                              .from_stage = stage_of(&maker->from, layer),
                                              .to_stage = stage_of(&maker->to, layer)});
    if (status == SLUICE_OK)
        status = add_params(maker, maker->model->last,
                            (struct instance){.from_stage = maker->from.pp - 1, .to_stage = maker->to.pp - 1});
    return status;
}

/* Whether the destination rank (relative) holds a part of the parameter. */
static _Bool wants(const struct maker *maker, const struct instance *instance, uint32_t rank)
{
    const struct sl_layout *to = &maker->to;
    if (!sl_stage_is(to, instance->to_stage, rank))
        return 0;
    uint32_t experts = instance->tensor->experts;
    return !experts || sl_grid_at(&to->expert, SL_AXIS_EP, rank) == instance->expert / (experts / to->ep);
}

/* Names the source set of a piece, and under the published rule its source. */
static sluice_status find_source(struct maker *maker, const struct instance *instance, const struct sl_cut_piece *piece,
                                 struct sluice_task *task, uint32_t *ret_set)
{
    uint32_t experts = instance->tensor->experts;
    const struct sl_layout *from = &maker->from;
    _Bool first = maker->options.source_choice == SLUICE_SOURCE_FIRST;
    uint32_t all = experts ? from->etp : from->tp;
    struct sl_source_key key = {.stage = instance->from_stage,
                                .expert = experts > 0,
                                .ep = experts ? instance->expert / (experts / from->ep) : 0,
                                .shard = first ? 0 : piece->shard,
                                .shards = first ? all : piece->shards};
    sluice_status status = sl_sources_find(&maker->sources, &key, ret_set);
    if (status == SLUICE_OK && first)
        task->source = from->offset + sl_source_first(from, &maker->sources.sets[*ret_set], piece->shard, piece->shards,
                                                      task->destination);
    return status;
}

static sluice_status add_task(struct maker *maker, const struct sluice_task *task, const struct sl_source_want *want)
{
    uint64_t bytes = task->from.rows * task->from.row_bytes;
    uint64_t larger = bytes > want->bytes ? bytes : want->bytes; /* scaling can enlarge short rows */
    if (maker->task_count >= UINT32_MAX || __builtin_add_overflow(maker->bytes, larger, &maker->bytes) ||
        maker->bytes > SLUICE_BYTES_MAX)
        return sl_fail(SLUICE_LIMIT, "layout", "more than 2^32 tasks or 2^62 bytes");
    sluice_status status =
        sl_grow(maker->mem, &maker->tasks, &maker->task_capacity, maker->task_count + 1, sizeof *maker->tasks, "tasks");
    if (status == SLUICE_OK)
        status = sl_grow(maker->mem, &maker->wants, &maker->want_capacity, maker->task_count + 1, sizeof *maker->wants,
                         "source sets of tasks");
    if (status != SLUICE_OK)
        return status;
    maker->tasks[maker->task_count] = *task;
    maker->wants[maker->task_count++] = *want;
    return SLUICE_OK;
}

static struct sluice_region region_of(const struct sl_cut *cut, uint64_t offset, uint64_t bytes, uint64_t row)
{
    return (struct sluice_region){
        .offset = offset, .row_bytes = bytes, .rows = cut->rows, .pitch = cut->rows > 1 ? row : bytes};
}

/* The tasks of one parameter for one destination rank (relative). */
static sluice_status emit(struct maker *maker, uint32_t param, uint32_t rank)
{
    const struct instance *instance = &maker->instances[param];
    const struct sl_cut *cut = instance->cut;
    const struct sl_grid *grid = instance->tensor->experts ? &maker->to.expert : &maker->to.dense;
    uint32_t shard = sl_grid_at(grid, SL_AXIS_TP, rank);
    for (uint32_t i = cut->first[shard]; i < cut->first[shard + 1]; i++) {
        const struct sl_cut_piece *piece = &cut->pieces[i];
        struct sluice_task task = {.id = maker->task_count,
                                   .destination = maker->to.offset + rank,
                                   .param = param,
                                   .source_dtype = instance->tensor->dtype,
                                   .destination_dtype = instance->tensor->dtype,
                                   .from = region_of(cut, piece->from, piece->bytes, cut->from_row),
                                   .to = region_of(cut, piece->to, piece->bytes, cut->to_row),
                                   .origin = piece->origin};
        struct sl_source_want want = {.bytes = cut->rows * piece->weight};
        sluice_status status = find_source(maker, instance, piece, &task, &want.set);
        if (status == SLUICE_OK)
            status = add_task(maker, &task, &want);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

/* In id order: the outer loop is over parameters, or over destination ranks. */
static sluice_status emit_all(struct maker *maker)
{
    _Bool by_rank = maker->options.id_order == SLUICE_ID_DESTINATION;
    uint32_t params = (uint32_t)maker->instance_count;
    uint32_t outer = by_rank ? maker->to.world : params;
    uint32_t inner = by_rank ? params : maker->to.world;
    for (uint32_t i = 0; i < outer; i++)
        for (uint32_t j = 0; j < inner; j++) {
            uint32_t param = by_rank ? j : i;
            uint32_t rank = by_rank ? i : j;
            if (!wants(maker, &maker->instances[param], rank))
                continue;
            sluice_status status = emit(maker, param, rank);
            if (status != SLUICE_OK)
                return status;
        }
    return SLUICE_OK;
}

static int by_number(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* A buffer as one number that sorts by rank, role and parameter. */
static uint64_t buffer_key(uint32_t rank, enum sluice_role role, uint32_t param)
{
    return (uint64_t)rank << 33 | (uint64_t)role << 32 | param;
}

static sluice_status add_buffer(struct maker *maker, uint64_t key)
{
    uint32_t param = (uint32_t)key;
    enum sluice_role role = key >> 32 & 1 ? SLUICE_ROLE_DESTINATION : SLUICE_ROLE_SOURCE;
    const struct sl_cut *cut = maker->instances[param].cut;
    uint64_t row = role == SLUICE_ROLE_SOURCE ? cut->from_row : cut->to_row;
    return sl_plan_add_buffer(&maker->plan, param, (uint32_t)(key >> 33), role, cut->rows * row);
}

static sluice_status add_buffers(struct maker *maker)
{
    size_t count = 2 * maker->task_count;
    uint64_t *keys = sl_new_array(maker->mem, count, sizeof *keys, "buffers");
    if (!keys)
        return SLUICE_NOMEM;
    for (size_t i = 0; i < maker->task_count; i++) {
        const struct sluice_task *task = &maker->tasks[i];
        keys[2 * i] = buffer_key(task->source, SLUICE_ROLE_SOURCE, task->param);
        keys[2 * i + 1] = buffer_key(task->destination, SLUICE_ROLE_DESTINATION, task->param);
    }
    qsort(keys, count, sizeof *keys, by_number);
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < count && status == SLUICE_OK; i++)
        if (i == 0 || keys[i] != keys[i - 1])
            status = add_buffer(maker, keys[i]);
    sl_free(maker->mem, keys);
    return status;
}

static sluice_status add_tasks(struct maker *maker)
{
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < maker->task_count && status == SLUICE_OK; i++)
        status = sl_plan_add_task(&maker->plan, &maker->tasks[i]);
    return status;
}

static sluice_status make(struct maker *maker)
{
    sluice_status status = make_cuts(maker);
    if (status == SLUICE_OK)
        status = make_instances(maker);
    if (status == SLUICE_OK)
        status = emit_all(maker);
    if (status == SLUICE_OK && maker->options.source_choice == SLUICE_SOURCE_BALANCED)
        status = sl_source_balance(&maker->sources, maker->tasks, maker->wants, maker->task_count, maker->plan.world);
    if (status == SLUICE_OK)
        status = add_buffers(maker);
    return status == SLUICE_OK ? add_tasks(maker) : status;
}

static void drop(struct maker *maker)
{
    for (uint32_t i = 0; maker->cuts && i < maker->model->tensor_count; i++)
        sl_cut_drop(&maker->cuts[i]);
    sl_free(maker->mem, maker->cuts);
    sl_free(maker->mem, maker->instances);
    sl_free(maker->mem, maker->tasks);
    sl_free(maker->mem, maker->wants);
    sl_sources_drop(&maker->sources);
    sl_plan_drop(&maker->plan);
}

sluice_status sl_plan_make(const struct sl_model *model, const struct sl_layout *from, const struct sl_layout *to,
                           const struct sl_layout_options *options, struct sl_mem *mem, struct sl_plan *ret)
{
    struct maker maker = {.mem = mem, .model = model, .from = *from, .to = *to, .options = *options};
    sluice_status status = place_layouts(&maker);
    if (status != SLUICE_OK)
        return status;
    sl_sources_init(&maker.sources, &maker.from, mem);
    sl_plan_init(&maker.plan, mem, world_of(&maker));
    status = make(&maker);
    if (status == SLUICE_OK) {
        *ret = maker.plan;
        maker.plan = (struct sl_plan){0};
    }
    drop(&maker);
    return status;
}
