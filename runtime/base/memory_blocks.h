/*
 * memory_blocks.h: allocations of mixed sizes out of large blocks of memory that comes from elsewhere: pinned host
 * memory, which takes long to get and cannot be had by the page.
 *
 * Where the process has jemalloc, blocks are the extents of an arena of its own; without it, and from
 * SL_BLOCKS_WHOLE bytes on, every allocation is a block. Nothing of ours is written into the memory.
 * One thread at a time. When nothing is allocated any more, all blocks have gone back.
 */
#ifndef SL_BASE_MEMORY_BLOCKS_H
#define SL_BASE_MEMORY_BLOCKS_H

#include "runtime/base/memory.h"

enum { SL_BLOCKS_ALIGNMENT = 4096, SL_BLOCKS_WHOLE = 32 << 20 };

struct sl_blocks; /* an arena over blocks */

struct sl_block_ops {
    /*
     * `bytes` at a multiple of SL_BLOCKS_ALIGNMENT; NULL: there are none. It may call malloc, but a block must not be
     * memory of malloc: jemalloc would take it for its own twice.
     */
    void *(*take)(void *context, size_t bytes);
    void (*give)(void *context, void *block, size_t bytes);
};

/* NOMEM. `ops` and `context` outlive it. */
sluice_status sl_blocks_open(struct sl_mem *mem, const struct sl_block_ops *ops, void *context, struct sl_blocks **ret);
/* Everything was freed before. NULL is allowed. */
void sl_blocks_close(struct sl_blocks *blocks);

/* At a multiple of SL_BLOCKS_ALIGNMENT, contents undefined; NULL when `take` has no more. */
void *sl_blocks_alloc(struct sl_blocks *blocks, size_t bytes);
void sl_blocks_free(struct sl_blocks *blocks, void *memory, size_t bytes);
/* Bytes of all blocks that were taken and not given back. Any thread. */
uint64_t sl_blocks_taken(const struct sl_blocks *blocks);

#endif
