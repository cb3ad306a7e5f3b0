/*
 * The JSON form of a plan, written: one record a line, in the order of the plan.
 *
 * Invariant: reading it back gives the same records, byte for byte, so a region has the short form exactly
 * where the reader would rebuild it from that.
 */
#include "runtime/base/json.h"
#include "scheduler/plan_internal.h"

static void put_u64(struct sl_json_writer *w, const char *key, uint64_t value)
{
    sl_json_key(w, key);
    sl_json_put_u64(w, value);
}

static void put_text(struct sl_json_writer *w, const char *key, const char *value)
{
    sl_json_key(w, key);
    sl_json_put_text(w, value);
}

/* A record is an object on one line of an indented list. */
static void begin_record(struct sl_json_writer *w)
{
    sl_json_object(w);
    w->compact = 1;
}

static void end_record(struct sl_json_writer *w)
{
    sl_json_object_end(w);
    w->compact = 0;
}

static void put_param(struct sl_json_writer *w, const struct sl_plan *plan, const struct sl_param *param)
{
    begin_record(w);
    put_u64(w, "id", param->id);
    put_text(w, "name", sl_param_name(plan, param->id));
    put_text(w, "dtype", sluice_dtype_name(param->dtype));
    put_u64(w, "bytes", param->bytes);
    if (param->row_bytes != 0)
        put_u64(w, "row_bytes", param->row_bytes);
    end_record(w);
}

static void put_buffer(struct sl_json_writer *w, const struct sl_buffer *buffer)
{
    begin_record(w);
    put_u64(w, "param", buffer->param);
    put_u64(w, "rank", buffer->rank);
    put_text(w, "role", buffer->role == SLUICE_ROLE_SOURCE ? "source" : "destination");
    put_u64(w, "bytes", buffer->bytes);
    end_record(w);
}

static void put_end(struct sl_json_writer *w, const char *key, uint32_t rank, const struct sluice_region *region,
                    uint8_t dtype, uint8_t usual)
{
    sl_json_key(w, key);
    sl_json_object(w);
    put_u64(w, "rank", rank);
    put_u64(w, "offset", region->offset);
    if (region->rows == 1 && region->pitch == region->row_bytes) {
        put_u64(w, "bytes", region->row_bytes);
    } else {
        put_u64(w, "row_bytes", region->row_bytes);
        put_u64(w, "rows", region->rows);
        put_u64(w, "pitch", region->pitch);
    }
    if (dtype != usual)
        put_text(w, "dtype", sluice_dtype_name(dtype));
    sl_json_object_end(w);
}

static void put_task(struct sl_json_writer *w, const struct sl_plan *plan, const struct sluice_task *task)
{
    uint8_t usual = plan->params[task->param].dtype;
    begin_record(w);
    put_u64(w, "id", task->id);
    put_u64(w, "param", task->param);
    put_end(w, "from", task->source, &task->from, task->source_dtype, usual);
    put_end(w, "to", task->destination, &task->to, task->destination_dtype, usual);
    if (task->origin != SLUICE_ORIGIN_NONE)
        put_u64(w, "origin", task->origin);
    end_record(w);
}

sluice_status sl_plan_write_json(const struct sl_plan *plan, FILE *file)
{
    sluice_status status = sl_plan_check_writable(plan);
    if (status != SLUICE_OK)
        return status;
    struct sl_json_writer w;
    sl_json_begin(&w, file, 0);
    sl_json_object(&w);
    put_text(&w, "format", "sluice-plan");
    put_u64(&w, "version", 1);
    put_u64(&w, "world", plan->world);
    sl_json_key(&w, "params");
    sl_json_list(&w);
    for (size_t i = 0; i < plan->param_count; i++)
        put_param(&w, plan, &plan->params[i]);
    sl_json_list_end(&w);
    sl_json_key(&w, "buffers");
    sl_json_list(&w);
    for (size_t i = 0; i < plan->buffer_count; i++)
        put_buffer(&w, &plan->buffers[i]);
    sl_json_list_end(&w);
    sl_json_key(&w, "tasks");
    sl_json_list(&w);
    for (size_t i = 0; i < plan->task_count; i++)
        put_task(&w, plan, &plan->tasks[i]);
    sl_json_list_end(&w);
    sl_json_object_end(&w);
    return sl_json_end(&w);
}
