/*
 * The JSON form of a plan, read strictly. docs/plan-file.md is the schema.
 *
 * Invariants: integers never pass through a double; every key is known and appears once; a task may lack an
 * end here, because only the validation knows how to say which rank is left waiting.
 */
#include <string.h>

#include "runtime/base/json.h"
#include "scheduler/plan_cursor.h"
#include "scheduler/plan_internal.h"

#define VERSION 1

/* A reader of one element of an array at the top. */
typedef sluice_status (*element_fn)(struct sl_cursor *cursor, const json_t *element, struct sl_plan *plan);

static sluice_status read_dtype(const struct sl_cursor *cursor, const json_t *object, uint8_t *ret)
{
    const char *name;
    sluice_status status = sl_cursor_text(cursor, object, "dtype", &name);
    if (status != SLUICE_OK)
        return status;
    for (uint8_t dtype = 1; sluice_dtype_bytes(dtype) != 0; dtype++) {
        if (strcmp(sluice_dtype_name(dtype), name) == 0) {
            *ret = dtype;
            return SLUICE_OK;
        }
    }
    return sl_cursor_fail(cursor, "dtype", "unknown dtype '%.40s'", name);
}

static sluice_status read_param(struct sl_cursor *cursor, const json_t *object, struct sl_plan *plan)
{
    static const char *const keys[] = {"id", "name", "dtype", "bytes", "row_bytes", NULL};
    struct sluice_param param = {0};
    sluice_status status = sl_cursor_only(cursor, object, keys);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, object, "id", &param.id);
    if (status == SLUICE_OK)
        status = sl_cursor_text(cursor, object, "name", &param.name);
    if (status == SLUICE_OK)
        status = read_dtype(cursor, object, &param.dtype);
    if (status == SLUICE_OK)
        status = sl_cursor_u64(cursor, object, "bytes", &param.bytes);
    if (status == SLUICE_OK)
        status = sl_cursor_u64_or(cursor, object, "row_bytes", 0, &param.row_bytes);
    if (status != SLUICE_OK)
        return status;
    return sl_plan_add_param(plan, &param) == SLUICE_OK ? SLUICE_OK : sl_cursor_fail_last(cursor, NULL);
}

static sluice_status read_role(const struct sl_cursor *cursor, const json_t *object, enum sluice_role *ret)
{
    const char *name;
    sluice_status status = sl_cursor_text(cursor, object, "role", &name);
    if (status != SLUICE_OK)
        return status;
    if (strcmp(name, "source") == 0)
        *ret = SLUICE_ROLE_SOURCE;
    else if (strcmp(name, "destination") == 0)
        *ret = SLUICE_ROLE_DESTINATION;
    else
        return sl_cursor_fail(cursor, "role", "want source or destination");
    return SLUICE_OK;
}

static sluice_status read_buffer(struct sl_cursor *cursor, const json_t *object, struct sl_plan *plan)
{
    static const char *const keys[] = {"param", "rank", "role", "bytes", NULL};
    uint32_t param, rank;
    uint64_t bytes;
    enum sluice_role role = SLUICE_ROLE_SOURCE;
    sluice_status status = sl_cursor_only(cursor, object, keys);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, object, "param", &param);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, object, "rank", &rank);
    if (status == SLUICE_OK)
        status = read_role(cursor, object, &role);
    if (status == SLUICE_OK)
        status = sl_cursor_u64(cursor, object, "bytes", &bytes);
    if (status != SLUICE_OK)
        return status;
    if (sl_plan_add_buffer(plan, param, rank, role, bytes) != SLUICE_OK)
        return sl_cursor_fail_last(cursor, NULL);
    return SLUICE_OK;
}

/* --- tasks --- */

struct end {
    struct sluice_region region;
    uint32_t rank;
    uint8_t dtype;
};

/* "bytes" is one row; "row_bytes" with "rows" and "pitch" is the long form. */
static sluice_status read_region(const struct sl_cursor *cursor, const json_t *object, struct sluice_region *ret)
{
    sluice_status status = sl_cursor_u64_or(cursor, object, "offset", 0, &ret->offset);
    if (status != SLUICE_OK)
        return status;
    if (json_object_get(object, "bytes") == NULL) {
        status = sl_cursor_u64(cursor, object, "row_bytes", &ret->row_bytes);
        if (status == SLUICE_OK)
            status = sl_cursor_u64_or(cursor, object, "rows", 1, &ret->rows);
        return status == SLUICE_OK ? sl_cursor_u64_or(cursor, object, "pitch", ret->row_bytes, &ret->pitch) : status;
    }
    static const char *const long_form[] = {"row_bytes", "rows", "pitch"};
    for (size_t i = 0; i < SL_COUNT(long_form); i++)
        if (json_object_get(object, long_form[i]) != NULL)
            return sl_cursor_fail(cursor, long_form[i], "bytes and %s exclude each other", long_form[i]);
    ret->rows = 1;
    status = sl_cursor_u64(cursor, object, "bytes", &ret->row_bytes);
    ret->pitch = ret->row_bytes;
    return status;
}

/* A missing end stays unknown: no rank, no dtype. */
static sluice_status read_end(struct sl_cursor *cursor, const json_t *task, const char *key, uint8_t dtype,
                              struct end *ret)
{
    static const char *const keys[] = {"rank", "offset", "bytes", "row_bytes", "rows", "pitch", "dtype", NULL};
    const json_t *object = json_object_get(task, key);
    *ret = (struct end){.rank = SL_RANK_SELF};
    if (object == NULL)
        return SLUICE_OK;
    sl_cursor_down(cursor, key, SIZE_MAX);
    ret->dtype = dtype;
    sluice_status status = sl_cursor_only(cursor, object, keys);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, object, "rank", &ret->rank);
    if (status == SLUICE_OK)
        status = read_region(cursor, object, &ret->region);
    if (status == SLUICE_OK && json_object_get(object, "dtype") != NULL)
        status = read_dtype(cursor, object, &ret->dtype);
    sl_cursor_up(cursor);
    return status;
}

static sluice_status read_task(struct sl_cursor *cursor, const json_t *object, struct sl_plan *plan)
{
    static const char *const keys[] = {"id", "param", "from", "to", "origin", NULL};
    struct sluice_task task = {0};
    struct end from, to;
    sluice_status status = sl_cursor_only(cursor, object, keys);
    if (status == SLUICE_OK)
        status = sl_cursor_u64(cursor, object, "id", &task.id);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, object, "param", &task.param);
    if (status == SLUICE_OK)
        status = sl_cursor_u64_or(cursor, object, "origin", SLUICE_ORIGIN_NONE, &task.origin);
    if (status == SLUICE_OK && task.param >= plan->param_count)
        return sl_cursor_fail(cursor, "param", "parameter %u is unknown, the plan has %zu parameters", task.param,
                              plan->param_count);
    if (status == SLUICE_OK)
        status = read_end(cursor, object, "from", plan->params[task.param].dtype, &from);
    if (status == SLUICE_OK)
        status = read_end(cursor, object, "to", plan->params[task.param].dtype, &to);
    if (status != SLUICE_OK)
        return status;
    task.source = from.rank;
    task.source_dtype = from.dtype;
    task.from = from.region;
    task.destination = to.rank;
    task.destination_dtype = to.dtype;
    task.to = to.region;
    return sl_plan_add_task(plan, &task) == SLUICE_OK ? SLUICE_OK : sl_cursor_fail_last(cursor, NULL);
}

/* --- the whole --- */

static sluice_status read_elements(struct sl_cursor *cursor, const json_t *root, const char *key, element_fn take,
                                   struct sl_plan *plan)
{
    const json_t *array;
    sluice_status status = sl_cursor_array(cursor, root, key, &array);
    size_t count = status == SLUICE_OK ? json_array_size(array) : 0;
    for (size_t i = 0; i < count && status == SLUICE_OK; i++) {
        sl_cursor_down(cursor, key, i);
        status = take(cursor, json_array_get(array, i), plan);
        sl_cursor_up(cursor);
    }
    return status;
}

static sluice_status read_head(const struct sl_cursor *cursor, const json_t *root, uint32_t *ret_world)
{
    static const char *const keys[] = {"format", "version", "world", "params", "buffers", "tasks", NULL};
    const char *format;
    uint32_t version, world;
    sluice_status status = sl_cursor_only(cursor, root, keys);
    if (status == SLUICE_OK)
        status = sl_cursor_text(cursor, root, "format", &format);
    if (status == SLUICE_OK && strcmp(format, "sluice-plan") != 0)
        return sl_cursor_fail(cursor, "format", "'%.40s' is not 'sluice-plan'", format);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, root, "version", &version);
    if (status == SLUICE_OK && version != VERSION)
        return sl_cursor_fail(cursor, "version", "version %u, this library reads version %d", version, VERSION);
    if (status == SLUICE_OK)
        status = sl_cursor_u32(cursor, root, "world", &world);
    if (status == SLUICE_OK && (world < 1 || world > SLUICE_WORLD_MAX))
        return sl_cursor_fail(cursor, "world", "a world of %u ranks, want 1 to %u", world, SLUICE_WORLD_MAX);
    if (status == SLUICE_OK)
        *ret_world = world;
    return status;
}

static sluice_status read_content(struct sl_cursor *cursor, const json_t *root, struct sl_plan *plan)
{
    sluice_status status = read_elements(cursor, root, "params", read_param, plan);
    if (status == SLUICE_OK && json_object_get(root, "buffers") != NULL)
        status = read_elements(cursor, root, "buffers", read_buffer, plan);
    if (status == SLUICE_OK)
        status = read_elements(cursor, root, "tasks", read_task, plan);
    return status;
}

sluice_status sl_plan_read_json(const char *text, size_t bytes, const char *what, struct sl_plan *ret)
{
    struct sl_cursor cursor = {.text = text, .bytes = bytes, .what = what};
    json_t *root;
    sluice_status status = sl_json_parse(text, bytes, what, &root);
    if (status != SLUICE_OK)
        return status;
    struct sl_plan plan = {0};
    uint32_t world = 1;
    status = read_head(&cursor, root, &world);
    if (status == SLUICE_OK) {
        sl_plan_init(&plan, sl_mem_default(), world);
        status = read_content(&cursor, root, &plan);
    }
    json_decref(root);
    if (status == SLUICE_OK)
        status = sl_plan_validate(&plan);
    if (status == SLUICE_OK)
        *ret = plan;
    else
        sl_plan_drop(&plan);
    return status;
}
