/*
 * NCCL's peer schedule: in which round a rank talks to whom.
 *
 * Invariants: round 0 is the rank itself; when a sends to b in round r, b receives from a in round r.
 * Ranks fill nodes in order: node = rank / ranks_per_node.
 */
#include "scheduler/nccl_internal.h"

enum { SCHEDULE_GROUP = 8 };

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static _Bool power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

uint32_t sl_nccl_world(const struct sl_nccl_config *config)
{
    return config->nodes * config->ranks_per_node;
}

uint32_t sl_nccl_group_size(const struct sl_nccl_config *config)
{
    uint32_t local = config->ranks_per_node;
    uint32_t size = config->nodes > 1 ? SCHEDULE_GROUP : local;
    return local % size != 0 || local < size ? gcd(size, local) : size;
}

sluice_status sl_nccl_config_check(const struct sl_nccl_config *config)
{
    if (!power_of_two(config->channels) || config->channels > 64)
        return sl_fail(SLUICE_INVALID, "nccl model", "channels %u: must be a power of two, 1 to 64", config->channels);
    if (!power_of_two(config->channels_per_peer) || config->channels_per_peer > config->channels)
        return sl_fail(SLUICE_INVALID, "nccl model",
                       "channels per peer %u: must be a power of two, 1 to the %u channels", config->channels_per_peer,
                       config->channels);
    if (config->nodes == 0 || config->ranks_per_node == 0 ||
        (uint64_t)config->nodes * config->ranks_per_node > SLUICE_WORLD_MAX)
        return sl_fail(SLUICE_INVALID, "nccl model", "nodes %ux%u: both must be at least 1 and the product at most %u",
                       config->nodes, config->ranks_per_node, SLUICE_WORLD_MAX);
    if (config->chunk_bytes < 16 || config->chunk_bytes > (UINT64_C(1) << 40))
        return sl_fail(SLUICE_INVALID, "nccl model", "chunk of %llu bytes: must be 16 bytes to 1 TiB",
                       (unsigned long long)config->chunk_bytes);
    if (config->args_bytes < 2048 || config->fifo_bytes < 4096)
        return sl_fail(SLUICE_INVALID, "nccl model",
                       "kernel arguments of %u bytes, work FIFO of %u bytes: at least 2048 and 4096",
                       config->args_bytes, config->fifo_bytes);
    return SLUICE_OK;
}

/* The rounds with two groups that begin at ranks `to` and `from`: the places in them are walked in a circle. */
static void meet_group(uint32_t size, uint32_t to, uint32_t from, uint32_t local, uint32_t *ret_send,
                       uint32_t *ret_recv)
{
    uint32_t next = local;
    uint32_t last = local;
    for (uint32_t delta = 0; delta < size; delta++) {
        ret_send[delta] = to + next;
        ret_recv[delta] = from + last;
        next = next + 1 < size ? next + 1 : 0;
        last = last > 0 ? last - 1 : size - 1;
    }
}

sluice_status sl_nccl_rounds(const struct sl_nccl_config *config, uint32_t rank, uint32_t *ret_send, uint32_t *ret_recv)
{
    sluice_status status = sl_nccl_config_check(config);
    if (status != SLUICE_OK)
        return status;
    uint32_t world = sl_nccl_world(config);
    if (rank >= world)
        return sl_fail(SLUICE_INVALID, "nccl model", "rank %u is not in a world of %u", rank, world);

    uint32_t size = sl_nccl_group_size(config);
    uint32_t groups = world / size;
    uint32_t group = rank / size;
    uint32_t local = rank % size;
    uint32_t power = 1;
    while (power < groups)
        power *= 2;

    uint32_t round = 0;
    uint32_t distance = 0; /* 0, 1, 3, 6 ... modulo the power: visits every distance once */
    for (uint32_t step = 0; step < power; step++) {
        if (distance < groups) {
            uint32_t to = (group + distance) % groups * size;
            uint32_t from = (group + groups - distance) % groups * size;
            meet_group(size, to, from, local, ret_send + round, ret_recv + round);
            round += size;
        }
        distance = (distance + step + 1) & (power - 1);
    }
    SL_ASSERT(round == world);
    return SLUICE_OK;
}

uint32_t sl_nccl_channel_base(const struct sl_nccl_config *config, uint32_t round)
{
    uint32_t size = sl_nccl_group_size(config);
    uint32_t base = config->nodes > 1 ? round / size * ((size + 7) / 8) + round % size / 8 : round;
    uint32_t reversed = 0;
    for (uint32_t bit = 1; bit < config->channels; bit *= 2) {
        reversed = reversed * 2 + (base & 1);
        base /= 2;
    }
    return reversed;
}

_Bool sl_nccl_order_kept(uint32_t version)
{
    return version >= 22907;
}
