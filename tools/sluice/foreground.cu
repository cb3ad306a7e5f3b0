/*
 * foreground.cu: see foreground.h.
 *
 * - A step is some 1 ms of kernels: long enough that events cost nothing, short enough that a refit of 10 ms meets many.
 * - cuBLAS is loaded when it is there; without it products are computed by a kernel of our own, and `about` says so.
 */
#include "tools/sluice/foreground.h"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <new>

namespace
{

constexpr int THREADS = 256;
constexpr size_t BLOCKS_BYTES = (size_t)512 << 20; /* of one side: ten times a large L2 */
constexpr int PASSES = 4;
constexpr int WIDTH = 4096, OWN_WIDTH = 2048, TILE = 32; /* of square matrices */
constexpr int PRODUCTS = 6;

/* Each block reads and writes 4 KiB and is gone. */
__global__ void __launch_bounds__(THREADS) short_blocks(const float4 *__restrict__ from, float4 *__restrict__ to)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    float4 value = from[i];
    value.x += 1, value.y += 1, value.z += 1, value.w += 1;
    to[i] = value;
}

/* Random numbers around zero: the power that products take depends on their bits. */
__global__ void fill(__nv_bfloat16 *to, size_t count, uint32_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)i * 0x9e3779b9u + seed;
        x = (x ^ x >> 16) * 0x85ebca6bu;
        x = (x ^ x >> 13) * 0xc2b2ae35u;
        to[i] = __float2bfloat16((float)(int32_t)(x ^ x >> 16) * 0x1p-31f);
    }
}

/* c = a * b * scale, square, in tiles through shared memory. */
__global__ void __launch_bounds__(TILE *TILE)
    product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *c, int width, float scale)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE + 1];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int at = 0; at < width; at += TILE) {
        left[threadIdx.y][threadIdx.x] = __bfloat162float(a[(size_t)row * width + at + threadIdx.x]);
        right[threadIdx.y][threadIdx.x] = __bfloat162float(b[(size_t)(at + threadIdx.y) * width + column]);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++)
            sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[(size_t)row * width + column] = __float2bfloat16(sum * scale);
}

/* The few of cuBLAS's functions and numbers that are needed; its header may be missing where this is built. */
struct cublas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
};
enum { CUBLAS_N = 0, CUBLAS_BF16 = 14, CUBLAS_COMPUTE_F32 = 68, CUBLAS_DEFAULT = -1 };

bool load_cublas(struct cublas *ret)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = nullptr;
    for (const char *name : names)
        if (library == nullptr)
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        return false;
    ret->create = (int (*)(void **))dlsym(library, "cublasCreate_v2");
    ret->destroy = (int (*)(void *))dlsym(library, "cublasDestroy_v2");
    ret->set_stream = (int (*)(void *, cudaStream_t))dlsym(library, "cublasSetStream_v2");
    ret->gemm = (decltype(ret->gemm))dlsym(library, "cublasGemmEx");
    return ret->create != nullptr && ret->destroy != nullptr && ret->set_stream != nullptr && ret->gemm != nullptr;
}

} // namespace

struct foreground {
    enum foreground_kind kind;
    uint32_t device;
    cudaStream_t stream, copies;
    cudaEvent_t done[2];
    uint64_t steps;
    void *memory[3];
    struct cublas cublas;
    void *handle; /* of cuBLAS; NULL: our own kernel */
    int width;
};

namespace
{

int say(cudaError_t result, const char **ret_text)
{
    if (result != cudaSuccess)
        *ret_text = cudaGetErrorString(result);
    return result;
}

void close(struct foreground *f)
{
    if (f == nullptr)
        return;
    (void)cudaSetDevice((int)f->device);
    if (f->stream != nullptr)
        (void)cudaStreamSynchronize(f->stream);
    if (f->handle != nullptr)
        (void)f->cublas.destroy(f->handle);
    for (cudaEvent_t event : f->done)
        if (event != nullptr)
            (void)cudaEventDestroy(event);
    for (void *memory : f->memory)
        (void)cudaFree(memory);
    for (cudaStream_t stream : {f->stream, f->copies})
        if (stream != nullptr)
            (void)cudaStreamDestroy(stream);
    delete f;
}

cudaError_t open_products(struct foreground *f)
{
    if (load_cublas(&f->cublas) && f->cublas.create(&f->handle) != 0)
        f->handle = nullptr;
    if (f->handle != nullptr && f->cublas.set_stream(f->handle, f->stream) != 0)
        return cudaErrorUnknown;
    f->width = f->handle != nullptr ? WIDTH : OWN_WIDTH;
    size_t count = (size_t)f->width * f->width;
    for (int i = 0; i < 3; i++) {
        cudaError_t result = cudaMalloc(&f->memory[i], count * sizeof(__nv_bfloat16));
        if (result != cudaSuccess)
            return result;
        fill<<<1024, 256, 0, f->stream>>>((__nv_bfloat16 *)f->memory[i], count, 7u * (uint32_t)i);
    }
    return cudaPeekAtLastError();
}

cudaError_t open_parts(struct foreground *f)
{
    cudaError_t result = cudaSetDevice((int)f->device);
    if (result == cudaSuccess)
        result = cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking);
    if (result == cudaSuccess)
        result = cudaStreamCreateWithFlags(&f->copies, cudaStreamNonBlocking);
    for (cudaEvent_t &event : f->done)
        if (result == cudaSuccess)
            result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (result == cudaSuccess && f->kind == FOREGROUND_PRODUCTS)
        return open_products(f);
    for (int i = 0; i < 2 && result == cudaSuccess; i++) {
        result = cudaMalloc(&f->memory[i], BLOCKS_BYTES);
        if (result == cudaSuccess)
            result = cudaMemsetAsync(f->memory[i], 0, BLOCKS_BYTES, f->stream);
    }
    return result;
}

int open(uint32_t device, enum foreground_kind kind, struct foreground **ret, const char **ret_text)
{
    struct foreground *f = new (std::nothrow) foreground();
    if (f == nullptr)
        return say(cudaErrorMemoryAllocation, ret_text);
    f->device = device;
    f->kind = kind;
    cudaError_t result = open_parts(f);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(f->stream);
    if (result != cudaSuccess)
        close(f);
    else
        *ret = f;
    return say(result, ret_text);
}

const char *about(const struct foreground *f)
{
    if (f->kind == FOREGROUND_BLOCKS)
        return "4 kernels of 131,072 blocks that read and write 4 KiB each";
    return f->handle != nullptr ? "6 products of bf16 matrices of 4,096 x 4,096 by cuBLAS"
                                : "a product of matrices of 2,048 x 2,048 by a simple kernel (no cuBLAS was found)";
}

cudaError_t enqueue_blocks(struct foreground *f)
{
    const unsigned blocks = BLOCKS_BYTES / sizeof(float4) / THREADS;
    for (int pass = 0; pass < PASSES; pass++)
        short_blocks<<<blocks, THREADS, 0, f->stream>>>((const float4 *)f->memory[pass % 2],
                                                        (float4 *)f->memory[1 - pass % 2]);
    return cudaPeekAtLastError();
}

/* The product of one step is a factor of the next; the scale keeps its size. */
cudaError_t enqueue_products(struct foreground *f)
{
    const float alpha = 1.0f / 37, beta = 0;
    if (f->handle == nullptr) {
        const int from = (int)(f->steps % 2);
        const dim3 grid(f->width / TILE, f->width / TILE), block(TILE, TILE);
        product<<<grid, block, 0, f->stream>>>((const __nv_bfloat16 *)f->memory[from],
                                               (const __nv_bfloat16 *)f->memory[2],
                                               (__nv_bfloat16 *)f->memory[1 - from], f->width, 1.0f / 26);
        return cudaPeekAtLastError();
    }
    for (int i = 0; i < PRODUCTS; i++)
        if (f->cublas.gemm(f->handle, CUBLAS_N, CUBLAS_N, f->width, f->width, f->width, &alpha, f->memory[2],
                           CUBLAS_BF16, f->width, f->memory[i % 2], CUBLAS_BF16, f->width, &beta, f->memory[1 - i % 2],
                           CUBLAS_BF16, f->width, CUBLAS_COMPUTE_F32, CUBLAS_DEFAULT) != 0)
            return cudaErrorLaunchFailure;
    return cudaSuccess;
}

int step(struct foreground *f, const char **ret_text)
{
    cudaError_t result = cudaSetDevice((int)f->device);
    if (result == cudaSuccess)
        result = f->kind == FOREGROUND_BLOCKS ? enqueue_blocks(f) : enqueue_products(f);
    if (result == cudaSuccess)
        result = cudaEventRecord(f->done[f->steps % 2], f->stream);
    if (result == cudaSuccess && f->steps > 0)
        result = cudaEventSynchronize(f->done[(f->steps - 1) % 2]);
    f->steps++;
    return say(result, ret_text);
}

/* One batch of one copy: the attribute is what the plain call has no place for. */
cudaError_t copy_overlapping(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
#if CUDART_VERSION >= 13000
    struct cudaMemcpyAttributes attributes = {};
    size_t first = 0;
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    return cudaMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream);
#else
    (void)to, (void)from, (void)bytes, (void)stream;
    return cudaErrorNotSupported;
#endif
}

int copy(struct foreground *f, enum foreground_copy way, void *to, const void *from, size_t bytes,
         const char **ret_text)
{
    cudaError_t result = cudaSetDevice((int)f->device);
    if (result == cudaSuccess && way == FOREGROUND_COPY_ENGINE)
        result = copy_overlapping(to, from, bytes, f->copies);
    else if (result == cudaSuccess)
        result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, f->copies);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(f->copies);
    return say(result, ret_text);
}

const struct foreground_ops table = {sizeof(struct foreground_ops), open, close, about, step, copy};

} // namespace

extern "C" __attribute__((visibility("default"))) const struct foreground_ops *sluice_foreground(void)
{
    return &table;
}
