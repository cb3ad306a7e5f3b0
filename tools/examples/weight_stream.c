/*
 * weight_stream.c: a publisher sends version after version; subscribers join and leave between versions.
 *
 * Who takes part in a version is known to all before it (here from a table, elsewhere from a coordinator). As long as
 * the members stay the same they share one runtime and one sealed plan. When somebody joins or leaves, the members of
 * the next version meet in a new one. A version lands in shadow memory: a subscriber has all of it, or the one before.
 */
#include <string.h>

#include "local.h"

enum { PUBLISHER = 0, SUBSCRIBERS = 3, VERSIONS = 6 };
enum { PARAMS = 4, WORDS = 32 * 1024 };

/* Bit i: subscriber i takes that version. */
static const unsigned members[VERSIONS + 1] = {0, 1, 3, 3, 6, 4, 5};

static uint64_t weights[PARAMS][WORDS];
static uint32_t ports[VERSIONS + 1];

static uint64_t word(uint64_t version, uint64_t param, uint64_t index)
{
    return (version << 32) ^ (param * WORDS + index) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t count_bits(unsigned mask)
{
    uint32_t count = 0;
    for (; mask != 0; mask &= mask - 1)
        count++;
    return count;
}

/* One membership: a runtime and a sealed plan. */
struct stream {
    sluice_runtime *runtime;
    sluice_plan *plan;
};

static void leave(struct stream *stream)
{
    sluice_plan_destroy(stream->plan);
    sluice_runtime_close_wait(stream->runtime);
    *stream = (struct stream){NULL, NULL};
}

static void add_tasks(sluice_plan *plan, uint32_t rank, uint32_t world, uint32_t param)
{
    struct sluice_region whole = {.row_bytes = sizeof weights[0], .rows = 1, .pitch = sizeof weights[0]};
    enum sluice_role role = rank == PUBLISHER ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION;
    if (rank != PUBLISHER)
        CHECK(sluice_plan_add_recv(plan, param * world + rank, param, SLUICE_DTYPE_U64, PUBLISHER, &whole));
    for (uint32_t to = 1; rank == PUBLISHER && to < world; to++)
        CHECK(sluice_plan_add_send(plan, param * world + to, param, SLUICE_DTYPE_U64, to, &whole));
    CHECK(sluice_plan_bind(plan, param, role, weights[param], sizeof weights[param]));
}

static void join(struct stream *stream, uint32_t rank, uint32_t world, uint32_t port)
{
    struct sluice_runtime_options options = local_rank(rank, world, port);
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    CHECK(sluice_runtime_open(&options, &stream->runtime));
    CHECK(sluice_plan_create(world, &stream->plan));
    for (uint32_t p = 0; p < PARAMS; p++)
        add_tasks(stream->plan, rank, world, p);
    seal.window_bytes = sizeof weights / 4;
    seal.shadow_bytes = rank == PUBLISHER ? 0 : sizeof weights + 65536;
    CHECK(sluice_plan_seal_wait(stream->plan, stream->runtime, &seal, 0));
}

/* Takes part in one version; a change of members makes a new stream first. */
static void take(struct stream *stream, uint32_t rank, uint64_t version)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    if (stream->runtime == NULL)
        join(stream, rank, 1 + count_bits(members[version]), ports[version]);
    options.landing = SLUICE_LANDING_SHADOW;
    options.version = version;
    CHECK(sluice_submit(stream->plan, &options, &transfer));
    CHECK(sluice_transfer_wait(transfer, UINT64_MAX));
    sluice_transfer_destroy(transfer);
    if (version == VERSIONS || members[version + 1] != members[version])
        leave(stream);
}

static void publish(void)
{
    struct stream stream = {NULL, NULL};
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        for (uint64_t p = 0; p < PARAMS; p++)
            for (uint64_t i = 0; i < WORDS; i++)
                weights[p][i] = word(version, p, i);
        take(&stream, PUBLISHER, version);
    }
}

static void verify(uint32_t subscriber, uint64_t version)
{
    for (uint64_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < WORDS; i++)
            if (weights[p][i] != word(version, p, i)) {
                fprintf(stderr, "subscriber %u: parameter %u is not version %u\n", subscriber, (unsigned)p,
                        (unsigned)version);
                exit(1);
            }
    printf("subscriber %u has version %u\n", subscriber, (unsigned)version);
    fflush(stdout);
}

static void subscribe(uint32_t subscriber)
{
    struct stream stream = {NULL, NULL};
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        if (!((members[version] >> subscriber) & 1u))
            continue;
        uint32_t rank = 1 + count_bits(members[version] & ((1u << subscriber) - 1));
        take(&stream, rank, version);
        verify(subscriber, version);
    }
}

int main(void)
{
    pid_t children[SUBSCRIBERS];
    uint64_t bytes = 0;
    int good = 1;
    for (int v = 1; v <= VERSIONS; v++)
        ports[v] = free_port();
    for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            subscribe(i);
            return 0;
        }
    }
    publish();
    for (uint32_t i = 0; i < SUBSCRIBERS; i++)
        good = ended_well(children[i]) && good;
    for (int v = 1; v <= VERSIONS; v++)
        bytes += count_bits(members[v]) * sizeof weights;
    if (!good)
        return 1;
    printf("verified %llu bytes in %d versions, each delivered whole to its subscribers\n", (unsigned long long)bytes,
           VERSIONS);
    return 0;
}
