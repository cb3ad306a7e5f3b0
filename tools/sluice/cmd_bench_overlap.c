/*
 * sluice bench overlap: how much a generator's kernels slow down beside a refit on the same GPU.
 *
 * Invariants: a loop runs alone and then beside refits within one second or two, so that both meet the same clocks;
 * refits follow each other without a break for the whole time; each way of moving the bytes moves the same ones.
 */
#include <string.h>
#include <time.h>

#include "bench.h"
#include "bench_device.h"
#include "bench_foreground.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"

enum { OPT_BYTES = TOOL_LONG + 1, OPT_WINDOW, OPT_SPAN, OPT_JSON };
enum { TENSOR_BYTES = 64 << 20, TENSORS_MAX = 4096, ALL = 4096, LIBRARY_CTAS = 16 };

static const struct tool_option options[] = {
    {"bytes", "B", "bytes of a refit, at most 256 GiB (default 8Gi)", OPT_BYTES},
    {"window", "B", "bytes of a window, the unit of a pace (default 64Mi)", OPT_WINDOW},
    {"span", "T", "how long loops run beside refits, a row and loop (default 800ms)", OPT_SPAN},
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "bench overlap",
    .synopsis = "[OPTIONS]",
    .about =
        "Runs two loops of kernels on one GPU, one limited by memory and one by arithmetic, alone and beside refits\n"
        "within that GPU, for several paces, limits of multiprocessors, priorities and ways to copy.",
    .options = options,
};

enum way { WAY_NONE, WAY_KERNEL, WAY_DRIVER, WAY_ENGINE };
static const char *const way_names[] = {"nothing", "kernel", "driver's copy", "copy engine"};

struct row {
    enum way way;
    uint32_t ctas;      /* of the kernel */
    uint32_t high;      /* priority of its streams */
    uint32_t pace_gbps; /* 0: no limit */
};

static const struct row rows[] = {
    {WAY_NONE, 0, 0, 0},
    {WAY_KERNEL, LIBRARY_CTAS, 0, 25},
    {WAY_KERNEL, LIBRARY_CTAS, 0, 50},
    {WAY_KERNEL, LIBRARY_CTAS, 0, 100},
    {WAY_KERNEL, LIBRARY_CTAS, 0, 0},
    {WAY_KERNEL, 4, 0, 100},
    {WAY_KERNEL, 8, 0, 100},
    {WAY_KERNEL, 32, 0, 100},
    {WAY_KERNEL, ALL, 0, 100},
    {WAY_KERNEL, 4, 0, 0},
    {WAY_KERNEL, 8, 0, 0},
    {WAY_KERNEL, 32, 0, 0},
    {WAY_KERNEL, ALL, 0, 0},
    {WAY_KERNEL, LIBRARY_CTAS, 1, 100},
    {WAY_KERNEL, LIBRARY_CTAS, 1, 0},
    {WAY_DRIVER, 0, 0, 100},
    {WAY_DRIVER, 0, 0, 0},
    {WAY_ENGINE, 0, 0, 100},
    {WAY_ENGINE, 0, 0, 0},
};

struct overlap {
    uint64_t bytes, window, span_ns;
    _Bool json;
    struct bench_device bench; /* the memory's */
    uint8_t *from, *to;
    uint32_t tensors;
    uint64_t sizes[TENSORS_MAX], places[TENSORS_MAX];
    struct bench_foreground loops[FOREGROUND_KINDS];
    sluice_runtime *runtime;
    sluice_plan *plan;
};

struct figures {
    double slower[FOREGROUND_KINDS]; /* time of a step beside refits over its time alone, less one */
    double alone_ms[FOREGROUND_KINDS];
    double gbps[FOREGROUND_KINDS]; /* of the refits */
};

static void sleep_until(uint64_t until)
{
    uint64_t now = bench_now();
    if (now >= until)
        return;
    struct timespec span = {.tv_sec = (time_t)((until - now) / SLUICE_SECOND),
                            .tv_nsec = (long)((until - now) % SLUICE_SECOND)};
    SL_IGNORE(nanosleep(&span, NULL));
}

/* --- the ways --- */

static sluice_status refit_once(const struct overlap *overlap, const struct row *row)
{
    struct sluice_transfer_options transfer_options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    transfer_options.pace_bytes_per_second = row->pace_gbps * UINT64_C(1000000000);
    sluice_status status = sluice_submit(overlap->plan, &transfer_options, &transfer);
    if (status == SLUICE_OK)
        status = sluice_transfer_wait(transfer, 60 * SLUICE_SECOND);
    sluice_transfer_destroy(transfer);
    return status;
}

/* The same by the driver, a tensor a call, each when the pace allows it. */
static sluice_status copy_once(const struct overlap *overlap, const struct row *row)
{
    const struct bench_foreground *any = &overlap->loops[FOREGROUND_BLOCKS];
    enum foreground_copy way = row->way == WAY_ENGINE ? FOREGROUND_COPY_ENGINE : FOREGROUND_COPY_DRIVER;
    uint64_t begin = bench_now();
    for (uint32_t i = 0; i < overlap->tensors; i++) {
        const char *text = "";
        if (row->pace_gbps != 0)
            sleep_until(begin + overlap->places[i] / row->pace_gbps);
        if (any->ops->copy(any->loop, way, overlap->to + overlap->places[i], overlap->from + overlap->places[i],
                           overlap->sizes[i], &text) != 0)
            return sl_fail(SLUICE_DEVICE, "bench", "%s: %s", way_names[row->way], text);
    }
    if (row->pace_gbps != 0)
        sleep_until(begin + overlap->bytes / row->pace_gbps);
    return SLUICE_OK;
}

/* Moves the bytes again and again for `span` at least; says from when to when, and how fast. */
static sluice_status move(const struct overlap *overlap, const struct row *row, uint64_t *ret_begin, uint64_t *ret_end,
                          double *ret_gbps)
{
    sluice_status status = SLUICE_OK;
    uint64_t moved = 0;
    *ret_begin = *ret_end = bench_now();
    while (status == SLUICE_OK && *ret_end - *ret_begin < overlap->span_ns) {
        if (row->way == WAY_NONE) {
            sleep_until(*ret_begin + overlap->span_ns);
        } else {
            status = row->way == WAY_KERNEL ? refit_once(overlap, row) : copy_once(overlap, row);
            moved += overlap->bytes;
        }
        *ret_end = bench_now();
    }
    *ret_gbps = (double)moved / (double)(*ret_end - *ret_begin);
    return status;
}

/* --- a row --- */

static void close_refits(struct overlap *overlap)
{
    sluice_plan_destroy(overlap->plan);
    sluice_runtime_close_wait(overlap->runtime);
    overlap->plan = NULL;
    overlap->runtime = NULL;
}

static sluice_status open_refits(struct overlap *overlap, const struct row *row)
{
    struct sluice_runtime_options runtime_options = SLUICE_RUNTIME_OPTIONS_INIT;
    struct sluice_seal_options seal_options = SLUICE_SEAL_OPTIONS_INIT;
    if (row->way != WAY_KERNEL)
        return SLUICE_OK;
    runtime_options.world = 1;
    runtime_options.backend = "cuda";
    runtime_options.max_ctas = row->ctas;
    runtime_options.queue_priority = row->high;
    seal_options.local_window_bytes = row->pace_gbps != 0 ? overlap->window : 0;
    sluice_status status = sluice_runtime_open(&runtime_options, &overlap->runtime);
    if (status == SLUICE_OK)
        status = bench_local_plan(overlap->sizes, overlap->places, overlap->tensors, overlap->from, overlap->to,
                                  &overlap->plan);
    if (status == SLUICE_OK)
        status = sluice_plan_seal_wait(overlap->plan, overlap->runtime, &seal_options, 0);
    return status == SLUICE_OK ? refit_once(overlap, row) : status; /* one that warms up */
}

static sluice_status measure_loop(struct overlap *overlap, const struct row *row, int kind, struct figures *ret)
{
    struct bench_foreground *loop = &overlap->loops[kind];
    sluice_status status = bench_foreground_start(loop);
    if (status != SLUICE_OK)
        return status;
    sleep_until(bench_now() + overlap->span_ns / 4);
    uint64_t alone = bench_now(), begin = 0, end = 0;
    sleep_until(alone + overlap->span_ns / 2);
    uint64_t alone_end = bench_now();
    sluice_status moved = move(overlap, row, &begin, &end, &ret->gbps[kind]);
    status = bench_foreground_stop(loop);
    ret->alone_ms[kind] = bench_foreground_step_ms(loop, alone, alone_end);
    double beside_ms = bench_foreground_step_ms(loop, begin, end);
    if (moved != SLUICE_OK)
        return moved;
    if (status == SLUICE_OK && (ret->alone_ms[kind] <= 0 || beside_ms <= 0))
        status = sl_fail(SLUICE_TIMEOUT, "bench", "a loop ended no two steps: raise --span");
    ret->slower[kind] = beside_ms / ret->alone_ms[kind] - 1;
    return status;
}

static void print_row(const struct overlap *overlap, const struct row *row, const struct figures *f)
{
    char ctas[16] = "-", pace[16] = "-";
    const char *priority = row->way != WAY_KERNEL ? "-" : row->high ? "high" : "low";
    if (row->way == WAY_KERNEL)
        SL_IGNORE(row->ctas == ALL ? snprintf(ctas, sizeof ctas, "all") : snprintf(ctas, sizeof ctas, "%u", row->ctas));
    if (row->way != WAY_NONE)
        SL_IGNORE(row->pace_gbps == 0 ? snprintf(pace, sizeof pace, "none")
                                      : snprintf(pace, sizeof pace, "%u", row->pace_gbps));
    if (overlap->json)
        printf("{\"way\": \"%s\", \"ctas\": \"%s\", \"priority\": \"%s\", \"pace_gbps\": \"%s\", "
               "\"blocks_slower\": %.4f, \"blocks_refit_gbps\": %.1f, \"products_slower\": %.4f, "
               "\"products_refit_gbps\": %.1f}\n",
               way_names[row->way], ctas, priority, pace, f->slower[0], f->gbps[0], f->slower[1], f->gbps[1]);
    else
        printf("%-14s %5s %8s %5s  %8.1f%% %8.1f  %8.1f%% %8.1f\n", way_names[row->way], ctas, priority, pace,
               100 * f->slower[0], f->gbps[0], 100 * f->slower[1], f->gbps[1]);
    fflush(stdout);
}

static sluice_status run_row(struct overlap *overlap, const struct row *row)
{
    struct figures figures = {0};
    sluice_status status = open_refits(overlap, row);
    for (int kind = 0; kind < FOREGROUND_KINDS && status == SLUICE_OK; kind++)
        status = measure_loop(overlap, row, kind, &figures);
    close_refits(overlap);
    if (status == SLUICE_OK)
        print_row(overlap, row, &figures);
    return status;
}

/* --- the command --- */

static sluice_status take_memory(struct overlap *overlap)
{
    void *memory[2] = {NULL, NULL};
    sluice_status status = bench_device_open(&overlap->bench, 0);
    for (int i = 0; i < 2 && status == SLUICE_OK; i++)
        status = overlap->bench.ops->mem_alloc(overlap->bench.device, SLUICE_MEMORY_DEVICE, overlap->bytes, &memory[i]);
    overlap->from = memory[0];
    overlap->to = memory[1];
    for (uint64_t at = 0; at < overlap->bytes; at += TENSOR_BYTES) {
        overlap->places[overlap->tensors] = at;
        overlap->sizes[overlap->tensors++] = overlap->bytes - at < TENSOR_BYTES ? overlap->bytes - at : TENSOR_BYTES;
    }
    return status == SLUICE_OK ? bench_fill(&overlap->bench, overlap->from, overlap->bytes, 1) : status;
}

static void give_memory(struct overlap *overlap)
{
    if (overlap->bench.device != NULL) {
        overlap->bench.ops->mem_free(overlap->bench.device, SLUICE_MEMORY_DEVICE, overlap->from, overlap->bytes);
        overlap->bench.ops->mem_free(overlap->bench.device, SLUICE_MEMORY_DEVICE, overlap->to, overlap->bytes);
    }
    bench_device_close(&overlap->bench);
}

static sluice_status run_rows(struct overlap *overlap)
{
    const struct foreground_ops *ops = NULL;
    sluice_status status = take_memory(overlap);
    if (status == SLUICE_OK)
        status = bench_foreground_load(&ops);
    for (int kind = 0; kind < FOREGROUND_KINDS && status == SLUICE_OK; kind++) {
        status = bench_foreground_open(ops, (enum foreground_kind)kind, &overlap->loops[kind]);
        if (status == SLUICE_OK)
            tool_say("loop %d: %s", kind + 1, ops->about(overlap->loops[kind].loop));
    }
    if (status == SLUICE_OK && !overlap->json)
        printf("refits of %.1f GB; slower: a step's time beside refits to its time alone\n"
               "                                     -- short blocks --  --- products ----\n"
               "refit by        ctas priority  GB/s     slower     GB/s     slower     GB/s\n",
               (double)overlap->bytes / 1e9);
    for (size_t i = 0; i < SL_COUNT(rows) && status == SLUICE_OK; i++)
        status = run_row(overlap, &rows[i]);
    for (int kind = 0; kind < FOREGROUND_KINDS; kind++)
        bench_foreground_close(&overlap->loops[kind]);
    give_memory(overlap);
    return status;
}

static _Bool take_option(struct tool_args *args, int option, struct overlap *overlap)
{
    switch (option) {
    case OPT_BYTES:
        if (!tool_size(args, &overlap->bytes))
            return 0;
        if (overlap->bytes == 0 || overlap->bytes > (uint64_t)TENSORS_MAX * TENSOR_BYTES) {
            SL_IGNORE(tool_usage(args, "--bytes %s is not within 1 and 256Gi", args->value));
            return 0;
        }
        return 1;
    case OPT_WINDOW:
        return tool_size(args, &overlap->window);
    case OPT_SPAN:
        return tool_duration(args, &overlap->span_ns);
    default:
        overlap->json = 1;
        return 1;
    }
}

int cmd_bench_overlap(int argc, char **argv)
{
    struct tool_args args;
    struct overlap *overlap = sl_new(sl_mem_default(), sizeof *overlap, "measurement");
    int option;
    if (overlap == NULL)
        return tool_fail();
    overlap->bytes = UINT64_C(8) << 30;
    overlap->window = 64 << 20;
    overlap->span_ns = 800 * SLUICE_MILLISECOND;
    tool_begin(&args, &syntax, argc, argv);
    while ((option = tool_next(&args)) >= 0 && take_option(&args, option, overlap))
        ;
    int exit_status = args.status;
    if (option == TOOL_DONE)
        exit_status = run_rows(overlap) == SLUICE_OK ? TOOL_OK : tool_fail();
    sl_free(sl_mem_default(), overlap);
    return tool_finish(exit_status);
}
