/*
 * local.h: one rank on one device through the public interface, for the Criterion tests of this folder.
 *
 * Source memory holds 1 and destination memory 9; a producer is 50 ms of work, then a fill of the source with 7.
 */
#ifndef TESTS_GPU_LOCAL_H
#define TESTS_GPU_LOCAL_H

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>

#include "gpu/work.h"
#include "runtime/backend/registry.h"
#include "sluice/cuda.h"

enum { BYTES = 1 << 20, DELAY_MS = 50 };

struct fixture {
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t *source, *destination; /* device memory */
    uint64_t bytes;
    cudaStream_t stream;
    sluice_transfer *transfer;
};

static inline void must(sluice_status status, const char *what)
{
    cr_assert_eq(status, SLUICE_OK, "%s: %s: %s", what, sluice_status_name(status), sluice_last_error()->text);
}

static inline void cuda(cudaError_t result, const char *what)
{
    cr_assert_eq(result, cudaSuccess, "%s: %s", what, cudaGetErrorString(result));
}

static inline void need_device(void)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    if (sl_backend_find("cuda", &ops) != SLUICE_OK)
        cr_skip_test("no cuda backend: %s", sluice_last_error()->text);
    must(ops->query(&info), "query");
    if (!info.usable)
        cr_skip_test("no device: %s", info.reason);
}

static inline void open_runtime(struct fixture *f)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = 1;
    options.backend = "cuda";
    must(sluice_runtime_open(&options, &f->runtime), "open");
}

static inline void add_task(struct fixture *f, uint32_t param, uint64_t bytes, uint8_t *source, uint8_t *destination)
{
    struct sluice_param p = {.id = param, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "w"};
    struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = param,
                               .param = param,
                               .from = whole,
                               .to = whole,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8};
    must(sluice_plan_add_param(f->plan, &p), "add_param");
    must(sluice_plan_add_task(f->plan, &task), "add_task");
    must(sluice_plan_bind(f->plan, param, SLUICE_ROLE_SOURCE, source, bytes), "bind");
    must(sluice_plan_bind(f->plan, param, SLUICE_ROLE_DESTINATION, destination, bytes), "bind");
}

/* Source holds 1, destination 9. */
static inline void open_fixture(struct fixture *f, uint64_t bytes)
{
    need_device();
    *f = (struct fixture){.bytes = bytes};
    open_runtime(f);
    cuda(cudaMalloc((void **)&f->source, bytes), "malloc");
    cuda(cudaMalloc((void **)&f->destination, bytes), "malloc");
    cuda(cudaMemset(f->source, 1, bytes), "memset");
    cuda(cudaMemset(f->destination, 9, bytes), "memset");
    cuda(cudaDeviceSynchronize(), "synchronize");
    cuda(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking), "stream");
    must(sluice_plan_create(1, &f->plan), "plan");
    add_task(f, 0, bytes, f->source, f->destination);
    must(sluice_plan_seal_wait(f->plan, f->runtime, NULL, 0), "seal");
}

static inline void close_fixture(struct fixture *f)
{
    sluice_transfer_destroy(f->transfer);
    sluice_plan_destroy(f->plan);
    sluice_runtime_close_wait(f->runtime);
    cuda(cudaStreamDestroy(f->stream), "stream");
    cuda(cudaFree(f->source), "free");
    cuda(cudaFree(f->destination), "free");
}

static inline void produce(const struct fixture *f, cudaStream_t stream)
{
    work_delay(stream, DELAY_MS);
    cuda(cudaMemsetAsync(f->source, 7, f->bytes, stream), "produce");
}

static inline void submit(struct fixture *f, sluice_gate *gate)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.source_gate = gate;
    must(sluice_submit(f->plan, &options, &f->transfer), "submit");
    sluice_gate_destroy(gate);
}

static inline void wait_end(struct fixture *f)
{
    must(sluice_transfer_wait(f->transfer, 20 * SLUICE_SECOND), "wait");
}

static inline int byte_of(const uint8_t *memory, uint64_t at)
{
    uint8_t byte = 0;
    cudaStream_t fresh;
    cuda(cudaStreamCreateWithFlags(&fresh, cudaStreamNonBlocking), "stream");
    cuda(cudaMemcpyAsync(&byte, memory + at, 1, cudaMemcpyDeviceToHost, fresh), "read");
    cuda(cudaStreamSynchronize(fresh), "read");
    cuda(cudaStreamDestroy(fresh), "stream");
    return byte;
}

#endif
