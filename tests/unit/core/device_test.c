/* Which device a rank has: two ranks on one device are refused unless they asked for it. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/core/runtime_object.h"

enum { RANKS = 2 };

struct rank {
    uint32_t number;
    uint32_t shared;
    const struct sluice_backend_ops *backend;
    pthread_t thread;
    sluice_status status;
    char text[SLUICE_ERROR_TEXT_MAX];
};

static pthread_barrier_t barrier;
static uint8_t gathered[RANKS][4096];

static int gather(const void *send, void *recv, size_t bytes, void *user)
{
    const struct rank *rank = user;
    cr_assert_leq(bytes, sizeof gathered[0]);
    memcpy(gathered[rank->number], send, bytes);
    pthread_barrier_wait(&barrier);
    for (uint32_t r = 0; r < RANKS; r++)
        memcpy((uint8_t *)recv + r * bytes, gathered[r], bytes);
    pthread_barrier_wait(&barrier);
    return 0;
}

static void one_device(struct sluice_device *device, struct sluice_backend_info *ret)
{
    (void)device;
    snprintf(ret->identity, sizeof ret->identity, "GPU-5");
}

static void own_device(struct sluice_device *device, struct sluice_backend_info *ret)
{
    snprintf(ret->identity, sizeof ret->identity, "GPU-at-%p", (void *)device);
}

static void *open_rank(void *context)
{
    struct rank *rank = context;
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    options.world = options.local_world = RANKS;
    options.rank = options.local_rank = rank->number;
    options.allgather = gather;
    options.allgather_user = rank;
    options.backend = "host";
    options.device_shared = rank->shared;
    const struct sl_runtime_hooks hooks = {.backend = rank->backend};
    rank->status = sl_runtime_open_with(&options, &hooks, &runtime);
    if (rank->status != SLUICE_OK)
        snprintf(rank->text, sizeof rank->text, "%s", sluice_last_error()->text);
    sluice_runtime_close_wait(runtime);
    return NULL;
}

static void open_world(struct rank *ranks, void (*describe)(struct sluice_device *, struct sluice_backend_info *),
                       uint32_t shared)
{
    struct sluice_backend_ops backend = *sl_host_backend();
    backend.describe = describe;
    cr_assert_eq(pthread_barrier_init(&barrier, NULL, RANKS), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.number = r, .shared = shared, .backend = &backend};
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, open_rank, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

Test(device, that_two_ranks_have_is_refused_on_both_with_their_names_and_what_to_do)
{
    struct rank ranks[RANKS];
    open_world(ranks, one_device, 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_expect_eq(ranks[r].status, SLUICE_CONFIG, "%s", ranks[r].text);
        cr_expect_not_null(strstr(ranks[r].text, "ranks 0 and 1 use the same device (GPU-5)"), "%s", ranks[r].text);
        cr_expect_not_null(strstr(ranks[r].text, "CUDA_VISIBLE_DEVICES"), "%s", ranks[r].text);
        cr_expect_not_null(strstr(ranks[r].text, "--ranks-per-gpu"), "%s", ranks[r].text);
    }
}

Test(device, that_two_ranks_share_by_option_is_no_fault)
{
    struct rank ranks[RANKS];
    open_world(ranks, one_device, 1);
    for (uint32_t r = 0; r < RANKS; r++)
        cr_expect_eq(ranks[r].status, SLUICE_OK, "%s", ranks[r].text);
}

Test(device, of_its_own_is_what_every_rank_should_have)
{
    struct rank ranks[RANKS];
    open_world(ranks, own_device, 0);
    for (uint32_t r = 0; r < RANKS; r++)
        cr_expect_eq(ranks[r].status, SLUICE_OK, "%s", ranks[r].text);
}

Test(device, without_a_name_may_be_shared)
{
    struct rank ranks[RANKS];
    open_world(ranks, NULL, 0);
    for (uint32_t r = 0; r < RANKS; r++)
        cr_expect_eq(ranks[r].status, SLUICE_OK, "%s", ranks[r].text);
}
