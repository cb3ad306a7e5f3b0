/*
 * ranks.c: stale copies over the wire, and a peer that goes away, by ranks that are processes. Two of them on one GPU,
 * each with an NCCL_HOSTID of its own, or with --gpus N one a GPU: rank 0 sends to all others, the last rank leaves.
 * A program of its own: processes are forked before anything of CUDA is touched.
 *
 * Every case of a stale copy has a twin without the gate that must bring the old value. Exit status 77: no device.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/program.h"
#include "gpu/work.h"
#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "sluice/cuda.h"
#include "support/ranks.h"

enum { BYTES = 4 << 20, DELAY_MS = 50, NO_DEVICE = 77, RANKS_MAX = 16 };

/* Ranks, and whether they share a GPU. */
struct place {
    uint32_t world;
    _Bool shared;
};

enum memory { DEVICE, PINNED, PAGEABLE };

struct scene {
    const char *name;
    enum memory memory;                            /* of both ends */
    uint64_t window_bytes;                         /* 0: the default */
    uint64_t direct_min;                           /* 1: straight from and into user memory; 0: packed */
    _Bool gated, stream_waits, peer_leaves, alone; /* alone: neither rank agrees to share the GPU */
    int expected;                                  /* byte at the destination */
};

static const struct scene scenes[] = {
    {.name = "packed behind a gate", .gated = 1, .expected = 7},
    {.name = "packed without its gate", .expected = 1},
    {.name = "single behind a gate", .direct_min = 1, .gated = 1, .expected = 7},
    {.name = "single without its gate", .direct_min = 1, .expected = 1},
    {.name = "packed from pinned memory behind a gate", .memory = PINNED, .gated = 1, .expected = 7},
    {.name = "packed from pinned memory without its gate", .memory = PINNED, .expected = 1},
    {.name = "packed from pageable memory behind a gate", .memory = PAGEABLE, .gated = 1, .expected = 7},
    {.name = "packed from pageable memory without its gate", .memory = PAGEABLE, .expected = 1},
    {.name = "single from pageable memory behind a gate",
     .memory = PAGEABLE,
     .direct_min = 1,
     .gated = 1,
     .expected = 7},
    {.name = "32 windows of pageable memory",
     .memory = PAGEABLE,
     .window_bytes = BYTES / 32,
     .gated = 1,
     .expected = 7},
    {.name = "a stream that waits for the transfer", .gated = 1, .stream_waits = 1, .expected = 7},
    {.name = "a peer that leaves", .peer_leaves = 1},
    {.name = "ranks that do not share a GPU", .alone = 1},
};

static sluice_status open_rank(uint32_t rank, uint32_t port, const struct place *place, const struct scene *scene,
                               sluice_runtime **ret)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    if (place->shared)
        share_gpu(rank);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    options.world = options.local_world = place->world;
    options.rank = options.local_rank = rank;
    options.address = "127.0.0.1";
    options.port = port;
    options.device = place->shared ? 1 : rank + 1;
    options.device_shared = place->shared && !scene->alone;
    options.backend = "cuda";
    options.stall_timeout_ns = 5 * SLUICE_SECOND;
    return sluice_runtime_open(&options, ret);
}

static sluice_plan *seal_plan(sluice_runtime *runtime, uint32_t rank, const struct place *place,
                              const struct scene *scene, void *memory)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_param param = {.id = 0, .dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "w"};
    struct sluice_region whole = {.row_bytes = BYTES, .rows = 1, .pitch = BYTES};
    struct sluice_task task = {
        .from = whole, .to = whole, .source_dtype = SLUICE_DTYPE_U8, .destination_dtype = SLUICE_DTYPE_U8};
    sluice_plan *plan = NULL;
    options.direct_min = scene->direct_min;
    options.window_bytes = scene->window_bytes;
    must(sluice_plan_create(place->world, &plan), "plan");
    must(sluice_plan_add_param(plan, &param), "add_param");
    for (task.destination = 1; task.destination < place->world; task.destination++, task.id++)
        must(sluice_plan_add_task(plan, &task), "add_task");
    must(sluice_plan_bind(plan, 0, rank == 0 ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION, memory, BYTES), "bind");
    must(sluice_plan_seal_wait(plan, runtime, &options, 0), "seal");
    return plan;
}

/* Pageable memory begins at an odd address. */
static uint8_t *take_memory(const struct scene *scene, int value)
{
    uint8_t *memory = NULL;
    if (scene->memory == PAGEABLE)
        memory = (uint8_t *)malloc(BYTES + 1) + 1;
    else if (scene->memory == PINNED)
        cuda(cudaHostAlloc((void **)&memory, BYTES, cudaHostAllocDefault), "pinned memory");
    else
        cuda(cudaMalloc((void **)&memory, BYTES), "malloc");
    if (scene->memory == DEVICE)
        cuda(cudaMemset(memory, value, BYTES), "memset");
    else
        memset(memory, value, BYTES);
    cuda(cudaDeviceSynchronize(), "synchronize");
    return memory;
}

static void produce(const struct scene *scene, cudaStream_t stream, uint8_t *memory)
{
    static struct work_fill fill;
    fill = (struct work_fill){.memory = memory, .bytes = BYTES, .value = 7};
    work_delay(stream, scene->gated ? DELAY_MS : 20 * DELAY_MS);
    if (scene->memory == DEVICE)
        cuda(cudaMemsetAsync(memory, 7, BYTES, stream), "produce");
    else
        work_fill(stream, &fill);
}

/* The byte that the whole destination holds; the first that differs from what is expected. */
static int held(const uint8_t *memory, int expected)
{
    for (size_t i = 0; i < BYTES; i++)
        if (memory[i] != expected)
            return memory[i];
    return expected;
}

/* What the destination holds, read in a stream that is ordered behind the transfer or after its end. */
static int received(sluice_transfer *transfer, const uint8_t *memory, const struct scene *scene)
{
    uint8_t byte = 0;
    cudaStream_t stream;
    sluice_status status = SLUICE_AGAIN;
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (scene->stream_waits) {
        while ((status = sluice_cuda_wait(transfer, stream)) == SLUICE_AGAIN)
            ;
        must(status, "cuda_wait");
    } else {
        must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
    }
    if (scene->memory != DEVICE)
        return held(memory, scene->expected);
    cuda(cudaMemcpyAsync(&byte, memory + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream), "read");
    cuda(cudaStreamSynchronize(stream), "read");
    must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
    return byte;
}

/* The other rank has left: the transfer fails and everything closes within its deadlines. */
static int expect_loss(sluice_runtime *runtime, sluice_plan *plan)
{
    sluice_transfer *transfer = NULL;
    uint64_t begin = sl_now(sl_clock_system());
    sluice_status status = sluice_submit(plan, NULL, &transfer);
    if (status == SLUICE_OK)
        status = sluice_transfer_wait(transfer, 30 * SLUICE_SECOND);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    uint64_t took = sl_now(sl_clock_system()) - begin;
    printf("ranks: the peer was missed and all was closed after %.1f s: %s\n", (double)took / 1e9,
           sluice_status_name(status));
    return status != SLUICE_OK && status != SLUICE_TIMEOUT && took < 25 * SLUICE_SECOND ? 0 : 1;
}

/* Both ranks are told which ones share a device. */
static int expect_refusal(sluice_status status)
{
    const char *text = sluice_last_error()->text;
    _Bool right = status == SLUICE_CONFIG && strstr(text, "ranks 0 and 1 use the same device (GPU-") != NULL;
    printf("ranks: two ranks that do not share a GPU %s: %s\n", right ? "are refused" : "were NOT refused", text);
    return !right;
}

static int run_transfer(sluice_runtime *runtime, sluice_plan *plan, uint32_t rank, const struct scene *scene,
                        uint8_t *memory)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    cudaStream_t stream;
    int wrong = 0;
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (rank == 0) {
        produce(scene, stream, memory);
        if (scene->gated)
            must(sluice_cuda_gate_stream(runtime, stream, &options.source_gate), "gate");
    }
    must(sluice_submit(plan, &options, &transfer), "submit");
    sluice_gate_destroy(options.source_gate);
    if (rank == 0) {
        must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
        cuda(cudaStreamSynchronize(stream), "producer");
    } else {
        int byte = received(transfer, memory, scene);
        wrong = byte != scene->expected;
        printf("ranks: %-40s %s (%d) on rank %u\n", scene->name, wrong ? "WRONG" : "right", byte, rank);
    }
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    return wrong;
}

static int be_rank(uint32_t rank, uint32_t port, const struct place *place, const struct scene *scene)
{
    cuda(cudaSetDevice(place->shared ? 0 : (int)rank), "set device");
    uint8_t *memory = take_memory(scene, rank == 0 ? 1 : 9);
    work_delay(NULL, 0); /* loads the test's kernel: a first launch may wait for others */
    sluice_runtime *runtime = NULL;
    sluice_status status = open_rank(rank, port, place, scene, &runtime);
    if (scene->alone)
        return expect_refusal(status);
    must(status, "open");
    sluice_plan *plan = seal_plan(runtime, rank, place, scene, memory);
    if (!scene->peer_leaves)
        return run_transfer(runtime, plan, rank, scene, memory);
    return rank == place->world - 1 ? 0 : expect_loss(runtime, plan);
}

static int run_scene(const struct place *place, const struct scene *scene)
{
    uint32_t port = test_free_port();
    pid_t children[RANKS_MAX];
    int wrong = 0;
    fflush(stdout);
    for (uint32_t rank = 0; rank < place->world; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            int status = be_rank(rank, port, place, scene);
            fflush(stdout);
            _exit(status);
        }
    }
    for (uint32_t rank = 0; rank < place->world; rank++) {
        int state = 1;
        wrong |= waitpid(children[rank], &state, 0) != children[rank] || !WIFEXITED(state) || WEXITSTATUS(state) != 0;
    }
    if (wrong)
        fprintf(stderr, "ranks: failed: %s\n", scene->name);
    return wrong;
}

/* In a child: the parent must not touch CUDA. */
static int look_for_devices(uint32_t wanted)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    if (sl_backend_find("cuda", &ops) == SLUICE_OK && ops->query(&info) == SLUICE_OK && info.usable &&
        info.devices >= wanted)
        return 0;
    if (ops != NULL && info.usable)
        printf("ranks: skipped: %u GPUs are asked for, there are %u\n", wanted, info.devices);
    else
        printf("ranks: skipped: %s\n", ops == NULL ? sluice_last_error()->text : info.reason);
    fflush(stdout);
    return NO_DEVICE;
}

int main(int argc, char **argv)
{
    struct place place = {.world = 2, .shared = 1};
    int state = 0, wrong = 0;
    if (argc > 1) {
        place.shared = 0;
        if (argc != 3 || strcmp(argv[1], "--gpus") != 0 || !sl_parse_u32(argv[2], &place.world) || place.world < 2 ||
            place.world > RANKS_MAX) {
            fprintf(stderr, "ranks: usage: gpu_ranks [--gpus N], N from 2 to %d\n", RANKS_MAX);
            return 2;
        }
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(look_for_devices(place.shared ? 1 : place.world));
    if (waitpid(child, &state, 0) != child || !WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return NO_DEVICE;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (place.shared || !scenes[i].alone)
            wrong |= run_scene(&place, &scenes[i]);
    return wrong;
}
