/*
 * The JSON form of a plan, read strictly and in one pass. docs/plan-file.md is the schema.
 *
 * Invariants:
 * - members may come in any order: ranks are compared with the world, and dtypes taken from parameters, only
 *   when all is read.
 * - a task may lack an end here, because only the validation knows how to say which rank is left waiting.
 */
#include <string.h>

#include "scheduler/plan_internal.h"
#include "scheduler/plan_text.h"

/* Stands for "the parameter's" until the parameters are known; no dtype has this value. */
#define DTYPE_OF_PARAM 255u

#define BIT(key) (UINT32_C(1) << (key))

static sluice_status read_dtype(struct sl_text *text, uint8_t *ret)
{
#define NAME(name, value, word, bytes) word,
    static const char *const names[] = {SLUICE_DTYPE_MAP(NAME) NULL};
#undef NAME
    int dtype = 0;
    sluice_status status = sl_text_choice(text, names, "a dtype", &dtype);
    if (status == SLUICE_OK)
        *ret = (uint8_t)(dtype + 1);
    return status;
}

static sluice_status read_param(struct sl_text *text, struct sl_plan *plan)
{
    enum { ID, NAME, DTYPE, BYTES, ROW_BYTES };
    static const char *const keys[] = {"id", "name", "dtype", "bytes", "row_bytes", NULL};
    char name[SLUICE_NAME_MAX];
    struct sluice_param param = {.name = name};
    struct sl_members members;
    int key = 0;
    sluice_status status = sl_text_object(text, keys, &members);
    while (status == SLUICE_OK) {
        status = sl_text_next(text, &members, BIT(ID) | BIT(NAME) | BIT(DTYPE) | BIT(BYTES), &key);
        if (status != SLUICE_OK || key < 0)
            break;
        if (key == ID)
            status = sl_text_u32(text, &param.id);
        else if (key == NAME)
            status = sl_text_string(text, name, sizeof(name));
        else if (key == DTYPE)
            status = read_dtype(text, &param.dtype);
        else
            status = sl_text_u64(text, key == BYTES ? &param.bytes : &param.row_bytes);
    }
    if (status == SLUICE_OK && sl_plan_add_param(plan, &param) != SLUICE_OK)
        status = sl_text_fail_last(text, members.place);
    return status;
}

static sluice_status read_buffer(struct sl_text *text, struct sl_plan *plan)
{
    enum { PARAM, RANK, ROLE, BYTES };
    static const char *const keys[] = {"param", "rank", "role", "bytes", NULL};
    static const char *const roles[] = {"source", "destination", NULL};
    uint32_t param = 0, rank = 0;
    uint64_t bytes = 0;
    int key = 0, role = 0;
    struct sl_members members;
    sluice_status status = sl_text_object(text, keys, &members);
    while (status == SLUICE_OK) {
        status = sl_text_next(text, &members, BIT(PARAM) | BIT(RANK) | BIT(ROLE) | BIT(BYTES), &key);
        if (status != SLUICE_OK || key < 0)
            break;
        if (key == ROLE)
            status = sl_text_choice(text, roles, "source or destination", &role);
        else if (key == BYTES)
            status = sl_text_u64(text, &bytes);
        else
            status = sl_text_u32(text, key == PARAM ? &param : &rank);
    }
    if (status == SLUICE_OK && sl_plan_add_buffer(plan, param, rank, (enum sluice_role)role, bytes) != SLUICE_OK)
        status = sl_text_fail_last(text, members.place);
    return status;
}

/* --- tasks --- */

struct end {
    struct sluice_region region;
    uint32_t rank;
    uint8_t dtype;
};

enum end_key { RANK, OFFSET, BYTES, ROW_BYTES, ROWS, PITCH, DTYPE };
static const char *const end_keys[] = {"rank", "offset", "bytes", "row_bytes", "rows", "pitch", "dtype", NULL};

static sluice_status read_end_member(struct sl_text *text, int key, struct end *end)
{
    struct sluice_region *region = &end->region;
    uint64_t *const numbers[] = {NULL,          &region->offset, &region->row_bytes, &region->row_bytes,
                                 &region->rows, &region->pitch};
    if (key == RANK)
        return sl_text_u32(text, &end->rank);
    return key == DTYPE ? read_dtype(text, &end->dtype) : sl_text_u64(text, numbers[key]);
}

/* "bytes" is one row; "row_bytes" with "rows" and "pitch" is the long form. */
static sluice_status finish_region(const struct sl_text *text, const struct sl_members *members,
                                   struct sluice_region *region)
{
    uint32_t long_form = members->seen & (BIT(ROW_BYTES) | BIT(ROWS) | BIT(PITCH));
    if ((members->seen & BIT(BYTES)) != 0 && long_form != 0)
        return sl_text_fail(text, members->place, "bytes and %s exclude each other",
                            end_keys[__builtin_ctz(long_form)]);
    if ((members->seen & (BIT(BYTES) | BIT(ROW_BYTES))) == 0)
        return sl_text_fail(text, members->place, "bytes or row_bytes is missing");
    if ((members->seen & BIT(PITCH)) == 0)
        region->pitch = region->row_bytes;
    return SLUICE_OK;
}

static sluice_status read_end(struct sl_text *text, struct end *ret)
{
    struct sl_members members;
    int key = 0;
    *ret = (struct end){.region.rows = 1, .dtype = DTYPE_OF_PARAM};
    sluice_status status = sl_text_object(text, end_keys, &members);
    while (status == SLUICE_OK) {
        status = sl_text_next(text, &members, BIT(RANK), &key);
        if (status != SLUICE_OK || key < 0)
            break;
        status = read_end_member(text, key, ret);
    }
    return status == SLUICE_OK ? finish_region(text, &members, &ret->region) : status;
}

static sluice_status read_origin(struct sl_text *text, uint64_t *ret)
{
    const char *place = text->at;
    sluice_status status = sl_text_u64(text, ret);
    if (status == SLUICE_OK && *ret == SLUICE_ORIGIN_NONE)
        return sl_text_fail(text, place, "an origin of 2^64-1; leave it out for none");
    return status;
}

static sluice_status read_task(struct sl_text *text, struct sl_plan *plan)
{
    enum { ID, PARAM, FROM, TO, ORIGIN };
    static const char *const keys[] = {"id", "param", "from", "to", "origin", NULL};
    struct sluice_task task = {.origin = SLUICE_ORIGIN_NONE};
    struct end ends[2] = {{.rank = SL_RANK_SELF}, {.rank = SL_RANK_SELF}}; /* an end that is missing stays unknown */
    struct sl_members members;
    int key = 0;
    sluice_status status = sl_text_object(text, keys, &members);
    while (status == SLUICE_OK) {
        status = sl_text_next(text, &members, BIT(ID) | BIT(PARAM), &key);
        if (status != SLUICE_OK || key < 0)
            break;
        if (key == ID)
            status = sl_text_u64(text, &task.id);
        else if (key == PARAM)
            status = sl_text_u32(text, &task.param);
        else if (key == ORIGIN)
            status = read_origin(text, &task.origin);
        else
            status = read_end(text, &ends[key - FROM]);
    }
    if (status != SLUICE_OK)
        return status;
    task.source = ends[0].rank;
    task.source_dtype = ends[0].dtype;
    task.from = ends[0].region;
    task.destination = ends[1].rank;
    task.destination_dtype = ends[1].dtype;
    task.to = ends[1].region;
    return sl_plan_add_task(plan, &task) == SLUICE_OK ? SLUICE_OK : sl_text_fail_last(text, members.place);
}

/* --- the whole --- */

typedef sluice_status (*element_fn)(struct sl_text *text, struct sl_plan *plan);

static sluice_status read_list(struct sl_text *text, struct sl_plan *plan, element_fn element)
{
    _Bool more = 0;
    sluice_status status = sl_text_list(text);
    while (status == SLUICE_OK) {
        status = sl_text_element(text, &more);
        if (status != SLUICE_OK || !more)
            break;
        status = element(text, plan);
    }
    return status;
}

static sluice_status read_world(struct sl_text *text, uint32_t *ret)
{
    const char *place = text->at;
    sluice_status status = sl_text_u32(text, ret);
    if (status == SLUICE_OK && (*ret < 1 || *ret > SLUICE_WORLD_MAX))
        return sl_text_fail(text, place, "a world of %u ranks, want 1 to %u", *ret, SLUICE_WORLD_MAX);
    return status;
}

static sluice_status read_head(struct sl_text *text, _Bool format)
{
    static const char *const formats[] = {"sluice-plan", NULL};
    const char *place = text->at;
    uint32_t version;
    int ignored;
    if (format)
        return sl_text_choice(text, formats, "sluice-plan", &ignored);
    sluice_status status = sl_text_u32(text, &version);
    if (status == SLUICE_OK && version != 1)
        return sl_text_fail(text, place, "version %u, this library reads version 1", version);
    return status;
}

static sluice_status read_plan(struct sl_text *text, struct sl_plan *plan, uint32_t *ret_world)
{
    enum { FORMAT, VERSION, WORLD, PARAMS, BUFFERS, TASKS };
    static const char *const keys[] = {"format", "version", "world", "params", "buffers", "tasks", NULL};
    static const element_fn elements[] = {read_param, read_buffer, read_task};
    const uint32_t needed = BIT(FORMAT) | BIT(VERSION) | BIT(WORLD) | BIT(PARAMS) | BIT(TASKS);
    struct sl_members members;
    int key = 0;
    sluice_status status = sl_text_object(text, keys, &members);
    while (status == SLUICE_OK) {
        status = sl_text_next(text, &members, needed, &key);
        if (status != SLUICE_OK || key < 0)
            break;
        if (key == WORLD)
            status = read_world(text, ret_world);
        else if (key >= PARAMS)
            status = read_list(text, plan, elements[key - PARAMS]);
        else
            status = read_head(text, key == FORMAT);
    }
    return status == SLUICE_OK ? sl_text_end(text) : status;
}

/* An unknown parameter gives no dtype; the validation names it. */
static void resolve_dtypes(struct sl_plan *plan)
{
    for (size_t i = 0; i < plan->task_count; i++) {
        struct sluice_task *task = &plan->own_tasks[i];
        uint8_t dtype = task->param < plan->param_count ? plan->params[task->param].dtype : SLUICE_DTYPE_BYTES;
        if (task->source_dtype == DTYPE_OF_PARAM)
            task->source_dtype = dtype;
        if (task->destination_dtype == DTYPE_OF_PARAM)
            task->destination_dtype = dtype;
    }
}

sluice_status sl_plan_read_json(const char *data, size_t bytes, const char *what, struct sl_plan *ret)
{
    struct sl_text text;
    struct sl_plan plan;
    sl_text_begin(&text, data, bytes, what);
    sl_plan_init(&plan, sl_mem_default(), SLUICE_WORLD_MAX);
    sluice_status status = read_plan(&text, &plan, &plan.world);
    if (status == SLUICE_OK) {
        resolve_dtypes(&plan);
        status = sl_plan_validate(&plan);
    }
    if (status == SLUICE_OK)
        *ret = plan;
    else
        sl_plan_drop(&plan);
    return status;
}
