/*
 * bench_device.c: see bench_device.h.
 *
 * Invariants: one queue, one operation at a time; whoever waits has a deadline of a minute.
 */
#include "bench_device.h"

#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tool.h"

uint64_t bench_now(void)
{
    return sl_now(sl_clock_system());
}

sluice_status bench_device_open_on(struct bench_device *bench, const char *backend, uint32_t ctas)
{
    struct sluice_backend_info info = {.size = sizeof info};
    struct sluice_backend_config config = sl_backend_config_alone();
    config.max_ctas = ctas;
    config.trace = 1;
    config.abort_timeout_ns = 5 * SLUICE_SECOND;
    sluice_status status = sl_backend_find(backend, &bench->ops);
    if (status == SLUICE_OK)
        status = bench->ops->query(&info);
    if (status == SLUICE_OK && !info.usable)
        status = sl_fail(SLUICE_UNSUPPORTED, "bench", "no device: %s", info.reason);
    if (status == SLUICE_OK)
        status = bench->ops->open(&config, &bench->device);
    if (status == SLUICE_OK)
        status = bench->ops->queue_open(bench->device, &bench->queue);
    bench->description = info;
    return status;
}

sluice_status bench_device_open(struct bench_device *bench, uint32_t ctas)
{
    sluice_status status = bench_device_open_on(bench, "cuda", ctas);
    if (status == SLUICE_OK)
        tool_say("%s, NCCL %u", bench->description.reason, bench->description.version);
    return status;
}

void bench_device_close(struct bench_device *bench)
{
    if (bench->queue != NULL)
        bench->ops->queue_close(bench->queue);
    if (bench->device != NULL)
        bench->ops->close(bench->device);
}

static sluice_status run(struct bench_device *bench, const struct sluice_op *op, double *ret_ms)
{
    struct sluice_completion done = {0};
    uint32_t got = 0;
    sluice_status status = bench->ops->submit(bench->queue, op);
    uint64_t deadline = bench_now() + 60 * SLUICE_SECOND;
    while (status == SLUICE_OK && got == 0 && bench_now() < deadline)
        status = bench->ops->poll(bench->device, &done, 1, &got);
    if (status != SLUICE_OK)
        return status;
    if (got == 0)
        return sl_fail(SLUICE_TIMEOUT, "bench", "an operation did not end within 60 s");
    if (done.status != SLUICE_OK)
        return sl_fail_copy(&done.error);
    if (ret_ms != NULL)
        *ret_ms = (double)(done.end_ns - done.begin_ns) / 1e6;
    return SLUICE_OK;
}

sluice_status bench_run_set(struct bench_device *bench, struct sluice_set *set, double *ret_ms)
{
    const struct sluice_op op = {.kind = SLUICE_OP_COPY, .set = set, .notify = 1};
    return run(bench, &op, ret_ms);
}

sluice_status bench_run_digest(struct bench_device *bench, struct sluice_set *set, uint64_t *digests, double *ret_ms)
{
    const struct sluice_op op = {.kind = SLUICE_OP_DIGEST, .set = set, .digests = digests, .notify = 1};
    return run(bench, &op, ret_ms);
}

sluice_status bench_copy(struct bench_device *bench, const struct sluice_copy *pieces, size_t count)
{
    struct sluice_set *set = NULL;
    sluice_status status = bench->ops->set_open(bench->device, SLUICE_COPY_LOCAL, pieces, count, &set);
    if (status == SLUICE_OK)
        status = bench_run_set(bench, set, NULL);
    bench->ops->set_close(set);
    return status;
}

struct sluice_copy bench_piece(const void *from, void *to, uint64_t bytes)
{
    return (struct sluice_copy){.from = {.address = (uint64_t)(uintptr_t)from, .row_bytes = UINT64_MAX},
                                .to = {.address = (uint64_t)(uintptr_t)to, .row_bytes = UINT64_MAX},
                                .bytes = bytes,
                                .message = SLUICE_MESSAGE_NONE};
}

sluice_status bench_fill(struct bench_device *bench, uint8_t *memory, uint64_t bytes, uint64_t seed)
{
    enum { BLOCK = 16 << 20 };
    struct sl_random random = {.state = seed};
    void *block = NULL;
    sluice_status status = bench->ops->mem_alloc(bench->device, SLUICE_MEMORY_PINNED, BLOCK, &block);
    if (status != SLUICE_OK)
        return status;
    for (uint64_t i = 0; i < BLOCK / 8; i++)
        ((uint64_t *)block)[i] = sl_random_next(&random);
    for (uint64_t at = 0; at < bytes && status == SLUICE_OK; at += BLOCK) {
        struct sluice_copy piece = bench_piece(block, memory + at, bytes - at < BLOCK ? bytes - at : BLOCK);
        status = bench_copy(bench, &piece, 1);
    }
    bench->ops->mem_free(bench->device, SLUICE_MEMORY_PINNED, block, BLOCK);
    return status;
}
