/*
 * memory_blocks.c: jemalloc's extent hooks over blocks, or a block an allocation.
 *
 * - Extents are split and merged freely within a block and never across two: only whole blocks can be given back.
 * - An extent stays with the arena until nothing is allocated: then the arena is destroyed and all blocks go back. So
 *   dalloc, decommit and purge refuse, decay is off, and no thread but the caller's runs a hook.
 * - The arena's own records lie in plain memory (metadata_use_hooks = false).
 * - Extents grow by what is asked (retain_grow_limit), not geometrically: blocks are counted by those who have a limit.
 * - The list of blocks never grows inside a hook.
 */
#include "runtime/base/memory_blocks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

#ifndef SLUICE_LIBC_ALLOCATOR
#include <jemalloc/jemalloc.h>

#pragma weak mallocx
#pragma weak dallocx
#pragma weak mallctl
#endif

struct block {
    uint8_t *base;
    size_t bytes;
};

struct sl_blocks {
#ifndef SLUICE_LIBC_ALLOCATOR
    extent_hooks_t hooks; /* the first field: hooks get its address */
#endif
    struct sl_mem *mem;
    const struct sl_block_ops *ops;
    void *context;
    struct block *list; /* of the arena; whole allocations are not in it */
    size_t count, capacity;
    atomic_uint_fast64_t taken;
    uint32_t live; /* allocations in the arena */
    int flags;     /* of mallocx; 0: there is no arena now */
};

static void *take(struct sl_blocks *blocks, size_t bytes)
{
    void *block = blocks->ops->take(blocks->context, bytes);
    SL_ASSERT((uintptr_t)block % SL_BLOCKS_ALIGNMENT == 0);
    if (block != NULL)
        atomic_fetch_add(&blocks->taken, bytes);
    return block;
}

static void give(struct sl_blocks *blocks, void *block, size_t bytes)
{
    atomic_fetch_sub(&blocks->taken, bytes);
    blocks->ops->give(blocks->context, block, bytes);
}

#ifndef SLUICE_LIBC_ALLOCATOR

enum { GROW = 2 << 20, SMALLEST = 64 << 10 }; /* below SMALLEST jemalloc would share an extent between sizes */

static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t bytes, size_t alignment, bool *zero, bool *commit,
                        unsigned arena)
{
    struct sl_blocks *blocks = (struct sl_blocks *)hooks;
    (void)arena;
    if (address != NULL || alignment > SL_BLOCKS_ALIGNMENT || blocks->count == blocks->capacity)
        return NULL;
    void *block = take(blocks, bytes);
    if (block == NULL)
        return NULL;
    if (*zero)
        memset(block, 0, bytes);
    *commit = 1;
    blocks->list[blocks->count++] = (struct block){block, bytes};
    return block;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t bytes, bool committed, unsigned arena)
{
    (void)hooks, (void)address, (void)bytes, (void)committed, (void)arena;
    return 1; /* refused: the arena keeps it */
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t bytes, bool committed, unsigned arena)
{
    (void)hooks, (void)address, (void)bytes, (void)committed, (void)arena; /* blocks go back whole, afterwards */
}

static bool hook_split(extent_hooks_t *hooks, void *address, size_t bytes, size_t low, size_t high, bool committed,
                       unsigned arena)
{
    (void)hooks, (void)address, (void)bytes, (void)low, (void)high, (void)committed, (void)arena;
    return 0;
}

static bool hook_merge(extent_hooks_t *hooks, void *low, size_t low_bytes, void *high, size_t high_bytes,
                       bool committed, unsigned arena)
{
    const struct sl_blocks *blocks = (const struct sl_blocks *)hooks;
    (void)low, (void)low_bytes, (void)high_bytes, (void)committed, (void)arena;
    for (size_t i = 0; i < blocks->count; i++)
        if ((uint8_t *)high == blocks->list[i].base)
            return 1; /* two blocks that happen to lie side by side */
    return 0;
}

static int index_of(const struct sl_blocks *blocks)
{
    return (blocks->flags >> 20) - 1;
}

/* Settings that an older jemalloc lacks are left alone: they save memory and are not needed. */
static void arena_set(const struct sl_blocks *blocks, const char *what, void *value, size_t bytes)
{
    char name[64];
    SL_IGNORE(snprintf(name, sizeof name, "arena.%d.%s", index_of(blocks), what) < 0);
    SL_IGNORE(mallctl(name, NULL, NULL, value, bytes));
}

static _Bool arena_open(struct sl_blocks *blocks)
{
    struct {
        extent_hooks_t *hooks;
        bool metadata_use_hooks;
    } config = {&blocks->hooks, 0}; /* jemalloc's header leaves this type out */
    unsigned index = 0;
    size_t bytes = sizeof index;
    ssize_t never = -1;
    size_t grow = GROW;
    if (blocks->flags != 0)
        return 1;
    if (!mallocx || !dallocx || !mallctl ||
        mallctl("experimental.arenas_create_ext", &index, &bytes, &config, sizeof config) != 0)
        return 0;
    blocks->flags = (int)(unsigned)(MALLOCX_ARENA(index) | MALLOCX_TCACHE_NONE);
    arena_set(blocks, "dirty_decay_ms", &never, sizeof never);
    arena_set(blocks, "muzzy_decay_ms", &never, sizeof never);
    arena_set(blocks, "retain_grow_limit", &grow, sizeof grow);
    return 1;
}

static void arena_close(struct sl_blocks *blocks)
{
    char name[64];
    SL_IGNORE(snprintf(name, sizeof name, "arena.%d.destroy", index_of(blocks)) < 0);
    int failed = mallctl(name, NULL, NULL, NULL, 0);
    SL_ASSERT(failed == 0);
    blocks->flags = 0;
    while (blocks->count > 0) {
        const struct block *block = &blocks->list[--blocks->count];
        give(blocks, block->base, block->bytes);
    }
}

static _Bool is_whole(size_t bytes)
{
    return bytes >= SL_BLOCKS_WHOLE || !mallocx || !dallocx || !mallctl;
}

static void *arena_alloc(struct sl_blocks *blocks, size_t bytes)
{
    if (sl_grow(blocks->mem, &blocks->list, &blocks->capacity, blocks->count + 2, sizeof *blocks->list, "blocks") !=
            SLUICE_OK ||
        !arena_open(blocks))
        return NULL;
    void *memory =
        mallocx(bytes < SMALLEST ? SMALLEST : bytes, blocks->flags | MALLOCX_ALIGN((size_t)SL_BLOCKS_ALIGNMENT));
    blocks->live += memory != NULL;
    if (blocks->live == 0)
        arena_close(blocks);
    return memory;
}

static void arena_free(struct sl_blocks *blocks, void *memory)
{
    dallocx(memory, blocks->flags);
    if (--blocks->live == 0)
        arena_close(blocks);
}

static void set_hooks(struct sl_blocks *blocks)
{
    blocks->hooks = (extent_hooks_t){
        .alloc = hook_alloc, .dalloc = hook_dalloc, .destroy = hook_destroy, .split = hook_split, .merge = hook_merge};
}
#else
static _Bool is_whole(size_t bytes)
{
    (void)bytes;
    return 1;
}

static void *arena_alloc(struct sl_blocks *blocks, size_t bytes)
{
    (void)blocks, (void)bytes;
    return NULL;
}

static void arena_free(struct sl_blocks *blocks, void *memory)
{
    (void)blocks, (void)memory;
}

static void set_hooks(struct sl_blocks *blocks)
{
    (void)blocks;
}
#endif

sluice_status sl_blocks_open(struct sl_mem *mem, const struct sl_block_ops *ops, void *context, struct sl_blocks **ret)
{
    struct sl_blocks *blocks = sl_new(mem, sizeof *blocks, "blocks");
    if (blocks == NULL)
        return SLUICE_NOMEM;
    blocks->mem = mem;
    blocks->ops = ops;
    blocks->context = context;
    set_hooks(blocks);
    *ret = blocks;
    return SLUICE_OK;
}

void sl_blocks_close(struct sl_blocks *blocks)
{
    if (blocks == NULL)
        return;
    SL_ASSERT(blocks->live == 0 && atomic_load(&blocks->taken) == 0);
    sl_free(blocks->mem, blocks->list);
    sl_free(blocks->mem, blocks);
}

void *sl_blocks_alloc(struct sl_blocks *blocks, size_t bytes)
{
    return is_whole(bytes) ? take(blocks, bytes) : arena_alloc(blocks, bytes);
}

void sl_blocks_free(struct sl_blocks *blocks, void *memory, size_t bytes)
{
    if (memory == NULL)
        return;
    if (is_whole(bytes))
        give(blocks, memory, bytes);
    else
        arena_free(blocks, memory);
}

uint64_t sl_blocks_taken(const struct sl_blocks *blocks)
{
    return atomic_load(&blocks->taken);
}
