/*
 * sealed.c: memory of a sealed plan and what runs look up in it.
 *
 * Invariants: built once and dropped once, on the scheduler thread, nothing of it in flight; all sizes
 * come from the schedule, so a run allocates nothing; staging of all plans together stays within
 * staging_bytes_max.
 */
#include "runtime/core/sealed.h"

#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/core/runtime_object.h"

static sluice_status check_staging(const struct sl_sealed *sealed, uint64_t used)
{
    char need[32], send[32], recv[32], limit[32], other[32];
    const struct sl_driver *driver = sealed->driver;
    if (sealed->staging_bytes <= driver->config.staging_bytes_max - used)
        return SLUICE_OK;
    return sl_fail(SLUICE_LIMIT, "seal",
                   "staging of %u slots x (send %s + receive %s) = %s beside %s of other plans exceeds "
                   "staging_bytes_max = %s: lower window_bytes or slots, or raise staging_bytes_max "
                   "(SLUICE_STAGING_MAX)",
                   sealed->slots, sl_format_bytes(sealed->schedule.slot_send_bytes, send, sizeof send),
                   sl_format_bytes(sealed->schedule.slot_recv_bytes, recv, sizeof recv),
                   sl_format_bytes(sealed->staging_bytes, need, sizeof need),
                   sl_format_bytes(used, other, sizeof other),
                   sl_format_bytes(driver->config.staging_bytes_max, limit, sizeof limit));
}

static uint64_t staging_used(const struct sl_sealed *but)
{
    uint64_t used = 0;
    for (const struct sl_sealed *s = but->driver->seals; s != NULL; s = s->next)
        if (s != but)
            used += s->staging_bytes;
    return used;
}

static sluice_status take(const struct sl_sealed *sealed, enum sluice_memory kind, uint64_t bytes, uint8_t **ret)
{
    void *memory = NULL;
    if (bytes == 0)
        return SLUICE_OK;
    const struct sl_driver *driver = sealed->driver;
    sluice_status status = driver->config.ops->mem_alloc(driver->device, kind, bytes, &memory);
    if (status == SLUICE_OK)
        *ret = memory;
    return status;
}

static sluice_status take_slots(struct sl_sealed *sealed)
{
    const struct sl_schedule *schedule = &sealed->schedule;
    uint64_t used = staging_used(sealed);
    sealed->staging_bytes = sealed->slots * (schedule->slot_send_bytes + schedule->slot_recv_bytes);
    sluice_status status = check_staging(sealed, used);
    if (status != SLUICE_OK)
        sealed->staging_bytes = 0;
    for (uint32_t i = 0; i < sealed->slots && status == SLUICE_OK; i++) {
        status = take(sealed, SLUICE_MEMORY_SEND, schedule->slot_send_bytes, &sealed->slot_send[i]);
        if (status == SLUICE_OK)
            status = take(sealed, SLUICE_MEMORY_RECV, schedule->slot_recv_bytes, &sealed->slot_recv[i]);
    }
    return status;
}

static sluice_status take_shadow(struct sl_sealed *sealed)
{
    if (sealed->staged == 0)
        return SLUICE_OK;
    sealed->shadow_base =
        sl_new_array(sealed->plan->mem, sealed->staged, sizeof *sealed->shadow_base, "shadow offsets");
    if (sealed->shadow_base == NULL)
        return SLUICE_NOMEM;
    sealed->shadow_bytes = sl_sealed_place_shadow(sealed);
    return take(sealed, sealed->shadow_memory_kind, sealed->shadow_bytes, &sealed->shadow);
}

static sluice_status index_params(struct sl_sealed *sealed)
{
    struct sl_mem *mem = sealed->plan->mem;
    size_t params = sealed->plan->store.param_count;
    sealed->first[0] = sl_new_array(mem, params, sizeof(uint32_t), "first windows");
    sealed->first[1] = sl_new_array(mem, params, sizeof(uint32_t), "first windows");
    if (sealed->first[0] == NULL || sealed->first[1] == NULL)
        return SLUICE_NOMEM;
    sl_schedule_first_windows(&sealed->plan->store, &sealed->half, &sealed->schedule, sealed->first[SLUICE_ROLE_SOURCE],
                              sealed->first[SLUICE_ROLE_DESTINATION]);
    return SLUICE_OK;
}

/* Only backends with streams have points. */
static sluice_status open_tail(struct sl_sealed *sealed)
{
    const struct sl_driver *driver = sealed->driver;
    sluice_status status = SLUICE_OK;
    for (uint32_t i = 0; i < SL_LANES && status == SLUICE_OK && driver->config.ops->point_open != NULL; i++)
        if (driver->lanes[i] != NULL)
            status =
                driver->config.ops->point_open(&driver->config.backend, SLUICE_POINT_EMPTY, NULL, &sealed->tail[i]);
    return status;
}

static void close_tail(struct sl_sealed *sealed)
{
    for (uint32_t i = 0; i < SL_LANES; i++) {
        if (sealed->tail[i] != NULL)
            sealed->driver->config.ops->point_close(sealed->tail[i]);
        sealed->tail[i] = NULL;
    }
}

static uint64_t peak_bytes(const struct sl_schedule *schedule)
{
    uint64_t peak = 0;
    for (uint32_t w = 0; w < schedule->rule.windows; w++) {
        const struct sl_window *window = &schedule->windows[w];
        uint64_t busier = window->send_bytes > window->recv_bytes ? window->send_bytes : window->recv_bytes;
        peak = busier + window->local_bytes > peak ? busier + window->local_bytes : peak;
    }
    return peak;
}

/* Messages whose user memory the backend's groups do not take are staged on this end. */
static sluice_status stage_hosted(struct sl_sealed *sealed)
{
    struct sl_schedule *schedule = &sealed->schedule;
    _Bool any = 0;
    if (sealed->driver->config.ops->is_direct == NULL || schedule->rule.direct_min == 0)
        return SLUICE_OK;
    _Bool *stage = sl_new_array(sealed->plan->mem, schedule->message_count, sizeof *stage, "staged messages");
    if (stage == NULL)
        return SLUICE_NOMEM;
    for (size_t i = 0; i < schedule->message_count; i++) {
        const struct sl_message *message = &schedule->messages[i];
        stage[i] = message->offset == SL_NO_SLOT &&
                   !sl_sealed_is_direct(sealed, &schedule->pieces[message->first_piece], message->receive);
        any |= stage[i];
    }
    if (any)
        sl_schedule_place(&sealed->plan->store, &sealed->half, stage, schedule);
    sl_free(sealed->plan->mem, stage);
    return SLUICE_OK;
}

sluice_status sl_sealed_build(struct sl_sealed *sealed, const struct sl_seal_result *agreed,
                              const uint32_t *window_of_task)
{
    struct sluice_plan *plan = sealed->plan;
    sluice_status status = sl_schedule_build(&plan->store, &sealed->half, &agreed->rule, agreed->block_of_stream,
                                             window_of_task, plan->mem, &sealed->schedule);
    if (status != SLUICE_OK)
        return status;
    sealed->schedule_built = 1;
    sealed->slots = agreed->rule.slots;
    sealed->staged = agreed->staged;
    sealed->peak_bytes = peak_bytes(&sealed->schedule);
    status = sl_launch_lanes(sealed->driver, sealed->slots);
    if (status == SLUICE_OK)
        status = stage_hosted(sealed);
    if (status == SLUICE_OK)
        status = open_tail(sealed);
    if (status == SLUICE_OK)
        status = take_slots(sealed);
    if (status == SLUICE_OK)
        status = take_shadow(sealed);
    if (status == SLUICE_OK)
        status = sl_view_open(sealed, NULL, 0, &sealed->full);
    if (status == SLUICE_OK)
        status = sl_view_build(sealed, &sealed->full);
    return status == SLUICE_OK ? index_params(sealed) : status;
}

sluice_status sl_sealed_refresh(struct sl_sealed *sealed)
{
    if (!sealed->any_dirty)
        return SLUICE_OK;
    sluice_status status = sl_sealed_scratch(sealed);
    for (uint32_t w = 0; w < sealed->schedule.rule.windows && status == SLUICE_OK; w++)
        if (sl_sealed_window_dirty(sealed, w))
            status = sl_view_build_window(sealed, &sealed->full, w);
    if (status == SLUICE_OK && sealed->staged > 0)
        status = sl_view_build_commit(sealed, &sealed->full);
    sl_sealed_scratch_drop(sealed);
    if (status == SLUICE_OK) {
        for (size_t i = 0; sealed->contents.known != NULL && i < 2 * sealed->plan->store.param_count; i++)
            sealed->contents.known[i] &= !sealed->dirty[i];
        memset(sealed->dirty, 0, 2 * sealed->plan->store.param_count);
        sealed->any_dirty = 0;
    }
    return status;
}

static void give_memory(struct sl_sealed *sealed)
{
    const struct sl_driver *driver = sealed->driver;
    const struct sluice_backend_ops *ops = driver->config.ops;
    for (uint32_t i = 0; i < SL_SLOTS_MAX; i++) {
        if (sealed->slot_send[i] != NULL)
            ops->mem_free(driver->device, SLUICE_MEMORY_SEND, sealed->slot_send[i], sealed->schedule.slot_send_bytes);
        if (sealed->slot_recv[i] != NULL)
            ops->mem_free(driver->device, SLUICE_MEMORY_RECV, sealed->slot_recv[i], sealed->schedule.slot_recv_bytes);
    }
    if (sealed->shadow != NULL)
        ops->mem_free(driver->device, sealed->shadow_memory_kind, sealed->shadow, sealed->shadow_bytes);
}

static void free_tables(struct sl_sealed *sealed)
{
    struct sl_mem *mem = sealed->plan->mem;
    sl_view_drop(sealed, &sealed->full);
    sl_free(mem, sealed->shadow_base);
    sl_free(mem, sealed->first[0]);
    sl_free(mem, sealed->first[1]);
    sl_free(mem, sealed->dirty);
    sl_free(mem, sealed->contents.digest);
    sl_free(mem, sealed->contents.known);
}

static void unlink_sealed(struct sl_sealed *sealed)
{
    struct sl_sealed **link = &sealed->driver->seals;
    while (*link != NULL && *link != sealed)
        link = &(*link)->next;
    if (*link != NULL)
        *link = sealed->next;
}

void sl_sealed_drop(struct sl_sealed *sealed)
{
    struct sluice_plan *plan = sealed->plan;
    SL_ASSERT(sealed->sealing == NULL && !sealed->dropped);
    sealed->dropped = 1;
    unlink_sealed(sealed);
    pthread_mutex_lock(&plan->lock);
    if (plan->sealed == sealed)
        plan->sealed = NULL;
    close_tail(sealed);
    pthread_mutex_unlock(&plan->lock);
    sl_view_close_sets(sealed, &sealed->full);
    give_memory(sealed);
    sl_sealed_release(sealed);
}

void sl_sealed_keep(struct sl_sealed *sealed)
{
    atomic_fetch_add_explicit(&sealed->references, 1, memory_order_relaxed);
}

void sl_sealed_release(struct sl_sealed *sealed)
{
    if (atomic_fetch_sub_explicit(&sealed->references, 1, memory_order_acq_rel) != 1)
        return;
    struct sluice_plan *plan = sealed->plan;
    struct sluice_runtime *runtime = sealed->runtime;
    free_tables(sealed);
    if (sealed->schedule_built)
        sl_schedule_drop(&sealed->schedule);
    if (sealed->half_built)
        sl_half_drop(&sealed->half);
    sl_free(plan->mem, sealed);
    sl_plan_release(plan);
    sl_runtime_release(runtime);
}
