/*
 * wire.c: what plain NCCL moves between the same pairs of GPUs: the measure for plans. One process a GPU.
 *
 * Usage: gpu_wire [--gpus N] [--bytes SIZE] [--both] [--plan PLAN] [--ctas LIST] [--rounds N]
 *   --bytes SIZE  one message from rank i to rank i + N/2 (default 1Gi); with --both one back as well
 *   --plan PLAN   in place of that, one message a pair of ranks, as large as all tasks of the pair together
 *   --ctas LIST   channels of the communicator, 0: NCCL's choice (default 8,16,32,0)
 *
 * Prints a JSON object a line: seconds (median of the rounds, from when the last rank began until the last one had
 * everything) and the bytes of the busiest GPU's larger direction. A rank's messages are one group; buffers are
 * contiguous. Exit status 77: fewer GPUs than ranks.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/program.h"
#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/plan_io.h"
#include "support/team.h"

enum { GPUS_MAX = 16, ROUNDS_MAX = 64, CTAS_MAX = 8, WARM_ROUNDS = 2, LIMIT_SECONDS = 240, NO_DEVICE = 77 };

struct traffic {
    uint64_t bytes[GPUS_MAX][GPUS_MAX]; /* from, to */
    uint32_t ctas[CTAS_MAX], ctas_count, rounds, world;
    const char *name;
};

/* In the shared data. */
struct times {
    uint64_t begin_ns[GPUS_MAX], end_ns[GPUS_MAX];
};

struct member {
    struct team *team;
    const struct traffic *traffic;
    uint32_t rank;
    uint8_t *out, *in;
    ncclComm_t comm;
    cudaStream_t stream;
};

static void nccl(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "wire: %s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(NULL));
    _exit(1);
}

/* --- one rank --- */

static uint64_t sent(const struct traffic *traffic, uint32_t rank)
{
    uint64_t sum = 0;
    for (uint32_t to = 0; to < traffic->world; to++)
        sum += traffic->bytes[rank][to];
    return sum;
}

static uint64_t received(const struct traffic *traffic, uint32_t rank)
{
    uint64_t sum = 0;
    for (uint32_t from = 0; from < traffic->world; from++)
        sum += traffic->bytes[from][rank];
    return sum;
}

static void open_comm(struct member *m, uint32_t ctas)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    _Static_assert(sizeof id <= TEAM_BYTES, "an id must fit");
    if (ctas != 0)
        config.minCTAs = config.maxCTAs = (int)ctas;
    team_barrier(m->team); /* nobody reads the last id any more */
    if (m->rank == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        memcpy(m->team->shared, &id, sizeof id);
    }
    team_barrier(m->team);
    memcpy(&id, m->team->shared, sizeof id);
    nccl(ncclCommInitRankConfig(&m->comm, (int)m->traffic->world, id, (int)m->rank, &config), "ncclCommInitRank");
}

static void move(const struct member *m)
{
    const struct traffic *traffic = m->traffic;
    uint64_t out = 0, in = 0;
    nccl(ncclGroupStart(), "ncclGroupStart");
    for (uint32_t peer = 0; peer < traffic->world; peer++) {
        uint64_t send = traffic->bytes[m->rank][peer], receive = traffic->bytes[peer][m->rank];
        if (send > 0)
            nccl(ncclSend(m->out + out, send, ncclInt8, (int)peer, m->comm, m->stream), "ncclSend");
        if (receive > 0)
            nccl(ncclRecv(m->in + in, receive, ncclInt8, (int)peer, m->comm, m->stream), "ncclRecv");
        out += send;
        in += receive;
    }
    nccl(ncclGroupEnd(), "ncclGroupEnd");
    cuda(cudaStreamSynchronize(m->stream), "running a group");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double seconds_of(const struct times *times, uint32_t world)
{
    uint64_t begin = 0, end = 0;
    for (uint32_t r = 0; r < world; r++) {
        begin = times->begin_ns[r] > begin ? times->begin_ns[r] : begin;
        end = times->end_ns[r] > end ? times->end_ns[r] : end;
    }
    return (double)(end - begin) / 1e9;
}

static void report(const struct traffic *traffic, uint32_t ctas, double *seconds)
{
    uint64_t busiest = 0, total = 0;
    for (uint32_t r = 0; r < traffic->world; r++) {
        uint64_t most = sent(traffic, r) > received(traffic, r) ? sent(traffic, r) : received(traffic, r);
        busiest = most > busiest ? most : busiest;
        total += sent(traffic, r);
    }
    qsort(seconds, traffic->rounds, sizeof *seconds, by_value);
    double median = seconds[traffic->rounds / 2];
    printf(
        "{\"wire\": \"%s\", \"world\": %u, \"ctas\": %u, \"bytes\": %llu, \"busiest_bytes\": %llu, \"seconds\": %.6f, "
        "\"least\": %.6f, \"most\": %.6f, \"gigabytes_per_second_of_a_gpu\": %.1f}\n",
        traffic->name, traffic->world, ctas, (unsigned long long)total, (unsigned long long)busiest, median, seconds[0],
        seconds[traffic->rounds - 1], (double)busiest / median / 1e9);
    fflush(stdout);
}

static void measure(struct member *m, uint32_t ctas)
{
    struct times *times = (struct times *)(void *)m->team->data;
    double seconds[ROUNDS_MAX];
    open_comm(m, ctas);
    for (uint32_t i = 0; i < WARM_ROUNDS + m->traffic->rounds; i++) {
        team_barrier(m->team);
        times->begin_ns[m->rank] = sl_now(sl_clock_system());
        move(m);
        times->end_ns[m->rank] = sl_now(sl_clock_system());
        team_barrier(m->team);
        if (i >= WARM_ROUNDS)
            seconds[i - WARM_ROUNDS] = seconds_of(times, m->traffic->world);
    }
    if (m->rank == 0)
        report(m->traffic, ctas, seconds);
    team_barrier(m->team); /* a rank that has left would be missed by those who still receive */
    nccl(ncclCommDestroy(m->comm), "ncclCommDestroy");
}

static int be_rank(struct team *team, uint32_t rank, void *user)
{
    const struct traffic *traffic = user;
    struct member m = {.team = team, .traffic = traffic, .rank = rank};
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || (uint32_t)count < traffic->world) {
        if (rank == 0)
            printf("wire: skipped: %u ranks need as many GPUs, there are %d\n", traffic->world, count);
        return NO_DEVICE;
    }
    cuda(cudaSetDevice((int)rank), "cudaSetDevice");
    cuda(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda(cudaMalloc((void **)&m.out, sent(traffic, rank) + 1), "cudaMalloc");
    cuda(cudaMalloc((void **)&m.in, received(traffic, rank) + 1), "cudaMalloc");
    cuda(cudaMemset(m.out, (int)rank, sent(traffic, rank) + 1), "cudaMemset");
    cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (uint32_t i = 0; i < traffic->ctas_count; i++)
        measure(&m, traffic->ctas[i]);
    return 0;
}

/* --- the command line --- */

static _Noreturn void usage(const char *what)
{
    fprintf(stderr,
            "wire: bad %s; usage: gpu_wire [--gpus N] [--bytes SIZE] [--both] [--plan PLAN] [--ctas LIST] "
            "[--rounds N]\n",
            what);
    exit(2);
}

static void read_ctas(const char *text, struct traffic *traffic)
{
    char copy[128], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    traffic->ctas_count = 0;
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        if (traffic->ctas_count == CTAS_MAX || !sl_parse_u32(word, &traffic->ctas[traffic->ctas_count++]))
            usage("--ctas");
    if (traffic->ctas_count == 0)
        usage("--ctas");
}

static void read_plan(const char *path, struct traffic *traffic)
{
    struct sl_plan plan;
    struct sl_map map;
    if (sl_plan_open(path, &plan, &map) != SLUICE_OK) {
        fprintf(stderr, "wire: %s\n", sluice_last_error()->text);
        exit(2);
    }
    if (plan.world > GPUS_MAX)
        usage("--plan: more than 16 ranks");
    traffic->world = plan.world;
    for (size_t i = 0; i < plan.task_count; i++)
        if (plan.tasks[i].source != plan.tasks[i].destination)
            traffic->bytes[plan.tasks[i].source][plan.tasks[i].destination] += sl_task_bytes(&plan.tasks[i]);
    sl_plan_drop(&plan);
    sl_map_close(&map);
}

int main(int argc, char **argv)
{
    struct traffic traffic = {.ctas = {8, 16, 32, 0}, .ctas_count = 4, .rounds = 9, .world = 2, .name = "one way"};
    const char *plan = NULL;
    uint64_t bytes = UINT64_C(1) << 30;
    _Bool both = 0;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(option, "--both") == 0) {
            both = 1;
            continue;
        }
        i++;
        if (strcmp(option, "--plan") == 0)
            plan = value;
        else if (strcmp(option, "--ctas") == 0)
            read_ctas(value, &traffic);
        else if (!(strcmp(option, "--gpus") == 0 && sl_parse_u32(value, &traffic.world)) &&
                 !(strcmp(option, "--rounds") == 0 && sl_parse_u32(value, &traffic.rounds)) &&
                 !(strcmp(option, "--bytes") == 0 && sl_parse_size(value, &bytes)))
            usage(option);
    }
    if (traffic.world < 2 || traffic.world > GPUS_MAX || traffic.rounds == 0 || traffic.rounds > ROUNDS_MAX)
        usage("--gpus (2 to 16) or --rounds (1 to 64)");
    for (uint32_t r = 0; plan == NULL && r < traffic.world / 2; r++) {
        traffic.bytes[r][r + traffic.world / 2] = bytes;
        traffic.bytes[r + traffic.world / 2][r] = both ? bytes : 0;
    }
    if (both)
        traffic.name = "both ways";
    if (plan != NULL) {
        traffic.name = plan;
        read_plan(plan, &traffic);
    }
    return team_run(traffic.world, sizeof(struct times), LIMIT_SECONDS, be_rank, &traffic);
}
