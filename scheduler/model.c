/*
 * model.c: questions about a model that was read.
 *
 * - A tensor that is tied to another counts as that other one: it is no parameter of its own.
 */
#include "scheduler/model.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

struct sl_tensors sl_model_layer(const struct sl_model *model, uint32_t layer)
{
    SL_ASSERT(layer < model->layers);
    uint32_t kind = 0;
    while (kind < model->kind_count && model->letters[kind] != model->pattern[layer])
        kind++;
    SL_ASSERT(kind < model->kind_count);
    return model->kinds[kind];
}

uint64_t sl_tensor_span(const struct sl_tensor *tensor, uint32_t from, uint32_t to)
{
    uint64_t product = 1;
    for (uint32_t i = from; i < to; i++)
        product *= tensor->shape[i];
    return product;
}

/* Adds a * b to `*sum`, which stays at UINT64_MAX once it does not fit. */
static void add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(*sum, product, sum))
        *sum = UINT64_MAX;
}

static uint64_t count_params(const struct sl_model *model, struct sl_tensors range, uint64_t *bytes)
{
    uint64_t params = 0;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        const struct sl_tensor *tensor = &model->tensors[i];
        if (tensor->tied_to)
            continue;
        uint64_t copies = tensor->experts ? tensor->experts : 1;
        params += copies;
        if (*bytes < UINT64_MAX)
            add_product(bytes, copies, sl_tensor_span(tensor, 0, tensor->dims) * sluice_dtype_bytes(tensor->dtype));
    }
    return params;
}

uint64_t sl_model_params(const struct sl_model *model, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    uint64_t params = count_params(model, model->first, &bytes) + count_params(model, model->last, &bytes);
    for (uint32_t layer = 0; layer < model->layers; layer++)
        params += count_params(model, sl_model_layer(model, layer), &bytes);
    *ret_bytes = bytes;
    return params;
}

/* Bytes that a placeholder takes in the pattern, and its value; 0 when there is none at `text`. */
static size_t placeholder(const char *text, uint32_t layer, uint32_t expert, uint32_t *ret)
{
    static const char layer_mark[] = "{layer}";
    static const char expert_mark[] = "{expert}";
    if (strncmp(text, layer_mark, sizeof layer_mark - 1) == 0) {
        *ret = layer;
        return sizeof layer_mark - 1;
    }
    if (strncmp(text, expert_mark, sizeof expert_mark - 1) == 0) {
        *ret = expert;
        return sizeof expert_mark - 1;
    }
    return 0;
}

_Bool sl_tensor_name(const struct sl_tensor *tensor, uint32_t layer, uint32_t expert, char *text, size_t capacity)
{
    size_t length = 0;
    for (const char *from = tensor->name; *from && length < capacity;) {
        uint32_t value = 0;
        size_t taken = placeholder(from, layer, expert, &value);
        int written = taken ? snprintf(text + length, capacity - length, "%u", value)
                            : snprintf(text + length, capacity - length, "%c", *from);
        length += (size_t)written;
        from += taken ? taken : 1;
    }
    return length > 0 && length < capacity;
}

void sl_model_drop(struct sl_model *model)
{
    if (!model || !model->mem)
        return;
    sl_free(model->mem, model->tensors);
    json_decref(model->root);
    *model = (struct sl_model){0};
}
