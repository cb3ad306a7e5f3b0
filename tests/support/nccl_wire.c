#include "support/nccl_wire.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void wire_open(struct wire *wire, uint32_t world, uint32_t cut, _Bool restart)
{
    *wire = (struct wire){.world = world, .cut = cut, .restart = restart};
    const struct sl_nccl_config config = {.version = 22809,
                                          .channels = 2,
                                          .channels_per_peer = 2,
                                          .nodes = world,
                                          .ranks_per_node = 1,
                                          .chunk_bytes = 131072,
                                          .args_bytes = 4096,
                                          .fifo_bytes = 1 << 20};
    for (uint32_t r = 0; r < world; r++)
        cr_assert_eq(sl_nccl_rounds(&config, r, wire->ranks[r].rounds_send, wire->ranks[r].rounds_recv), SLUICE_OK);
}

void wire_close(struct wire *wire)
{
    for (uint32_t r = 0; r < wire->world; r++)
        free(wire->ranks[r].ops);
}

/* A group while it is cut: one queue a peer and direction, as indices into `messages`. */
struct cutting {
    const struct wire_message *messages;
    uint32_t count;
    _Bool *taken;
    uint32_t left, in_plan;
};

static uint32_t head_of(const struct cutting *c, uint32_t peer, _Bool receive)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->taken[i] && c->messages[i].peer == peer && c->messages[i].receive == receive)
            return i;
    return UINT32_MAX;
}

static void take_op(struct wire_rank *rank, struct cutting *c, uint32_t index)
{
    const struct wire_message *message = &c->messages[index];
    if (rank->count == rank->capacity) {
        rank->capacity = rank->capacity == 0 ? 64 : 2 * rank->capacity;
        rank->ops = realloc(rank->ops, rank->capacity * sizeof(*rank->ops));
    }
    rank->ops[rank->count++] = (struct wire_op){
        .message = *message, .plan = rank->plans, .match = rank->matches[message->receive][message->peer]++};
    c->taken[index] = 1;
    c->in_plan++;
    c->left--;
}

/* The send and the receive of a round share a work item: both or none. False: the plan is full. */
static _Bool take_round(const struct wire *wire, struct wire_rank *rank, struct cutting *c, uint32_t round)
{
    uint32_t send = head_of(c, rank->rounds_send[round], 0);
    uint32_t receive = head_of(c, rank->rounds_recv[round], 1);
    uint32_t needed = (send != UINT32_MAX) + (receive != UINT32_MAX);
    if (c->in_plan > 0 && c->in_plan + needed > wire->cut)
        return 0;
    if (send != UINT32_MAX)
        take_op(rank, c, send);
    if (receive != UINT32_MAX)
        take_op(rank, c, receive);
    return 1;
}

void wire_group(struct wire *wire, uint32_t number, const struct wire_message *messages, uint32_t count)
{
    struct wire_rank *rank = &wire->ranks[number];
    struct cutting c = {.messages = messages, .count = count, .left = count};
    c.taken = calloc(count + 1, sizeof(*c.taken));
    uint32_t round = 0;
    while (c.left > 0) {
        if (take_round(wire, rank, &c, round)) {
            round = (round + 1) % wire->world;
            continue;
        }
        rank->plans++;
        c.in_plan = 0;
        if (wire->restart)
            round = 0;
    }
    rank->plans++;
    free(c.taken);
}

/* The other end of an operation, while it runs; NULL otherwise. */
static struct wire_op *partner_of(struct wire *wire, uint32_t number, const struct wire_op *op)
{
    struct wire_rank *peer = &wire->ranks[op->message.peer];
    for (uint32_t i = 0; i < peer->count; i++) {
        struct wire_op *other = &peer->ops[i];
        if (other->plan == peer->current && !other->done && other->message.peer == number &&
            other->message.receive != op->message.receive && other->match == op->match)
            return other;
    }
    return NULL;
}

/* Ends what can end in the plan that runs; true when something did. */
static _Bool run_rank(struct wire *wire, uint32_t number)
{
    struct wire_rank *rank = &wire->ranks[number];
    _Bool moved = 0, all = 1;
    for (uint32_t i = 0; i < rank->count; i++) {
        struct wire_op *op = &rank->ops[i];
        if (op->plan != rank->current || op->done)
            continue;
        struct wire_op *other = partner_of(wire, number, op);
        if (other == NULL) {
            all = 0;
            continue;
        }
        const struct wire_message *from = op->message.receive ? &other->message : &op->message;
        const struct wire_message *to = op->message.receive ? &op->message : &other->message;
        cr_assert_eq(from->bytes, to->bytes, "rank %u and rank %u disagree about a size", number, op->message.peer);
        memcpy(to->data, from->data, to->bytes);
        op->done = other->done = 1;
        moved = 1;
    }
    if (all && rank->current < rank->plans) {
        rank->current++;
        moved = 1;
    }
    return moved;
}

_Bool wire_run(struct wire *wire)
{
    _Bool moved = 1;
    while (moved) {
        moved = 0;
        for (uint32_t r = 0; r < wire->world; r++)
            moved = run_rank(wire, r) || moved;
    }
    return wire_left(wire) == 0;
}

uint32_t wire_left(const struct wire *wire)
{
    uint32_t left = 0;
    for (uint32_t r = 0; r < wire->world; r++)
        for (uint32_t i = 0; i < wire->ranks[r].count; i++)
            left += !wire->ranks[r].ops[i].done;
    return left;
}
