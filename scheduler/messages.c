/* Invariants: task id = parameter id = position in the list; both buffers are as long as the message. */
#include "scheduler/messages.h"

#include "runtime/base/json.h"

static sluice_status number_at(const json_t *triple, size_t index, uint64_t max, const char *path, uint64_t *ret)
{
    const json_t *value = json_array_get(triple, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
        return sl_fail(SLUICE_PARSE, "messages", "%s[%zu]: an integer from 0 to %llu is expected", path, index,
                       (unsigned long long)max);
    *ret = (uint64_t)json_integer_value(value);
    return SLUICE_OK;
}

static sluice_status add_message(struct sl_plan *plan, const json_t *triple, uint32_t index, const char *what)
{
    char path[SLUICE_NAME_MAX], name[32];
    (void)snprintf(path, sizeof path, "%.400s: messages[%u]", what, index);
    (void)snprintf(name, sizeof name, "message %u", index);
    if (!json_is_array(triple) || json_array_size(triple) != 3)
        return sl_fail(SLUICE_PARSE, "messages", "%s: [source, destination, bytes] is expected", path);
    uint64_t source, destination, bytes;
    sluice_status status = number_at(triple, 0, plan->world - 1, path, &source);
    if (status == SLUICE_OK)
        status = number_at(triple, 1, plan->world - 1, path, &destination);
    if (status == SLUICE_OK)
        status = number_at(triple, 2, SLUICE_BYTES_MAX, path, &bytes);
    if (status != SLUICE_OK)
        return status;

    struct sluice_param param = {.id = index, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = name};
    struct sluice_region region = {.offset = 0, .row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = index,
                               .source = (uint32_t)source,
                               .destination = (uint32_t)destination,
                               .param = index,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8,
                               .from = region,
                               .to = region,
                               .origin = 0};
    status = sl_plan_add_param(plan, &param);
    if (status == SLUICE_OK)
        status = sl_plan_add_buffer(plan, index, task.source, SLUICE_ROLE_SOURCE, bytes);
    if (status == SLUICE_OK)
        status = sl_plan_add_buffer(plan, index, task.destination, SLUICE_ROLE_DESTINATION, bytes);
    if (status == SLUICE_OK)
        status = sl_plan_add_task(plan, &task);
    return status;
}

static sluice_status add_all(struct sl_plan *plan, const json_t *list, const char *what)
{
    if (json_array_size(list) > UINT32_MAX - 1)
        return sl_fail(SLUICE_LIMIT, "messages", "%s: more than %u messages", what, UINT32_MAX - 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        sluice_status status = add_message(plan, json_array_get(list, i), (uint32_t)i, what);
        if (status != SLUICE_OK)
            return status;
    }
    return sl_plan_validate(plan);
}

sluice_status sl_messages_read(const char *text, size_t bytes, const char *what, struct sl_mem *mem,
                               struct sl_plan *ret)
{
    json_t *root;
    uint64_t world;
    const json_t *list;
    sluice_status status = sl_json_parse(text, bytes, what, &root);
    if (status != SLUICE_OK)
        return status;
    if (!json_is_object(root))
        status = sl_fail(SLUICE_PARSE, "messages",
                         "%s: want {\"world\": N, \"messages\": [[source, destination, bytes], ...]}", what);
    if (status == SLUICE_OK)
        status = sl_json_u64(root, "world", what, &world);
    if (status == SLUICE_OK)
        status = sl_json_array(root, "messages", what, &list);
    if (status == SLUICE_OK && (world == 0 || world > SLUICE_WORLD_MAX))
        status = sl_fail(SLUICE_PARSE, "messages", "%s: world %llu is not from 1 to %u", what,
                         (unsigned long long)world, SLUICE_WORLD_MAX);
    if (status == SLUICE_OK) {
        struct sl_plan plan;
        sl_plan_init(&plan, mem, (uint32_t)world);
        status = add_all(&plan, list, what);
        if (status == SLUICE_OK)
            *ret = plan;
        else
            sl_plan_drop(&plan);
    }
    json_decref(root);
    return status;
}
