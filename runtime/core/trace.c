/*
 * trace.c: recording and writing of node times.
 *
 * Invariants: records [0, count) are final; one writer; capacity never changes, so recording allocates
 * nothing.
 */
#include "runtime/core/trace.h"

#include "runtime/base/error.h"
#include "runtime/base/json.h"

static const char *const node_names[] = {"gate", "pack", "group", "unpack", "local", "commit"};

sluice_status sl_trace_open(struct sl_mem *mem, uint32_t rank, size_t capacity, struct sl_trace *ret)
{
    struct sl_trace_record *records = sl_new_array(mem, capacity, sizeof *records, "trace records");
    if (records == NULL)
        return SLUICE_NOMEM;
    *ret = (struct sl_trace){.mem = mem, .rank = rank, .capacity = capacity, .records = records};
    return SLUICE_OK;
}

void sl_trace_close(struct sl_trace *trace)
{
    if (trace->records != NULL)
        sl_free(trace->mem, trace->records);
    trace->records = NULL;
}

void sl_trace_add(struct sl_trace *trace, const struct sl_trace_record *record)
{
    if (trace == NULL)
        return;
    size_t count = atomic_load_explicit(&trace->count, memory_order_relaxed);
    if (count == trace->capacity) {
        atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
        return;
    }
    trace->records[count] = *record;
    trace->records[count].rank = trace->rank;
    atomic_store_explicit(&trace->count, count + 1, memory_order_release);
}

static void write_record(struct sl_json_writer *w, const struct sl_trace_record *record)
{
    SL_ASSERT(record->node < SL_COUNT(node_names));
    double begin = (double)record->begin_ns / 1000.0;
    double duration = (double)(record->end_ns - record->begin_ns) / 1000.0;
    sl_json_object(w);
    sl_json_key(w, "name");
    sl_json_put_text(w, node_names[record->node]);
    sl_json_key(w, "ph");
    sl_json_put_text(w, "X");
    sl_json_key(w, "ts");
    sl_json_put_double(w, begin);
    sl_json_key(w, "dur");
    sl_json_put_double(w, duration);
    sl_json_key(w, "pid");
    sl_json_put_u64(w, record->rank);
    sl_json_key(w, "tid");
    sl_json_put_u64(w, record->queue);
    sl_json_key(w, "args");
    sl_json_object(w);
    sl_json_key(w, "rank");
    sl_json_put_u64(w, record->rank);
    sl_json_key(w, "run");
    sl_json_put_u64(w, record->run);
    sl_json_key(w, "window");
    sl_json_put_u64(w, record->window);
    sl_json_key(w, "queue");
    sl_json_put_u64(w, record->queue);
    sl_json_object_end(w);
    sl_json_object_end(w);
}

sluice_status sl_trace_write(const struct sl_trace_record *records, size_t count, size_t dropped, FILE *file)
{
    struct sl_json_writer w;
    sl_json_begin(&w, file, 1);
    sl_json_object(&w);
    sl_json_key(&w, "displayTimeUnit");
    sl_json_put_text(&w, "ms");
    sl_json_key(&w, "otherData");
    sl_json_object(&w);
    sl_json_key(&w, "dropped");
    sl_json_put_u64(&w, dropped);
    sl_json_object_end(&w);
    sl_json_key(&w, "traceEvents");
    sl_json_list(&w);
    for (size_t i = 0; i < count; i++)
        write_record(&w, &records[i]);
    sl_json_list_end(&w);
    sl_json_object_end(&w);
    return sl_json_end(&w);
}
