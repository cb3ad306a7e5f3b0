/*
 * seal_rounds.c: the rounds of a seal behind those of seal.h: READY and OPENED.
 *
 * Invariants: pure; what comes from other ranks is checked before it is used; a failure of any rank
 * becomes the failure of all.
 */
#include <string.h>

#include "runtime/core/agree.h"
#include "runtime/core/recover.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/sealed.h"

void sl_ready_fill(const struct sluice_error *failure, const struct sluice_blob *blob, struct sl_ready_part *ret)
{
    *ret = (struct sl_ready_part){0};
    if (failure->status != SLUICE_OK) {
        ret->status = failure->status;
        ret->bytes = (uint32_t)strnlen(failure->text, sizeof failure->text - 1);
        memcpy(ret->data, failure->text, ret->bytes);
    } else if (blob != NULL) {
        ret->bytes = blob->bytes;
        memcpy(ret->data, blob->data, blob->bytes);
    }
}

static sluice_status check_part(const struct sl_bytes *bytes, uint32_t rank, struct sl_ready_part *part,
                                struct sluice_error *error)
{
    _Bool whole = bytes->bytes == sizeof *part;
    if (whole)
        memcpy(part, bytes->data, sizeof *part);
    if (!whole || part->status > 0 || strcmp(sluice_status_name((sluice_status)part->status), "SLUICE_UNKNOWN") == 0 ||
        part->bytes >= sizeof part->data)
        return sl_error_set(error, SLUICE_PROTOCOL, "seal", "rank %u sent a malformed part", rank);
    if (part->status == SLUICE_OK)
        return part->bytes <= SLUICE_BLOB_MAX
                   ? SLUICE_OK
                   : sl_error_set(error, SLUICE_PROTOCOL, "seal", "rank %u sent a malformed address", rank);
    return sl_error_set(error, (sluice_status)part->status, "seal", "rank %u: %.*s", rank, (int)part->bytes,
                        (const char *)part->data);
}

/* Each address behind its length (u32): the result goes to every rank, so it is no longer than it must be. */
sluice_status sl_ready_reduce(const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem, uint8_t **ret_data,
                              size_t *ret_bytes, struct sluice_error *error)
{
    struct sl_ready_part part = {0};
    uint8_t *data = sl_new_array(mem, world, sizeof(uint32_t) + SLUICE_BLOB_MAX, "addresses");
    if (data == NULL)
        return sl_error_set(error, SLUICE_NOMEM, "seal", "rank 0 is out of memory for the seal");
    size_t used = 0;
    struct sluice_error heard = {0}; /* from a rank that only heard of another one's failure */
    sluice_status status = SLUICE_OK;
    for (uint32_t rank = 0; rank < world && (status == SLUICE_OK || status == SLUICE_PEER_FAILED); rank++) {
        status = check_part(&parts[rank], rank, &part, error);
        if (status == SLUICE_PEER_FAILED && heard.status == SLUICE_OK)
            heard = *error;
        if (status != SLUICE_OK)
            continue;
        memcpy(data + used, &part.bytes, sizeof part.bytes);
        memcpy(data + used + sizeof part.bytes, part.data, part.bytes);
        used += sizeof part.bytes + part.bytes;
    }
    if (status == SLUICE_OK && heard.status == SLUICE_OK) {
        *ret_data = data;
        *ret_bytes = used;
        return SLUICE_OK;
    }
    sl_free(mem, data);
    if (status != SLUICE_OK && status != SLUICE_PEER_FAILED)
        return status;
    *error = heard;
    return heard.status;
}

/* The next address; false: what is left is malformed. */
static _Bool take_blob(const uint8_t **data, size_t *left, struct sluice_blob *ret)
{
    if (*left < sizeof ret->bytes)
        return 0;
    memcpy(&ret->bytes, *data, sizeof ret->bytes);
    *left -= sizeof ret->bytes;
    *data += sizeof ret->bytes;
    if (ret->bytes > SLUICE_BLOB_MAX || ret->bytes > *left)
        return 0;
    memcpy(ret->data, *data, ret->bytes);
    *left -= ret->bytes;
    *data += ret->bytes;
    return 1;
}

sluice_status sl_ready_blobs(const uint8_t *data, size_t bytes, uint32_t world, struct sl_mem *mem,
                             struct sluice_blob **ret)
{
    struct sluice_blob *blobs = sl_new_array(mem, world, sizeof *blobs, "addresses");
    if (blobs == NULL)
        return SLUICE_NOMEM;
    size_t left = bytes;
    uint32_t rank = 0;
    while (rank < world && take_blob(&data, &left, &blobs[rank]))
        rank++;
    if (rank == world && left == 0) {
        *ret = blobs;
        return SLUICE_OK;
    }
    sl_free(mem, blobs);
    return sl_fail(SLUICE_PROTOCOL, "seal", "rank 0 sent %zu bytes of addresses for %u ranks, of which %u are good",
                   bytes, world, rank);
}

sluice_status sl_runtime_reduce(void *context, uint32_t kind, const struct sl_bytes *parts, uint32_t world,
                                struct sl_mem *mem, uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error)
{
    (void)context;
    switch (kind) {
    case SL_ROUND_TERMS:
        return sl_seal_reduce(parts, world, mem, ret_data, ret_bytes, error);
    case SL_ROUND_READY:
    case SL_ROUND_OPENED:
        return sl_ready_reduce(parts, world, mem, ret_data, ret_bytes, error);
    case SL_ROUND_CHANGED:
    case SL_ROUND_DIGESTS:
    case SL_ROUND_DIGESTS_REST:
    case SL_ROUND_RESUME:
        return sl_agree_reduce(kind, parts, world, mem, ret_data, ret_bytes, error);
    case SL_ROUND_MEMBERS:
    case SL_ROUND_GATHER:
        return sl_recover_reduce(kind, parts, world, mem, ret_data, ret_bytes, error);
    default:
        return sl_error_set(error, SLUICE_PROTOCOL, "seal", "round of unknown kind %u", kind);
    }
}
