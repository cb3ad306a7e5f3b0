/* many.c: see many.h. Plain asserts, so that it also serves programs without a test framework. */
#include "support/many.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/core/runtime_object.h"

#define OK(call) ok((call), #call)

static void ok(sluice_status status, const char *what)
{
    if (status != SLUICE_OK)
        fprintf(stderr, "%s: %s: %s\n", what, sluice_status_name(status), sluice_last_error()->text);
    SL_ASSERT(status == SLUICE_OK);
}

static void on_event(const struct sluice_event *event, void *user)
{
    struct many_rank *rank = user;
    pthread_mutex_lock(&rank->lock);
    rank->kinds[event->kind]++;
    if (rank->count < SL_COUNT(rank->order))
        rank->order[rank->count] = event->kind;
    rank->count++;
    if (event->kind == SLUICE_EVENT_FAILED)
        snprintf(rank->error, sizeof rank->error, "%s", event->error->text);
    pthread_mutex_unlock(&rank->lock);
}

uint32_t many_count(struct many_rank *rank, uint32_t kind)
{
    pthread_mutex_lock(&rank->lock);
    uint32_t count = rank->kinds[kind];
    pthread_mutex_unlock(&rank->lock);
    return count;
}

static int gather(const void *send, void *recv, size_t bytes, void *user)
{
    struct many_rank *rank = user;
    struct many *many = rank->many;
    pthread_barrier_wait(&many->barrier);
    if (rank->rank == 0)
        many->gathered = malloc(many->world * bytes);
    pthread_barrier_wait(&many->barrier);
    memcpy(many->gathered + rank->rank * bytes, send, bytes);
    pthread_barrier_wait(&many->barrier);
    memcpy(recv, many->gathered, many->world * bytes);
    pthread_barrier_wait(&many->barrier);
    if (rank->rank == 0)
        free(many->gathered);
    return 0;
}

static void *run_rank(void *context)
{
    struct many_rank *rank = context;
    struct sluice_runtime_options options = rank->many->options;
    options.size = sizeof options;
    options.backend = "host";
    options.world = rank->many->world;
    options.rank = options.local_rank = rank->rank;
    options.local_world = rank->many->world;
    options.on_event = on_event;
    options.user = rank;
    options.allgather = gather;
    options.allgather_user = rank;
    const struct sl_runtime_hooks hooks = {.backend = rank->many->backends[rank->rank]};
    OK(sl_runtime_open_with(&options, &hooks, &rank->runtime));
    rank->run(rank);
    sluice_runtime_close_wait(rank->runtime);
    return NULL;
}

void many_run(struct many *many, uint32_t world, void (*run)(struct many_rank *rank))
{
    SL_ASSERT(world <= MANY_RANKS);
    many->world = world;
    memset(many->ranks, 0, sizeof many->ranks);
    SL_ASSERT(pthread_barrier_init(&many->barrier, NULL, world) == 0);
    for (uint32_t r = 0; r < world; r++) {
        struct many_rank *rank = &many->ranks[r];
        rank->many = many;
        rank->rank = r;
        rank->run = run;
        SL_ASSERT(pthread_mutex_init(&rank->lock, NULL) == 0);
        SL_ASSERT(pthread_create(&rank->thread, NULL, run_rank, rank) == 0);
    }
    for (uint32_t r = 0; r < world; r++) {
        SL_ASSERT(pthread_join(many->ranks[r].thread, NULL) == 0);
        pthread_mutex_destroy(&many->ranks[r].lock);
    }
    pthread_barrier_destroy(&many->barrier);
}

void many_meet(struct many_rank *rank)
{
    pthread_barrier_wait(&rank->many->barrier);
}

static void bind(struct many_rank *rank, uint32_t param, enum sluice_role role, uint64_t bytes)
{
    uint8_t *buffer = malloc(bytes);
    SL_ASSERT(buffer != NULL);
    rank->buffers[2 * param + role] = buffer;
    rank->bytes[2 * param + role] = bytes;
    OK(sluice_plan_bind(rank->plan, param, role, buffer, bytes));
}

/* Source s holds part s of a parameter; every destination gets every part. */
static void add_tasks(struct many_rank *rank, uint32_t param, uint32_t sources, uint64_t bytes)
{
    uint32_t destinations = rank->many->world - sources;
    uint64_t part = bytes / sources;
    for (uint32_t s = 0; s < sources; s++)
        for (uint32_t d = 0; d < destinations; d++) {
            struct sluice_task task = {
                .id = ((uint64_t)param * sources + s) * destinations + d,
                .source = s,
                .destination = sources + d,
                .param = param,
                .from = {.row_bytes = part, .rows = 1, .pitch = part},
                .to = {.offset = s * part, .row_bytes = part, .rows = 1, .pitch = part},
                .origin = s * part,
                .source_dtype = SLUICE_DTYPE_U8,
                .destination_dtype = SLUICE_DTYPE_U8,
            };
            OK(sluice_plan_add_task(rank->plan, &task));
        }
}

void many_plan(struct many_rank *rank, uint32_t sources, uint32_t params, uint64_t bytes)
{
    rank->params = params;
    rank->buffers = calloc(2 * params, sizeof *rank->buffers);
    rank->bytes = calloc(2 * params, sizeof *rank->bytes);
    SL_ASSERT(rank->buffers != NULL && rank->bytes != NULL && bytes % sources == 0);
    OK(sluice_plan_create(rank->many->world, &rank->plan));
    for (uint32_t p = 0; p < params; p++) {
        struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "weight"};
        OK(sluice_plan_add_param(rank->plan, &param));
        add_tasks(rank, p, sources, bytes);
        if (rank->rank < sources)
            bind(rank, p, SLUICE_ROLE_SOURCE, bytes / sources);
        else
            bind(rank, p, SLUICE_ROLE_DESTINATION, bytes);
    }
}

static uint8_t content(uint64_t seed, uint32_t param, uint64_t byte)
{
    return (uint8_t)sl_mix64(seed * 1000003 + param * 7919 + byte + 1);
}

void many_fill(struct many_rank *rank, uint64_t seed)
{
    for (uint32_t p = 0; p < rank->params; p++) {
        uint8_t *source = rank->buffers[2 * p];
        uint64_t bytes = rank->bytes[2 * p];
        for (uint64_t i = 0; source != NULL && i < bytes; i++)
            source[i] = content(seed, p, rank->rank * bytes + i);
        if (rank->buffers[2 * p + 1] != NULL)
            memset(rank->buffers[2 * p + 1], 0xee, rank->bytes[2 * p + 1]);
    }
}

_Bool many_holds(const struct many_rank *rank, uint64_t seed)
{
    for (uint32_t p = 0; p < rank->params; p++)
        for (uint64_t i = 0; rank->buffers[2 * p + 1] != NULL && i < rank->bytes[2 * p + 1]; i++)
            if (rank->buffers[2 * p + 1][i] != content(seed, p, i))
                return 0;
    return 1;
}

_Bool many_untouched(const struct many_rank *rank)
{
    for (uint32_t p = 0; p < rank->params; p++)
        for (uint64_t i = 0; rank->buffers[2 * p + 1] != NULL && i < rank->bytes[2 * p + 1]; i++)
            if (rank->buffers[2 * p + 1][i] != 0xee)
                return 0;
    return 1;
}

void many_seal(struct many_rank *rank, const struct sluice_seal_options *options)
{
    OK(sluice_plan_seal_wait(rank->plan, rank->runtime, options, 0));
}

struct sluice_transfer_options many_options(struct many_rank *rank)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.on_event = on_event;
    options.user = rank;
    return options;
}

sluice_transfer *many_submit(sluice_plan *plan, const struct sluice_transfer_options *options)
{
    sluice_transfer *transfer = NULL;
    OK(sluice_submit(plan, options, &transfer));
    return transfer;
}

void many_complete(sluice_transfer *transfer)
{
    OK(sluice_transfer_wait(transfer, UINT64_MAX));
    sluice_transfer_destroy(transfer);
}

void many_drop(struct many_rank *rank)
{
    sluice_plan_destroy(rank->plan);
    for (uint32_t i = 0; i < 2 * rank->params; i++)
        free(rank->buffers[i]);
    free(rank->buffers);
    free(rank->bytes);
    rank->plan = NULL;
}
