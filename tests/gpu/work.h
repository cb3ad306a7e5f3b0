/* work.h: what tests enqueue in a program's streams. */
#ifndef TESTS_GPU_WORK_H
#define TESTS_GPU_WORK_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps a stream busy for that long, then the kernel ends. */
void work_delay(cudaStream_t stream, unsigned milliseconds);
/* Fills memory of the host when the stream comes to it; `fill` lives until then. */
struct work_fill {
    void *memory;
    size_t bytes;
    int value;
};
void work_fill(cudaStream_t stream, struct work_fill *fill);
/* A kernel that stores to an address that nobody owns: the context is lost. */
void work_fault(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
