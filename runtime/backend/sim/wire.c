/*
 * The simulated wire: messages move when every rank that a group's messages join, directly or through others,
 * has posted its own group, and all that move together end together.
 *
 * Invariants: the k-th send of a pair meets the k-th receive, over groups; a message whose other end comes in a
 * later group of a rank that is here waits alone, as the others must move first for that group to come.
 */
#include "runtime/backend/sim/state.h"

#include <string.h>

enum { HERE = 0, MOVING = 1, DONE = 2 };

struct sl_sim_op *sl_sim_posted(const struct sluice_group *group)
{
    return &group->posted->ops[group->posted->head % SL_SIM_OPS_MAX];
}

/* The number of a message among all of its pair and direction. */
static uint64_t number_of(const struct sluice_group *group, uint32_t index)
{
    const struct sluice_op *op = &sl_sim_posted(group)->op;
    const struct sluice_message *message = &op->messages[index];
    uint64_t number = message->receive ? group->received[message->peer] : group->sent[message->peer];
    for (uint32_t i = 0; i < index; i++)
        number += op->messages[i].peer == message->peer && op->messages[i].receive == message->receive;
    return number;
}

/* Index of the other end in the peer's posted group; UINT32_MAX when it is not there. */
static uint32_t other_end(const struct sluice_group *group, uint32_t index, const struct sluice_group *peer)
{
    const struct sluice_message *message = &sl_sim_posted(group)->op.messages[index];
    const struct sluice_op *op = &sl_sim_posted(peer)->op;
    uint32_t rank = group->device->config.rank;
    uint64_t wanted = number_of(group, index);
    uint64_t number = message->receive ? peer->sent[rank] : peer->received[rank];
    for (uint32_t i = 0; i < op->message_count; i++)
        if (op->messages[i].peer == rank && (op->messages[i].receive != 0) != (message->receive != 0) &&
            number++ == wanted)
            return i;
    return UINT32_MAX;
}

/* Walks all ranks that messages join to the first one; false when one of them has posted nothing or is busy. */
static _Bool gather(struct sl_sim *sim, const struct sluice_group *first, uint32_t *ret_count)
{
    uint32_t count = 1;
    sim->walk++;
    sim->stack[0] = first->device->config.rank;
    sim->seen[sim->stack[0]] = sim->walk;
    for (uint32_t at = 0; at < count; at++) {
        const struct sluice_group *group = sl_sim_partner(first, sim->stack[at]);
        const struct sluice_op *op = &sl_sim_posted(group)->op;
        for (uint32_t i = 0; i < op->message_count; i++) {
            const struct sluice_group *peer = sl_sim_partner(first, op->messages[i].peer);
            if (group->state[i] == DONE)
                continue;
            if (peer == NULL || peer->posted == NULL || peer->moving || peer->aborted)
                return 0;
            if (sim->seen[op->messages[i].peer] != sim->walk) {
                sim->seen[op->messages[i].peer] = sim->walk;
                sim->stack[count++] = op->messages[i].peer;
            }
        }
    }
    *ret_count = count;
    return 1;
}

/* --- NCCL's own cut of a group --- */

struct nccl_group {
    struct sl_nccl_op **ops;
    struct sl_nccl_plans *plans;
};

static sluice_status plan_rank(const struct sluice_group *first, uint32_t rank, struct nccl_group *g)
{
    const struct sl_sim *sim = first->device->sim;
    const struct sluice_group *group = sim->seen[rank] == sim->walk ? sl_sim_partner(first, rank) : NULL;
    uint32_t count = group == NULL ? 0 : sl_sim_posted(group)->op.message_count;
    g->ops[rank] = sl_new_array(sim->mem, count, sizeof *g->ops[rank], "simulated group");
    if (g->ops[rank] == NULL)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const struct sluice_message *message = &sl_sim_posted(group)->op.messages[i];
        g->ops[rank][i] = (struct sl_nccl_op){message->bytes, message->peer, i, message->receive != 0};
    }
    return sl_nccl_plan(sim->options.nccl, rank, g->ops[rank], count, sim->mem, &g->plans[rank]);
}

/* Whether NCCL would get through the group of the last walk. */
static _Bool nccl_passes(const struct sluice_group *first)
{
    const struct sl_sim *sim = first->device->sim;
    struct sl_nccl_result result = {.verdict = SL_NCCL_HANGS};
    if (sim->options.nccl == NULL)
        return 1;
    struct nccl_group g = {.ops = sl_new_array(sim->mem, sim->world, sizeof *g.ops, "simulated group"),
                           .plans = sl_new_array(sim->mem, sim->world, sizeof *g.plans, "simulated group")};
    sluice_status status = g.ops && g.plans ? SLUICE_OK : SLUICE_NOMEM;
    for (uint32_t r = 0; status == SLUICE_OK && r < sim->world; r++)
        status = plan_rank(first, r, &g);
    if (status == SLUICE_OK)
        status = sl_nccl_execute(sim->options.nccl, g.plans, (const struct sl_nccl_op *const *)g.ops, sim->world,
                                 sim->mem, &result);
    _Bool passes = status == SLUICE_OK && result.verdict == SL_NCCL_OK;
    if (status == SLUICE_OK)
        sl_nccl_result_drop(&result);
    for (uint32_t r = 0; g.ops && g.plans && r < sim->world; r++) {
        sl_free(sim->mem, g.ops[r]);
        sl_nccl_plans_drop(&g.plans[r]);
    }
    sl_free(sim->mem, g.ops);
    sl_free(sim->mem, g.plans);
    return passes;
}

/* --- moving --- */

static void arrive(void *context, uint64_t number)
{
    struct sluice_group *group = context;
    if (group->posted == NULL || sl_sim_posted(group)->record != number)
        return; /* aborted meanwhile */
    const struct sluice_op *op = &sl_sim_posted(group)->op;
    for (uint32_t i = 0; i < op->message_count; i++)
        if (group->state[i] == MOVING) {
            group->state[i] = DONE;
            group->left--;
        }
    group->moving = 0;
    if (group->left > 0) {
        sl_sim_match(group);
        return;
    }
    for (uint32_t i = 0; i < op->message_count; i++)
        (*(op->messages[i].receive ? &group->received : &group->sent))[op->messages[i].peer]++;
    sl_sim_group_end(group, NULL);
}

/* Puts what has its other end here on the wire; bytes of the larger direction, or false with an error on unequal sizes. */
static _Bool load(struct sluice_group *group, uint64_t *ret_bytes, struct sluice_error *error)
{
    const struct sluice_op *op = &sl_sim_posted(group)->op;
    uint64_t bytes[2] = {0, 0};
    for (uint32_t i = 0; i < op->message_count; i++) {
        const struct sluice_message *message = &op->messages[i];
        const struct sluice_group *peer = sl_sim_partner(group, message->peer);
        uint32_t other = group->state[i] == HERE ? other_end(group, i, peer) : UINT32_MAX;
        if (other == UINT32_MAX)
            continue;
        const struct sluice_message *end = &sl_sim_posted(peer)->op.messages[other];
        if (end->bytes != message->bytes) {
            sl_error_set(error, SLUICE_PROTOCOL, "sim", "rank %u has %llu bytes where rank %u has %llu",
                         group->device->config.rank, (unsigned long long)message->bytes, message->peer,
                         (unsigned long long)end->bytes);
            return 0;
        }
        if (message->receive && group->device->sim->options.move_bytes)
            memcpy((void *)(uintptr_t)message->address, (const void *)(uintptr_t)end->address, message->bytes);
        group->state[i] = MOVING;
        bytes[message->receive != 0] += message->bytes;
    }
    *ret_bytes = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    return 1;
}

static void fail_later(void *context, uint64_t number)
{
    struct sluice_group *group = context;
    struct sluice_error error;
    if (group->posted == NULL || sl_sim_posted(group)->record != number)
        return;
    sl_error_set(&error, SLUICE_PROTOCOL, "sim", "a message of rank %u has another size at its other end",
                 group->device->config.rank);
    sl_sim_group_end(group, &error);
}

void sl_sim_match(struct sluice_group *group)
{
    struct sl_sim *sim = group->device->sim;
    struct sluice_error error;
    uint32_t count;
    uint64_t most = 0;
    _Bool fits = 1;
    if (!gather(sim, group, &count) || !nccl_passes(group))
        return;
    for (uint32_t i = 0; fits && i < count; i++) {
        uint64_t bytes = 0;
        fits = load(sl_sim_partner(group, sim->stack[i]), &bytes, &error);
        most = bytes > most ? bytes : most;
    }
    uint64_t takes = (uint64_t)((sim->options.group_overhead + (double)most / sim->options.link) * 1e9 + 0.5);
    for (uint32_t i = 0; i < count; i++) {
        struct sluice_group *member = sl_sim_partner(group, sim->stack[i]);
        member->moving = 1;
        SL_ASSERT(sl_sim_at(sim, sim->now + (fits ? takes : 0), fits ? arrive : fail_later, member,
                            sl_sim_posted(member)->record) == SLUICE_OK);
    }
}
