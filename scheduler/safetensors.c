/*
 * Invariants: every length is checked against the file before it is used; the tensors cover the bytes
 * behind the header exactly, so that no byte is read twice and none is hidden.
 */
#include "scheduler/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/json.h"

enum { PREFIX_BYTES = 8 };
#define HEADER_BYTES_MAX (UINT64_C(100) << 20)

struct type_name {
    const char *name;
    uint8_t dtype;
};

static const struct type_name types[] = {
    {"U8", SLUICE_DTYPE_U8},          {"I8", SLUICE_DTYPE_I8},          {"BOOL", SLUICE_DTYPE_BOOL},
    {"F8_E4M3", SLUICE_DTYPE_F8E4M3}, {"F8_E5M2", SLUICE_DTYPE_F8E5M2}, {"F8_E8M0", SLUICE_DTYPE_F8E8M0},
    {"U16", SLUICE_DTYPE_U16},        {"I16", SLUICE_DTYPE_I16},        {"F16", SLUICE_DTYPE_F16},
    {"BF16", SLUICE_DTYPE_BF16},      {"U32", SLUICE_DTYPE_U32},        {"I32", SLUICE_DTYPE_I32},
    {"F32", SLUICE_DTYPE_F32},        {"U64", SLUICE_DTYPE_U64},        {"I64", SLUICE_DTYPE_I64},
    {"F64", SLUICE_DTYPE_F64},
};

static sluice_status read_dtype(const json_t *entry, const char *path, uint8_t *ret)
{
    const char *text;
    sluice_status status = sl_json_text(entry, "dtype", path, &text);
    if (status != SLUICE_OK)
        return status;
    for (size_t i = 0; i < SL_COUNT(types); i++)
        if (strcmp(types[i].name, text) == 0) {
            *ret = types[i].dtype;
            return SLUICE_OK;
        }
    return sl_fail(SLUICE_PARSE, "safetensors", "%s: unknown dtype '%.32s'", path, text);
}

static sluice_status read_numbers(const json_t *entry, const char *key, const char *path, uint64_t *ret, size_t max,
                                  size_t *ret_count)
{
    const json_t *list;
    sluice_status status = sl_json_array(entry, key, path, &list);
    if (status != SLUICE_OK)
        return status;
    if (json_array_size(list) > max)
        return sl_fail(SLUICE_LIMIT, "safetensors", "%s.%s: %zu numbers, at most %zu are supported", path, key,
                       json_array_size(list), max);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return sl_fail(SLUICE_PARSE, "safetensors", "%s.%s[%zu]: want an integer of at least 0", path, key, i);
        ret[i] = (uint64_t)json_integer_value(value);
    }
    *ret_count = json_array_size(list);
    return SLUICE_OK;
}

static sluice_status check_size(const struct sl_tensor *tensor, const char *path)
{
    uint64_t bytes = sluice_dtype_bytes(tensor->dtype);
    for (uint32_t d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] != 0 && bytes > SLUICE_BYTES_MAX / tensor->shape[d])
            return sl_fail(SLUICE_PARSE, "safetensors", "%s: its shape has more than 2^62 bytes", path);
        bytes *= tensor->shape[d];
    }
    if (bytes != tensor->bytes)
        return sl_fail(SLUICE_PARSE, "safetensors", "%s: its shape has %llu bytes, its data_offsets %llu", path,
                       (unsigned long long)bytes, (unsigned long long)tensor->bytes);
    return SLUICE_OK;
}

static sluice_status read_tensor(struct sl_mem *mem, const char *name, const json_t *entry, const char *path,
                                 uint64_t data_begin, uint64_t data_bytes, struct sl_tensor *ret)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets", NULL};
    struct sl_tensor tensor = {0};
    uint64_t range[2] = {0, 0};
    size_t dims, ends;
    sluice_status status = sl_json_only(entry, keys, path);
    if (status == SLUICE_OK)
        status = read_dtype(entry, path, &tensor.dtype);
    if (status == SLUICE_OK)
        status = read_numbers(entry, "shape", path, tensor.shape, SL_TENSOR_DIMS_MAX, &dims);
    if (status == SLUICE_OK)
        status = read_numbers(entry, "data_offsets", path, range, 2, &ends);
    if (status != SLUICE_OK)
        return status;
    if (ends != 2 || range[0] > range[1] || range[1] > data_bytes)
        return sl_fail(SLUICE_PARSE, "safetensors", "%s: data_offsets do not lie in the file's %llu bytes of data",
                       path, (unsigned long long)data_bytes);
    tensor.dims = (uint32_t)dims;
    tensor.bytes = range[1] - range[0];
    tensor.offset = data_begin + range[0];
    status = check_size(&tensor, path);
    if (status != SLUICE_OK)
        return status;
    tensor.name = sl_strdup(mem, name);
    if (tensor.name == NULL)
        return SLUICE_NOMEM;
    *ret = tensor;
    return SLUICE_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct sl_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static sluice_status check_cover(const struct sl_tensors *tensors, uint64_t begin, uint64_t end, const char *what)
{
    uint64_t at = begin;
    for (size_t i = 0; i < tensors->count; i++) {
        const struct sl_tensor *tensor = &tensors->list[i];
        if (tensor->offset != at)
            return sl_fail(SLUICE_PARSE, "safetensors", "%s: offset %llu: tensor '%.200s' %s", what,
                           (unsigned long long)tensor->offset, tensor->name,
                           tensor->offset < at ? "overlaps the one before it" : "leaves a gap before it");
        at += tensor->bytes;
    }
    if (at != end)
        return sl_fail(SLUICE_PARSE, "safetensors", "%s: offset %llu: %llu bytes belong to no tensor", what,
                       (unsigned long long)at, (unsigned long long)(end - at));
    return SLUICE_OK;
}

static sluice_status read_all(struct sl_tensors *tensors, json_t *root, uint64_t begin, uint64_t end, const char *what)
{
    size_t count = json_object_size(root);
    tensors->list = sl_new_array(tensors->mem, count, sizeof *tensors->list, "tensors");
    if (tensors->list == NULL)
        return SLUICE_NOMEM;
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        char path[SLUICE_NAME_MAX];
        (void)snprintf(path, sizeof path, "%.200s: tensor '%.200s'", what, name);
        sluice_status status =
            read_tensor(tensors->mem, name, entry, path, begin, end - begin, &tensors->list[tensors->count]);
        if (status != SLUICE_OK)
            return status;
        tensors->count++;
    }
    if (tensors->count > 0)
        qsort(tensors->list, tensors->count, sizeof *tensors->list, by_offset);
    return check_cover(tensors, begin, end, what);
}

sluice_status sl_tensors_read(const uint8_t *file, size_t bytes, const char *what, struct sl_mem *mem,
                              struct sl_tensors *ret)
{
    if (bytes < PREFIX_BYTES)
        return sl_fail(SLUICE_PARSE, "safetensors", "%s: %zu bytes are no safetensors file", what, bytes);
    uint64_t header = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0; i--)
        header = header << 8 | file[i];
    if (header > HEADER_BYTES_MAX || header > bytes - PREFIX_BYTES)
        return sl_fail(SLUICE_PARSE, "safetensors", "%s: offset 0: a header of %llu bytes in a file of %zu", what,
                       (unsigned long long)header, bytes);
    json_t *root;
    sluice_status status = sl_json_parse((const char *)file + PREFIX_BYTES, (size_t)header, what, &root);
    if (status != SLUICE_OK)
        return status;
    struct sl_tensors tensors = {.mem = mem};
    if (json_is_object(root))
        status = read_all(&tensors, root, PREFIX_BYTES + header, bytes, what);
    else
        status = sl_fail(SLUICE_PARSE, "safetensors", "%s: offset 8: the header is no JSON object", what);
    json_decref(root);
    if (status != SLUICE_OK) {
        sl_tensors_drop(&tensors);
        return status;
    }
    *ret = tensors;
    return SLUICE_OK;
}

void sl_tensors_drop(struct sl_tensors *tensors)
{
    if (tensors == NULL || tensors->mem == NULL)
        return;
    for (size_t i = 0; i < tensors->count; i++)
        sl_free(tensors->mem, tensors->list[i].name);
    sl_free(tensors->mem, tensors->list);
    *tensors = (struct sl_tensors){0};
}
