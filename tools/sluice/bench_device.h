/* bench_device.h: one GPU with one queue, driven by the calling thread, for measurements. */
#ifndef SL_TOOL_BENCH_DEVICE_H
#define SL_TOOL_BENCH_DEVICE_H

#include "sluice/backend.h"

struct bench_device {
    const struct sluice_backend_ops *ops;
    struct sluice_device *device;
    struct sluice_queue *queue;
    struct sluice_backend_info description;
};

/* The first GPU; kernels take at most `ctas` multiprocessors (0: all). Close it after a failure too. */
sluice_status bench_device_open(struct bench_device *bench, uint32_t ctas);
/* The same on a backend by name, in silence. */
sluice_status bench_device_open_on(struct bench_device *bench, const char *backend, uint32_t ctas);
void bench_device_close(struct bench_device *bench);

/* Monotonic nanoseconds. */
uint64_t bench_now(void);
/* A contiguous piece. */
struct sluice_copy bench_piece(const void *from, void *to, uint64_t bytes);
/* Runs a set and gives the time between the events around it; `ret_ms` may be NULL. */
sluice_status bench_run_set(struct bench_device *bench, struct sluice_set *set, double *ret_ms);
/* The same for a set of kind DIGEST; `digests` has room for a value a piece. */
sluice_status bench_run_digest(struct bench_device *bench, struct sluice_set *set, uint64_t *digests, double *ret_ms);
sluice_status bench_copy(struct bench_device *bench, const struct sluice_copy *pieces, size_t count);
/* Fills memory of the device with random bytes, a block of 16 MiB over and over. */
sluice_status bench_fill(struct bench_device *bench, uint8_t *memory, uint64_t bytes, uint64_t seed);

#endif
