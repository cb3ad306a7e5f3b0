/*
 * seal_nccl.c: limits of groups from the backend's NCCL.
 *
 * Invariants: pure; where P, C and the nodes are not known the sufficient bound with the largest values
 * is used, never the exact model.
 */
#include "runtime/core/seal_nccl.h"

#include <string.h>

#include "scheduler/nccl_model.h"

enum { CHANNELS_MOST = 64, ARGS_BYTES = 4096, FIFO_BYTES = 1 << 20, CHUNK_LEAST = 1 << 16 };

/* Variables with which NCCL takes other numbers of channels than a communicator asks for. */
static _Bool overridden(const char *environment)
{
    static const char *const names[] = {"NCCL_MIN_P2P_NCHANNELS=", "NCCL_MAX_P2P_NCHANNELS=", "NCCL_MIN_CTAS=",
                                        "NCCL_MAX_CTAS=",          "NCCL_MIN_NCHANNELS=",     "NCCL_MAX_NCHANNELS="};
    for (size_t i = 0; i < SL_COUNT(names) && environment != NULL; i++)
        if (strstr(environment, names[i]) != NULL)
            return 1;
    return 0;
}

static struct sl_nccl_config config_of(const struct sluice_backend_info *info, uint32_t world, const char *environment)
{
    uint32_t channels = info->channels != 0 && !overridden(environment) ? info->channels : CHANNELS_MOST;
    uint32_t nodes = info->nodes != 0 && world % info->nodes == 0 ? info->nodes : 1;
    return (struct sl_nccl_config){
        .version = info->version,
        .channels = channels,
        .channels_per_peer = info->channels_per_peer != 0 ? info->channels_per_peer : channels,
        .nodes = nodes,
        .ranks_per_node = world / nodes,
        .chunk_bytes = info->chunk_bytes != 0 ? info->chunk_bytes : CHUNK_LEAST,
        .args_bytes = ARGS_BYTES,
        .fifo_bytes = FIFO_BYTES,
        .known = info->channels != 0 && info->channels_per_peer != 0 && info->chunk_bytes != 0 && info->nodes != 0,
    };
}

static size_t count_ops(const struct sl_half *half, uint64_t direct_min)
{
    size_t count = 0;
    for (uint32_t s = 0; s < half->stream_count; s++)
        count += direct_min > 0 ? half->streams[s].count + 1 : 1;
    return count;
}

/* The messages of one group with everything in it: large pieces alone, the rest of a stream packed. */
static size_t single_ops(const struct sl_half *half, uint64_t direct_min, struct sl_nccl_op *ops)
{
    size_t count = 0;
    for (uint32_t s = 0; s < half->stream_count; s++) {
        const struct sl_stream *stream = &half->streams[s];
        uint64_t packed = stream->units * SLUICE_UNIT;
        for (uint32_t i = 0; i < stream->count && direct_min > 0; i++) {
            uint64_t bytes = half->entries[stream->first + i].bytes;
            if (bytes < direct_min)
                continue;
            packed -= (bytes + SLUICE_UNIT - 1) / SLUICE_UNIT * SLUICE_UNIT;
            ops[count++] = (struct sl_nccl_op){.bytes = bytes, .peer = stream->peer, .receive = stream->receive};
        }
        if (packed > 0)
            ops[count++] = (struct sl_nccl_op){.bytes = packed, .peer = stream->peer, .receive = stream->receive};
    }
    return count;
}

static sluice_status check_single(const struct sl_nccl_config *config, const struct sl_half *half, uint64_t direct_min,
                                  struct sl_mem *mem)
{
    struct sl_nccl_safety safety = {0};
    struct sl_nccl_op *ops = sl_new_array(mem, count_ops(half, direct_min), sizeof *ops, "messages of a group");
    if (ops == NULL)
        return SLUICE_NOMEM;
    size_t count = single_ops(half, direct_min, ops);
    sluice_status status = sl_nccl_safe(config, half->rank, ops, count, mem, &safety);
    sl_free(mem, ops);
    if (status != SLUICE_OK)
        return status;
    if (safety.items_ok && (safety.single_plan || sl_nccl_order_kept(config->version)))
        return SLUICE_OK;
    return sl_fail(SLUICE_HANG, "seal",
                   "policy single: one group of %zu messages (%u items) of rank %u may hang on NCCL %u: use policy "
                   "balanced, or force",
                   count, safety.items, half->rank, config->version);
}

/*
 * A window moves at most window_bytes a direction, so as many pieces of direct_min bytes as fit, and one packed message a
 * stream: a group that no cut makes larger. Only balanced windows keep window_bytes whatever the parameters are.
 */
static _Bool direct_fits(const struct sl_half *half, const struct sl_seal_terms *terms)
{
    uint64_t pieces = 0;
    for (uint32_t s = 0; s < half->stream_count; s++)
        if (s == 0 || half->streams[s].receive != half->streams[s - 1].receive)
            pieces += terms->window_bytes / terms->direct_min;
    return terms->policy == SLUICE_POLICY_BALANCED && half->stream_count + pieces <= terms->items_max;
}

sluice_status sl_seal_nccl_terms(const struct sluice_backend_info *info, const struct sl_half *half, struct sl_mem *mem,
                                 struct sl_seal_terms *terms)
{
    if (info->version == 0)
        return SLUICE_OK;
    struct sl_nccl_config config = config_of(info, half->world, terms->environment);
    _Bool any_cut = sl_nccl_order_kept(info->version);
    _Bool ours = terms->policy == SLUICE_POLICY_BALANCED || terms->policy == SLUICE_POLICY_ORDERED;
    terms->backend_version = info->version;
    /* The other policies are for comparison: they send what they say, one task a message. */
    terms->items_max = !ours ? 0 : any_cut ? SL_NCCL_ITEMS_MAX : sl_nccl_items_max(&config);
    terms->want_packed = ours && terms->direct_min > 0 && !any_cut && !direct_fits(half, terms);
    if (terms->policy != SLUICE_POLICY_SINGLE || terms->force)
        return SLUICE_OK;
    return check_single(&config, half, terms->direct_min, mem);
}
