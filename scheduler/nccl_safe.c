/*
 * The rule that makes a group safe, by NCCL version (docs/scheduling.md).
 *
 * Invariants: the exact planner decides only where channels, chunk and nodes are known; where they are
 * bounds, the sufficient bound with C = P decides, because an overestimate does not err on one side.
 */
#include "scheduler/nccl_internal.h"

static uint32_t header_room(const struct sl_nccl_config *config)
{
    return (config->args_bytes - SL_NCCL_ARGS_HEAD_BYTES) / SL_NCCL_HEADER_BYTES;
}

static uint32_t channels_bound(const struct sl_nccl_config *config)
{
    return config->known ? config->channels_per_peer : config->channels;
}

uint32_t sl_nccl_items_max(const struct sl_nccl_config *config)
{
    uint32_t items = header_room(config) / channels_bound(config);
    return items < SL_NCCL_ITEMS_MAX ? items : SL_NCCL_ITEMS_MAX;
}

sluice_status sl_nccl_safe(const struct sl_nccl_config *config, uint32_t rank, const struct sl_nccl_op *ops,
                           size_t count, struct sl_mem *mem, struct sl_nccl_safety *ret)
{
    sluice_status status = sl_nccl_config_check(config);
    if (status != SLUICE_OK)
        return status;
    struct sl_nccl_safety safety = {0};
    if (config->known) {
        struct sl_nccl_plans plans;
        status = sl_nccl_plan(config, rank, ops, count, mem, &plans);
        if (status != SLUICE_OK)
            return status;
        safety.items = plans.items;
        safety.single_plan = plans.plan_count <= 1;
        sl_nccl_plans_drop(&plans);
    } else {
        /* A send and a receive may share an item; counting each alone can only overestimate. */
        safety.items = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
        safety.single_plan = safety.items <= sl_nccl_items_max(config);
    }
    safety.items_ok = safety.items <= SL_NCCL_ITEMS_MAX;
    *ret = safety;
    return SLUICE_OK;
}
