/* Traces: complete events with rank, run, window and queue; bounded memory. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "runtime/core/trace.h"
#include "support/solo.h"

static struct solo solo;

/* The events of a name, in file order; the k-th is about window k. */
static uint32_t count_events(const json_t *document, const char *name)
{
    const json_t *events = json_object_get(document, "traceEvents");
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const json_t *args = json_object_get(event, "args");
        if (strcmp(json_string_value(json_object_get(event, "name")), name) != 0)
            continue;
        cr_expect_str_eq(json_string_value(json_object_get(event, "ph")), "X");
        cr_expect_geq(json_number_value(json_object_get(event, "dur")), 0.0);
        cr_expect_eq(json_integer_value(json_object_get(args, "window")), count);
        cr_expect_eq(json_integer_value(json_object_get(args, "rank")), 0);
        cr_expect(json_is_integer(json_object_get(args, "queue")));
        count++;
    }
    return count;
}

Test(trace, holds_every_node_of_a_transfer)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    char path[] = "/tmp/sluice-trace-XXXXXX";
    close(mkstemp(path));
    options.trace = 1;
    solo_open(&solo, &options);
    solo_seal(&solo, 4, SOLO_PARAMS * SOLO_BYTES);
    struct sluice_transfer_options transfer_options = solo_options(&solo);
    transfer_options.landing = SLUICE_LANDING_SHADOW;
    sluice_transfer *transfer = solo_submit(&solo, &transfer_options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    cr_assert_eq(sluice_runtime_trace_write(solo.runtime, path), SLUICE_OK);
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    cr_assert_not_null(document, "%s", error.text);
    cr_expect_eq(count_events(document, "gate"), 4u);
    cr_expect_eq(count_events(document, "local"), 4u);
    cr_expect_eq(count_events(document, "commit"), 1u);
    cr_expect_eq(count_events(document, "pack"), 0u);
    json_decref(document);
    unlink(path);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(trace, is_refused_where_it_was_not_asked_for)
{
    solo_open(&solo, NULL);
    cr_expect_eq(sluice_runtime_trace_write(solo.runtime, "/tmp/none.json"), SLUICE_STATE);
    sluice_runtime_close_wait(solo.runtime);
}

Test(trace, counts_what_found_no_room)
{
    struct sl_trace trace;
    cr_assert_eq(sl_trace_open(sl_mem_default(), 3, 2, &trace), SLUICE_OK);
    for (uint32_t i = 0; i < 5; i++)
        sl_trace_add(&trace, &(struct sl_trace_record){.window = i});
    cr_expect_eq(atomic_load(&trace.count), 2u);
    cr_expect_eq(atomic_load(&trace.dropped), 3u);
    cr_expect_eq(trace.records[1].window, 1u);
    cr_expect_eq(trace.records[1].rank, 3u);
    sl_trace_add(NULL, &(struct sl_trace_record){.window = 0});
    sl_trace_close(&trace);
}
