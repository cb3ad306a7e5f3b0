/*
 * Digest sets: pieces become tiles of whole units when the set is opened; values come back through pinned memory.
 *
 * Invariants: tiles cover the pieces' bytes exactly and in order, whole units but at the end of a piece, so a value
 * does not depend on where tiles are cut; pinned memory is taken from slabs that live as long as the device, so sets
 * come and go without allocating or freeing any.
 */
#include "runtime/backend/cuda/device.h"

#include <string.h>

#include "runtime/backend/digest.h"

enum { ROW_MAX = 1 << 30, SLAB_VALUES = 1 << 16 };

/* Values of several sets; a slab without users begins anew. */
struct sl_cuda_slab {
    struct sl_cuda_slab *next;
    uint64_t *values;
    size_t count, used;
    uint32_t users;
};

struct tiles {
    struct sl_mem *mem;
    struct sl_digest_tile *list;
    size_t count, capacity;
    uint64_t tile_bytes;
};

/* --- where values arrive --- */

static sluice_status add_slab(struct sluice_device *device, size_t count)
{
    struct sl_cuda_slab *slab = sl_new(device->mem, sizeof *slab, "digest values");
    if (slab == NULL)
        return SLUICE_NOMEM;
    slab->count = count > SLAB_VALUES ? count : SLAB_VALUES;
    void *memory = NULL;
    sluice_status status = sl_cuda_pinned_alloc(device, slab->count * sizeof *slab->values, &memory);
    if (status != SLUICE_OK) {
        sl_free(device->mem, slab);
        return status;
    }
    slab->values = memory;
    slab->next = device->slabs;
    device->slabs = slab;
    return SLUICE_OK;
}

static sluice_status take_values(struct sluice_device *device, struct sluice_set *set)
{
    struct sl_cuda_slab *slab = device->slabs;
    while (slab != NULL && slab->count - slab->used < set->piece_count)
        slab = slab->next;
    if (slab == NULL) {
        sluice_status status = add_slab(device, set->piece_count);
        if (status != SLUICE_OK)
            return status;
        slab = device->slabs;
    }
    set->slab = slab;
    set->values = slab->values + slab->used;
    slab->used += set->piece_count;
    slab->users++;
    return SLUICE_OK;
}

static void give_values(struct sluice_set *set)
{
    struct sl_cuda_slab *slab = set->slab;
    if (slab != NULL && --slab->users == 0)
        slab->used = 0;
}

void sl_cuda_slabs_free(struct sluice_device *device)
{
    while (device->slabs != NULL) {
        struct sl_cuda_slab *slab = device->slabs;
        device->slabs = slab->next;
        sl_blocks_free(device->pinned, slab->values, slab->count * sizeof *slab->values);
        sl_free(device->mem, slab);
    }
}

/* --- tiles --- */

static uint32_t at_most(uint64_t value, uint32_t most)
{
    return value < most ? (uint32_t)value : most;
}

/* The tile that begins at byte `at` of a piece. */
static struct sl_digest_tile tile_at(const struct sluice_strided *from, uint64_t at, uint32_t bytes)
{
    struct sl_digest_tile tile = {.first_unit = at / SL_DIGEST_UNIT, .bytes = bytes, .row_bytes = ROW_MAX};
    uint64_t byte = from->begin + at;
    if (from->row_bytes == UINT64_MAX || from->row_bytes == from->pitch) {
        tile.address = from->address + byte;
        tile.left = bytes;
        return tile;
    }
    uint64_t row = byte / from->row_bytes, column = byte % from->row_bytes;
    tile.address = from->address + row * from->pitch + column;
    tile.left = at_most(from->row_bytes - column, bytes);
    tile.row_bytes = at_most(from->row_bytes, ROW_MAX);
    tile.next = from->address + (row + 1) * from->pitch;
    tile.pitch = from->pitch;
    return tile;
}

static sluice_status add_piece(struct tiles *tiles, const struct sluice_copy *piece, uint32_t number)
{
    sluice_status status = SLUICE_OK;
    for (uint64_t at = 0; at < piece->bytes && status == SLUICE_OK; at += tiles->tile_bytes) {
        struct sl_digest_tile tile = tile_at(&piece->from, at, at_most(piece->bytes - at, (uint32_t)tiles->tile_bytes));
        tile.piece = number;
        status =
            sl_grow(tiles->mem, &tiles->list, &tiles->capacity, tiles->count + 1, sizeof *tiles->list, "digest tiles");
        if (status == SLUICE_OK)
            tiles->list[tiles->count++] = tile;
    }
    return status;
}

static sluice_status upload_pieces(struct sluice_set *set, const struct sluice_copy *pieces)
{
    struct sl_mem *mem = set->device->mem;
    struct sl_digest_piece *list = sl_new_array(mem, set->piece_count, sizeof *list, "digest pieces");
    if (list == NULL)
        return SLUICE_NOMEM;
    for (uint32_t p = 0; p < set->piece_count; p++)
        list[p].bytes = pieces[p].bytes;
    void *memory = NULL;
    sluice_status status = sl_cuda_upload(set->device, list, set->piece_count * sizeof *list, &memory);
    set->digest_pieces = memory;
    sl_free(mem, list);
    return status;
}

static sluice_status upload_tiles(struct sluice_set *set, const struct sluice_copy *pieces, const uint8_t *ends)
{
    struct tiles tiles = {.mem = set->device->mem, .tile_bytes = sl_cuda_tile_bytes(set->device, set->bytes)};
    sluice_status status = SLUICE_OK;
    for (uint32_t p = 0; status == SLUICE_OK && p < set->piece_count; p++)
        if (ends[p] == 0)
            status = add_piece(&tiles, &pieces[p], p);
    if (status == SLUICE_OK && tiles.count > UINT32_MAX)
        status = sl_fail(SLUICE_LIMIT, "cuda", "a digest set of %zu tiles: lower window_bytes", tiles.count);
    void *memory = NULL;
    if (status == SLUICE_OK)
        status = sl_cuda_upload(set->device, tiles.list, tiles.count * sizeof *tiles.list, &memory);
    set->digest_tiles = memory;
    set->count = (uint32_t)tiles.count;
    sl_free(tiles.mem, tiles.list);
    return status;
}

/* --- pieces that only the processor reaches --- */

static sluice_status keep_hosted(struct sluice_set *set, const struct sluice_copy *pieces, const uint8_t *ends)
{
    struct sl_mem *mem = set->device->mem;
    struct sl_stage_slots *slots = NULL;
    uint32_t count = 0;
    for (uint32_t p = 0; p < set->piece_count; p++)
        count += ends[p] != 0;
    if (count == 0)
        return SLUICE_OK;
    set->hosted = sl_new_array(mem, count, sizeof *set->hosted, "digest pieces");
    set->hosted_at = sl_new_array(mem, count, sizeof *set->hosted_at, "digest pieces");
    set->hosted_values = sl_new_array(mem, count, sizeof *set->hosted_values, "digest values");
    if (set->hosted == NULL || set->hosted_at == NULL || set->hosted_values == NULL)
        return SLUICE_NOMEM;
    for (uint32_t p = 0; p < set->piece_count; p++)
        if (ends[p] != 0) {
            set->hosted_at[set->hosted_count] = p;
            set->hosted[set->hosted_count++] = pieces[p];
        }
    return sl_cuda_staging_open(set->device, &slots);
}

sluice_status sl_cuda_digest_prepare(struct sluice_set *set, const struct sluice_copy *pieces, const uint8_t *ends,
                                     size_t count)
{
    if (count > UINT32_MAX)
        return sl_fail(SLUICE_LIMIT, "cuda", "a digest set of %zu pieces: lower window_bytes", count);
    set->piece_count = (uint32_t)count;
    if (count == 0)
        return SLUICE_OK;
    sluice_status status = upload_pieces(set, pieces);
    if (status == SLUICE_OK)
        status = upload_tiles(set, pieces, ends);
    if (status == SLUICE_OK)
        status = keep_hosted(set, pieces, ends);
    return status == SLUICE_OK ? take_values(set->device, set) : status;
}

void sl_cuda_digest_drop(struct sluice_set *set)
{
    give_values(set);
    (void)cudaFree(set->digest_pieces);
    (void)cudaFree(set->digest_tiles);
    sl_free(set->device->mem, set->hosted);
    sl_free(set->device->mem, set->hosted_at);
    sl_free(set->device->mem, set->hosted_values);
}

/* --- running --- */

cudaError_t sl_cuda_launch_digest(struct sluice_device *device, const struct sluice_set *set, cudaStream_t stream)
{
    return sl_kernel_digest(set->digest_tiles, set->count, set->digest_pieces, set->piece_count, set->values,
                            sl_cuda_next_ticket(device), sl_cuda_ctas(device), device->multiprocessors, stream);
}

void sl_cuda_digest_take(const struct sluice_op *op)
{
    if (op->set->piece_count > 0)
        memcpy(op->digests, op->set->values, op->set->piece_count * sizeof *op->digests);
    for (uint32_t i = 0; i < op->set->hosted_count; i++)
        op->digests[op->set->hosted_at[i]] = op->set->hosted_values[i];
}
