/*
 * plans.c: the kernel plans that the model of NCCL's planner predicts against those that NCCL makes. One process a rank.
 *
 * Usage: gpu_plans [--gpus N] [--ranks-per-gpu K] [--lists N] [--seed S]
 *
 * Ranks i, i + N, i + 2N ... share GPU i; with several of them a GPU every N ranks are a node of their own, so that
 * ranks of one node talk over NVLink and those of others over sockets. Each rank runs groups of sends and receives from
 * seeded lists; lists that the model says would hang are left out. What the model needs to know (channels, chunk, work
 * FIFO, nodes) comes from NCCL's own log and from the profiler. Compared per rank and list: the number of plans, and in
 * each the sends and the receives in order, with their channels. Exit status 1: a list differs; 77: too few GPUs.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "scheduler/nccl_internal.h"
#include "support/nccl_recorder.h"
#include "support/team.h"

enum {
    RANKS_MAX = 16,
    MESSAGES_MAX = 2000,
    BYTES_MAX = 16 << 20,
    LIST_BYTES_MAX = 512 << 20,
    LIMIT_SECONDS = 80,
    NO_DEVICE = 77
};

struct request {
    uint32_t gpus, share, lists;
    uint64_t seed;
};

/* In the shared data. */
struct tally {
    atomic_uint agree, differ;    /* lists of a rank */
    struct sl_nccl_config config; /* by rank 0: NCCL says some of it only there */
};

struct list {
    struct sl_nccl_op ops[RANKS_MAX][2 * MESSAGES_MAX];
    size_t counts[RANKS_MAX];
    size_t messages;
};

struct member {
    struct team *team;
    const struct request *request;
    struct tally *tally;
    uint32_t rank;
    char path[32]; /* of NCCL's log, until NCCL and this program have it open */
    FILE *log;
    struct sl_nccl_config config;
    ncclComm_t comm;
    cudaStream_t stream;
    uint8_t *out, *in;
    struct list list;
};

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "plans: %s: %s\n", what, why);
    _exit(1);
}

static void cuda(cudaError_t result, const char *what)
{
    if (result != cudaSuccess)
        fail(what, cudaGetErrorString(result));
}

static void nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess)
        fail(what, ncclGetLastError(NULL));
}

/* --- lists --- */

static uint64_t bytes_of(struct sl_random *random, uint32_t kind)
{
    static const uint64_t most[] = {4096, 256 << 10, BYTES_MAX};
    return 1 + sl_random_below(random, most[kind < 3 ? kind : sl_random_below(random, 3)]);
}

/* Every rank makes the same list. Pairs are chosen unevenly: an even choice hides what a cut does to the order. */
static void make_list(struct list *list, uint32_t world, uint64_t seed)
{
    struct sl_random random = {.state = seed};
    uint64_t total = 0;
    uint32_t kind = (uint32_t)sl_random_below(&random, 4), favoured = (uint32_t)sl_random_below(&random, world);
    memset(list->counts, 0, sizeof list->counts);
    list->messages = 20 + sl_random_below(&random, kind == 2 ? 200 : MESSAGES_MAX - 20);
    for (size_t i = 0; i < list->messages; i++) {
        uint32_t from = (uint32_t)sl_random_below(&random, world), to = (uint32_t)sl_random_below(&random, world);
        if (sl_random_below(&random, 3) == 0)
            from = favoured;
        if (from == to && sl_random_below(&random, 4) != 0)
            to = (to + 1) % world;
        uint64_t bytes = bytes_of(&random, kind);
        bytes = total + bytes > LIST_BYTES_MAX ? 1 + bytes % 4096 : bytes;
        total += bytes;
        list->ops[from][list->counts[from]++] = (struct sl_nccl_op){bytes, to, (uint32_t)i, 0};
        list->ops[to][list->counts[to]++] = (struct sl_nccl_op){bytes, from, (uint32_t)i, 1};
    }
}

/* The model's plans of all ranks; 0 when it says that they hang. */
static _Bool predict(const struct member *m, struct sl_nccl_plans *plans)
{
    const struct sl_nccl_op *ops[RANKS_MAX];
    struct sl_nccl_result result;
    for (uint32_t r = 0; r < m->team->world; r++) {
        ops[r] = m->list.ops[r];
        if (sl_nccl_plan(&m->config, r, ops[r], m->list.counts[r], sl_mem_default(), &plans[r]) != SLUICE_OK)
            fail("the model", sluice_last_error()->text);
    }
    if (sl_nccl_execute(&m->config, plans, ops, m->team->world, sl_mem_default(), &result) != SLUICE_OK)
        fail("the model", sluice_last_error()->text);
    _Bool ends = result.verdict == SL_NCCL_OK;
    sl_nccl_result_drop(&result);
    return ends;
}

/* --- comparison --- */

/* The operation that the model expects next in `plan` and direction, from `*at` in the order of its works. */
static uint32_t next_predicted(const struct sl_nccl_plans *plans, _Bool receive, uint32_t plan, size_t *at)
{
    for (; *at < plans->work_count; ++*at) {
        const struct sl_nccl_work *work = &plans->works[*at];
        uint32_t op = receive ? work->recv : work->send;
        if (work->part != 0 || op == SL_NCCL_NONE || plans->plan_of_op[op] != plan)
            continue;
        ++*at;
        return op;
    }
    return SL_NCCL_NONE;
}

static _Bool is_local(const struct member *m, uint32_t peer)
{
    uint32_t size = m->config.ranks_per_node;
    return peer != m->rank && peer / size == m->rank / size;
}

/* One plan in one direction; the first difference is printed. */
static _Bool same_plan(const struct member *m, const struct sl_nccl_plans *plans, uint32_t plan, _Bool receive)
{
    size_t count = 0, at = 0;
    uint32_t made = 0, number = 0;
    const char *word = receive ? "receive" : "send";
    const struct recorded_op *ops = recorder_ops(&count, &made);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].plan != plan || ops[i].receive != receive)
            continue;
        uint32_t op = next_predicted(plans, receive, plan, &at);
        if (op == SL_NCCL_NONE) {
            printf("  rank %u, plan %u: NCCL has more %ss than the model's %u\n", m->rank, plan, word, number);
            return 0;
        }
        const struct sl_nccl_op *want = &m->list.ops[m->rank][op];
        uint32_t channels = sl_nccl_op_channels(&m->config, want->bytes, is_local(m, want->peer));
        if (ops[i].peer != want->peer || ops[i].bytes != want->bytes || ops[i].channels != channels) {
            printf(
                "  rank %u, plan %u, %s %u: NCCL has rank %u, %llu bytes, %u channels; the model rank %u, %llu bytes, "
                "%u channels\n",
                m->rank, plan, word, number, ops[i].peer, (unsigned long long)ops[i].bytes, ops[i].channels, want->peer,
                (unsigned long long)want->bytes, channels);
            return 0;
        }
        number++;
    }
    if (next_predicted(plans, receive, plan, &at) == SL_NCCL_NONE)
        return 1;
    printf("  rank %u, plan %u: NCCL has %u %ss, the model more\n", m->rank, plan, number, word);
    return 0;
}

static _Bool same_plans(const struct member *m, const struct sl_nccl_plans *plans)
{
    size_t count = 0;
    uint32_t made = 0;
    (void)recorder_ops(&count, &made);
    if (made != plans->plan_count)
        printf("  rank %u: NCCL made %u plans of %zu operations, the model %u of %zu\n", m->rank, made, count,
               plans->plan_count, m->list.counts[m->rank]);
    _Bool same = made == plans->plan_count;
    for (uint32_t plan = 0; plan < made && plan < plans->plan_count; plan++)
        if (!same_plan(m, plans, plan, 0) || !same_plan(m, plans, plan, 1))
            return 0;
    return same;
}

/* --- running --- */

static void run_list(const struct member *m)
{
    const struct sl_nccl_op *ops = m->list.ops[m->rank];
    recorder_begin();
    nccl(ncclGroupStart(), "ncclGroupStart");
    for (size_t i = 0; i < m->list.counts[m->rank]; i++)
        nccl(ops[i].receive ? ncclRecv(m->in, ops[i].bytes, ncclInt8, (int)ops[i].peer, m->comm, m->stream)
                            : ncclSend(m->out, ops[i].bytes, ncclInt8, (int)ops[i].peer, m->comm, m->stream),
             "an operation");
    nccl(ncclGroupEnd(), "ncclGroupEnd");
    cuda(cudaStreamSynchronize(m->stream), "running a group");
}

static void try_list(struct member *m, uint64_t seed)
{
    struct sl_nccl_plans plans[RANKS_MAX];
    uint32_t world = m->team->world;
    make_list(&m->list, world, seed);
    _Bool ends = predict(m, plans);
    if (m->rank == 0) {
        printf("list %llu: %zu messages, %s", (unsigned long long)seed, m->list.messages,
               ends ? "plans" : "left out, it would hang\n");
        fflush(stdout);
    }
    if (ends) {
        team_barrier(m->team);
        run_list(m);
        team_barrier(m->team);
        for (uint32_t r = 0; r < world && m->rank == 0; r++)
            printf(" %u", plans[r].plan_count);
        if (m->rank == 0)
            printf("\n");
        fflush(stdout);
        team_barrier(m->team);
        _Bool same = same_plans(m, &plans[m->rank]);
        atomic_fetch_add(same ? &m->tally->agree : &m->tally->differ, 1);
        fflush(stdout);
        team_barrier(m->team);
    }
    for (uint32_t r = 0; r < world; r++)
        sl_nccl_plans_drop(&plans[r]);
}

/* --- the communicator and what is known of it --- */

/* The number in front of `text` or behind it, the last time that the log has it. */
static uint64_t logged(const char *log, const char *text, _Bool behind)
{
    const char *found = NULL;
    for (const char *at = strstr(log, text); at != NULL; at = strstr(at + 1, text))
        found = at;
    if (found == NULL)
        fail("NCCL's log has no line with", text);
    if (behind)
        return strtoull(found + strlen(text), NULL, 10);
    while (found > log && (found[-1] == ' ' || (found[-1] >= '0' && found[-1] <= '9')))
        found--;
    return strtoull(found, NULL, 10);
}

static void learn(struct member *m)
{
    static char text[1 << 20];
    int version = 0;
    rewind(m->log);
    text[fread(text, 1, sizeof text - 1, m->log)] = '\0';
    if (recorder_nodes() == 0)
        fail("the profiler", "NCCL did not call it: version 2.28 or later is needed");
    nccl(ncclGetVersion(&version), "ncclGetVersion");
    struct sl_nccl_config config = {.version = (uint32_t)version,
                                    .channels = (uint32_t)logged(text, " p2p channels,", 0),
                                    .channels_per_peer = (uint32_t)logged(text, " p2p channels per peer", 0),
                                    .nodes = recorder_nodes(),
                                    .ranks_per_node = m->team->world / recorder_nodes(),
                                    .chunk_bytes = logged(text, "P2P Chunksize set to ", 1),
                                    .args_bytes = 4096,
                                    .fifo_bytes = (uint32_t)logged(text, "workFifoBytes ", 1),
                                    .low_latency = m->team->world > recorder_nodes(),
                                    .known = 1};
    printf("NCCL %u: %u channels, %u per peer, chunk %llu, FIFO %u, %u nodes of %u\n", config.version, config.channels,
           config.channels_per_peer, (unsigned long long)config.chunk_bytes, config.fifo_bytes, config.nodes,
           config.ranks_per_node);
    m->tally->config = config;
}

static void open_comm(struct member *m, int ctas)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    if (ctas != 0) {
        config.minCTAs = config.maxCTAs = ctas;
        config.nChannelsPerNetPeer = 4;
    }
    team_barrier(m->team);
    if (m->rank == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        memcpy(m->team->shared, &id, sizeof id);
    }
    team_barrier(m->team);
    memcpy(&id, m->team->shared, sizeof id);
    nccl(ncclCommInitRankConfig(&m->comm, (int)m->team->world, id, (int)m->rank, &config), "ncclCommInitRank");
}

static void set_environment(struct member *m)
{
    char host[32];
    snprintf(m->path, sizeof m->path, "/tmp/gpu-plans-XXXXXX");
    int fd = mkstemp(m->path);
    m->log = fd < 0 ? NULL : fdopen(fd, "r");
    if (m->log == NULL)
        fail("no log for NCCL", m->path);
    snprintf(host, sizeof host, "node-%u", m->rank / m->request->gpus);
    setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT", 1);
    setenv("NCCL_DEBUG_FILE", m->path, 1);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (m->request->share == 1)
        return;
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1); /* from 2.30 on in place of host names */
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
}

static int be_rank(struct team *team, uint32_t rank, void *user)
{
    const struct request *request = user;
    struct member *m = calloc(1, sizeof *m);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || (uint32_t)count < request->gpus || m == NULL) {
        if (rank == 0)
            printf("plans: skipped: %u GPUs are asked for, there are %d\n", request->gpus, count);
        return NO_DEVICE;
    }
    *m = (struct member){.team = team, .request = request, .rank = rank};
    m->tally = (struct tally *)(void *)team->data;
    set_environment(m);
    cuda(cudaSetDevice((int)(rank % request->gpus)), "cudaSetDevice");
    cuda(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda(cudaMalloc((void **)&m->out, BYTES_MAX), "cudaMalloc");
    cuda(cudaMalloc((void **)&m->in, BYTES_MAX), "cudaMalloc");
    const int ctas[] = {0, request->share == 1 ? 16 : 8};
    for (uint32_t i = 0; i < 2; i++) {
        open_comm(m, ctas[i]);
        (void)unlink(m->path);
        if (rank == 0)
            learn(m);
        team_barrier(team);
        m->config = m->tally->config;
        for (uint32_t list = 0; list < request->lists; list++)
            try_list(m, request->seed + i * request->lists + list);
        team_barrier(team); /* a rank that has left would be missed by those who still receive */
        nccl(ncclCommDestroy(m->comm), "ncclCommDestroy");
    }
    team_barrier(team);
    uint32_t agree = atomic_load(&m->tally->agree), differ = atomic_load(&m->tally->differ);
    if (rank == 0)
        printf("plans: %u of %u lists of a rank have the plans that the model predicts\n", agree, agree + differ);
    free(m);
    return differ == 0 && agree > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct request request = {.gpus = 2, .share = 1, .lists = 12, .seed = 1};
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!(strcmp(option, "--gpus") == 0 && sl_parse_u32(value, &request.gpus)) &&
            !(strcmp(option, "--ranks-per-gpu") == 0 && sl_parse_u32(value, &request.share)) &&
            !(strcmp(option, "--lists") == 0 && sl_parse_u32(value, &request.lists)) &&
            !(strcmp(option, "--seed") == 0 && sl_parse_u64(value, &request.seed))) {
            fprintf(stderr, "plans: bad %s; usage: gpu_plans [--gpus N] [--ranks-per-gpu K] [--lists N] [--seed S]\n",
                    option);
            return 2;
        }
    }
    uint64_t world = (uint64_t)request.gpus * request.share;
    if (world < 2 || world > RANKS_MAX || request.gpus == 0) {
        fprintf(stderr, "plans: --gpus times --ranks-per-gpu must be 2 to %d\n", RANKS_MAX);
        return 2;
    }
    return team_run((uint32_t)world, sizeof(struct tally), LIMIT_SECONDS, be_rank, &request);
}
