/*
 * Copy sets: pieces become tiles in device memory when the set is opened, so that a launch is one kernel
 * with two arguments. Pieces with an end in pageable memory become chunks that are staged.
 *
 * Invariants: nothing here touches a stream that carries work; memory of the host that was pinned is read and written
 * by the kernel, at the address by which the device knows it.
 */
#include "runtime/backend/cuda/device.h"
#include "runtime/backend/strided.h"

#include <string.h>

enum { TILE_BYTES_MIN = 8192 };

/* Small sets are cut finer, so that every multiprocessor has something to do. */
uint64_t sl_cuda_tile_bytes(const struct sluice_device *device, uint64_t bytes)
{
    uint64_t share = bytes / (4 * (uint64_t)device->multiprocessors) & ~(uint64_t)4095;
    if (share < TILE_BYTES_MIN)
        return TILE_BYTES_MIN;
    return share < SL_CUDA_TILE_BYTES ? share : SL_CUDA_TILE_BYTES;
}

sluice_status sl_cuda_upload(struct sluice_device *device, const void *from, size_t bytes, void **ret)
{
    void *memory = NULL;
    if (bytes == 0) {
        *ret = NULL;
        return SLUICE_OK;
    }
    sluice_status status = sl_cuda_status(cudaMalloc(&memory, bytes), "allocating copy descriptors");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, device->setup),
                                "copying descriptors");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaStreamSynchronize(device->setup), "copying descriptors");
    if (status != SLUICE_OK)
        (void)cudaFree(memory);
    else
        *ret = memory;
    return status;
}

/* --- where memory is --- */

/* The device reaches all of it, under an address that may differ by *ret_shift. *ret_gpu: whose memory it is, or -1. */
static sluice_status look(uint64_t first, uint64_t last, int *ret_gpu, _Bool *ret_reached, uint64_t *ret_shift)
{
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered}, end = attributes;
    const void *address = (const void *)(uintptr_t)first;
    *ret_shift = 0;
    sluice_status status = sl_cuda_status(cudaPointerGetAttributes(&attributes, address), "looking up memory");
    *ret_gpu = attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
    if (status != SLUICE_OK || attributes.type != cudaMemoryTypeHost) {
        *ret_reached = attributes.type != cudaMemoryTypeUnregistered;
        return status;
    }
    /* Registered memory may end within a buffer: then the whole of it is staged. */
    status = sl_cuda_status(cudaPointerGetAttributes(&end, (const void *)(uintptr_t)last), "looking up memory");
    *ret_reached = attributes.devicePointer != NULL && end.type == cudaMemoryTypeHost;
    if (*ret_reached)
        *ret_shift = (uint64_t)(uintptr_t)attributes.devicePointer - first;
    return status;
}

/*
 * Shifts an end to the device's address, or adds `flag` to *ends when the device does not reach it. Memory of another
 * GPU is refused: a kernel that touched it would lose the context, long after the rank took the wrong one.
 */
static sluice_status place_end(int ordinal, struct sluice_strided *end, const struct sluice_copy *piece,
                               const char *name, uint8_t flag, uint8_t *ends)
{
    uint64_t shift = 0;
    _Bool reached = 0;
    int gpu = -1;
    if (end->address == 0)
        return sl_fail(SLUICE_INVALID, "cuda", "the %s of parameter %u has no address", name, piece->param);
    struct sluice_strided tail = *end;
    tail.begin += piece->bytes - 1;
    sluice_status status = look(sl_cursor_at(end, 0).address, sl_cursor_at(&tail, 0).address, &gpu, &reached, &shift);
    if (status == SLUICE_OK && gpu >= 0 && gpu != ordinal)
        return sl_fail(
            SLUICE_INVALID, "cuda",
            "the %s of parameter %u is memory of GPU %d, the runtime is on GPU %d: bind memory of that one, or "
            "set the option device",
            name, piece->param, gpu, ordinal);
    if (reached)
        end->address += shift;
    else
        *ends |= flag;
    return status;
}

/* What one set is made of while it is opened. */
struct making {
    struct sluice_device *device;
    struct sluice_set *set;
    struct sluice_copy *pieces; /* at the device's addresses */
    uint8_t *ends;              /* of each piece: SL_STAGE_... */
    size_t count;
    _Bool staged; /* some piece is */
    struct sl_cuda_tiles tiles;
};

static sluice_status place_pieces(struct making *making)
{
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < making->count; i++) {
        struct sluice_copy *piece = &making->pieces[i];
        making->set->bytes += piece->bytes;
        if (piece->bytes == 0)
            continue;
        status = place_end(making->device->ordinal, &piece->from, piece, "source", SL_STAGE_FROM, &making->ends[i]);
        if (status == SLUICE_OK && making->set->kind != SLUICE_COPY_DIGEST)
            status =
                place_end(making->device->ordinal, &piece->to, piece, "destination", SL_STAGE_TO, &making->ends[i]);
        making->staged |= making->ends[i] != 0;
    }
    return status;
}

/* --- what is staged --- */

static _Bool is_host(uint64_t address)
{
    struct cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address) == cudaSuccess &&
           attributes.type == cudaMemoryTypeHost;
}

/* The device's own copy call would block between two places of the host: between slots and pinned buffers. */
static _Bool would_block(const struct sl_cuda_part *part)
{
    for (uint32_t i = 0; i < part->run_count; i++)
        if (is_host(part->runs[i].from) && is_host(part->runs[i].to))
            return 1;
    return 0;
}

static sluice_status add_part(struct making *making, uint32_t chunk)
{
    const struct sl_stage_plan *plan = &making->set->staged;
    struct sl_cuda_part *part = &making->set->parts[chunk];
    sluice_status status = SLUICE_OK;
    /* Only local copies go straight into memory of the caller, where a gap may hold something. */
    part->run_count = sl_stage_runs(plan, chunk, making->set->kind != SLUICE_COPY_LOCAL, SL_CUDA_RUNS_MAX, part->runs);
    if (would_block(part))
        part->run_count = 0;
    part->first_tile = (uint32_t)making->tiles.count;
    for (size_t i = plan->chunks[chunk].device; i < plan->chunks[chunk + 1].device && part->run_count == 0; i++)
        if (status == SLUICE_OK)
            status = sl_cuda_tiles_add(&making->tiles, &plan->device.copies[i]);
    part->tile_count = (uint32_t)making->tiles.count - part->first_tile;
    return status;
}

static sluice_status add_staged(struct making *making)
{
    struct sluice_set *set = making->set;
    struct sl_stage_slots *slots = NULL;
    if (!making->staged)
        return SLUICE_OK;
    sluice_status status = sl_cuda_staging_open(making->device, &slots);
    if (status == SLUICE_OK)
        status = sl_stage_cut(making->device->mem, slots, making->pieces, making->ends, making->count, &set->staged);
    if (status != SLUICE_OK)
        return status;
    set->parts = sl_new_array(making->device->mem, set->staged.count, sizeof *set->parts, "parts of chunks");
    if (set->parts == NULL)
        return SLUICE_NOMEM;
    for (uint32_t c = 0; status == SLUICE_OK && c < set->staged.count; c++)
        status = add_part(making, c);
    return status;
}

/* --- open and close --- */

static sluice_status make(struct making *making)
{
    struct sluice_set *set = making->set;
    sluice_status status = place_pieces(making);
    if (status == SLUICE_OK && set->kind == SLUICE_COPY_DIGEST)
        return sl_cuda_digest_prepare(set, making->pieces, making->ends, making->count);
    making->tiles.tile_bytes = sl_cuda_tile_bytes(making->device, set->bytes);
    for (size_t i = 0; status == SLUICE_OK && i < making->count; i++)
        if (making->ends[i] == 0)
            status = sl_cuda_tiles_add(&making->tiles, &making->pieces[i]);
    set->count = (uint32_t)making->tiles.count;
    if (status == SLUICE_OK)
        status = add_staged(making);
    if (status == SLUICE_OK && making->tiles.count > UINT32_MAX)
        status = sl_fail(SLUICE_LIMIT, "cuda", "a copy set of %zu tiles: lower window_bytes", making->tiles.count);
    void *memory = NULL;
    if (status == SLUICE_OK)
        status = sl_cuda_upload(making->device, making->tiles.list, making->tiles.count * sizeof *making->tiles.list,
                                &memory);
    set->tiles = memory;
    return status;
}

static sluice_status make_entered(struct making *making, const struct sluice_copy *pieces)
{
    struct sl_cuda_scope scope;
    struct sl_mem *mem = making->device->mem;
    making->pieces = sl_new_array(mem, making->count, sizeof *pieces, "pieces of a copy set");
    making->ends = sl_new_array(mem, making->count, 1, "ends of a copy set");
    if (making->pieces == NULL || making->ends == NULL)
        return SLUICE_NOMEM;
    if (making->count > 0)
        memcpy(making->pieces, pieces, making->count * sizeof *pieces);
    sluice_status status = sl_cuda_enter(making->device, &scope);
    if (status != SLUICE_OK)
        return status;
    status = make(making);
    sl_cuda_leave(&scope);
    return status;
}

sluice_status sl_cuda_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                               const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    struct sluice_set *set = sl_new(device->mem, sizeof *set, "copy set");
    if (set == NULL)
        return SLUICE_NOMEM;
    *set = (struct sluice_set){.device = device, .kind = kind};
    struct making making = {.device = device, .set = set, .count = count, .tiles = {.mem = device->mem}};
    sluice_status status = make_entered(&making, pieces);
    sl_free(device->mem, making.tiles.list);
    sl_free(device->mem, making.ends);
    sl_free(device->mem, making.pieces);
    if (status == SLUICE_OK)
        *ret = set;
    else
        sl_cuda_set_close(set);
    return status;
}

void sl_cuda_set_close(struct sluice_set *set)
{
    struct sl_cuda_scope scope;
    if (set == NULL)
        return;
    if (sl_cuda_enter(set->device, &scope) == SLUICE_OK) {
        sl_cuda_digest_drop(set);
        (void)cudaFree(set->tiles);
        sl_cuda_leave(&scope);
    }
    sl_stage_plan_drop(&set->staged);
    sl_free(set->device->mem, set->parts);
    sl_free(set->device->mem, set);
}

uint32_t sl_cuda_set_is_staged(const struct sluice_set *set)
{
    return set->parts != NULL || set->hosted_count > 0;
}

uint32_t sl_cuda_is_direct(struct sluice_device *device, uint64_t address)
{
    struct sl_cuda_scope scope;
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};
    if (sl_cuda_enter(device, &scope) != SLUICE_OK)
        return 1; /* what comes next fails and says why */
    if (cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address) != cudaSuccess)
        (void)cudaGetLastError();
    sl_cuda_leave(&scope);
    _Bool own = attributes.type == cudaMemoryTypeDevice && attributes.device == device->ordinal;
    return own ||
           attributes.type == cudaMemoryTypeManaged; /* memory of another GPU is refused by the set it then gets */
}
