/*
 * Copy sets: pieces become tiles in device memory when the set is opened, so that a launch is one kernel
 * with two arguments.
 *
 * Invariants: tiles cover the pieces' bytes exactly and in order; a tile has at most TILE_BYTES; nothing
 * here touches a stream that carries work.
 */
#include "runtime/backend/cuda/device.h"
#include "runtime/backend/strided.h"

enum { TILE_BYTES_MIN = 8192 };

struct tiles {
    struct sl_mem *mem;
    struct sl_tile *list;
    size_t count, capacity;
    uint64_t tile_bytes;
};

static sluice_status add(struct tiles *tiles, const struct sl_tile *tile)
{
    sluice_status status =
        sl_grow(tiles->mem, &tiles->list, &tiles->capacity, tiles->count + 1, sizeof *tiles->list, "copy tiles");
    if (status == SLUICE_OK)
        tiles->list[tiles->count++] = *tile;
    return status;
}

static _Bool is_flat(const struct sl_cursor *cursor)
{
    return cursor->row_bytes == UINT64_MAX;
}

static _Bool at_row(const struct sl_cursor *cursor)
{
    return is_flat(cursor) || cursor->left == cursor->row_bytes;
}

static void skip_rows(struct sl_cursor *cursor, uint64_t rows, uint64_t row_bytes)
{
    cursor->address += rows * (is_flat(cursor) ? row_bytes : cursor->pitch);
}

/* Whole rows of one length at both ends, from here on; 0 when the ends do not fit each other. */
static uint64_t common_row(const struct sl_cursor *from, const struct sl_cursor *to)
{
    if (!at_row(from) || !at_row(to) || (is_flat(from) && is_flat(to)))
        return 0;
    if (!is_flat(from) && !is_flat(to) && from->row_bytes != to->row_bytes)
        return 0;
    return from->row_bytes < to->row_bytes ? from->row_bytes : to->row_bytes;
}

static sluice_status add_rows(struct tiles *tiles, struct sl_cursor *from, struct sl_cursor *to, uint64_t row,
                              uint64_t rows)
{
    uint64_t most = tiles->tile_bytes / row;
    while (rows > 0) {
        uint64_t now = rows < most ? rows : most;
        struct sl_tile tile = {.from = from->address,
                               .to = to->address,
                               .from_pitch = is_flat(from) ? row : from->pitch,
                               .to_pitch = is_flat(to) ? row : to->pitch,
                               .row_bytes = (uint32_t)row,
                               .rows = (uint32_t)now};
        sluice_status status = add(tiles, &tile);
        if (status != SLUICE_OK)
            return status;
        skip_rows(from, now, row);
        skip_rows(to, now, row);
        rows -= now;
    }
    return SLUICE_OK;
}

static sluice_status add_piece(struct tiles *tiles, const struct sluice_copy *piece)
{
    struct sl_cursor from = sl_cursor_at(&piece->from, 0), to = sl_cursor_at(&piece->to, 0);
    uint64_t left = piece->bytes;
    while (left > 0) {
        uint64_t row = common_row(&from, &to);
        if (row != 0 && row <= tiles->tile_bytes / 2 && left >= 2 * row) {
            uint64_t rows = left / row;
            sluice_status status = add_rows(tiles, &from, &to, row, rows);
            if (status != SLUICE_OK)
                return status;
            left -= rows * row;
            continue;
        }
        uint64_t run = left;
        run = run < from.left ? run : from.left;
        run = run < to.left ? run : to.left;
        run = run < tiles->tile_bytes ? run : tiles->tile_bytes;
        struct sl_tile tile = {.from = from.address, .to = to.address, .row_bytes = (uint32_t)run, .rows = 1};
        sluice_status status = add(tiles, &tile);
        if (status != SLUICE_OK)
            return status;
        sl_cursor_advance(&from, run);
        sl_cursor_advance(&to, run);
        left -= run;
    }
    return SLUICE_OK;
}

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
    struct sl_cuda_scope scope;
    void *memory = NULL;
    if (bytes == 0) {
        *ret = NULL;
        return SLUICE_OK;
    }
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status != SLUICE_OK)
        return status;
    status = sl_cuda_status(cudaMalloc(&memory, bytes), "allocating copy descriptors");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, device->setup),
                                "copying descriptors");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaStreamSynchronize(device->setup), "copying descriptors");
    if (status != SLUICE_OK)
        (void)cudaFree(memory);
    else
        *ret = memory;
    sl_cuda_leave(&scope);
    return status;
}

/* A kernel that met memory of the host alone would fault and take the context with it. */
static sluice_status check_end(const struct sluice_copy *piece, uint64_t address, const char *end)
{
    struct cudaPointerAttributes attributes;
    if (address == 0)
        return sl_fail(SLUICE_INVALID, "cuda", "the %s of parameter %u has no address", end, piece->param);
    sluice_status status =
        sl_cuda_status(cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address), "looking up memory");
    if (status == SLUICE_OK && attributes.type == cudaMemoryTypeUnregistered)
        return sl_fail(SLUICE_UNSUPPORTED, "cuda",
                       "the %s of parameter %u is pageable host memory: use device memory, or pin it with "
                       "cudaHostAlloc or cudaHostRegister",
                       end, piece->param);
    return status;
}

static sluice_status check_pieces(struct sluice_device *device, const struct sluice_copy *pieces, size_t count)
{
    struct sl_cuda_scope scope;
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status != SLUICE_OK)
        return status;
    for (size_t i = 0; status == SLUICE_OK && i < count; i++) {
        if (pieces[i].bytes == 0)
            continue;
        status = check_end(&pieces[i], pieces[i].from.address, "source");
        if (status == SLUICE_OK)
            status = check_end(&pieces[i], pieces[i].to.address, "destination");
    }
    sl_cuda_leave(&scope);
    return status;
}

static sluice_status prepare_copy(struct sluice_set *set, const struct sluice_copy *pieces, size_t count)
{
    struct sluice_device *device = set->device;
    struct tiles tiles = {.mem = device->mem, .tile_bytes = sl_cuda_tile_bytes(device, set->bytes)};
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; status == SLUICE_OK && i < count; i++)
        status = add_piece(&tiles, &pieces[i]);
    if (status == SLUICE_OK && tiles.count > UINT32_MAX)
        status = sl_fail(SLUICE_LIMIT, "cuda", "a copy set of %zu tiles: lower window_bytes", tiles.count);
    void *memory = NULL;
    if (status == SLUICE_OK)
        status = sl_cuda_upload(device, tiles.list, tiles.count * sizeof *tiles.list, &memory);
    set->tiles = memory;
    set->count = (uint32_t)tiles.count;
    sl_free(device->mem, tiles.list);
    return status;
}

sluice_status sl_cuda_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                               const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    struct sluice_set *set = sl_new(device->mem, sizeof *set, "copy set");
    if (set == NULL)
        return SLUICE_NOMEM;
    *set = (struct sluice_set){.device = device, .kind = kind};
    for (size_t i = 0; i < count; i++)
        set->bytes += pieces[i].bytes;
    sluice_status status = check_pieces(device, pieces, count);
    if (status == SLUICE_OK && kind == SLUICE_COPY_DIGEST)
        status = sl_cuda_digest_prepare(set, pieces, count);
    else if (status == SLUICE_OK)
        status = prepare_copy(set, pieces, count);
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
    sl_free(set->device->mem, set);
}
