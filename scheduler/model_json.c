/*
 * model_json.c: reads a model file, strictly.
 *
 * - Every member is checked where it is read, so a model that was read needs no further check but those
 *   that depend on a layout.
 * - Errors name the input and the member by its path: "tiny.json.layers.E[3].blocks".
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "scheduler/model.h"

#define SCHEMA         1u
#define PATH_MAX_BYTES 256

struct reader {
    struct sl_model *model;
    const char *what;
    uint8_t dtype; /* of tensors that name none */
    size_t capacity;
};

static sluice_status bad(const char *path, const char *words)
{
    return sl_fail(SLUICE_PARSE, "model", "%s: %s", path, words);
}

static _Bool find_dtype(const char *name, uint8_t *ret)
{
    for (uint8_t dtype = 1; sluice_dtype_bytes(dtype) > 0; dtype++)
        if (strcmp(sluice_dtype_name(dtype), name) == 0) {
            *ret = dtype;
            return 1;
        }
    return 0;
}

static sluice_status read_dtype(const json_t *object, const char *path, uint8_t *ret)
{
    const char *name = NULL;
    sluice_status status = sl_json_text(object, "dtype", path, &name);
    if (status != SLUICE_OK)
        return status;
    if (!find_dtype(name, ret))
        return sl_fail(SLUICE_PARSE, "model", "%s: unknown dtype '%s'", path, name);
    return SLUICE_OK;
}

/* A list of positive integers; `ret` holds `max`. */
static sluice_status read_sizes(const json_t *object, const char *key, const char *path, uint64_t *ret, size_t max,
                                uint8_t *ret_count)
{
    const json_t *list = NULL;
    sluice_status status = sl_json_array(object, key, path, &list);
    if (status != SLUICE_OK)
        return status;
    size_t count = json_array_size(list);
    if (count == 0 || count > max)
        return sl_fail(SLUICE_PARSE, "model", "%s.%s: wants 1 to %zu numbers, has %zu", path, key, max, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number <= 0 || (uint64_t)number > SLUICE_BYTES_MAX)
            return sl_fail(SLUICE_PARSE, "model", "%s.%s[%zu]: want an integer from 1 to 2^62", path, key, i);
        ret[i] = (uint64_t)number;
    }
    *ret_count = (uint8_t)count;
    return SLUICE_OK;
}

static sluice_status read_shape(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    sluice_status status = read_sizes(object, "shape", path, tensor->shape, SL_TENSOR_DIMS, &tensor->dims);
    if (status != SLUICE_OK)
        return status;
    uint64_t bytes = sluice_dtype_bytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes) || bytes > SLUICE_BYTES_MAX)
            return bad(path, "larger than 2^62 bytes");
    return SLUICE_OK;
}

static sluice_status read_blocks(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    uint64_t whole = tensor->shape[tensor->dim];
    if (!json_object_get(object, "blocks")) {
        tensor->blocks[0] = whole;
        tensor->block_count = 1;
        return SLUICE_OK;
    }
    sluice_status status = read_sizes(object, "blocks", path, tensor->blocks, SL_TENSOR_BLOCKS, &tensor->block_count);
    if (status != SLUICE_OK)
        return status;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tensor->block_count; i++)
        if (__builtin_add_overflow(sum, tensor->blocks[i], &sum))
            return bad(path, "the sum of the blocks overflows");
    if (sum != whole)
        return sl_fail(SLUICE_PARSE, "model", "%s: the blocks add up to %llu, dimension %u has %llu", path,
                       (unsigned long long)sum, tensor->dim, (unsigned long long)whole);
    return SLUICE_OK;
}

/* Query and key-value heads of a fused tensor; its rows are groups of query heads, one key, one value. */
static sluice_status read_heads(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    const json_t *heads = json_object_get(object, "heads");
    if (!heads)
        return SLUICE_OK;
    static const char *const keys[] = {"query", "kv", "cut", NULL};
    const char *cut = "heads";
    sluice_status status = sl_json_only(heads, keys, path);
    if (status == SLUICE_OK && json_object_get(heads, "cut"))
        status = sl_json_text(heads, "cut", path, &cut);
    if (status == SLUICE_OK)
        status = sl_json_u64(heads, "query", path, &tensor->query);
    if (status == SLUICE_OK)
        status = sl_json_u64(heads, "kv", path, &tensor->kv);
    if (status != SLUICE_OK)
        return status;
    if (strcmp(cut, "heads") != 0 && strcmp(cut, "even") != 0)
        return bad(path, "heads: cut: want \"heads\" or \"even\"");
    tensor->even = cut[0] == 'e';
    uint64_t whole = tensor->shape[tensor->dim];
    if (tensor->kv == 0 || tensor->query == 0 || tensor->query > whole || tensor->kv > whole ||
        tensor->query % tensor->kv || whole % (tensor->query + 2 * tensor->kv))
        return bad(path, "heads: kv must divide query, and query + 2 kv the dimension");
    return SLUICE_OK;
}

static sluice_status read_units(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    sluice_status status = sl_json_u64_or(object, "units", path, 0, &tensor->units);
    if (status != SLUICE_OK)
        return status;
    if (tensor->units && tensor->shape[tensor->dim] % tensor->units)
        return bad(path, "units must divide the dimension");
    int shapes = (tensor->units > 0) + (tensor->kv > 0) + (tensor->stride > 1) + (tensor->block_count > 1);
    if (shapes > 1)
        return bad(path, "at most one of heads, units, stride and blocks");
    return SLUICE_OK;
}

static sluice_status read_split_kind(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    const char *split = NULL;
    sluice_status status = sl_json_text(object, "split", path, &split);
    if (status != SLUICE_OK)
        return status;
    if (strcmp(split, "tp") == 0)
        tensor->split = SL_SPLIT_TP;
    else if (strcmp(split, "etp") == 0)
        tensor->split = SL_SPLIT_ETP;
    else
        return bad(path, "split: want \"tp\" or \"etp\"");
    if ((tensor->split == SL_SPLIT_ETP) != (tensor->experts > 0))
        return bad(path, "expert tensors split by \"etp\", all others by \"tp\"");
    return SLUICE_OK;
}

static sluice_status read_split(const json_t *object, const char *path, struct sl_tensor *tensor)
{
    static const char *const needs_split[] = {"dim", "stride", "blocks", "heads", "units"};
    tensor->stride = 1;
    if (!json_object_get(object, "split")) {
        for (size_t i = 0; i < SL_COUNT(needs_split); i++)
            if (json_object_get(object, needs_split[i]))
                return sl_fail(SLUICE_PARSE, "model", "%s.%s: only with \"split\"", path, needs_split[i]);
        return SLUICE_OK;
    }
    uint64_t dim = 0, stride = 1;
    sluice_status status = read_split_kind(object, path, tensor);
    if (status == SLUICE_OK)
        status = sl_json_u64(object, "dim", path, &dim);
    if (status == SLUICE_OK)
        status = sl_json_u64_or(object, "stride", path, 1, &stride);
    if (status != SLUICE_OK)
        return status;
    if (dim >= tensor->dims || stride == 0 || stride > 1024)
        return bad(path, "dim must be a dimension of the shape, stride 1 to 1024");
    tensor->dim = (uint8_t)dim;
    tensor->stride = (uint32_t)stride;
    status = read_blocks(object, path, tensor);
    if (status == SLUICE_OK)
        status = read_heads(object, path, tensor);
    return status == SLUICE_OK ? read_units(object, path, tensor) : status;
}

/* {layer} in every tensor of a layer, {expert} in every expert tensor, and in no other. */
static sluice_status check_name(const char *path, const struct sl_tensor *tensor, _Bool in_layer)
{
    char text[SLUICE_NAME_MAX];
    if (!sl_tensor_name(tensor, SL_MODEL_LAYERS, SL_MODEL_EXPERTS, text, sizeof text))
        return bad(path, "name: empty or longer than 511 bytes");
    if ((strstr(tensor->name, "{layer}") != NULL) != in_layer)
        return bad(path, "name: {layer} belongs into names of layer tensors, and only there");
    if ((strstr(tensor->name, "{expert}") != NULL) != (tensor->experts > 0))
        return bad(path, "name: {expert} belongs into names of expert tensors, and only there");
    return SLUICE_OK;
}

static sluice_status read_tensor(struct reader *reader, const json_t *object, const char *path, _Bool in_layer,
                                 struct sl_tensor *ret)
{
    static const char *const keys[] = {"name",   "shape", "dtype", "split",   "dim", "stride",
                                       "blocks", "heads", "units", "experts", NULL};
    struct sl_tensor tensor = {.dtype = reader->dtype};
    uint64_t experts = 0;
    sluice_status status = sl_json_only(object, keys, path);
    if (status == SLUICE_OK)
        status = sl_json_text(object, "name", path, &tensor.name);
    if (status == SLUICE_OK && json_object_get(object, "dtype"))
        status = read_dtype(object, path, &tensor.dtype);
    if (status == SLUICE_OK)
        status = read_shape(object, path, &tensor);
    if (status == SLUICE_OK)
        status = sl_json_u64_or(object, "experts", path, 0, &experts);
    if (status != SLUICE_OK)
        return status;
    if (experts > SL_MODEL_EXPERTS)
        return bad(path, "experts: at most 65536");
    tensor.experts = (uint32_t)experts;
    status = read_split(object, path, &tensor);
    if (status == SLUICE_OK)
        status = check_name(path, &tensor, in_layer);
    if (status == SLUICE_OK)
        *ret = tensor;
    return status;
}

/* {"name": ..., "tied_to": ...}: a second copy, on the last stage, of a tensor of the first. */
static sluice_status read_tied(struct reader *reader, const json_t *object, const char *path, struct sl_tensor *ret)
{
    static const char *const keys[] = {"name", "tied_to", NULL};
    struct sl_tensor tensor = {.stride = 1};
    sluice_status status = sl_json_only(object, keys, path);
    if (status == SLUICE_OK)
        status = sl_json_text(object, "name", path, &tensor.name);
    if (status == SLUICE_OK)
        status = sl_json_text(object, "tied_to", path, &tensor.tied_to);
    if (status != SLUICE_OK)
        return status;
    const struct sl_model *model = reader->model;
    for (uint32_t i = model->first.first; i < model->first.first + model->first.count; i++)
        if (strcmp(model->tensors[i].name, tensor.tied_to) == 0) {
            *ret = tensor;
            return SLUICE_OK;
        }
    return bad(path, "tied_to: names no tensor of \"first\"");
}

/* Where a list of tensors stands in the file. */
enum place { IN_FIRST, IN_LAYER, IN_LAST };

static sluice_status read_list(struct reader *reader, const json_t *list, const char *path, enum place place,
                               struct sl_tensors *ret)
{
    struct sl_model *model = reader->model;
    struct sl_tensors range = {.first = model->tensor_count};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        char where[PATH_MAX_BYTES];
        SL_IGNORE(snprintf(where, sizeof where, "%s[%zu]", path, i));
        sluice_status status = sl_grow(model->mem, &model->tensors, &reader->capacity, model->tensor_count + 1u,
                                       sizeof *model->tensors, "tensors of a model");
        if (status != SLUICE_OK)
            return status;
        struct sl_tensor *tensor = &model->tensors[model->tensor_count];
        if (place == IN_LAST && json_object_get(object, "tied_to"))
            status = read_tied(reader, object, where, tensor);
        else
            status = read_tensor(reader, object, where, place == IN_LAYER, tensor);
        if (status != SLUICE_OK)
            return status;
        model->tensor_count++;
        range.count++;
    }
    *ret = range;
    return SLUICE_OK;
}

static sluice_status read_end(struct reader *reader, const char *key, enum place place, struct sl_tensors *ret)
{
    const json_t *list = NULL;
    sluice_status status = sl_json_array(reader->model->root, key, reader->what, &list);
    char path[PATH_MAX_BYTES];
    SL_IGNORE(snprintf(path, sizeof path, "%s.%s", reader->what, key));
    return status == SLUICE_OK ? read_list(reader, list, path, place, ret) : status;
}

static sluice_status read_kinds(struct reader *reader)
{
    struct sl_model *model = reader->model;
    json_t *layers = json_object_get(model->root, "layers");
    if (!json_is_object(layers) || json_object_size(layers) > SL_MODEL_KINDS)
        return bad(reader->what, "layers: want an object of at most 32 kinds");
    const char *letter = NULL;
    json_t *list = NULL;
    json_object_foreach(layers, letter, list)
    {
        char path[PATH_MAX_BYTES];
        SL_IGNORE(snprintf(path, sizeof path, "%s.layers.%s", reader->what, letter));
        if (strlen(letter) != 1 || !json_is_array(list))
            return bad(path, "want one character as key and a list of tensors");
        sluice_status status = read_list(reader, list, path, IN_LAYER, &model->kinds[model->kind_count]);
        if (status != SLUICE_OK)
            return status;
        model->letters[model->kind_count++] = letter[0];
    }
    return SLUICE_OK;
}

static sluice_status read_pattern(struct reader *reader)
{
    struct sl_model *model = reader->model;
    sluice_status status = sl_json_text(model->root, "pattern", reader->what, &model->pattern);
    if (status != SLUICE_OK)
        return status;
    size_t layers = strlen(model->pattern);
    if (layers == 0 || layers > SL_MODEL_LAYERS)
        return bad(reader->what, "pattern: want one letter per layer, 1 to 4096");
    model->layers = (uint32_t)layers;
    for (size_t i = 0; i < layers; i++)
        if (!memchr(model->letters, model->pattern[i], model->kind_count))
            return sl_fail(SLUICE_PARSE, "model", "%s: pattern: layer %zu is a '%c', which \"layers\" does not have",
                           reader->what, i, model->pattern[i]);
    return SLUICE_OK;
}

static sluice_status read_head(struct reader *reader)
{
    static const char *const keys[] = {"schema", "name",   "sources", "dtype", "pattern",
                                       "first",  "layers", "last",    NULL};
    struct sl_model *model = reader->model;
    const json_t *sources = NULL;
    uint64_t schema = 0;
    sluice_status status = sl_json_only(model->root, keys, reader->what);
    if (status == SLUICE_OK)
        status = sl_json_u64(model->root, "schema", reader->what, &schema);
    if (status == SLUICE_OK && schema != SCHEMA)
        return bad(reader->what, "schema: only schema 1 is known");
    if (status == SLUICE_OK)
        status = sl_json_text(model->root, "name", reader->what, &model->name);
    if (status == SLUICE_OK)
        status = sl_json_array(model->root, "sources", reader->what, &sources);
    return status == SLUICE_OK ? read_dtype(model->root, reader->what, &reader->dtype) : status;
}

static sluice_status read_model(struct reader *reader)
{
    sluice_status status = read_head(reader);
    if (status == SLUICE_OK)
        status = read_end(reader, "first", IN_FIRST, &reader->model->first);
    if (status == SLUICE_OK)
        status = read_kinds(reader);
    if (status == SLUICE_OK)
        status = read_pattern(reader);
    if (status == SLUICE_OK)
        status = read_end(reader, "last", IN_LAST, &reader->model->last);
    uint64_t bytes = 0;
    if (status == SLUICE_OK)
        SL_IGNORE(sl_model_params(reader->model, &bytes) == 0);
    return bytes > SLUICE_BYTES_MAX ? bad(reader->what, "the model is larger than 2^62 bytes") : status;
}

sluice_status sl_model_read(const char *text, size_t bytes, const char *what, struct sl_mem *mem, struct sl_model *ret)
{
    struct sl_model model = {.mem = mem};
    struct reader reader = {.model = &model, .what = what};
    sluice_status status = sl_json_parse(text, bytes, what, &model.root);
    if (status == SLUICE_OK)
        status = read_model(&reader);
    if (status != SLUICE_OK) {
        sl_model_drop(&model);
        return status;
    }
    *ret = model;
    return SLUICE_OK;
}
