/* engine_bench.c: builds events; see engine_bench.h. */
#include "support/engine_bench.h"

#include <stdio.h>
#include <string.h>

#define KEY(run) (((uint64_t)1 << 32) | ((run) + 1u))

void bench_open(struct bench *bench)
{
    struct sl_engine_config config = {.mem = sl_mem_default(), .rank = 2, .world = 4, .runs_max = 3};
    *bench = (struct bench){.engine = sl_engine_create(&config), .now = SLUICE_SECOND};
    SL_ASSERT(bench->engine);
    memset(bench->flags, SL_WINDOW_GROUP, sizeof bench->flags);
}

void bench_close(struct bench *bench)
{
    sl_engine_destroy(bench->engine);
}

struct sl_run_config bench_run(struct bench *bench, uint32_t windows)
{
    SL_ASSERT(windows <= BENCH_WINDOWS_MAX);
    return (struct sl_run_config){.key = KEY(0),
                                  .windows = windows,
                                  .slots = 3,
                                  .window_flags = bench->flags,
                                  .version = 7,
                                  .gate_timeout_ns = UINT64_MAX,
                                  .timeout_ns = UINT64_MAX,
                                  .stall_timeout_ns = UINT64_MAX};
}

const char *bench_add(struct bench *bench, const struct sl_run_config *config)
{
    uint32_t run;
    sluice_status status = sl_engine_add_run(bench->engine, config, bench->now, &run);
    return status ? sluice_status_name(status) : engine_words(bench->engine);
}

static const char *event(struct bench *bench, const struct sl_engine_event *happened)
{
    sl_engine_event(bench->engine, happened, bench->now);
    return engine_words(bench->engine);
}

const char *bench_gate(struct bench *bench, uint32_t run, uint32_t gate)
{
    return event(bench, &(struct sl_engine_event){.kind = SL_EVENT_GATE, .run = run, .index = gate});
}

static const char *note(struct bench *bench, const struct sl_note *told)
{
    return event(bench, &(struct sl_engine_event){.kind = SL_EVENT_NOTE, .run = UINT32_MAX, .note = told});
}

const char *bench_note(struct bench *bench, uint32_t run, enum sl_note_kind kind, uint64_t a, uint64_t b)
{
    return note(bench, &(struct sl_note){.kind = kind, .key = KEY(run), .a = a, .b = b});
}

const char *bench_grant(struct bench *bench, uint32_t run, uint64_t windows, uint64_t number)
{
    return note(
        bench, &(struct sl_note){.kind = SL_NOTE_GRANT, .key = KEY(run), .a = windows, .b = number, .c = 1, .rank = 3});
}

const char *bench_outcome(struct bench *bench, uint32_t run, enum sl_phase phase, sluice_status status)
{
    struct sl_note told = {.kind = SL_NOTE_OUTCOME, .key = KEY(run), .a = phase, .rank = 1, .status = status};
    if (status)
        snprintf(told.text, sizeof told.text, "rank 1: a reason");
    return note(bench, &told);
}

const char *bench_stop(struct bench *bench, uint32_t run, uint64_t window, enum sl_request request)
{
    struct sl_note told = {.kind = SL_NOTE_STOP_AT, .key = KEY(run), .a = window, .b = request, .rank = 1};
    told.status = request == SL_REQUEST_CANCEL ? SLUICE_CANCELLED : SLUICE_GATE_TIMEOUT;
    snprintf(told.text, sizeof told.text, "%s", request == SL_REQUEST_CANCEL ? "cancelled by rank 1" : "a reason");
    return note(bench, &told);
}

const char *bench_lost(struct bench *bench, uint32_t rank)
{
    return note(bench, &(struct sl_note){.kind = SL_NOTE_LOST, .rank = rank, .text = "a rank is gone"});
}

static const char *done(struct bench *bench, struct sl_engine_event happened)
{
    happened.kind = SL_EVENT_DONE;
    happened.end_ns = 1000;
    return event(bench, &happened);
}

const char *bench_done(struct bench *bench, uint32_t run, uint32_t window, enum sl_node node)
{
    return done(bench, (struct sl_engine_event){.run = run, .index = window, .node = node});
}

const char *bench_failed(struct bench *bench, uint32_t run, uint32_t window, enum sl_node node)
{
    struct sluice_error error;
    sl_error_set(&error, SLUICE_DEVICE, "device", "illegal address");
    return done(bench, (struct sl_engine_event){.run = run, .index = window, .node = node, .error = &error});
}

const char *bench_deserted(struct bench *bench, uint32_t run, uint32_t window)
{
    struct sluice_error error;
    sl_error_set(&error, SLUICE_PEER_FAILED, "host", "rank 3 left a group with rank 2: aborted");
    return done(bench, (struct sl_engine_event){.run = run, .index = window, .node = SL_NODE_GROUP, .error = &error});
}

const char *bench_request(struct bench *bench, uint32_t run, enum sl_request request, uint64_t value)
{
    struct sluice_error error;
    sl_error_set(&error, SLUICE_CORRUPT, "verify", "rank 2: parameter 'x' does not match its digest");
    return event(bench, &(struct sl_engine_event){.kind = SL_EVENT_REQUEST,
                                                  .run = run,
                                                  .index = request,
                                                  .value = value,
                                                  .error = request == SL_REQUEST_FAIL ? &error : NULL});
}

const char *bench_aborted(struct bench *bench, _Bool failed)
{
    struct sluice_error error;
    sl_error_set(&error, SLUICE_TIMEOUT, "abort", "ncclCommAbort has not returned");
    return event(
        bench, &(struct sl_engine_event){.kind = SL_EVENT_ABORTED, .run = UINT32_MAX, .error = failed ? &error : NULL});
}

const char *bench_broken(struct bench *bench)
{
    struct sluice_error error;
    sl_error_set(&error, SLUICE_TRANSPORT, "nccl", "remote error");
    return event(bench, &(struct sl_engine_event){.kind = SL_EVENT_BROKEN, .run = UINT32_MAX, .error = &error});
}

const char *bench_time(struct bench *bench, uint64_t ns)
{
    bench->now += ns;
    return event(bench, &(struct sl_engine_event){.kind = SL_EVENT_TIME, .run = UINT32_MAX});
}

const char *bench_explain(struct bench *bench, uint32_t run)
{
    static char text[1024];
    sl_engine_explain(bench->engine, run, bench->now, text, sizeof text);
    return text;
}
