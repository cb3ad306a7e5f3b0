/* Delays and faults for the tests; see work.h. */
#include "gpu/work.h"

#include <string.h>

static __global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

static __global__ void store(volatile int *address)
{
    *address = 1;
}

extern "C" void work_delay(cudaStream_t stream, unsigned milliseconds)
{
    spin<<<1, 1, 0, stream>>>(milliseconds * 1000000ull);
}

static void CUDART_CB fill_now(void *context)
{
    const struct work_fill *fill = (const struct work_fill *)context;
    memset(fill->memory, fill->value, fill->bytes);
}

extern "C" void work_fill(cudaStream_t stream, struct work_fill *fill)
{
    (void)cudaLaunchHostFunc(stream, fill_now, fill);
}

extern "C" void work_fault(cudaStream_t stream)
{
    store<<<1, 1, 0, stream>>>((int *)16);
}
