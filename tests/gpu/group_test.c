/*
 * One device through the backend table: who may have its communicator, what an abort that comes back too late leaves
 * behind, whose memory the device takes, and that no other GPU gets a context.
 */
#include <criterion/criterion.h>
#include <cuda.h>
#include <sched.h>
#include <string.h>

#include "runtime/backend/cuda/device.h"
#include "runtime/backend/registry.h"
#include "runtime/base/clock.h"

static const struct sluice_backend_ops *ops;

static void must(sluice_status status, const char *what)
{
    cr_assert_eq(status, SLUICE_OK, "%s: %s: %s", what, sluice_status_name(status), sluice_last_error()->text);
}

static struct sluice_device *open_device(void)
{
    const struct sluice_backend_config config = sl_backend_config_alone();
    struct sluice_backend_info info = {.size = sizeof info};
    struct sluice_device *device = NULL;
    if (sl_backend_find("cuda", &ops) != SLUICE_OK)
        cr_skip_test("no cuda backend: %s", sluice_last_error()->text);
    must(ops->query(&info), "query");
    if (!info.usable)
        cr_skip_test("no device: %s", info.reason);
    must(ops->open(&config, &device), "open");
    return device;
}

static sluice_status open_group(struct sluice_device *device, struct sluice_group **ret)
{
    const uint8_t peers[1] = {0};
    struct sluice_blob blob = {0};
    must(ops->group_address(device, &blob), "group_address");
    const struct sluice_group_config config = {.size = sizeof config, .world = 1, .blobs = &blob, .peers = peers};
    return ops->group_open(device, &config, 1, ret);
}

static void wait_open(struct sluice_device *device)
{
    struct sluice_completion completion;
    uint32_t count = 0;
    uint64_t deadline = sl_now(sl_clock_system()) + 60 * SLUICE_SECOND;
    while (count == 0 && sl_now(sl_clock_system()) < deadline)
        must(ops->poll(device, &completion, 1, &count), "poll");
    cr_assert_eq(count, 1);
    must(completion.status, "opening a communicator");
}

Test(group, a_second_communicator_of_the_process_waits_until_the_device_is_free)
{
    struct sluice_device *first = open_device(), *second = open_device();
    struct sluice_group *group = NULL, *other = NULL;
    must(open_group(first, &group), "group_open");
    wait_open(first);
    cr_expect_eq(open_group(second, &other), SLUICE_STATE);
    cr_expect_not_null(strstr(sluice_last_error()->text, "device 0 has a communicator of another runtime"), "%s",
                       sluice_last_error()->text);
    ops->group_close(group);
    must(open_group(second, &other), "group_open");
    wait_open(second);
    ops->group_close(other);
    ops->close(second);
    ops->close(first);
}

static void CUDART_CB hold(void *context)
{
    while (!atomic_load((atomic_bool *)context))
        (void)sched_yield();
}

/* Of a communicator of the caller's an abort only waits for what is on the device, here for longer than its deadline. */
Test(group, an_operation_is_not_reported_while_the_device_has_it_though_the_abort_is_late)
{
    static atomic_bool released;
    struct sluice_device *device = open_device();
    struct sluice_queue *queue = NULL;
    struct sluice_group *group = NULL;
    struct sluice_completion completion;
    uint32_t count = 0;
    must(ops->queue_open(device, &queue), "queue_open");
    must(open_group(device, &group), "group_open");
    wait_open(device);
    cr_assert_eq(cudaLaunchHostFunc(queue->stream, hold, &released), cudaSuccess);
    const struct sluice_op fence = {.kind = SLUICE_OP_FENCE, .cookie = 2, .notify = 1};
    must(ops->submit(queue, &fence), "submit");
    group->lent = 1;
    must(ops->abort(group), "abort");
    uint64_t deadline = sl_now(sl_clock_system()) + 60 * SLUICE_SECOND;
    while (group->state != SL_CUDA_GROUP_DEAD && sl_now(sl_clock_system()) < deadline)
        must(ops->poll(device, &completion, 1, &count), "poll");
    must(ops->poll(device, &completion, 1, &count), "poll");
    cr_expect_eq(count, 0);
    cr_expect(group->kept_aside);
    atomic_store(&released, 1);
    while (count == 0 && sl_now(sl_clock_system()) < deadline)
        must(ops->poll(device, &completion, 1, &count), "poll");
    cr_expect_eq(count, 1);
    cr_expect_eq(completion.cookie, 2);
    cr_expect_eq(completion.status, SLUICE_POISONED);
    group->lent = 0;
    ops->queue_close(queue);
    ops->group_close(group);
    ops->close(device);
}

Test(group, memory_of_another_gpu_is_refused_by_name)
{
    struct sluice_device *device = open_device();
    struct sluice_set *set = NULL;
    void *memory[2] = {NULL, NULL};
    int gpus = 0;
    cr_assert_eq(cudaGetDeviceCount(&gpus), cudaSuccess);
    if (gpus < 2)
        cr_skip_test("two GPUs are needed, there are %d", gpus);
    for (int gpu = 0; gpu < 2; gpu++) {
        cr_assert_eq(cudaSetDevice(gpu), cudaSuccess);
        cr_assert_eq(cudaMalloc(&memory[gpu], 4096), cudaSuccess);
    }
    const struct sluice_copy piece = {.from = {.address = (uint64_t)(uintptr_t)memory[1], .row_bytes = UINT64_MAX},
                                      .to = {.address = (uint64_t)(uintptr_t)memory[0], .row_bytes = UINT64_MAX},
                                      .bytes = 4096,
                                      .param = 3};
    cr_expect_eq(ops->set_open(device, SLUICE_COPY_LOCAL, &piece, 1, &set), SLUICE_INVALID);
    cr_expect_not_null(
        strstr(sluice_last_error()->text, "the source of parameter 3 is memory of GPU 1, the runtime is on GPU 0"));
    cr_expect_eq(ops->is_direct(device, (uint64_t)(uintptr_t)memory[1]), 0);
    ops->close(device);
    cr_assert_eq(cudaFree(memory[0]), cudaSuccess);
    cr_assert_eq(cudaFree(memory[1]), cudaSuccess);
}

Test(group, no_context_appears_on_another_gpu)
{
    CUresult (*state)(CUdevice, unsigned *, int *) = NULL;
    enum cudaDriverEntryPointQueryResult found;
    unsigned flags = 0;
    int gpus = 0, active = 1;
    struct sluice_device *device = open_device();
    cr_assert_eq(cudaGetDeviceCount(&gpus), cudaSuccess);
    if (gpus < 2)
        cr_skip_test("two GPUs are needed, there are %d", gpus);
    struct sluice_queue *queue = NULL;
    struct sluice_group *group = NULL;
    must(ops->queue_open(device, &queue), "queue_open");
    must(open_group(device, &group), "group_open");
    wait_open(device);
    cr_assert_eq(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", (void **)&state, 12000,
                                                  cudaEnableDefault, &found),
                 cudaSuccess);
    cr_assert_eq(state(1, &flags, &active), CUDA_SUCCESS);
    cr_expect_eq(active, 0);
    ops->queue_close(queue);
    ops->group_close(group);
    ops->close(device);
}
