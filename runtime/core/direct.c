/*
 * direct.c: runs whose copies go into a stream of the caller at submit.
 *
 * Invariants: only runs that copy within this rank, in place, without gates: the order of the caller's
 * stream stands for them, before and after; everything is enqueued before the order reaches the
 * scheduler thread, which then waits for the end of it like for any other node; it never runs beside a
 * run of the same plan that the host orders.
 */
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

/* Enqueued whole, so looked at before the first window is. */
static sluice_status check_memory(const struct sl_sealed *sealed)
{
    const struct sluice_backend_ops *ops = sealed->runtime->driver_config.ops;
    for (uint32_t w = 0; w < sealed->schedule.rule.windows && ops->is_staged != NULL; w++)
        if (sealed->full.in_place[w].local != NULL && ops->is_staged(sealed->full.in_place[w].local))
            return sl_fail(SLUICE_UNSUPPORTED, "submit",
                           "a buffer is in pageable memory, which is staged by the host: use sluice_submit with a "
                           "gate on the stream, and sluice_cuda_wait, or pin the buffer");
    return SLUICE_OK;
}

static sluice_status check_plan(const struct sl_sealed *sealed)
{
    const struct sl_schedule *schedule = &sealed->schedule;
    if (sealed->runtime->driver_config.ops->copy_on == NULL)
        return sl_fail(SLUICE_UNSUPPORTED, "submit", "backend %s has no streams of the caller",
                       sealed->runtime->driver_config.ops->name);
    if (schedule->send_bytes != 0 || schedule->recv_bytes != 0)
        return sl_fail(SLUICE_INVALID, "submit",
                       "only a plan whose tasks on this rank are all local runs in a stream of the caller: use "
                       "sluice_submit with a gate on the stream, and sluice_cuda_wait");
    if (sealed->any_dirty)
        return sl_fail(SLUICE_STATE, "submit",
                       "buffers were rebound: the first transfer after that goes through sluice_submit");
    if (sealed->live > sealed->direct)
        return sl_fail(SLUICE_AGAIN, "submit", "an earlier transfer of the plan still runs outside the stream");
    return check_memory(sealed);
}

sluice_status sl_direct_check(const struct sl_sealed *sealed, const struct sluice_transfer_options *options)
{
    if (options->source_gate != NULL || options->consumer_gate != NULL || options->param_gate_count != 0)
        return sl_fail(SLUICE_INVALID, "submit",
                       "a transfer in a stream of the caller takes no gates: its order counts");
    if (options->landing != SLUICE_LANDING_IN_PLACE || options->pace_bytes_per_second != 0)
        return sl_fail(SLUICE_INVALID, "submit", "a transfer in a stream of the caller lands in place and has no pace");
    if (options->params != NULL || options->changed_only || options->verify || options->resume)
        return sl_fail(SLUICE_INVALID, "submit",
                       "a transfer in a stream of the caller moves all parameters, without digests");
    return check_plan(sealed);
}

sluice_status sl_direct_enqueue(struct sluice_transfer *transfer, void *stream)
{
    const struct sl_sealed *sealed = transfer->sealed;
    const struct sl_driver_config *config = &transfer->runtime->driver_config;
    sluice_status status = SLUICE_OK;
    for (uint32_t w = 0; w < transfer->config.windows && status == SLUICE_OK; w++)
        if (sealed->full.in_place[w].local != NULL)
            status = config->ops->copy_on(sealed->full.in_place[w].local, stream);
    if (status == SLUICE_OK)
        status = config->ops->point_open(&config->backend, SLUICE_POINT_STREAM, stream, &transfer->after);
    return status;
}
