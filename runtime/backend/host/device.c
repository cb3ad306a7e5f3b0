/*
 * device.c: the host backend's table, memory and completions.
 *
 * - The CPU is the device: DEVICE, PINNED and RECV memory is plain memory, SEND memory is what peers map.
 * - There is no list of completions: poll looks at the ends of the queues' rings, where workers leave them.
 * - `armed` goes from 1 to 0 by exchange, by whoever has something first; arm sets it before it looks. Both are
 *   sequentially consistent, so a completion is either seen by arm or wakes.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/registry.h"

void sl_host_notify(struct sluice_device *device)
{
    if (atomic_load(&device->armed) && atomic_exchange(&device->armed, false))
        device->config.wake(device->config.wake_context);
}

static sluice_status query(struct sluice_backend_info *ret)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = (struct sluice_backend_info){.size = sizeof(*ret),
                                        .usable = 1,
                                        .devices = 1,
                                        .threads_per_queue = 1,
                                        .queues_max = SL_HOST_QUEUES,
                                        .markers_max = SL_HOST_MARKERS,
                                        .digests = 1,
                                        .alignment = 64};
    SL_IGNORE(
        snprintf(ret->reason, sizeof(ret->reason), "%ld processors; ranks of one host over shared memory", processors));
    return SLUICE_OK;
}

static void free_device(struct sl_mem *mem, struct sluice_device *device)
{
    sl_free(mem, device->markers);
    sl_free(mem, device->counters);
    sl_free(mem, device);
}

static struct sluice_device *make_device(struct sl_mem *mem)
{
    struct sluice_device *device = sl_new(mem, sizeof(*device), "device");
    if (device == NULL)
        return NULL;
    size_t bytes = SL_HOST_QUEUES * sizeof(*device->counters);
    device->markers = sl_new_array(mem, SL_HOST_MARKERS, sizeof(*device->markers), "markers");
    device->counters = sl_new_aligned(mem, bytes, alignof(struct sl_host_counter), "counters");
    if (device->markers == NULL || device->counters == NULL) {
        free_device(mem, device);
        return NULL;
    }
    memset(device->counters, 0, bytes);
    return device;
}

static sluice_status open_device(const struct sluice_backend_config *config, struct sluice_device **ret)
{
    if (config->size != sizeof(*config) || config->now == NULL || config->wake == NULL)
        return sl_fail(SLUICE_INVALID, SL_HOST_WHERE, "a device needs a clock, a wake-up and a config of %zu bytes",
                       sizeof(*config));
    struct sl_mem *mem = sl_mem_open();
    struct sluice_device *device = mem == NULL ? NULL : make_device(mem);
    if (device == NULL) {
        if (mem != NULL)
            sl_mem_close(mem);
        return sl_fail(SLUICE_NOMEM, SL_HOST_WHERE, "no memory for a device");
    }
    device->mem = mem;
    device->config = *config;
    device->host = sl_host_identity();
    device->log = (struct sl_log){.sink = config->log, .user = config->log_user, .level = SLUICE_LOG_WARN};
    pthread_mutex_init(&device->segments_lock, NULL);
    *ret = device;
    return SLUICE_OK;
}

static void close_device(struct sluice_device *device)
{
    if (device == NULL)
        return;
    SL_ASSERT(device->groups == NULL);
    for (uint32_t i = 0; i < SL_HOST_QUEUES; i++)
        SL_ASSERT(device->queues[i] == NULL);
    while (device->listeners != NULL) {
        struct sl_host_listener *listener = device->listeners;
        device->listeners = listener->next;
        sl_host_listener_drop(device, listener);
    }
    for (uint32_t i = 0; i < SL_HOST_SEGMENTS; i++)
        sl_host_memory_drop(&device->segments[i].memory);
    pthread_mutex_destroy(&device->segments_lock);
    struct sl_mem *mem = device->mem;
    free_device(mem, device);
    sl_mem_close(mem);
}

static bool is_staging(enum sluice_memory kind)
{
    return kind == SLUICE_MEMORY_SEND || kind == SLUICE_MEMORY_RECV;
}

static sluice_status check_limit(const struct sluice_device *device, enum sluice_memory kind, uint64_t bytes)
{
    uint64_t limit = device->config.staging_bytes_max;
    if (bytes == 0 || bytes > SLUICE_BYTES_MAX)
        return sl_fail(SLUICE_INVALID, SL_HOST_WHERE, "an allocation of %llu bytes", (unsigned long long)bytes);
    if (!is_staging(kind) || limit == 0 || (device->staging_bytes <= limit && bytes <= limit - device->staging_bytes))
        return SLUICE_OK;
    return sl_fail(SLUICE_LIMIT, SL_HOST_WHERE,
                   "%llu bytes of staging beside %llu in use are more than the limit of %llu",
                   (unsigned long long)bytes, (unsigned long long)device->staging_bytes, (unsigned long long)limit);
}

static sluice_status mem_alloc(struct sluice_device *device, enum sluice_memory kind, uint64_t bytes, void **ret)
{
    sluice_status status = check_limit(device, kind, bytes);
    if (status != SLUICE_OK)
        return status;
    void *memory = NULL;
    if (kind == SLUICE_MEMORY_SEND)
        status = sl_host_segment_open(device, bytes, &memory);
    else if ((memory = sl_new_aligned(device->mem, bytes, 4096, "device memory")) == NULL)
        status = SLUICE_NOMEM;
    if (status != SLUICE_OK)
        return status;
    if (is_staging(kind))
        device->staging_bytes += bytes;
    *ret = memory;
    return SLUICE_OK;
}

static void mem_free(struct sluice_device *device, enum sluice_memory kind, void *memory, uint64_t bytes)
{
    if (memory == NULL)
        return;
    if (is_staging(kind)) {
        SL_ASSERT(device->staging_bytes >= bytes);
        device->staging_bytes -= bytes;
    }
    if (kind == SLUICE_MEMORY_SEND)
        sl_host_segment_close(device, memory);
    else
        sl_free(device->mem, memory);
}

static bool open_ended(const struct sluice_group *group)
{
    return !group->reported && atomic_load(&group->state) != SL_HOST_OPENING;
}

static uint32_t reap_opens(struct sluice_device *device, struct sluice_completion *ret, uint32_t max)
{
    uint32_t count = 0;
    for (struct sluice_group *group = device->groups; group != NULL && count < max; group = group->next) {
        if (!open_ended(group))
            continue;
        group->reported = true;
        ret[count++] = (struct sluice_completion){
            .cookie = group->cookie, .status = group->open_error.status, .error = group->open_error};
    }
    return count;
}

static sluice_status poll_device(struct sluice_device *device, struct sluice_completion *ret, uint32_t max,
                                 uint32_t *ret_count)
{
    uint32_t count = reap_opens(device, ret, max);
    for (uint32_t i = 0; i < SL_HOST_QUEUES && count < max; i++) {
        struct sluice_queue *queue = device->queues[(device->next_queue + i) % SL_HOST_QUEUES];
        if (queue != NULL)
            count += sl_host_queue_reap(queue, ret + count, max - count);
    }
    device->next_queue = (device->next_queue + 1) % SL_HOST_QUEUES;
    *ret_count = count;
    return SLUICE_OK;
}

static bool pending(struct sluice_device *device)
{
    for (const struct sluice_group *group = device->groups; group != NULL; group = group->next)
        if (open_ended(group))
            return true;
    for (uint32_t i = 0; i < SL_HOST_QUEUES; i++)
        if (device->queues[i] != NULL && sl_host_queue_pending(device->queues[i]))
            return true;
    return false;
}

static sluice_status arm(struct sluice_device *device)
{
    atomic_store(&device->armed, true);
    if (!pending(device))
        return SLUICE_OK;
    /* A worker may have taken it in between: then one wake-up too many comes, which is allowed. */
    atomic_store(&device->armed, false);
    return SLUICE_BUSY;
}

const struct sluice_backend_ops *sl_host_backend(void)
{
    static const struct sluice_backend_ops ops = {.size = sizeof(ops),
                                                  .abi = SLUICE_BACKEND_ABI,
                                                  .name = "host",
                                                  .query = query,
                                                  .open = open_device,
                                                  .close = close_device,
                                                  .mem_alloc = mem_alloc,
                                                  .mem_free = mem_free,
                                                  .queue_open = sl_host_queue_open,
                                                  .queue_close = sl_host_queue_close,
                                                  .set_open = sl_host_set_open,
                                                  .set_close = sl_host_set_close,
                                                  .group_address = sl_host_listener_open,
                                                  .group_open = sl_host_group_open,
                                                  .group_close = sl_host_group_close,
                                                  .submit = sl_host_submit,
                                                  .poll = poll_device,
                                                  .arm = arm,
                                                  .abort = sl_host_group_abort};
    return &ops;
}
