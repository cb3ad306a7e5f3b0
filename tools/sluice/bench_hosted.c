/*
 * bench_hosted.c: see bench_hosted.h.
 *
 * Invariants: the same bytes in all ways, one after the other in one process; after every way of ours the bytes are
 * compared; the bare ways are the device's own copy call, once for all bytes.
 */
#include "bench_hosted.h"

#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"

enum { BYTES = 1 << 30, ROUNDS_MAX = 1000, PAGE = 4096 };

struct hosted {
    struct bench_device *bench;
    uint32_t warmup, iters;
    _Bool json;
    uint8_t *device;
    uint8_t *pinned, *pageable; /* what is copied from, or into */
    uint8_t *content;           /* what all of them are to hold */
    struct sluice_copy *pieces;
};

struct ways {
    double bare_pinned, bare_pageable, pinned, pageable; /* GB/s */
};

static double rate(const struct hosted *hosted, double *rounds_ms)
{
    return BYTES / 1e6 / bench_median(rounds_ms, hosted->iters);
}

static sluice_status time_bare(const struct hosted *hosted, const uint8_t *from, uint8_t *to, double *ret)
{
    double rounds[ROUNDS_MAX];
    struct sluice_copy whole = bench_piece(from, to, BYTES);
    for (uint32_t i = 0; i < hosted->warmup + hosted->iters; i++) {
        uint64_t ns = 0;
        sluice_status status = hosted->bench->ops->copy_time(hosted->bench->device, &whole, 1, &ns);
        if (status != SLUICE_OK)
            return status;
        if (i >= hosted->warmup)
            rounds[i - hosted->warmup] = (double)ns / 1e6;
    }
    *ret = rate(hosted, rounds);
    return SLUICE_OK;
}

static sluice_status move(const struct hosted *hosted, const uint8_t *from, uint8_t *to)
{
    uint64_t ns = 0;
    struct sluice_copy whole = bench_piece(from, to, BYTES);
    return hosted->bench->ops->copy_time(hosted->bench->device, &whole, 1, &ns);
}

/* Brings what has arrived to the host and compares it. */
static sluice_status check(const struct hosted *hosted, const uint8_t *to)
{
    const uint8_t *arrived = to == hosted->device ? hosted->pinned : to;
    sluice_status status = to == hosted->device ? move(hosted, to, hosted->pinned) : SLUICE_OK;
    if (status == SLUICE_OK && memcmp(arrived, hosted->content, BYTES) != 0)
        status = sl_fail(SLUICE_CORRUPT, "bench", "wrong bytes arrived");
    return status;
}

static sluice_status clear(const struct hosted *hosted, uint8_t *to)
{
    if (to != hosted->device) {
        memset(to, 0xee, BYTES);
        return SLUICE_OK;
    }
    return bench_fill(hosted->bench, to, BYTES, 9);
}

static sluice_status time_set(const struct hosted *hosted, enum sluice_copy_kind kind, const uint8_t *from, uint8_t *to,
                              uint64_t each, double *ret)
{
    double rounds[ROUNDS_MAX], ms = 0;
    struct sluice_set *set = NULL;
    size_t count = BYTES / each;
    for (size_t i = 0; i < count; i++)
        hosted->pieces[i] = bench_piece(from + i * each, to + i * each, each);
    sluice_status status = clear(hosted, to);
    if (status == SLUICE_OK)
        status = hosted->bench->ops->set_open(hosted->bench->device, kind, hosted->pieces, count, &set);
    for (uint32_t i = 0; status == SLUICE_OK && i < hosted->warmup + hosted->iters; i++) {
        status = bench_run_set(hosted->bench, set, &ms);
        if (i >= hosted->warmup)
            rounds[i - hosted->warmup] = ms;
    }
    hosted->bench->ops->set_close(set);
    if (status == SLUICE_OK)
        *ret = rate(hosted, rounds);
    return status == SLUICE_OK ? check(hosted, to) : status;
}

static void print(const struct hosted *hosted, const char *direction, uint64_t each, const struct ways *ways)
{
    if (hosted->json)
        printf("{\"case\": \"host\", \"direction\": \"%s\", \"tensor_bytes\": %llu, \"bare_pinned_gbs\": %.2f, "
               "\"bare_pageable_gbs\": %.2f, \"pinned_gbs\": %.2f, \"pageable_gbs\": %.2f}\n",
               direction, (unsigned long long)each, ways->bare_pinned, ways->bare_pageable, ways->pinned,
               ways->pageable);
    else
        printf("%-8s %10llu %8.3f %9.2f %9.2f %9.2f %9.2f %7.3f %7.3f\n", direction, (unsigned long long)each,
               BYTES / 1e9, ways->bare_pinned, ways->bare_pageable, ways->pinned, ways->pageable,
               ways->pinned / ways->bare_pinned, ways->pageable / ways->bare_pinned);
}

static sluice_status measure(const struct hosted *hosted, _Bool in, uint64_t each)
{
    enum sluice_copy_kind kind = in ? SLUICE_COPY_PACK : SLUICE_COPY_UNPACK;
    struct ways ways = {0};
    uint8_t *hosts[2] = {hosted->pinned, hosted->pageable};
    double *bare[2] = {&ways.bare_pinned, &ways.bare_pageable}, *ours[2] = {&ways.pinned, &ways.pageable};
    sluice_status status = SLUICE_OK;
    for (int i = 0; i < 2 && status == SLUICE_OK; i++) {
        uint8_t *from = in ? hosts[i] : hosted->device, *to = in ? hosted->device : hosts[i];
        memcpy(hosts[i], hosted->content, BYTES);
        status = move(hosted, hosts[i], hosted->device);
        if (status == SLUICE_OK)
            status = time_bare(hosted, from, to, bare[i]);
        if (status == SLUICE_OK)
            status = time_set(hosted, kind, from, to, each, ours[i]);
    }
    if (status == SLUICE_OK)
        print(hosted, in ? "in" : "out", each, &ways);
    return status;
}

static sluice_status open_memory(struct hosted *hosted)
{
    const struct bench_device *bench = hosted->bench;
    struct sl_random random = {.state = 1};
    void *memory[2] = {NULL, NULL};
    sluice_status status = bench->ops->mem_alloc(bench->device, SLUICE_MEMORY_DEVICE, BYTES, &memory[0]);
    if (status == SLUICE_OK)
        status = bench->ops->mem_alloc(bench->device, SLUICE_MEMORY_PINNED, BYTES, &memory[1]);
    hosted->device = memory[0];
    hosted->pinned = memory[1];
    hosted->pageable = sl_new_aligned(sl_mem_default(), BYTES, PAGE, "pageable memory");
    hosted->content = sl_new_aligned(sl_mem_default(), BYTES, PAGE, "content");
    hosted->pieces = sl_new_array(sl_mem_default(), BYTES >> 16, sizeof *hosted->pieces, "pieces");
    if (hosted->pageable == NULL || hosted->content == NULL || hosted->pieces == NULL)
        return status == SLUICE_OK ? SLUICE_NOMEM : status;
    for (size_t i = 0; i < BYTES / sizeof(uint64_t); i++)
        ((uint64_t *)hosted->content)[i] = sl_random_next(&random);
    return status;
}

static void close_memory(struct hosted *hosted)
{
    const struct bench_device *bench = hosted->bench;
    bench->ops->mem_free(bench->device, SLUICE_MEMORY_DEVICE, hosted->device, BYTES);
    bench->ops->mem_free(bench->device, SLUICE_MEMORY_PINNED, hosted->pinned, BYTES);
    sl_free(sl_mem_default(), hosted->pageable);
    sl_free(sl_mem_default(), hosted->content);
    sl_free(sl_mem_default(), hosted->pieces);
}

sluice_status bench_hosted(struct bench_device *bench, uint32_t warmup, uint32_t iters, _Bool json)
{
    struct hosted hosted = {.bench = bench, .warmup = warmup, .iters = iters, .json = json};
    sluice_status status = open_memory(&hosted);
    if (!json)
        printf("%-8s %10s %8s %9s %9s %9s %9s %7s %7s\n", "host", "row bytes", "GB", "copy pin", "copy page", "pinned",
               "pageable", "/copy", "/copy");
    for (int i = 0; i < 4 && status == SLUICE_OK; i++)
        status = measure(&hosted, i < 2, i % 2 == 0 ? BYTES : 1 << 16);
    close_memory(&hosted);
    return status;
}
