/*
 * What the runtime itself costs on one rank: CPU time of the scheduler thread per window (on a backend that moves
 * nothing), and on the host backend the time from an opened gate to the first launch and from a completion on the
 * device to the callback.
 *
 * Usage: bench_runtime [WINDOWS] [TRANSFERS].
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/runtime_object.h"
#include "sluice/transfer.h"

#define IDS_PER_WINDOW 256u /* of policy windows */
#define BYTES          64u

static void check(sluice_status status)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "bench_runtime: %s\n", sluice_last_error()->text);
    exit(1);
}

static uint64_t now(void)
{
    return sl_now(sl_clock_system());
}

/* --- a backend on which everything is done at once --- */

enum { PENDING = 1024 };
struct sluice_device {
    struct sluice_backend_config config;
    uint64_t cookies[PENDING];
    uint32_t head, count;
};
static struct sluice_device null_device;

static sluice_status null_query(struct sluice_backend_info *ret)
{
    *ret = (struct sluice_backend_info){
        .size = sizeof *ret, .usable = 1, .devices = 1, .queues_max = 16, .markers_max = 16};
    return SLUICE_OK;
}
static sluice_status null_open(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    null_device = (struct sluice_device){.config = *config};
    *ret = &null_device;
    return SLUICE_OK;
}
static void null_close(struct sluice_device *device)
{
    (void)device;
}
static sluice_status null_alloc(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    (void)device, (void)kind;
    *ret = calloc(1, bytes);
    return *ret != NULL ? SLUICE_OK : SLUICE_NOMEM;
}
static void null_free(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    (void)device, (void)kind, (void)bytes;
    free(memory);
}
static sluice_status null_queue(struct sluice_device *device, struct sluice_queue **ret)
{
    *ret = (struct sluice_queue *)(void *)device;
    return SLUICE_OK;
}
static void null_queue_close(struct sluice_queue *queue)
{
    (void)queue;
}
static sluice_status null_set(struct sluice_device *device, enum sluice_copy_kind kind,
                              const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    (void)kind, (void)pieces, (void)count;
    *ret = (struct sluice_set *)(void *)device;
    return SLUICE_OK;
}
static void null_set_close(struct sluice_set *set)
{
    (void)set;
}
static sluice_status null_address(struct sluice_device *device, struct sluice_blob *ret)
{
    (void)device, (void)ret;
    return SLUICE_UNSUPPORTED;
}
static sluice_status null_group(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret)
{
    (void)device, (void)config, (void)cookie, (void)ret;
    return SLUICE_UNSUPPORTED;
}
static void null_group_close(struct sluice_group *group)
{
    (void)group;
}
static sluice_status null_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    struct sluice_device *device = (struct sluice_device *)(void *)queue;
    if (device->count == PENDING)
        return SLUICE_AGAIN;
    device->cookies[(device->head + device->count++) % PENDING] = op->cookie;
    return SLUICE_OK;
}
static sluice_status null_poll(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                               uint32_t *ret_count)
{
    uint32_t count = 0;
    for (; count < max && device->count > 0; count++, device->count--) {
        ret[count] = (struct sluice_completion){.cookie = device->cookies[device->head]};
        device->head = (device->head + 1) % PENDING;
    }
    *ret_count = count;
    return SLUICE_OK;
}
static sluice_status null_arm(struct sluice_device *device)
{
    return device->count > 0 ? SLUICE_BUSY : SLUICE_OK;
}
static sluice_status null_abort(struct sluice_group *group)
{
    (void)group;
    return SLUICE_OK;
}

static const struct sluice_backend_ops null_backend = {
    .size = sizeof null_backend,
    .abi = SLUICE_BACKEND_ABI,
    .name = "null",
    .query = null_query,
    .open = null_open,
    .close = null_close,
    .mem_alloc = null_alloc,
    .mem_free = null_free,
    .queue_open = null_queue,
    .queue_close = null_queue_close,
    .set_open = null_set,
    .set_close = null_set_close,
    .group_address = null_address,
    .group_open = null_group,
    .group_close = null_group_close,
    .submit = null_submit,
    .poll = null_poll,
    .arm = null_arm,
    .abort = null_abort,
};

/* --- the measurements --- */

static uint8_t source[BYTES], destination[BYTES];
static uint64_t called_ns;

static void on_event(const struct sluice_event *event, void *user)
{
    (void)user;
    if (event->kind == SLUICE_EVENT_COMPLETED)
        called_ns = now();
}

static sluice_runtime *open_runtime(const struct sluice_backend_ops *backend, uint32_t trace)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    struct sl_runtime_hooks hooks = {.backend = backend};
    sluice_runtime *runtime = NULL;
    options.world = 1;
    options.backend = "host";
    options.trace = trace;
    check(sl_runtime_open_with(&options, &hooks, &runtime));
    return runtime;
}

/* One byte range a window, from a tied source into one destination: every window has a local copy. */
static sluice_plan *seal(sluice_runtime *runtime, uint32_t windows)
{
    sluice_plan *plan = NULL;
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_param param = {.id = 0, .dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "weight"};
    check(sluice_plan_create(1, &plan));
    check(sluice_plan_add_param(plan, &param));
    for (uint32_t w = 0; w < windows; w++) {
        uint64_t offset = windows == 1 ? 0 : w % BYTES, bytes = windows == 1 ? BYTES : w < BYTES ? 1 : 0;
        struct sluice_region region = {.offset = offset, .row_bytes = bytes, .rows = 1, .pitch = bytes};
        struct sluice_task task = {.id = (uint64_t)w * IDS_PER_WINDOW,
                                   .from = region,
                                   .to = region,
                                   .source_dtype = SLUICE_DTYPE_U8,
                                   .destination_dtype = SLUICE_DTYPE_U8};
        check(sluice_plan_add_task(plan, &task));
    }
    check(sluice_plan_bind(plan, 0, SLUICE_ROLE_SOURCE, source, BYTES));
    check(sluice_plan_bind(plan, 0, SLUICE_ROLE_DESTINATION, destination, BYTES));
    options.policy = SLUICE_POLICY_WINDOWS;
    check(sluice_plan_seal_wait(plan, runtime, &options, 0));
    return plan;
}

static uint64_t thread_cpu(pthread_t thread)
{
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * SLUICE_SECOND + (uint64_t)used.tv_nsec;
}

static void run_once(sluice_plan *plan, const struct sluice_transfer_options *options)
{
    sluice_transfer *transfer = NULL;
    check(sluice_submit(plan, options, &transfer));
    check(sluice_transfer_wait(transfer, UINT64_MAX));
    sluice_transfer_destroy(transfer);
}

static void measure_cpu(uint64_t repeats)
{
    sluice_runtime *runtime = open_runtime(&null_backend, 0);
    sluice_plan *plan = seal(runtime, BYTES);
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    run_once(plan, &options);
    uint64_t before = thread_cpu(runtime->thread);
    for (uint64_t i = 0; i < repeats; i++)
        run_once(plan, &options);
    uint64_t used = thread_cpu(runtime->thread) - before;
    printf("scheduler thread: %.2f us of CPU per window (%" PRIu64 " transfers of %u windows, their start and end "
           "included)\n",
           (double)used / 1e3 / (double)(repeats * BYTES), repeats, BYTES);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *what, uint64_t *times, uint64_t count)
{
    qsort(times, count, sizeof *times, by_value);
    uint64_t median = times[count / 2], late = times[count * 99 / 100];
    printf("%s: median %.1f us, p99 %.1f us\n", what, (double)median / 1e3, (double)late / 1e3);
}

/* The newest record of a node. */
static const struct sl_trace_record *last_record(const sluice_runtime *runtime, enum sl_trace_node node)
{
    size_t count = 0;
    const struct sl_trace_record *records = sl_runtime_trace(runtime, &count);
    while (count > 0 && records[count - 1].node != node)
        count--;
    if (count == 0)
        exit(1);
    return &records[count - 1];
}

static void wait_for_gate(sluice_transfer *transfer)
{
    struct sluice_progress progress = {.size = sizeof progress};
    struct timespec pause = {.tv_nsec = 200000};
    char words[64];
    if (sluice_transfer_explain(transfer, words, sizeof words) == 0) /* comes back once the run waits */
        exit(1);
    nanosleep(&pause, NULL);
    check(sluice_transfer_progress(transfer, &progress));
}

static void measure_latency(uint64_t count)
{
    sluice_runtime *runtime = open_runtime(NULL, 1);
    sluice_plan *plan = seal(runtime, 1);
    uint64_t *launch = calloc(count, sizeof *launch), *callback = calloc(count, sizeof *callback);
    if (launch == NULL || callback == NULL)
        exit(1);
    for (uint64_t i = 0; i < count; i++) {
        struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
        sluice_transfer *transfer = NULL;
        options.on_event = on_event;
        check(sluice_gate_host(runtime, &options.source_gate));
        check(sluice_submit(plan, &options, &transfer));
        wait_for_gate(transfer);
        uint64_t opened = now();
        check(sluice_gate_open(options.source_gate));
        check(sluice_transfer_wait(transfer, UINT64_MAX));
        launch[i] = last_record(runtime, SL_TRACE_GATE)->end_ns - opened;
        callback[i] = called_ns - last_record(runtime, SL_TRACE_LOCAL)->end_ns;
        sluice_transfer_destroy(transfer);
        sluice_gate_destroy(options.source_gate);
    }
    print_times("gate opened to first launch (host backend)", launch, count);
    print_times("completion on the device to callback (host backend)", callback, count);
    free(launch);
    free(callback);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
}

int main(int argc, char **argv)
{
    uint64_t windows = 200000, transfers = 1000;
    if ((argc > 1 && !sl_parse_u64(argv[1], &windows)) || (argc > 2 && !sl_parse_u64(argv[2], &transfers)) ||
        argc > 3 || windows < BYTES || transfers == 0 || transfers > SL_TRACE_CAPACITY / 4) {
        fprintf(stderr, "usage: bench_runtime [WINDOWS] [TRANSFERS]\n");
        return 2;
    }
    measure_cpu(windows / BYTES);
    measure_latency(transfers);
    return 0;
}
