/*
 * runtime_options.c: every option of a runtime gets its value: option, then setting, then default.
 *
 * Invariants: pure; UINT64_MAX stays "no deadline" but for the abort, which always has one.
 */
#include "runtime/core/options.h"
#include "runtime/core/runtime_object.h"

enum { TRANSFERS_DEFAULT = 16, TRANSFERS_MOST = 4096, EVENTS_DEFAULT = 4096 };

static void fill_duration(uint64_t *option, const struct sl_config *settings, enum sl_setting_id id)
{
    if (*option == 0)
        *option = settings->values[id].number;
}

static sluice_status check(const struct sluice_runtime_options *options)
{
    if (options->delivery > SLUICE_DELIVER_EVENT_BASE)
        return sl_fail(SLUICE_INVALID, "runtime", "delivery %u does not exist", options->delivery);
    if (options->transfers_max > TRANSFERS_MOST)
        return sl_fail(SLUICE_INVALID, "runtime", "transfers_max = %u is above %d", options->transfers_max,
                       TRANSFERS_MOST);
    if (options->log_level > SLUICE_LOG_TRACE + 1)
        return sl_fail(SLUICE_INVALID, "runtime", "log_level %u does not exist (a level plus one)", options->log_level);
    if (options->queue_priority > 1)
        return sl_fail(SLUICE_INVALID, "runtime", "queue_priority %u is neither 0 nor 1", options->queue_priority);
    if (options->device_shared > 1)
        return sl_fail(SLUICE_INVALID, "runtime", "device_shared %u is neither 0 nor 1", options->device_shared);
    if (options->abort_timeout_ns == UINT64_MAX)
        return sl_fail(SLUICE_INVALID, "runtime", "abort_timeout_ns needs a limit");
    return SLUICE_OK;
}

sluice_status sl_runtime_fill_options(const struct sluice_runtime_options *given, const struct sl_config *settings,
                                      struct sluice_runtime_options *ret)
{
    const struct sl_setting_value *values = settings->values;
    sluice_status status = sl_options_copy(ret, sizeof *ret, given, "runtime options");
    if (status != SLUICE_OK)
        return status;
    fill_duration(&ret->bootstrap_timeout_ns, settings, SL_SET_BOOTSTRAP_TIMEOUT);
    fill_duration(&ret->seal_timeout_ns, settings, SL_SET_SEAL_TIMEOUT);
    fill_duration(&ret->stall_timeout_ns, settings, SL_SET_STALL_TIMEOUT);
    fill_duration(&ret->abort_timeout_ns, settings, SL_SET_ABORT_TIMEOUT);
    fill_duration(&ret->heartbeat_ns, settings, SL_SET_HEARTBEAT);
    fill_duration(&ret->staging_bytes_max, settings, SL_SET_STAGING_MAX);
    fill_duration(&ret->host_staging_bytes_max, settings, SL_SET_HOST_STAGING_MAX);
    if (ret->backend == NULL && values[SL_SET_BACKEND].set)
        ret->backend = values[SL_SET_BACKEND].text;
    if (ret->max_ctas == 0)
        ret->max_ctas = (uint32_t)values[SL_SET_MAX_CTAS].number;
    if (ret->transfers_max == 0)
        ret->transfers_max = TRANSFERS_DEFAULT;
    if (ret->events_max == 0)
        ret->events_max = EVENTS_DEFAULT;
    if (ret->log_level == 0)
        ret->log_level = (uint32_t)values[SL_SET_LOG].number + 1;
    return check(ret);
}
