/*
 * set.c: copy sets and the one loop that moves bytes.
 *
 * - Pieces are copied by memcpy row by row, so any address and any pitch will do; a contiguous piece is one call.
 * - A set holds no addresses of a peer: an unpack set is told at run time where its messages landed.
 */
#include <string.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/strided.h"

struct sluice_set {
    struct sl_mem *mem;
    enum sluice_copy_kind kind;
    size_t count;
    struct sluice_copy pieces[];
};

static bool piece_fits(const struct sluice_copy *piece)
{
    return piece->bytes > 0 && piece->from.row_bytes > 0 && piece->to.row_bytes > 0 && piece->from.address != 0 &&
           piece->to.address != 0;
}

sluice_status sl_host_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                               const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    for (size_t i = 0; i < count; i++)
        if (!piece_fits(&pieces[i]))
            return sl_fail(SLUICE_INVALID, SL_HOST_WHERE,
                           "piece %zu of a copy set (parameter %u) has no bytes, no row length or no address", i,
                           pieces[i].param);
    if (count > (SIZE_MAX - sizeof(struct sluice_set)) / sizeof(*pieces))
        return sl_fail(SLUICE_LIMIT, SL_HOST_WHERE, "a copy set of %zu pieces", count);
    struct sluice_set *set = sl_new(device->mem, sizeof(*set) + count * sizeof(*pieces), "copy set");
    if (set == NULL)
        return SLUICE_NOMEM;
    set->mem = device->mem;
    set->kind = kind;
    set->count = count;
    if (count > 0)
        memcpy(set->pieces, pieces, count * sizeof(*pieces));
    *ret = set;
    return SLUICE_OK;
}

void sl_host_set_close(struct sluice_set *set)
{
    if (set != NULL)
        sl_free(set->mem, set);
}

enum sluice_copy_kind sl_host_set_kind(const struct sluice_set *set)
{
    return set->kind;
}

static sluice_status unpack(const struct sluice_set *set, const struct sluice_queue *queue)
{
    if (queue->landing_status != SLUICE_OK)
        return sl_fail(SLUICE_ABORTED, SL_HOST_WHERE, "an unpack set behind a group that failed was not run");
    for (size_t i = 0; i < set->count; i++) {
        const struct sluice_copy *piece = &set->pieces[i];
        if (piece->message >= queue->landing_count)
            return sl_fail(SLUICE_INVALID, SL_HOST_WHERE,
                           "piece %zu of an unpack set (parameter %u) names message %u, but %u messages wait on "
                           "its queue",
                           i, piece->param, piece->message, queue->landing_count);
        sl_strided_copy(piece, queue->landings[piece->message].delta);
    }
    return SLUICE_OK;
}

sluice_status sl_host_set_run(const struct sluice_set *set, const struct sluice_queue *queue)
{
    if (set->kind == SLUICE_COPY_UNPACK)
        return unpack(set, queue);
    for (size_t i = 0; i < set->count; i++)
        sl_strided_copy(&set->pieces[i], 0);
    return SLUICE_OK;
}

void sl_host_set_digest(const struct sluice_set *set, uint64_t *ret_digests)
{
    for (size_t i = 0; i < set->count; i++)
        ret_digests[i] = sl_strided_digest(&set->pieces[i].from, set->pieces[i].bytes);
}
