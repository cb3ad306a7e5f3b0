/*
 * loss.c: a rank goes away in the middle of a transfer; the others say which, form a new world, finish the transfer and
 * move another one.
 *
 * Usage: gpu_loss [--gpus N] [--ranks-per-gpu K] [--backend cuda|host]
 *
 * Each rank is a process; the first half of them sends a part of every parameter to each of the others. The rank that is
 * lost ends its process in its own event of the middle window, without a word; once it is the last rank, once rank 0.
 * Going on takes more than half of the ranks, so two ranks only report. Exit status 77: too few GPUs.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/program.h"
#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"
#include "support/ranks.h"
#include "support/team.h"

enum { RANKS_MAX = 16, PARAMS = 32, PART_BYTES = 2 << 20, WINDOW_BYTES = 8 << 20, LIMIT_SECONDS = 90, NO_DEVICE = 77 };

/* Within this a survivor has to know: five heartbeats, a stalled group and an abort. */
#define KNOWN_WITHIN (16 * SLUICE_SECOND)
#define RECOVERY     (30 * SLUICE_SECOND)

struct request {
    uint32_t gpus, share, victim, port;
    const char *backend;
    _Bool cuda;
};

struct rank {
    struct team *team;
    const struct request *request;
    atomic_uint_fast64_t *lost_ns; /* shared: when the victim went */
    uint32_t number, world, sources;
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t *memory;       /* of its role: PARAMS times a part, or times all parts */
    uint8_t *copy;         /* of a destination's, to look at */
    _Bool leaves;          /* in the transfer that runs */
    uint32_t windows_done; /* of the last transfer */
};

/* --- memory and content --- */

static _Bool is_source(const struct rank *rank)
{
    return rank->number < rank->sources;
}

static uint64_t param_bytes(const struct rank *rank)
{
    return (uint64_t)PART_BYTES * (is_source(rank) ? 1 : rank->sources);
}

static void open_memory(struct rank *rank)
{
    uint64_t bytes = PARAMS * param_bytes(rank);
    rank->copy = malloc(bytes);
    if (rank->request->cuda)
        cuda(cudaMalloc((void **)&rank->memory, bytes), "cudaMalloc");
    else
        rank->memory = malloc(bytes);
    if (rank->copy == NULL || rank->memory == NULL)
        _exit(1);
}

static int content(uint32_t version, uint32_t param, uint32_t source)
{
    return (int)((version * 97 + param * 7 + source * 31) % 255);
}

static void fill(const struct rank *rank, uint32_t version)
{
    for (uint32_t p = 0; p < PARAMS && is_source(rank); p++) {
        uint8_t *at = rank->memory + (uint64_t)p * PART_BYTES;
        if (rank->request->cuda)
            cuda(cudaMemset(at, content(version, p, rank->number), PART_BYTES), "cudaMemset");
        else
            memset(at, content(version, p, rank->number), PART_BYTES);
    }
    if (rank->request->cuda)
        cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* Parts of the rank that was lost are left out. */
static void verify(const struct rank *rank, uint32_t version, uint32_t lost)
{
    if (is_source(rank))
        return;
    uint64_t bytes = PARAMS * param_bytes(rank);
    if (rank->request->cuda)
        cuda(cudaMemcpy(rank->copy, rank->memory, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    else
        memcpy(rank->copy, rank->memory, bytes);
    for (uint32_t p = 0; p < PARAMS; p++)
        for (uint32_t s = 0; s < rank->sources; s++) {
            const uint8_t *part = rank->copy + p * param_bytes(rank) + (uint64_t)s * PART_BYTES;
            if (s == lost || (part[0] == content(version, p, s) && memcmp(part, part + 1, PART_BYTES - 1) == 0))
                continue;
            fprintf(stderr, "loss: rank %u: version %u: parameter %u from rank %u is wrong\n", rank->number, version, p,
                    s);
            _exit(1);
        }
}

/* --- runtime and plan --- */

static void open_runtime(struct rank *rank)
{
    const struct request *request = rank->request;
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = options.local_world = rank->world;
    options.rank = options.local_rank = rank->number;
    options.address = "127.0.0.1";
    options.port = request->port;
    options.backend = request->backend;
    options.device = request->cuda ? rank->number / request->share + 1 : 0;
    options.device_shared = request->share > 1;
    options.max_ctas = 8;
    options.stall_timeout_ns = 8 * SLUICE_SECOND;
    must(sluice_runtime_open(&options, &rank->runtime), "open");
}

static void make_plan(struct rank *rank)
{
    struct sluice_task task = {.from = {.row_bytes = PART_BYTES, .rows = 1, .pitch = PART_BYTES},
                               .to = {.row_bytes = PART_BYTES, .rows = 1, .pitch = PART_BYTES},
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8};
    must(sluice_plan_create(rank->world, &rank->plan), "plan");
    for (task.param = 0; task.param < PARAMS; task.param++) {
        struct sluice_param param = {
            .id = task.param, .dtype = SLUICE_DTYPE_U8, .bytes = (uint64_t)PART_BYTES * rank->sources, .name = "w"};
        must(sluice_plan_add_param(rank->plan, &param), "add_param");
        for (task.source = 0; task.source < rank->sources; task.source++)
            for (task.destination = rank->sources; task.destination < rank->world; task.destination++, task.id++) {
                task.to.offset = (uint64_t)task.source * PART_BYTES;
                must(sluice_plan_add_task(rank->plan, &task), "add_task");
            }
        must(sluice_plan_bind(rank->plan, task.param, is_source(rank) ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION,
                              rank->memory + task.param * param_bytes(rank), param_bytes(rank)),
             "bind");
    }
}

static void seal(const struct rank *rank)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = WINDOW_BYTES;
    must(sluice_plan_seal_wait(rank->plan, rank->runtime, &options, 0), "seal");
}

/* --- transfers --- */

static void on_event(const struct sluice_event *event, void *user)
{
    const struct rank *rank = user;
    if (!rank->leaves || event->kind != SLUICE_EVENT_WINDOW || event->window < sluice_plan_windows(event->plan) / 2)
        return;
    atomic_store(rank->lost_ns, sl_now(sl_clock_system()));
    _exit(0);
}

static sluice_status move(struct rank *rank, uint32_t version, _Bool resume, struct sluice_error *ret_error)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    options.version = version;
    options.on_event = on_event;
    options.user = rank;
    options.window_events = 1;
    options.resume = resume;
    options.resume_windows = resume ? rank->windows_done : 0;
    fill(rank, version);
    sluice_status status = sluice_submit(rank->plan, &options, &transfer);
    if (status != SLUICE_OK) {
        *ret_error = *sluice_last_error();
        return status;
    }
    status = sluice_transfer_wait(transfer, 60 * SLUICE_SECOND);
    sluice_transfer_error(transfer, ret_error);
    if (sluice_transfer_progress(transfer, &progress) == SLUICE_OK)
        rank->windows_done = progress.windows_done;
    sluice_transfer_destroy(transfer);
    return status;
}

static void must_move(struct rank *rank, uint32_t version, _Bool resume, uint32_t lost)
{
    struct sluice_error error = {0};
    sluice_status status = move(rank, version, resume, &error);
    if (status != SLUICE_OK) {
        fprintf(stderr, "loss: rank %u: version %u: %s: %s\n", rank->number, version, sluice_status_name(status),
                error.text);
        _exit(1);
    }
    verify(rank, version, lost);
}

/* The transfer in which the victim goes. */
static void lose(struct rank *rank)
{
    uint32_t victim = rank->request->victim;
    struct sluice_error error = {0};
    char name[16];
    rank->leaves = rank->number == victim;
    sluice_status status = move(rank, 2, 0, &error);
    uint64_t lost_ns = atomic_load(rank->lost_ns), took = lost_ns != 0 ? sl_now(sl_clock_system()) - lost_ns : 0;
    snprintf(name, sizeof name, "rank %u", victim);
    _Bool right = status != SLUICE_OK && lost_ns != 0 && took <= KNOWN_WITHIN && strstr(error.text, name) != NULL;
    printf("loss: rank %u %s after %.2f s, %u windows done: %s: %s\n", rank->number, right ? "knew" : "did NOT know",
           (double)took / 1e9, rank->windows_done, sluice_status_name(status), error.text);
    fflush(stdout);
    if (!right)
        _exit(1);
}

static void go_on(struct rank *rank)
{
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    uint64_t begin = sl_now(sl_clock_system());
    must(sluice_runtime_recover(rank->runtime, RECOVERY, &runtime), "recover");
    must(sluice_plan_recover(rank->plan, runtime, &plan), "plan_recover");
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    rank->plan = plan;
    rank->runtime = runtime;
    seal(rank);
    must_move(rank, 2, 1, rank->request->victim);
    must_move(rank, 3, 0, rank->request->victim);
    printf("loss: rank %u went on without rank %u: two transfers verified, %.2f s\n", rank->number,
           rank->request->victim, (double)(sl_now(sl_clock_system()) - begin) / 1e9);
}

static int be_rank(struct team *team, uint32_t number, void *user)
{
    const struct request *request = user;
    struct rank rank = {
        .team = team, .request = request, .number = number, .world = team->world, .sources = team->world / 2};
    rank.lost_ns = (atomic_uint_fast64_t *)(void *)team->data;
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (request->share > 1)
        share_gpu(number);
    if (request->cuda)
        cuda(cudaSetDevice((int)(number / request->share)), "cudaSetDevice");
    open_memory(&rank);
    open_runtime(&rank);
    make_plan(&rank);
    seal(&rank);
    must_move(&rank, 1, 0, UINT32_MAX);
    team_barrier(team);
    lose(&rank);
    if (rank.world > 2)
        go_on(&rank);
    sluice_plan_destroy(rank.plan);
    sluice_runtime_close_wait(rank.runtime);
    return 0;
}

/* --- the command line --- */

static int look(struct team *team, uint32_t number, void *user)
{
    const struct request *request = user;
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    (void)team, (void)number;
    must(sl_backend_find(request->backend, &ops), "backend");
    must(ops->query(&info), "query");
    if (info.usable && (!request->cuda || info.devices >= request->gpus))
        return 0;
    printf("loss: skipped: %u GPUs are asked for: %s\n", request->gpus, info.reason);
    return NO_DEVICE;
}

int main(int argc, char **argv)
{
    struct request request = {.gpus = 2, .share = 2, .backend = "cuda"};
    int wrong = 0;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--backend") == 0 && (strcmp(value, "cuda") == 0 || strcmp(value, "host") == 0))
            request.backend = value;
        else if (!(strcmp(argv[i], "--gpus") == 0 && sl_parse_u32(value, &request.gpus)) &&
                 !(strcmp(argv[i], "--ranks-per-gpu") == 0 && sl_parse_u32(value, &request.share)))
            request.gpus = 0;
    }
    uint64_t world = (uint64_t)request.gpus * request.share;
    if (world < 2 || world > RANKS_MAX) {
        fprintf(stderr,
                "loss: usage: gpu_loss [--gpus N] [--ranks-per-gpu K] [--backend cuda|host], N times K 2 to %d\n",
                RANKS_MAX);
        return 2;
    }
    request.cuda = strcmp(request.backend, "cuda") == 0;
    if (team_run(1, 0, LIMIT_SECONDS, look, &request) != 0)
        return NO_DEVICE;
    const uint32_t victims[] = {(uint32_t)world - 1, 0};
    for (uint32_t i = 0; i < 2; i++) {
        request.victim = victims[i];
        request.port = test_free_port();
        int status = team_run((uint32_t)world, sizeof(atomic_uint_fast64_t), LIMIT_SECONDS, be_rank, &request);
        printf("loss: rank %u of %u lost: %s\n", victims[i], (uint32_t)world,
               status != 0 ? "FAILED"
               : world > 2 ? "the others went on"
                           : "the other one reported it");
        wrong |= status != 0;
    }
    return wrong;
}
