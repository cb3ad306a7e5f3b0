/*
 * NCCL's planner for a group of sends and receives, one rank.
 *
 * Invariants: only the order of operations per (peer, direction) counts; a plan ends when the kernel
 * arguments cannot hold another operation's worst case of batch headers; every operation ends up in
 * exactly one plan. Up to 2.29.3 a new plan begins its walk at round 0 again, from 2.29.7 on it goes on
 * where the last one stopped: that difference is what lets two ranks disagree about order.
 */
#include "scheduler/nccl_internal.h"

#include <string.h>

#include "runtime/base/error.h"

enum { BATCH_WORKS = 8, BATCH_BYTES = 1024, OFFSET_WORKS = 63 };
enum { VERSION_EPOCHS = 22902, VERSION_ORDER_KEPT = 22907 };

struct channel {
    uint32_t batch; /* index into plans->batches, SL_NCCL_NONE: none in this plan */
    uint32_t count;
    uint32_t bytes;
    uint32_t epoch;
    uint32_t rounds[BATCH_WORKS];
    uint64_t offset_base;
};

/* A FIFO of operations for each peer and direction, threaded through `next`. */
struct queues {
    uint32_t *head[2]; /* per peer; [0] sends, [1] receives */
    uint32_t *next;    /* per op */
};

struct planner {
    const struct sl_nccl_config *config;
    const struct sl_nccl_op *ops;
    struct sl_nccl_plans *plans;
    struct queues queues;
    uint32_t *send_peer, *recv_peer; /* per round */
    uint32_t *active;                /* rounds that have any operation, ascending */
    uint32_t active_count;
    uint32_t rank, world;
    uint32_t epoch;
    size_t left;
    uint32_t headers; /* of the plan in work */
    uint64_t work_bytes;
    struct channel channels[64];
};

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    SL_ASSERT(b > 0);
    return a / b + (a % b != 0);
}

uint32_t sl_nccl_op_channels(const struct sl_nccl_config *config, uint64_t bytes, _Bool local)
{
    if (bytes == 0)
        return 1;
    uint64_t chunk = config->chunk_bytes;
    if (config->version < VERSION_EPOCHS && config->low_latency && local &&
        bytes <= (uint64_t)config->channels_per_peer * 16384)
        chunk = 65536;
    uint32_t least = config->channels_per_peer;
    SL_ASSERT(least > 0);
    while (least > 1 && (uint64_t)least * sl_nccl_world(config) > config->channels)
        least /= 2;

    uint64_t low = config->nodes > 1 ? chunk / 2 : chunk / 8;
    uint64_t high = config->nodes > 1 ? chunk : 32 * chunk;
    low = low == 0 ? 1 : low;
    uint64_t wanted = ceil_div(bytes, low);
    uint32_t count = wanted < least ? (uint32_t)wanted : least;
    uint64_t part = ceil_div(bytes, count);
    part = part < low ? low : part;
    while (part > high && count <= config->channels_per_peer / 2) {
        count *= 2;
        part = ceil_div(bytes, count);
    }
    return count;
}

static sluice_status queue_ops(struct planner *p, size_t count, struct sl_mem *mem)
{
    uint32_t *tail[2];
    for (int d = 0; d < 2; d++) {
        p->queues.head[d] = sl_new_array(mem, p->world, sizeof(uint32_t), "nccl queues");
        tail[d] = sl_new_array(mem, p->world, sizeof(uint32_t), "nccl queues");
        if (p->queues.head[d] != NULL)
            memset(p->queues.head[d], 0xff, p->world * sizeof(uint32_t));
    }
    p->queues.next = sl_new_array(mem, count, sizeof(uint32_t), "nccl queues");
    sluice_status status = SLUICE_OK;
    if (!p->queues.head[0] || !p->queues.head[1] || !tail[0] || !tail[1] || !p->queues.next)
        status = SLUICE_NOMEM;
    for (size_t i = 0; status == SLUICE_OK && i < count; i++) {
        const struct sl_nccl_op *op = &p->ops[i];
        if (op->peer >= p->world) {
            status = sl_fail(SLUICE_INVALID, "nccl model", "operation %zu of rank %u names rank %u in a world of %u", i,
                             p->rank, op->peer, p->world);
            break;
        }
        uint32_t *head = &p->queues.head[op->receive][op->peer];
        p->queues.next[i] = SL_NCCL_NONE;
        if (*head == SL_NCCL_NONE)
            *head = (uint32_t)i;
        else
            p->queues.next[tail[op->receive][op->peer]] = (uint32_t)i;
        tail[op->receive][op->peer] = (uint32_t)i;
    }
    sl_free(mem, tail[0]);
    sl_free(mem, tail[1]);
    return status;
}

static void find_active_rounds(struct planner *p)
{
    for (uint32_t r = 0; r < p->world; r++)
        if (p->queues.head[0][p->send_peer[r]] != SL_NCCL_NONE || p->queues.head[1][p->recv_peer[r]] != SL_NCCL_NONE)
            p->active[p->active_count++] = r;
}

static _Bool fits_plan(const struct planner *p)
{
    uint64_t room = p->config->args_bytes - SL_NCCL_ARGS_HEAD_BYTES;
    uint64_t headers = (uint64_t)SL_NCCL_HEADER_BYTES * (p->headers + p->config->channels_per_peer);
    uint64_t works = p->work_bytes + SL_NCCL_WORK_BYTES;
    return headers + works <= room || (headers <= room && works <= p->config->fifo_bytes / 2);
}

static void open_plan(struct planner *p)
{
    p->headers = 0;
    p->work_bytes = 0;
    for (uint32_t c = 0; c < p->config->channels; c++)
        p->channels[c].batch = SL_NCCL_NONE;
}

static void close_plan(struct planner *p)
{
    uint64_t bytes = SL_NCCL_ARGS_HEAD_BYTES + (uint64_t)SL_NCCL_HEADER_BYTES * p->headers + p->work_bytes;
    if (bytes > p->config->args_bytes)
        p->plans->fifo_bytes += p->work_bytes;
    p->plans->plan_count++;
}

static _Bool joins_batch(const struct planner *p, const struct channel *channel, uint32_t round)
{
    if (channel->batch == SL_NCCL_NONE || channel->count == BATCH_WORKS ||
        channel->bytes + SL_NCCL_WORK_BYTES > BATCH_BYTES)
        return 0;
    if (p->config->version >= VERSION_EPOCHS && channel->epoch != p->epoch)
        return 0;
    for (uint32_t i = 0; i < channel->count; i++)
        if (channel->rounds[i] == round || channel->rounds[i] / 8 != round / 8)
            return 0;
    return 1;
}

/* `number`: of the channel. */
static sluice_status add_part(struct planner *p, uint32_t round, uint32_t number, uint64_t offset,
                              const struct sl_nccl_work *work)
{
    struct sl_nccl_plans *plans = p->plans;
    struct channel *channel = &p->channels[number];
    sluice_status status;
    if (!joins_batch(p, channel, round)) {
        status = sl_grow(plans->mem, &plans->batches, &plans->batch_capacity, plans->batch_count + 1,
                         sizeof *plans->batches, "nccl batches");
        if (status != SLUICE_OK)
            return status;
        plans->batches[plans->batch_count] = (struct sl_nccl_batch){plans->plan_count, number};
        *channel = (struct channel){.batch = (uint32_t)plans->batch_count++, .epoch = p->epoch, .offset_base = offset};
        p->headers++;
    } else if (offset - channel->offset_base > (uint64_t)OFFSET_WORKS * SL_NCCL_WORK_BYTES) {
        channel->offset_base = offset; /* an extension header: the same batch goes on */
        p->headers++;
    }
    channel->rounds[channel->count++] = round;
    channel->bytes += SL_NCCL_WORK_BYTES;
    status = sl_grow(plans->mem, &plans->works, &plans->work_capacity, plans->work_count + 1, sizeof *plans->works,
                     "nccl works");
    if (status != SLUICE_OK)
        return status;
    plans->works[plans->work_count] = *work;
    plans->works[plans->work_count++].batch = channel->batch;
    return SLUICE_OK;
}

static uint32_t op_parts(const struct planner *p, uint32_t op)
{
    if (op == SL_NCCL_NONE)
        return 0;
    uint32_t peer = p->ops[op].peer;
    _Bool local = peer != p->rank && peer / p->config->ranks_per_node == p->rank / p->config->ranks_per_node;
    return sl_nccl_op_channels(p->config, p->ops[op].bytes, local);
}

static void pop(struct planner *p, _Bool receive, uint32_t op)
{
    if (op == SL_NCCL_NONE)
        return;
    p->queues.head[receive][p->ops[op].peer] = p->queues.next[op];
    p->plans->plan_of_op[op] = p->plans->plan_count;
    p->left--;
}

/* The heads of one round become one work item; `*ret_full`: the plan has no room for it. */
static sluice_status add_round(struct planner *p, uint32_t round, _Bool *ret_full)
{
    uint32_t send = p->queues.head[0][p->send_peer[round]];
    uint32_t recv = p->queues.head[1][p->recv_peer[round]];
    *ret_full = 0;
    if (send == SL_NCCL_NONE && recv == SL_NCCL_NONE)
        return SLUICE_OK;
    if (p->send_peer[round] == p->rank && (send == SL_NCCL_NONE || recv == SL_NCCL_NONE))
        return sl_fail(SLUICE_INVALID, "nccl model", "rank %u has a self message with one end only", p->rank);
    if (!fits_plan(p)) {
        *ret_full = 1;
        return SLUICE_OK;
    }
    uint64_t offset = p->work_bytes;
    p->work_bytes += SL_NCCL_WORK_BYTES;
    p->plans->items++;
    uint32_t sends = op_parts(p, send);
    uint32_t recvs = op_parts(p, recv);
    uint32_t base = sl_nccl_channel_base(p->config, round);
    for (uint32_t part = 0; part < sends || part < recvs; part++) {
        struct sl_nccl_work work = {
            .send = part < sends ? send : SL_NCCL_NONE, .recv = part < recvs ? recv : SL_NCCL_NONE, .part = part};
        sluice_status status = add_part(p, round, (base + part) & (p->config->channels - 1), offset, &work);
        if (status != SLUICE_OK)
            return status;
    }
    pop(p, 0, send);
    pop(p, 1, recv);
    return SLUICE_OK;
}

static sluice_status fill_plans(struct planner *p)
{
    uint32_t version = p->config->version;
    uint32_t at = 0; /* index into active */
    while (p->left > 0) {
        open_plan(p);
        if (version < VERSION_ORDER_KEPT)
            at = 0;
        _Bool full = 0;
        while (!full && p->left > 0) {
            if (version >= VERSION_EPOCHS && version < VERSION_ORDER_KEPT)
                p->epoch++;
            while (at < p->active_count) {
                sluice_status status = add_round(p, p->active[at], &full);
                if (status != SLUICE_OK)
                    return status;
                if (full)
                    break;
                at++;
            }
            if (full)
                break;
            at = 0;
            if (version >= VERSION_ORDER_KEPT)
                p->epoch++;
        }
        close_plan(p);
    }
    return SLUICE_OK;
}

static void drop_planner(struct planner *p, struct sl_mem *mem)
{
    sl_free(mem, p->queues.head[0]);
    sl_free(mem, p->queues.head[1]);
    sl_free(mem, p->queues.next);
    sl_free(mem, p->send_peer);
    sl_free(mem, p->recv_peer);
    sl_free(mem, p->active);
}

sluice_status sl_nccl_plan(const struct sl_nccl_config *config, uint32_t rank, const struct sl_nccl_op *ops,
                           size_t count, struct sl_mem *mem, struct sl_nccl_plans *ret)
{
    sluice_status status = sl_nccl_config_check(config);
    if (status != SLUICE_OK)
        return status;
    uint32_t world = sl_nccl_world(config);
    struct sl_nccl_plans plans = {.mem = mem, .op_count = count};
    struct planner p = {.config = config, .ops = ops, .plans = &plans, .rank = rank, .world = world, .left = count};
    p.send_peer = sl_new_array(mem, world, sizeof(uint32_t), "nccl rounds");
    p.recv_peer = sl_new_array(mem, world, sizeof(uint32_t), "nccl rounds");
    p.active = sl_new_array(mem, world, sizeof(uint32_t), "nccl rounds");
    plans.plan_of_op = sl_new_array(mem, count, sizeof(uint32_t), "nccl plans");
    if (!p.send_peer || !p.recv_peer || !p.active || !plans.plan_of_op)
        status = SLUICE_NOMEM;
    if (status == SLUICE_OK)
        status = sl_nccl_rounds(config, rank, p.send_peer, p.recv_peer);
    if (status == SLUICE_OK)
        status = queue_ops(&p, count, mem);
    if (status == SLUICE_OK) {
        find_active_rounds(&p);
        status = fill_plans(&p);
    }
    drop_planner(&p, mem);
    if (status != SLUICE_OK) {
        sl_nccl_plans_drop(&plans);
        return status;
    }
    plans.fifo_exceeded = plans.fifo_bytes > (uint64_t)(config->fifo_bytes / 8) * 7;
    *ret = plans;
    return SLUICE_OK;
}

void sl_nccl_plans_drop(struct sl_nccl_plans *plans)
{
    if (plans == NULL || plans->mem == NULL)
        return;
    sl_free(plans->mem, plans->works);
    sl_free(plans->mem, plans->batches);
    sl_free(plans->mem, plans->plan_of_op);
    *plans = (struct sl_nccl_plans){0};
}
