/*
 * seal_detail.c: rank 0's entry into a round's reduction, and the round that names the first task in
 * which the two ends of a pair differ.
 *
 * Invariants: a part that reports a failure wins over everything else, lowest rank first; all parts of
 * a round are of one phase, format and library version; the detail round never succeeds.
 */
#include <inttypes.h>
#include <stdio.h>

#include "runtime/control/seal_format.h"

/* --- the first differing task of a pair --- */

struct pair {
    struct sl_seal_round *round;
    uint32_t source, destination;
    struct sl_reader sends, receives; /* behind the counts */
    uint32_t send_count, receive_count;
};

static sluice_status missing(struct pair *p, const struct sl_seal_task *task, _Bool receive_missing)
{
    if (receive_missing)
        return sl_error_set(p->round->error, SLUICE_MISMATCH, "seal",
                            "task %" PRIu64 " (%" PRIu64 " bytes): rank %u sends it to rank %u, but the receive on "
                            "rank %u is missing",
                            task->id, task->bytes, p->source, p->destination, p->destination);
    return sl_error_set(p->round->error, SLUICE_MISMATCH, "seal",
                        "task %" PRIu64 " (%" PRIu64 " bytes): rank %u receives it from rank %u, but the send on rank "
                        "%u is missing",
                        task->id, task->bytes, p->destination, p->source, p->source);
}

static sluice_status differs(struct pair *p, const struct sl_seal_task *sent, const struct sl_seal_task *received)
{
    struct sluice_error *error = p->round->error;
    if (sent->bytes != received->bytes)
        return sl_error_set(error, SLUICE_MISMATCH, "seal",
                            "task %" PRIu64 ": rank %u sends %" PRIu64 " bytes, rank %u expects %" PRIu64 " bytes",
                            sent->id, p->source, sent->bytes, p->destination, received->bytes);
    if (sent->dtype != received->dtype)
        return sl_error_set(error, SLUICE_MISMATCH, "seal",
                            "task %" PRIu64 ": rank %u sends %s, rank %u expects %s (%" PRIu64 " bytes)", sent->id,
                            p->source, sluice_dtype_name(sent->dtype), p->destination,
                            sluice_dtype_name(received->dtype), sent->bytes);
    return sl_error_set(error, SLUICE_MISMATCH, "seal",
                        "task %" PRIu64 ": rank %u gave it to window %u, rank %u to window %u: their plans differ in "
                        "other tasks; give all ranks the same plan",
                        sent->id, p->source, sent->window, p->destination, received->window);
}

static int order_tasks(const struct sl_seal_task *a, const struct sl_seal_task *b)
{
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->part > b->part) - (a->part < b->part);
}

static _Bool same_task(const struct sl_seal_task *a, const struct sl_seal_task *b)
{
    return a->bytes == b->bytes && a->dtype == b->dtype && a->window == b->window;
}

static sluice_status find_difference(struct pair *p)
{
    uint32_t common = p->send_count < p->receive_count ? p->send_count : p->receive_count;
    struct sl_seal_task sent = {0};
    struct sl_seal_task received = {0};
    for (uint32_t i = 0; i < common; i++) {
        sl_seal_get_task(&p->sends, &sent);
        sl_seal_get_task(&p->receives, &received);
        int order = order_tasks(&sent, &received);
        if (order != 0)
            return missing(p, order < 0 ? &sent : &received, order < 0);
        if (!same_task(&sent, &received))
            return differs(p, &sent, &received);
    }
    if (p->send_count > common) {
        sl_seal_get_task(&p->sends, &sent);
        return missing(p, &sent, 1);
    }
    if (p->receive_count > common) {
        sl_seal_get_task(&p->receives, &received);
        return missing(p, &received, 0);
    }
    return sl_error_set(p->round->error, SLUICE_MISMATCH, "seal",
                        "the tasks from rank %u to rank %u differ between the two ranks, behind the first %u of them",
                        p->source, p->destination, common);
}

sluice_status sl_seal_reduce_detail(struct sl_seal_round *round)
{
    struct pair p = {.round = round};
    for (uint32_t rank = 0; rank < round->world; rank++) {
        struct sl_reader *r = &round->readers[rank];
        uint32_t source = sl_get_u32(r);
        uint32_t destination = sl_get_u32(r);
        uint32_t count = sl_get_u32(r);
        if (rank == 0) {
            p.source = source;
            p.destination = destination;
        }
        if (r->failed || r->left != (size_t)count * SL_SEAL_TASK_BYTES || source != p.source ||
            destination != p.destination)
            return sl_seal_bad_part(round, rank);
        if (rank == source) {
            p.sends = *r;
            p.send_count = count;
        }
        if (rank == destination) {
            p.receives = *r;
            p.receive_count = count;
        }
    }
    return find_difference(&p);
}

/* --- the heads of all parts --- */

static const char *version_text(uint32_t version, char *text, size_t capacity)
{
    (void)snprintf(text, capacity, "%u.%u.%u", version >> 16, (version >> 8) & 255u, version & 255u);
    return text;
}

static sluice_status peer_failed(struct sl_seal_round *round, uint32_t rank)
{
    struct sluice_error failure;
    sl_get_error(&round->readers[rank], &failure);
    if (!sl_reader_done(&round->readers[rank]))
        return sl_seal_bad_part(round, rank);
    return sl_error_set(round->error, failure.status, "seal", "rank %u: %.480s", rank, failure.text);
}

static sluice_status read_head(struct sl_seal_round *round, uint32_t rank, uint32_t *ret_phase)
{
    struct sl_reader *r = &round->readers[rank];
    uint32_t format = sl_get_u32(r);
    uint32_t version = sl_get_u32(r);
    *ret_phase = sl_get_u32(r);
    if (r->failed)
        return sl_seal_bad_part(round, rank);
    char mine[32];
    char theirs[32];
    if (format != SL_SEAL_FORMAT || version != sluice_version_number())
        return sl_error_set(round->error, SLUICE_MISMATCH, "seal",
                            "library version differs: rank 0 has %s (seal format %u), rank %u has %s (seal format %u)",
                            version_text(sluice_version_number(), mine, sizeof(mine)), SL_SEAL_FORMAT, rank,
                            version_text(version, theirs, sizeof(theirs)), format);
    return SLUICE_OK;
}

static sluice_status read_heads(struct sl_seal_round *round, uint32_t *phases)
{
    for (uint32_t i = 0; i < round->world; i++) {
        sluice_status status = read_head(round, i, &phases[i]);
        if (status != SLUICE_OK)
            return status;
    }
    for (uint32_t i = 0; i < round->world; i++)
        if (phases[i] == SL_SEAL_FAILED)
            return peer_failed(round, i);
    for (uint32_t i = 0; i < round->world; i++)
        if (phases[i] != phases[0] || phases[i] < SL_SEAL_TERMS || phases[i] > SL_SEAL_DETAIL)
            return sl_seal_bad_part(round, i);
    return SLUICE_OK;
}

static sluice_status reduce(struct sl_seal_round *round, uint32_t *phases, struct sl_writer *out)
{
    sluice_status status = read_heads(round, phases);
    if (status != SLUICE_OK)
        return status;
    if (phases[0] == SL_SEAL_TERMS)
        return sl_seal_reduce_terms(round, out);
    if (phases[0] == SL_SEAL_RECHECK)
        return sl_seal_reduce_recheck(round, out);
    return sl_seal_reduce_detail(round);
}

sluice_status sl_seal_reduce(const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem, uint8_t **ret_data,
                             size_t *ret_bytes, struct sluice_error *error)
{
    struct sl_seal_round round = {.world = world, .mem = mem, .error = error};
    struct sl_writer out;
    sl_writer_init(&out, mem);
    round.readers = sl_new_array(mem, world, sizeof(*round.readers), "a seal round");
    uint32_t *phases = sl_new_array(mem, world, sizeof(*phases), "a seal round");
    sluice_status status = SLUICE_NOMEM;
    if (round.readers == NULL || phases == NULL) {
        SL_IGNORE(sl_error_set(error, SLUICE_NOMEM, "seal", "out of memory for a round of %u ranks", world));
    } else {
        for (uint32_t i = 0; i < world; i++)
            round.readers[i] = sl_reader_of(parts[i].data, parts[i].bytes);
        status = reduce(&round, phases, &out);
    }
    if (status == SLUICE_OK && sl_writer_take(&out, ret_data, ret_bytes) != SLUICE_OK)
        status = sl_error_set(error, SLUICE_NOMEM, "seal", "out of memory for the result of a round");
    sl_writer_drop(&out);
    sl_free(mem, phases);
    sl_free(mem, round.readers);
    return status;
}
