/*
 * Inputs and NCCL settings of the commands that look at groups.
 *
 * Invariant: channels are "known" only when both were given; otherwise the rule for groups uses bounds.
 */
#include "groups.h"

#include <string.h>

#include "runtime/base/parse.h"
#include "runtime/core/plan_io.h"
#include "scheduler/messages.h"

const char *const tool_policies[] = {"balanced", "ordered", "lockstep", "windows", "single", NULL};

_Bool tool_input_open(struct tool_args *args, const char *plan_path, const char *messages_path, struct tool_input *ret)
{
    struct tool_input input = {.path = messages_path != NULL ? messages_path : plan_path};
    sluice_status status;
    if (messages_path == NULL) {
        status = sl_plan_open(plan_path, &input.plan, &input.map);
    } else {
        status = sl_map_open(messages_path, &input.map);
        if (status == SLUICE_OK) {
            status = sl_messages_read((const char *)input.map.data, input.map.bytes, messages_path, sl_mem_default(),
                                      &input.plan);
            sl_map_close(&input.map);
        }
    }
    if (status != SLUICE_OK) {
        args->status = tool_fail_input(input.path);
        return 0;
    }
    *ret = input;
    return 1;
}

void tool_input_close(struct tool_input *input)
{
    sl_plan_drop(&input->plan);
    sl_map_close(&input->map);
}

/* "2.30.7" as 23007; "2.30" is refused, because the patch level decides. */
static _Bool parse_version(const char *text, uint32_t *ret)
{
    uint32_t parts[3];
    char copy[32];
    if (strlen(text) >= sizeof copy)
        return 0;
    (void)snprintf(copy, sizeof copy, "%s", text);
    char *at = copy;
    for (int i = 0; i < 3; i++) {
        char *dot = strchr(at, '.');
        if ((dot == NULL) != (i == 2))
            return 0;
        if (dot != NULL)
            *dot = '\0';
        if (!sl_parse_u32(at, &parts[i]) || parts[i] > 99)
            return 0;
        at = dot != NULL ? dot + 1 : at;
    }
    *ret = parts[0] * 10000 + parts[1] * 100 + parts[2];
    return 1;
}

static _Bool parse_nodes(const char *text, uint32_t *ret_nodes, uint32_t *ret_ranks)
{
    char copy[32];
    if (strlen(text) >= sizeof copy)
        return 0;
    (void)snprintf(copy, sizeof copy, "%s", text);
    char *cross = strchr(copy, 'x');
    if (cross == NULL)
        return 0;
    *cross = '\0';
    return sl_parse_u32(copy, ret_nodes) && sl_parse_u32(cross + 1, ret_ranks) && *ret_nodes > 0 && *ret_ranks > 0;
}

void tool_groups_init(struct tool_groups *groups)
{
    *groups = (struct tool_groups){.cuts = {.window_bytes = 256000000, .slots = 3}};
}

static _Bool take_policy(struct tool_args *args, enum sluice_policy *ret)
{
    int choice = tool_choice(args, tool_policies);
    if (choice >= 0)
        *ret = (enum sluice_policy)choice;
    return choice >= 0;
}

_Bool tool_group_option(struct tool_args *args, int option, struct tool_groups *groups)
{
    struct sl_nccl_config *config = &groups->nccl;
    switch (option) {
    case TOOL_POLICY:
        return take_policy(args, &groups->cuts.policy);
    case TOOL_WINDOW_BYTES:
        return tool_size(args, &groups->cuts.window_bytes);
    case TOOL_DIRECT_MIN:
        return tool_size(args, &groups->cuts.direct_min);
    case TOOL_NCCL:
        if (parse_version(args->value, &config->version))
            return 1;
        tool_usage(args, "--nccl: '%s' is not a version like 2.30.7", args->value);
        return 0;
    case TOOL_CHANNELS:
        return tool_u32(args, 1, 64, &config->channels);
    case TOOL_CHANNELS_PER_PEER:
        return tool_u32(args, 1, 64, &config->channels_per_peer);
    case TOOL_CHUNK:
        return tool_size(args, &config->chunk_bytes);
    case TOOL_NODES:
        if (parse_nodes(args->value, &config->nodes, &config->ranks_per_node))
            return 1;
        tool_usage(args, "--nodes: '%s' is not NODESxRANKS like 4x8", args->value);
        return 0;
    default:
        SL_ASSERT(0);
        return 0;
    }
}

_Bool tool_group_settle(struct tool_args *args, uint32_t world, struct tool_groups *groups)
{
    struct sl_nccl_config *config = &groups->nccl;
    groups->cuts.nccl = config;
    config->known = config->channels != 0 && config->channels_per_peer != 0;
    config->version = config->version != 0 ? config->version : 23007;
    config->channels = config->channels != 0 ? config->channels : 32;
    if (config->channels_per_peer == 0)
        config->channels_per_peer = config->channels < 2 ? 1 : 2;
    if (config->nodes == 0) {
        config->ranks_per_node = world <= 8 ? world : world % 8 == 0 ? 8 : 1;
        config->nodes = world / config->ranks_per_node;
    }
    if (config->chunk_bytes == 0)
        config->chunk_bytes = config->nodes > 1 ? 131072 : 524288;
    config->args_bytes = 4096;
    config->fifo_bytes = 1 << 20;
    if ((uint64_t)config->nodes * config->ranks_per_node == world)
        return 1;
    tool_usage(args, "--nodes: %ux%u is not the plan's world of %u ranks", config->nodes, config->ranks_per_node,
               world);
    return 0;
}
