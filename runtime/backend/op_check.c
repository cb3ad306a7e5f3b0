/* op_check.c: see op_check.h. */
#include "runtime/backend/op_check.h"

#include "runtime/base/error.h"

static sluice_status check_marker(const struct sl_op_facts *facts, const struct sluice_op *op)
{
    if (op->marker >= facts->markers)
        return sl_fail(SLUICE_INVALID, facts->where, "marker %u: there are %u", op->marker, facts->markers);
    if (op->kind == SLUICE_OP_WAIT && !facts->recorded)
        return sl_fail(SLUICE_INVALID, facts->where, "a wait for marker %u that nothing recorded", op->marker);
    return SLUICE_OK;
}

sluice_status sl_op_check(const struct sl_op_facts *facts, const struct sluice_op *op)
{
    switch ((enum sluice_op_kind)op->kind) {
    case SLUICE_OP_COPY:
        if (op->set == NULL)
            return sl_fail(SLUICE_INVALID, facts->where, "a copy without a set");
        return SLUICE_OK;
    case SLUICE_OP_DIGEST:
        if (op->set == NULL || op->digests == NULL || facts->set_kind != SLUICE_COPY_DIGEST)
            return sl_fail(SLUICE_INVALID, facts->where, "a digest without a set of its kind or a place for it");
        return SLUICE_OK;
    case SLUICE_OP_GROUP:
        if (op->group == NULL || (op->messages == NULL && op->message_count > 0))
            return sl_fail(SLUICE_INVALID, facts->where, "a group without a communicator or messages");
        return SLUICE_OK;
    case SLUICE_OP_WAIT:
    case SLUICE_OP_RECORD:
        return check_marker(facts, op);
    case SLUICE_OP_FENCE:
        return SLUICE_OK;
    case SLUICE_OP_AFTER:
    case SLUICE_OP_POINT:
        if (!facts->points)
            break;
        if (op->point == NULL)
            return sl_fail(SLUICE_INVALID, facts->where, "no point to set or to wait for");
        return SLUICE_OK;
    }
    return sl_fail(SLUICE_INVALID, facts->where, "operation of unknown kind %u", op->kind);
}

static _Bool is_peer(const struct sluice_message *message, uint32_t rank, uint32_t world, const uint8_t *peers)
{
    if (message->peer >= world || message->peer == rank)
        return 0;
    return peers == NULL || (peers[message->peer] & (message->receive ? SLUICE_PEER_RECEIVE : SLUICE_PEER_SEND)) != 0;
}

sluice_status sl_op_check_messages(const char *where, const struct sluice_op *op, uint32_t rank, uint32_t world,
                                   const uint8_t *peers)
{
    for (uint32_t i = 0; i < op->message_count; i++) {
        const struct sluice_message *message = &op->messages[i];
        const char *direction = message->receive ? "receive" : "send";
        if (message->bytes == 0 || message->address == 0)
            return sl_fail(SLUICE_INVALID, where, "message %u, a %s, has no bytes or no address", i, direction);
        if (!is_peer(message, rank, world, peers))
            return sl_fail(
                SLUICE_INVALID, where,
                "message %u, a %s, names rank %u, to which the communicator of rank %u has no such direction", i,
                direction, message->peer, rank);
    }
    return SLUICE_OK;
}
