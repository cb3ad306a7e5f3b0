/* The host backend's device: limits, threads, failing allocations. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/memory.h"
#include "support/rig.h"
#include "support/threads.h"

static uint64_t no_time(void *clock)
{
    (void)clock;
    return 0;
}

static void no_wake(void *context)
{
    (void)context;
}

static struct sluice_backend_config plain_config(void)
{
    return (struct sluice_backend_config){
        .size = sizeof(struct sluice_backend_config), .world = 1, .now = no_time, .wake = no_wake};
}

Test(host_device, staging_limit_is_kept_and_given_back)
{
    const struct sluice_backend_ops *ops = sl_host_backend();
    struct sluice_backend_config config = plain_config();
    config.staging_bytes_max = 1 << 20;
    struct sluice_device *device = NULL;
    cr_assert_eq(ops->open(&config, &device), SLUICE_OK);
    void *send = NULL, *recv = NULL, *plain = NULL;
    cr_assert_eq(ops->mem_alloc(device, SLUICE_MEMORY_SEND, 1 << 19, &send), SLUICE_OK);
    cr_assert_eq(ops->mem_alloc(device, SLUICE_MEMORY_RECV, (1 << 19) + 1, &recv), SLUICE_LIMIT);
    cr_assert_null(recv);
    cr_assert_eq(ops->mem_alloc(device, SLUICE_MEMORY_RECV, 1 << 19, &recv), SLUICE_OK);
    cr_assert_eq(ops->mem_alloc(device, SLUICE_MEMORY_DEVICE, 1 << 22, &plain), SLUICE_OK);
    ops->mem_free(device, SLUICE_MEMORY_SEND, send, 1 << 19);
    cr_assert_eq(ops->mem_alloc(device, SLUICE_MEMORY_SEND, 1 << 19, &send), SLUICE_OK);
    ops->mem_free(device, SLUICE_MEMORY_SEND, send, 1 << 19);
    ops->mem_free(device, SLUICE_MEMORY_RECV, recv, 1 << 19);
    ops->mem_free(device, SLUICE_MEMORY_DEVICE, plain, 1 << 22);
    ops->close(device);
}

Test(host_device, config_of_another_size_is_refused)
{
    struct sluice_backend_config config = plain_config();
    config.size -= 8;
    struct sluice_device *device = NULL;
    cr_assert_eq(sl_host_backend()->open(&config, &device), SLUICE_INVALID);
    cr_assert_null(device);
}

Test(host_device, queues_beyond_the_limit_are_refused)
{
    const struct sluice_backend_ops *ops = sl_host_backend();
    struct sluice_backend_config config = plain_config();
    struct sluice_backend_info info;
    cr_assert_eq(ops->query(&info), SLUICE_OK);
    struct sluice_device *device = NULL;
    cr_assert_eq(ops->open(&config, &device), SLUICE_OK);
    struct sluice_queue **queues = calloc(info.queues_max + 1, sizeof(struct sluice_queue *));
    for (uint32_t i = 0; i < info.queues_max; i++)
        cr_assert_eq(ops->queue_open(device, &queues[i]), SLUICE_OK);
    cr_assert_eq(ops->queue_open(device, &queues[info.queues_max]), SLUICE_LIMIT);
    for (uint32_t i = 0; i < info.queues_max; i++)
        ops->queue_close(queues[i]);
    ops->close(device);
    free(queues);
}

Test(host_device, worker_threads_have_names_and_block_signals)
{
    struct rig rig;
    rig_open(&rig, "host", 1, 2, 0);
    rig_fence(&rig.rank[0], 0, 1);
    rig_fence(&rig.rank[0], 1, 2);
    rig_wait(&rig.rank[0], 1);
    rig_wait(&rig.rank[0], 2);
    struct test_thread threads[64];
    uint32_t workers = 0, count = test_threads(threads, 64);
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(threads[i].name, "sluice-q", 8) != 0)
            continue;
        workers++;
        cr_assert(test_thread_blocks(&threads[i], SIGTERM), "%s takes SIGTERM", threads[i].name);
        cr_assert(test_thread_blocks(&threads[i], SIGINT), "%s takes SIGINT", threads[i].name);
    }
    cr_assert_eq(workers, 2);
    rig_close(&rig);
}

/* --- the N-th allocation fails, for every N, until one pass needs no more --- */

static struct {
    uint64_t left; /* allocations that succeed */
    int64_t live;
} budget;

static void *count_alloc(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (budget.left == 0)
        return NULL;
    budget.left--;
    void *block = NULL;
    if (posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes ? bytes : 1) != 0)
        return NULL;
    budget.live++;
    return block;
}

static void count_free(void *context, void *block)
{
    (void)context;
    budget.live--;
    free(block);
}

static sluice_status open_everything(void)
{
    const struct sluice_backend_ops *ops = sl_host_backend();
    struct sluice_backend_config config = plain_config();
    struct sluice_device *device = NULL;
    struct sluice_queue *queue = NULL;
    struct sluice_set *set = NULL;
    struct sluice_group *group = NULL;
    struct sluice_blob blobs[2];
    const uint8_t peers[2] = {0, 3};
    static uint8_t bytes[64];
    void *memory = NULL;
    sluice_status status = ops->open(&config, &device);
    if (status != SLUICE_OK)
        return status;
    struct sluice_copy piece = rig_piece(bytes, bytes + 32, 8, SLUICE_MESSAGE_NONE);
    status = ops->queue_open(device, &queue);
    if (status == SLUICE_OK)
        status = ops->set_open(device, SLUICE_COPY_LOCAL, &piece, 1, &set);
    if (status == SLUICE_OK)
        status = ops->mem_alloc(device, SLUICE_MEMORY_RECV, 4096, &memory);
    if (status == SLUICE_OK)
        status = ops->group_address(device, &blobs[0]);
    if (status == SLUICE_OK)
        status = ops->group_address(device, &blobs[1]);
    const struct sluice_group_config world = {
        .size = sizeof(world), .rank = 0, .world = 2, .blobs = blobs, .peers = peers};
    if (status == SLUICE_OK)
        status = ops->group_open(device, &world, 1, &group);
    ops->group_close(group);
    ops->mem_free(device, SLUICE_MEMORY_RECV, memory, 4096);
    ops->set_close(set);
    ops->queue_close(queue);
    ops->close(device);
    return status;
}

Test(host_device, every_allocation_may_fail_and_nothing_is_lost)
{
    static const struct sl_mem_ops ops = {.name = "counting", .alloc = count_alloc, .free = count_free};
    sl_mem_install(&ops, NULL);
    sluice_status status = SLUICE_NOMEM;
    uint64_t allowed = 0;
    for (; allowed < 100 && status != SLUICE_OK; allowed++) {
        budget.left = allowed;
        budget.live = 0;
        status = open_everything();
        cr_assert(status == SLUICE_OK || status == SLUICE_NOMEM, "%s", sluice_status_name(status));
        cr_assert_eq(budget.live, 0, "%ld blocks are lost when allocation %lu fails", (long)budget.live,
                     (unsigned long)allowed);
    }
    cr_assert_eq(status, SLUICE_OK);
    cr_assert_gt(allowed, 10);
    sl_mem_install(NULL, NULL);
}
