/*
 * Buffers in memory of the host, one rank on one device: pinned memory, which the kernel reaches, and pageable memory,
 * which is staged. Each check of a gate has a twin without the gate that must see the old value.
 */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/work.h"
#include "runtime/backend/registry.h"
#include "runtime/base/error.h"
#include "runtime/core/runtime_object.h"
#include "sluice/cuda.h"

enum { MIB = 1 << 20, DELAY_MS = 50, PARAMS_MAX = 64 };

enum kind { DEVICE, PINNED, REGISTERED_HALF, PAGEABLE };

struct fixture {
    struct sluice_runtime_options options;
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint32_t params;
    uint64_t bytes[PARAMS_MAX];
    struct {
        uint8_t *memory;
        uint8_t *base; /* what was allocated */
        enum kind kind;
    } ends[PARAMS_MAX][2]; /* by role */
};

static void must(sluice_status status, const char *what)
{
    cr_assert_eq(status, SLUICE_OK, "%s: %s: %s", what, sluice_status_name(status), sluice_last_error()->text);
}

static void cuda(cudaError_t result, const char *what)
{
    cr_assert_eq(result, cudaSuccess, "%s: %s", what, cudaGetErrorString(result));
}

static void open_fixture(struct fixture *f)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    if (sl_backend_find("cuda", &ops) != SLUICE_OK)
        cr_skip_test("no cuda backend: %s", sluice_last_error()->text);
    must(ops->query(&info), "query");
    if (!info.usable)
        cr_skip_test("no device: %s", info.reason);
    f->options.size = sizeof f->options;
    f->options.world = 1;
    f->options.backend = "cuda";
    must(sluice_runtime_open(&f->options, &f->runtime), "open");
    must(sluice_plan_create(1, &f->plan), "plan");
    work_delay(NULL, 0); /* loads the test's kernel: a first launch may wait for others */
}

/* Memory at an address that is `skew` behind a page. */
static void take(struct fixture *f, uint32_t param, enum sluice_role role, enum kind kind, uint64_t bytes,
                 uint32_t skew)
{
    uint8_t *base = NULL;
    uint64_t whole = (bytes + skew + 4095) / 4096 * 4096;
    if (kind == DEVICE)
        cuda(cudaMalloc((void **)&base, whole), "malloc");
    else if (kind == PINNED)
        cuda(cudaHostAlloc((void **)&base, whole, cudaHostAllocDefault), "pinned memory");
    else
        base = aligned_alloc(4096, whole);
    if (kind == REGISTERED_HALF)
        cuda(cudaHostRegister(base, (whole / 2 + 4095) / 4096 * 4096, cudaHostRegisterDefault), "register");
    f->ends[param][role].base = base;
    f->ends[param][role].memory = base + skew;
    f->ends[param][role].kind = kind;
}

/* A parameter of its own with one task from buffer to buffer. */
static uint32_t add_param(struct fixture *f, uint64_t bytes, enum kind from, enum kind to, uint32_t skew)
{
    uint32_t param = f->params++;
    struct sluice_param p = {.id = param, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "w"};
    struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = param,
                               .param = param,
                               .from = whole,
                               .to = whole,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8};
    f->bytes[param] = bytes;
    take(f, param, SLUICE_ROLE_SOURCE, from, bytes, skew);
    take(f, param, SLUICE_ROLE_DESTINATION, to, bytes, skew / 2);
    must(sluice_plan_add_param(f->plan, &p), "add_param");
    must(sluice_plan_add_task(f->plan, &task), "add_task");
    for (int role = 0; role < 2; role++)
        must(sluice_plan_bind(f->plan, param, (enum sluice_role)role, f->ends[param][role].memory, bytes), "bind");
    return param;
}

/* Memory of the host may be registered in part, which cudaMemcpy does not take. */
static void move(struct fixture *f, uint32_t param, enum sluice_role role, uint8_t *block, _Bool write)
{
    uint8_t *memory = f->ends[param][role].memory;
    uint8_t *to = write ? memory : block;
    const uint8_t *from = write ? block : memory;
    if (f->ends[param][role].kind != DEVICE)
        memcpy(to, from, f->bytes[param]);
    else
        cuda(cudaMemcpy(to, from, f->bytes[param], cudaMemcpyDefault), "move");
    cuda(cudaDeviceSynchronize(), "move");
}

static uint8_t content_of(uint32_t param, uint64_t at, uint32_t version)
{
    return (uint8_t)((at + 131 * param + version * 17) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

/* Sources get the content of a version, destinations 0xee. */
static void fill(struct fixture *f, uint32_t version)
{
    for (uint32_t p = 0; p < f->params; p++) {
        uint8_t *block = malloc(f->bytes[p]);
        for (uint64_t i = 0; i < f->bytes[p]; i++)
            block[i] = content_of(p, i, version);
        move(f, p, SLUICE_ROLE_SOURCE, block, 1);
        memset(block, 0xee, f->bytes[p]);
        move(f, p, SLUICE_ROLE_DESTINATION, block, 1);
        free(block);
    }
}

static void check(struct fixture *f, uint32_t version)
{
    for (uint32_t p = 0; p < f->params; p++) {
        uint8_t *block = malloc(f->bytes[p]);
        uint64_t i = 0;
        move(f, p, SLUICE_ROLE_DESTINATION, block, 0);
        while (i < f->bytes[p] && block[i] == content_of(p, i, version))
            i++;
        cr_assert_eq(i, f->bytes[p], "parameter %u, byte %llu", p, (unsigned long long)i);
        free(block);
    }
}

static void seal(struct fixture *f)
{
    must(sluice_plan_seal_wait(f->plan, f->runtime, NULL, 0), "seal");
}

static sluice_status run(struct fixture *f, struct sluice_transfer_options *options)
{
    sluice_transfer *transfer = NULL;
    must(sluice_submit(f->plan, options, &transfer), "submit");
    sluice_status status = sluice_transfer_wait(transfer, 60 * SLUICE_SECOND);
    sluice_transfer_destroy(transfer);
    return status;
}

static void refit(struct fixture *f, uint32_t version)
{
    fill(f, version);
    must(run(f, NULL), "transfer");
    check(f, version);
}

static void close_fixture(struct fixture *f)
{
    sluice_plan_destroy(f->plan);
    sluice_runtime_close_wait(f->runtime);
    for (uint32_t p = 0; p < f->params; p++)
        for (int role = 0; role < 2; role++) {
            uint8_t *base = f->ends[p][role].base;
            if (f->ends[p][role].kind == DEVICE)
                cuda(cudaFree(base), "free");
            else if (f->ends[p][role].kind == PINNED)
                cuda(cudaFreeHost(base), "free");
            else if (f->ends[p][role].kind == REGISTERED_HALF)
                cuda(cudaHostUnregister(base), "unregister");
            if (f->ends[p][role].kind > PINNED)
                free(base);
        }
}

static uint64_t host_staging(const struct fixture *f)
{
    struct sluice_backend_info info = {.size = sizeof info};
    const struct sl_driver *driver = &f->runtime->driver;
    driver->config.ops->describe(driver->device, &info);
    return info.host_staging_bytes;
}

/* --- bytes --- */

Test(staging, every_kind_of_memory_reaches_every_other)
{
    struct fixture f = {.params = 0};
    open_fixture(&f);
    for (int from = DEVICE; from <= PAGEABLE; from++)
        for (int to = DEVICE; to <= PAGEABLE; to++)
            add_param(&f, 3 * MIB + 12345, (enum kind)from, (enum kind)to, 0);
    seal(&f);
    for (uint32_t version = 0; version < 3; version++)
        refit(&f, version);
    close_fixture(&f);
}

Test(staging, odd_addresses_and_lengths_arrive)
{
    static const uint64_t sizes[] = {1, 3, 15, 16, 17, 4095, 65537, 5 * MIB + 7};
    struct fixture f = {.params = 0};
    open_fixture(&f);
    for (size_t i = 0; i < SL_COUNT(sizes); i++) {
        add_param(&f, sizes[i], PAGEABLE, DEVICE, (uint32_t)(3 * i + 1));
        add_param(&f, sizes[i], DEVICE, PAGEABLE, (uint32_t)(5 * i + 1));
        add_param(&f, sizes[i], PINNED, DEVICE, (uint32_t)(7 * i + 1));
    }
    seal(&f);
    refit(&f, 1);
    refit(&f, 2);
    close_fixture(&f);
}

Test(staging, two_slots_serve_more_than_a_hundred_chunks_again_and_again)
{
    struct fixture f = {.options.host_staging_bytes_max = 8 * MIB};
    open_fixture(&f);
    add_param(&f, (uint64_t)200 * MIB + 1, PAGEABLE, DEVICE, 1);
    add_param(&f, (uint64_t)200 * MIB + 1, DEVICE, PAGEABLE, 1);
    seal(&f);
    cr_assert_leq(host_staging(&f), 8 * MIB);
    for (uint32_t version = 0; version < 3; version++)
        refit(&f, version);
    close_fixture(&f);
}

Test(staging, digests_of_memory_of_the_host_agree_with_those_of_the_device)
{
    struct fixture f = {.params = 0};
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    open_fixture(&f);
    add_param(&f, 3 * MIB + 5, PAGEABLE, DEVICE, 1);
    add_param(&f, 3 * MIB + 5, DEVICE, PAGEABLE, 1);
    add_param(&f, 3 * MIB + 5, PINNED, DEVICE, 1);
    seal(&f);
    fill(&f, 4);
    options.verify = 1;
    must(run(&f, &options), "verified transfer");
    check(&f, 4);
    close_fixture(&f);
}

Test(staging, a_buffer_may_move_to_pageable_memory_after_the_seal)
{
    static uint8_t pageable[5 * MIB];
    struct fixture f = {.params = 0};
    open_fixture(&f);
    add_param(&f, sizeof pageable, DEVICE, DEVICE, 0);
    seal(&f);
    refit(&f, 1);
    cr_assert_eq(host_staging(&f), 0);
    must(sluice_plan_rebind(f.plan, 0, SLUICE_ROLE_SOURCE, pageable, sizeof pageable), "rebind");
    fill(&f, 1);
    for (size_t i = 0; i < sizeof pageable; i++)
        pageable[i] = content_of(0, i, 2);
    must(run(&f, NULL), "transfer");
    check(&f, 2);
    close_fixture(&f);
}

/* --- gates and order --- */

/* The byte at the end of the destination after a source of ones is filled with 7 behind 50 ms of work. */
static int late_producer(enum kind from, enum kind to, _Bool gated)
{
    struct fixture f = {.params = 0};
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    cudaStream_t stream;
    uint8_t byte = 0;
    open_fixture(&f);
    add_param(&f, 8 * MIB, from, to, 1);
    memset(f.ends[0][0].memory, 1, 8 * MIB);
    seal(&f);
    struct work_fill seven = {.memory = f.ends[0][0].memory, .bytes = 8 * MIB, .value = 7};
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    work_delay(stream, gated ? DELAY_MS : 20 * DELAY_MS);
    work_fill(stream, &seven);
    if (gated)
        must(sluice_cuda_gate_stream(f.runtime, stream, &options.source_gate), "gate");
    must(run(&f, &options), "transfer");
    sluice_gate_destroy(options.source_gate);
    cuda(cudaMemcpy(&byte, f.ends[0][1].memory + 8 * MIB - 1, 1, cudaMemcpyDefault), "read");
    cuda(cudaStreamSynchronize(stream), "producer");
    cuda(cudaStreamDestroy(stream), "stream");
    close_fixture(&f);
    return byte;
}

Test(staging, a_pageable_source_behind_a_gate_is_read_when_its_producer_is_done)
{
    cr_assert_eq(late_producer(PAGEABLE, DEVICE, 1), 7);
}

Test(staging, without_its_gate_the_old_value_of_a_pageable_source_is_read)
{
    cr_assert_eq(late_producer(PAGEABLE, DEVICE, 0), 1);
}

Test(staging, a_pinned_source_behind_a_gate_is_read_when_its_producer_is_done)
{
    cr_assert_eq(late_producer(PINNED, DEVICE, 1), 7);
}

Test(staging, without_its_gate_the_old_value_of_a_pinned_source_is_read)
{
    cr_assert_eq(late_producer(PINNED, DEVICE, 0), 1);
}

Test(staging, from_pageable_to_pageable_memory_the_gate_counts_too)
{
    cr_assert_eq(late_producer(PAGEABLE, PAGEABLE, 1), 7);
}

static void CUDART_CB look(void *context)
{
    uint8_t **pair = context;
    *pair[1] = *pair[0];
}

Test(staging, a_stream_that_waits_for_a_transfer_finds_a_pageable_destination_whole)
{
    enum { BYTES = 64 * MIB };
    struct fixture f = {.params = 0};
    sluice_transfer *transfer = NULL;
    cudaStream_t stream;
    uint8_t seen = 0;
    open_fixture(&f);
    add_param(&f, BYTES, DEVICE, PAGEABLE, 0);
    seal(&f);
    fill(&f, 3);
    uint8_t *pair[2] = {f.ends[0][1].memory + BYTES - 1, &seen};
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(sluice_submit(f.plan, NULL, &transfer), "submit");
    while (sluice_cuda_wait(transfer, stream) == SLUICE_AGAIN)
        ;
    cuda(cudaLaunchHostFunc(stream, look, pair), "look");
    cuda(cudaStreamSynchronize(stream), "synchronize");
    cr_assert_eq(seen, content_of(0, BYTES - 1, 3));
    must(sluice_transfer_wait(transfer, 20 * SLUICE_SECOND), "wait");
    sluice_transfer_destroy(transfer);
    cuda(cudaStreamDestroy(stream), "stream");
    close_fixture(&f);
}

/* --- limits and errors --- */

Test(staging, plans_in_device_and_pinned_memory_take_no_slots)
{
    struct fixture f = {.params = 0};
    open_fixture(&f);
    add_param(&f, MIB, DEVICE, DEVICE, 0);
    add_param(&f, MIB, PINNED, DEVICE, 0);
    add_param(&f, MIB, DEVICE, PINNED, 0);
    seal(&f);
    refit(&f, 1);
    cr_assert_eq(host_staging(&f), 0);
    close_fixture(&f);
}

Test(staging, less_than_two_slots_is_refused_with_the_name_of_the_setting)
{
    struct fixture f = {.options.host_staging_bytes_max = 5 * MIB};
    open_fixture(&f);
    add_param(&f, MIB, PAGEABLE, DEVICE, 0);
    cr_assert_eq(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), SLUICE_LIMIT);
    cr_assert_not_null(strstr(sluice_last_error()->text, "SLUICE_HOST_STAGING_MAX"), "%s", sluice_last_error()->text);
    close_fixture(&f);
}

Test(staging, a_transfer_in_a_stream_of_the_caller_is_refused_for_pageable_memory)
{
    struct fixture f = {.params = 0};
    sluice_transfer *transfer = NULL;
    open_fixture(&f);
    add_param(&f, MIB, PAGEABLE, DEVICE, 0);
    seal(&f);
    cr_assert_eq(sluice_cuda_submit(f.plan, NULL, NULL, &transfer), SLUICE_UNSUPPORTED);
    cr_assert_not_null(strstr(sluice_last_error()->text, "pageable"), "%s", sluice_last_error()->text);
    refit(&f, 1);
    close_fixture(&f);
}

Test(staging, a_lost_context_ends_a_transfer_that_is_being_staged)
{
    enum { BYTES = 512 * MIB };
    struct fixture f = {.options.host_staging_bytes_max = 8 * MIB};
    struct sluice_seal_options seal_options = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    open_fixture(&f);
    add_param(&f, BYTES, PAGEABLE, DEVICE, 0);
    memset(f.ends[0][0].memory, 1, BYTES);
    seal_options.local_window_bytes = 16 * MIB;
    options.pace_bytes_per_second = 64 * MIB; /* 8 s: it is under way when the context is lost */
    must(sluice_plan_seal_wait(f.plan, f.runtime, &seal_options, 0), "seal");
    must(sluice_submit(f.plan, &options, &transfer), "submit");
    work_fault(NULL);
    cr_assert_eq(sluice_transfer_wait(transfer, 20 * SLUICE_SECOND), SLUICE_DEVICE);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(f.plan);
    sluice_runtime_close_wait(f.runtime); /* bounded although the context is lost */
    free(f.ends[0][0].base);
}
