/*
 * sluice bench local: copies within one GPU, by the device's clock and end to end.
 *
 * Invariants: all of a case runs in one process one after the other, each figure the median of the same number
 * of rounds after warm-ups; memory holds random bytes; a wrong byte at the end of any tensor fails the run.
 */
#include <string.h>

#include "bench.h"
#include "bench_device.h"
#include "bench_hosted.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"

enum { OPT_ITERS = TOOL_LONG + 1, OPT_WARMUP, OPT_CASE, OPT_CTAS, OPT_JSON, ROUNDS_MAX = 1000, ALIGN = 256 };

static const struct tool_option options[] = {
    {"iters", "N", "rounds that count (default 20)", OPT_ITERS},
    {"warmup", "N", "rounds before them (default 5)", OPT_WARMUP},
    {"case", "NAME", "dense, moe, small, strided or host (default: all)", OPT_CASE},
    {"ctas", "N", "multiprocessors that the kernel may take (default: all)", OPT_CTAS},
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "bench local",
    .synopsis = "[OPTIONS]",
    .about =
        "Copies the tensors of a model from one place to another on one GPU: as one device-to-device copy, with one\n"
        "asynchronous copy a tensor, with the fused kernel, and end to end through a sealed plan; and digests them.\n"
        "Case host: between the GPU and pinned or pageable memory, beside the bare asynchronous copy.",
    .options = options,
};

static const char *const case_names[] = {"dense", "moe", "small", "strided", "host", NULL};

enum { CASES = 3, CASE_STRIDED = 3, CASE_HOST = 4 }; /* `CASES` of them are lists of tensors */

struct local {
    uint32_t iters, warmup, ctas;
    int only; /* index of a case; -1: all */
    _Bool json;
    struct bench_device bench;
    uint64_t *sizes; /* of tensors */
    uint64_t *places;
    uint32_t count;
    uint64_t bytes, span;
    uint8_t *from, *to;
};

struct figures {
    const char *name;
    uint32_t tensors;
    uint64_t bytes;
    double memcpy_ms, each_ms, kernel_ms, digest_ms, total_ms, first_us;
};

/* --- the cases --- */

static void add(struct local *local, uint64_t bytes, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        local->places[local->count] = local->span;
        local->sizes[local->count++] = bytes;
        local->bytes += bytes;
        local->span += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

/* 4.23 billion parameters of two bytes: 20 layers of 12 tensors, embeddings, head and a norm. */
static void add_dense(struct local *local)
{
    enum { HIDDEN = 4096, INNER = 10704, WORDS = 32000 };
    add(local, UINT64_C(2) * WORDS * HIDDEN, 1);
    for (int layer = 0; layer < 20; layer++) {
        add(local, UINT64_C(2) * HIDDEN * HIDDEN, 4);
        add(local, UINT64_C(2) * HIDDEN * INNER, 3);
        add(local, UINT64_C(2) * HIDDEN, 5);
    }
    add(local, UINT64_C(2) * WORDS * HIDDEN, 1);
    add(local, UINT64_C(2) * HIDDEN, 1);
}

/* 24 layers of 85 experts: 6,264 tensors, 29.9 GB. */
static void add_moe(struct local *local)
{
    enum { HIDDEN = 2048, INNER = 1160, EXPERTS = 85 };
    for (int layer = 0; layer < 24; layer++) {
        add(local, UINT64_C(2) * HIDDEN * HIDDEN, 4);
        add(local, UINT64_C(2) * HIDDEN * INNER, 3 * EXPERTS);
        add(local, UINT64_C(2) * HIDDEN * EXPERTS, 1);
        add(local, UINT64_C(2) * HIDDEN, 1);
    }
}

static void choose(struct local *local, int which)
{
    local->count = 0;
    local->bytes = local->span = 0;
    if (which == 0)
        add_dense(local);
    else if (which == 1)
        add_moe(local);
    else
        add(local, 65536, 20000);
}

/* The first and last bytes of every tensor, against the source. */
static sluice_status verify(struct local *local)
{
    enum { EDGE = 16 };
    uint64_t bytes = (uint64_t)local->count * 4 * EDGE;
    void *edges = NULL;
    struct sluice_copy *pieces = sl_new_array(sl_mem_default(), (size_t)local->count * 4, sizeof *pieces, "pieces");
    sluice_status status = local->bench.ops->mem_alloc(local->bench.device, SLUICE_MEMORY_PINNED, bytes, &edges);
    if (pieces == NULL || status != SLUICE_OK) {
        sl_free(sl_mem_default(), pieces);
        return pieces == NULL ? SLUICE_NOMEM : status;
    }
    uint8_t *sources = edges, *destinations = sources + bytes / 2;
    for (uint32_t i = 0; i < local->count; i++)
        for (uint32_t side = 0; side < 2; side++) {
            uint64_t at = local->places[i] + (side ? local->sizes[i] - EDGE : 0), to = (2 * i + side) * (uint64_t)EDGE;
            pieces[4 * i + 2 * side] = bench_piece(local->from + at, sources + to, EDGE);
            pieces[4 * i + 2 * side + 1] = bench_piece(local->to + at, destinations + to, EDGE);
        }
    status = bench_copy(&local->bench, pieces, (size_t)local->count * 4);
    if (status == SLUICE_OK && memcmp(sources, destinations, bytes / 2) != 0)
        status = sl_fail(SLUICE_DEVICE, "bench", "a tensor was copied wrongly");
    local->bench.ops->mem_free(local->bench.device, SLUICE_MEMORY_PINNED, edges, bytes);
    sl_free(sl_mem_default(), pieces);
    return status;
}

/* --- what is measured --- */

static sluice_status time_device(struct local *local, const struct sluice_copy *pieces, size_t count, double *ret_ms)
{
    double rounds[ROUNDS_MAX];
    for (uint32_t i = 0; i < local->warmup + local->iters; i++) {
        uint64_t ns = 0;
        sluice_status status = local->bench.ops->copy_time(local->bench.device, pieces, count, &ns);
        if (status != SLUICE_OK)
            return status;
        if (i >= local->warmup)
            rounds[i - local->warmup] = (double)ns / 1e6;
    }
    *ret_ms = bench_median(rounds, local->iters);
    return SLUICE_OK;
}

static sluice_status time_kernel(struct local *local, const struct sluice_copy *pieces, size_t count, double *ret_ms)
{
    double rounds[ROUNDS_MAX], ms = 0;
    struct sluice_set *set = NULL;
    sluice_status status = local->bench.ops->set_open(local->bench.device, SLUICE_COPY_LOCAL, pieces, count, &set);
    for (uint32_t i = 0; status == SLUICE_OK && i < local->warmup + local->iters; i++) {
        status = bench_run_set(&local->bench, set, &ms);
        if (i >= local->warmup)
            rounds[i - local->warmup] = ms;
    }
    local->bench.ops->set_close(set);
    if (status == SLUICE_OK)
        *ret_ms = bench_median(rounds, local->iters);
    return status;
}

/* Reads all tensors once; each gets a value. */
static sluice_status time_digest(struct local *local, const struct sluice_copy *pieces, size_t count, double *ret_ms)
{
    double rounds[ROUNDS_MAX], ms = 0;
    struct sluice_set *set = NULL;
    uint64_t *digests = sl_new_array(sl_mem_default(), count, sizeof *digests, "digests");
    sluice_status status = SLUICE_NOMEM;
    if (digests != NULL)
        status = local->bench.ops->set_open(local->bench.device, SLUICE_COPY_DIGEST, pieces, count, &set);
    for (uint32_t i = 0; status == SLUICE_OK && i < local->warmup + local->iters; i++) {
        status = bench_run_digest(&local->bench, set, digests, &ms);
        if (i >= local->warmup)
            rounds[i - local->warmup] = ms;
    }
    local->bench.ops->set_close(set);
    sl_free(sl_mem_default(), digests);
    if (status == SLUICE_OK)
        *ret_ms = bench_median(rounds, local->iters);
    return status;
}

static void on_event(const struct sluice_event *event, void *user)
{
    if (event->kind == SLUICE_EVENT_STARTED)
        *(uint64_t *)user = event->time_ns;
}

/* One transfer: milliseconds from submit to the end of the wait, microseconds from submit to the first launch. */
static sluice_status run_transfer(sluice_plan *plan, double *ret_ms, double *ret_first_us)
{
    struct sluice_transfer_options transfer_options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    uint64_t started = 0;
    transfer_options.on_event = on_event;
    transfer_options.user = &started;
    uint64_t begin = bench_now();
    sluice_status status = sluice_submit(plan, &transfer_options, &transfer);
    if (status == SLUICE_OK)
        status = sluice_transfer_wait(transfer, 60 * SLUICE_SECOND);
    *ret_ms = (double)(bench_now() - begin) / 1e6;
    *ret_first_us = (double)(started - begin) / 1e3;
    sluice_transfer_destroy(transfer);
    return status;
}

static sluice_status time_plan(const struct local *local, sluice_plan *plan, struct figures *ret)
{
    double rounds[ROUNDS_MAX], firsts[ROUNDS_MAX], ms = 0, first = 0;
    for (uint32_t i = 0; i < local->warmup + local->iters; i++) {
        sluice_status status = run_transfer(plan, &ms, &first);
        if (status != SLUICE_OK)
            return status;
        if (i >= local->warmup) {
            rounds[i - local->warmup] = ms;
            firsts[i - local->warmup] = first;
        }
    }
    ret->total_ms = bench_median(rounds, local->iters);
    ret->first_us = bench_median(firsts, local->iters);
    return SLUICE_OK;
}

static sluice_status time_end_to_end(const struct local *local, struct figures *ret)
{
    struct sluice_runtime_options runtime_options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    runtime_options.world = 1;
    runtime_options.backend = "cuda";
    runtime_options.max_ctas = local->ctas;
    sluice_status status = sluice_runtime_open(&runtime_options, &runtime);
    if (status == SLUICE_OK)
        status = bench_local_plan(local->sizes, local->places, local->count, local->from, local->to, &plan);
    if (status == SLUICE_OK)
        status = sluice_plan_seal_wait(plan, runtime, NULL, 0);
    if (status == SLUICE_OK)
        status = time_plan(local, plan, ret);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    return status;
}

static sluice_status measure(struct local *local, struct figures *ret)
{
    struct sluice_copy *pieces = sl_new_array(sl_mem_default(), local->count, sizeof *pieces, "pieces");
    if (pieces == NULL)
        return sl_fail(SLUICE_NOMEM, "bench", "out of memory for %u tensors", local->count);
    for (uint32_t i = 0; i < local->count; i++)
        pieces[i] = bench_piece(local->from + local->places[i], local->to + local->places[i], local->sizes[i]);
    struct sluice_copy whole = bench_piece(local->from, local->to, local->bytes);
    sluice_status status = time_device(local, &whole, 1, &ret->memcpy_ms);
    if (status == SLUICE_OK)
        status = time_device(local, pieces, local->count, &ret->each_ms);
    if (status == SLUICE_OK)
        status = bench_fill(&local->bench, local->to, local->span, 2);
    if (status == SLUICE_OK)
        status = time_kernel(local, pieces, local->count, &ret->kernel_ms);
    if (status == SLUICE_OK)
        status = verify(local);
    if (status == SLUICE_OK)
        status = time_digest(local, pieces, local->count, &ret->digest_ms);
    if (status == SLUICE_OK)
        status = bench_fill(&local->bench, local->to, local->span, 3);
    if (status == SLUICE_OK)
        status = time_end_to_end(local, ret);
    if (status == SLUICE_OK)
        status = verify(local);
    sl_free(sl_mem_default(), pieces);
    return status;
}

static sluice_status take_memory(struct local *local, uint64_t bytes)
{
    void *memory[2] = {NULL, NULL};
    sluice_status status = SLUICE_OK;
    for (int i = 0; i < 2 && status == SLUICE_OK; i++)
        status = local->bench.ops->mem_alloc(local->bench.device, SLUICE_MEMORY_DEVICE, bytes, &memory[i]);
    local->from = memory[0];
    local->to = memory[1];
    return status == SLUICE_OK ? bench_fill(&local->bench, local->from, bytes, 1) : status;
}

static void give_memory(struct local *local, uint64_t bytes)
{
    local->bench.ops->mem_free(local->bench.device, SLUICE_MEMORY_DEVICE, local->from, bytes);
    local->bench.ops->mem_free(local->bench.device, SLUICE_MEMORY_DEVICE, local->to, bytes);
    local->from = local->to = NULL;
}

static void print_figures(const struct local *local, const struct figures *f)
{
    double gigabytes = (double)f->bytes / 1e9;
    if (local->json) {
        printf("{\"case\": \"%s\", \"tensors\": %u, \"bytes\": %llu, \"memcpy_ms\": %.4f, \"each_ms\": %.4f, "
               "\"kernel_ms\": %.4f, \"digest_ms\": %.4f, \"end_to_end_ms\": %.4f, \"first_launch_us\": %.1f}\n",
               f->name, f->tensors, (unsigned long long)f->bytes, f->memcpy_ms, f->each_ms, f->kernel_ms, f->digest_ms,
               f->total_ms, f->first_us);
        return;
    }
    printf("%-8s %7u %8.3f %9.3f %9.3f %9.3f %7.3f %7.2f %9.3f %9.3f %7.3f %8.1f\n", f->name, f->tensors, gigabytes,
           f->memcpy_ms, f->each_ms, f->kernel_ms, f->kernel_ms / f->memcpy_ms, f->each_ms / f->kernel_ms, f->digest_ms,
           f->total_ms, f->total_ms / f->memcpy_ms, f->first_us);
}

static sluice_status run_case(struct local *local, int which)
{
    struct figures figures = {.name = case_names[which]};
    choose(local, which);
    figures.tensors = local->count;
    figures.bytes = local->bytes;
    sluice_status status = take_memory(local, local->span);
    if (status == SLUICE_OK)
        status = measure(local, &figures);
    give_memory(local, local->span);
    if (status == SLUICE_OK)
        print_figures(local, &figures);
    return status;
}

/* --- strided rows --- */

/* Packs or unpacks rows with gaps as wide as themselves; beside it the same bytes in one piece. */
static sluice_status run_rows(struct local *local, uint64_t row, _Bool unpack)
{
    enum { BYTES = 1 << 30 };
    double flat_ms = 0, rows_ms = 0;
    struct sluice_copy flat = bench_piece(local->from, local->to, BYTES), rows = flat;
    struct sluice_strided *side = unpack ? &rows.to : &rows.from;
    side->row_bytes = row;
    side->pitch = 2 * row;
    sluice_status status = time_kernel(local, &flat, 1, &flat_ms);
    if (status == SLUICE_OK)
        status = time_kernel(local, &rows, 1, &rows_ms);
    if (status != SLUICE_OK)
        return status;
    if (local->json)
        printf("{\"case\": \"strided\", \"unpack\": %d, \"row_bytes\": %llu, \"flat_ms\": %.4f, \"rows_ms\": %.4f}\n",
               unpack, (unsigned long long)row, flat_ms, rows_ms);
    else
        printf("%-8s %7llu %8.3f %9.3f %9.3f %7.3f\n", unpack ? "unpack" : "pack", (unsigned long long)row, BYTES / 1e9,
               flat_ms, rows_ms, flat_ms / rows_ms);
    return SLUICE_OK;
}

static sluice_status run_strided(struct local *local)
{
    static const uint64_t rows[] = {256, 1024, 4096, 16384, 65536};
    sluice_status status = take_memory(local, UINT64_C(2) << 30);
    if (!local->json)
        puts("case         row       GB   flat ms   rows ms    rate");
    for (size_t i = 0; i < 2 * SL_COUNT(rows) && status == SLUICE_OK; i++)
        status = run_rows(local, rows[i / 2], i % 2 != 0);
    give_memory(local, UINT64_C(2) << 30);
    return status;
}

/* --- the command --- */

static sluice_status run_cases(struct local *local)
{
    sluice_status status = bench_device_open(&local->bench, local->ctas);
    if (!local->json && local->only < CASES)
        puts("case     tensors       GB memcpy ms   each ms kernel ms /memcpy each/kn digest ms  total ms /memcpy "
             "first us");
    for (int which = 0; which < CASES && status == SLUICE_OK; which++)
        if (local->only < 0 || local->only == which)
            status = run_case(local, which);
    if (status == SLUICE_OK && (local->only < 0 || local->only == CASE_STRIDED))
        status = run_strided(local);
    if (status == SLUICE_OK && (local->only < 0 || local->only == CASE_HOST))
        status = bench_hosted(&local->bench, local->warmup, local->iters, local->json);
    bench_device_close(&local->bench);
    return status;
}

static _Bool take_option(struct tool_args *args, int option, struct local *local)
{
    switch (option) {
    case OPT_ITERS:
        return tool_u32(args, 1, ROUNDS_MAX, &local->iters);
    case OPT_WARMUP:
        return tool_u32(args, 0, ROUNDS_MAX, &local->warmup);
    case OPT_CTAS:
        return tool_u32(args, 1, 4096, &local->ctas);
    case OPT_CASE:
        local->only = tool_choice(args, case_names);
        return local->only >= 0;
    default:
        local->json = 1;
        return 1;
    }
}

int cmd_bench_local(int argc, char **argv)
{
    enum { TENSORS_MAX = 20000, ALL = 4096 };
    struct tool_args args;
    struct local local = {.iters = 20, .warmup = 5, .ctas = ALL, .only = -1};
    int option;
    tool_begin(&args, &syntax, argc, argv);
    while ((option = tool_next(&args)) >= 0)
        if (!take_option(&args, option, &local))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    local.sizes = sl_new_array(sl_mem_default(), TENSORS_MAX, sizeof *local.sizes, "tensors");
    local.places = sl_new_array(sl_mem_default(), TENSORS_MAX, sizeof *local.places, "tensors");
    sluice_status status = SLUICE_NOMEM;
    if (local.sizes != NULL && local.places != NULL)
        status = run_cases(&local);
    sl_free(sl_mem_default(), local.sizes);
    sl_free(sl_mem_default(), local.places);
    return tool_finish(status == SLUICE_OK ? TOOL_OK : tool_fail());
}
