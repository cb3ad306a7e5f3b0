/* Mixed sizes out of blocks: nothing overlaps, nothing leaves its block, everything goes back. */
#include "runtime/base/memory_blocks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/random.h"

enum { BLOCKS = 256, MIB = 1 << 20 };

/* Where blocks come from, in place of pinned memory. */
struct source {
    struct {
        uint8_t *base;
        size_t bytes;
    } blocks[BLOCKS];
    uint32_t count;
    uint32_t takes;
    uint32_t takes_max; /* 0: any number */
};

static void *take(void *context, size_t bytes)
{
    struct source *source = context;
    if (source->takes == source->takes_max && source->takes_max != 0)
        return NULL;
    cr_assert_lt(source->count, BLOCKS);
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(block, MAP_FAILED);
    free(malloc(100)); /* what takes pinned memory allocates too */
    source->takes++;
    source->blocks[source->count].base = block;
    source->blocks[source->count++].bytes = bytes;
    return block;
}

static void give(void *context, void *block, size_t bytes)
{
    struct source *source = context;
    for (uint32_t i = 0; i < source->count; i++)
        if (source->blocks[i].base == block) {
            cr_assert_eq(source->blocks[i].bytes, bytes, "a block goes back whole");
            source->blocks[i] = source->blocks[--source->count];
            cr_assert_eq(munmap(block, bytes), 0);
            return;
        }
    cr_assert_fail("a block that was never taken");
}

static const struct sl_block_ops ops = {take, give};

static struct sl_blocks *open_blocks(struct source *source)
{
    struct sl_blocks *blocks = NULL;
    cr_assert_eq(sl_blocks_open(sl_mem_default(), &ops, source, &blocks), SLUICE_OK);
    return blocks;
}

static _Bool inside(const struct source *source, const uint8_t *memory, size_t bytes)
{
    for (uint32_t i = 0; i < source->count; i++)
        if (memory >= source->blocks[i].base && memory + bytes <= source->blocks[i].base + source->blocks[i].bytes)
            return 1;
    return 0;
}

Test(blocks, allocations_of_all_sizes_lie_in_blocks_and_keep_their_bytes)
{
    enum { LIVE = 24, ROUNDS = 1000 };
    struct source source = {.count = 0};
    struct sl_blocks *blocks = open_blocks(&source);
    struct sl_random random = {.state = 3};
    uint8_t *memory[LIVE] = {NULL};
    size_t bytes[LIVE] = {0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = round % LIVE;
        for (size_t b = 0; b < bytes[i]; b += 511)
            cr_assert_eq(memory[i][b], (uint8_t)(i + 1), "bytes of another allocation");
        sl_blocks_free(blocks, memory[i], bytes[i]);
        bytes[i] = 1 + sl_random_below(&random, sl_random_below(&random, 2) == 0 ? 5000 : 3 * MIB);
        memory[i] = sl_blocks_alloc(blocks, bytes[i]);
        cr_assert_not_null(memory[i]);
        cr_assert_eq((uintptr_t)memory[i] % SL_BLOCKS_ALIGNMENT, 0);
        cr_assert(inside(&source, memory[i], bytes[i]));
        memset(memory[i], (int)(i + 1), bytes[i]);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < source.count; i++)
        sum += source.blocks[i].bytes;
    cr_assert_eq(sl_blocks_taken(blocks), sum);
    for (uint32_t i = 0; i < LIVE; i++)
        sl_blocks_free(blocks, memory[i], bytes[i]);
    cr_assert_eq(source.count, 0, "all blocks go back with the last allocation");
    cr_assert_eq(sl_blocks_taken(blocks), 0);
    sl_blocks_close(blocks);
}

Test(blocks, slots_of_three_and_a_half_mebibytes_take_four_each)
{
    struct source source = {.count = 0};
    struct sl_blocks *blocks = open_blocks(&source);
    void *slots[16];
    for (int i = 0; i < 16; i++)
        slots[i] = sl_blocks_alloc(blocks, 3 * MIB + MIB / 2);
    cr_assert_leq(sl_blocks_taken(blocks), (uint64_t)64 * MIB);
    for (int i = 0; i < 16; i++)
        sl_blocks_free(blocks, slots[i], 3 * MIB + MIB / 2);
    cr_assert_eq(source.count, 0);
    sl_blocks_close(blocks);
}

Test(blocks, a_large_allocation_is_a_block_of_exactly_its_size)
{
    struct source source = {.count = 0};
    struct sl_blocks *blocks = open_blocks(&source);
    void *memory = sl_blocks_alloc(blocks, 40 * MIB);
    cr_assert_eq(sl_blocks_taken(blocks), 40 * MIB);
    cr_assert_eq(source.blocks[0].base, memory);
    sl_blocks_free(blocks, memory, 40 * MIB);
    cr_assert_eq(source.count, 0);
    sl_blocks_close(blocks);
}

Test(blocks, when_there_are_no_more_blocks_the_answer_is_null_and_what_is_there_stays)
{
    struct source source = {.takes_max = 1};
    struct sl_blocks *blocks = open_blocks(&source);
    uint8_t *first = sl_blocks_alloc(blocks, 3 * MIB);
    cr_assert_not_null(first);
    memset(first, 5, 3 * MIB);
    cr_assert_null(sl_blocks_alloc(blocks, 3 * MIB));
    cr_assert_null(sl_blocks_alloc(blocks, 64 * MIB));
    cr_assert_eq(first[3 * MIB - 1], 5);
    sl_blocks_free(blocks, first, 3 * MIB);
    sl_blocks_free(blocks, NULL, 3 * MIB);
    cr_assert_eq(source.count, 0);
    source.takes = 0;
    void *again = sl_blocks_alloc(blocks, MIB);
    cr_assert_not_null(again);
    sl_blocks_free(blocks, again, MIB);
    sl_blocks_close(blocks);
}

/* Blocks that follow each other without a gap. */
struct row {
    uint8_t *memory;
    size_t used;
};

static void *take_next(void *context, size_t bytes)
{
    struct row *row = context;
    uint8_t *block = row->memory + row->used;
    row->used += bytes;
    return row->used <= (size_t)64 * MIB ? block : NULL;
}

static void leave(void *context, void *block, size_t bytes)
{
    (void)context, (void)block, (void)bytes;
}

Test(blocks, what_was_split_joins_again_in_a_block_that_follows_another)
{
    static const struct sl_block_ops row_ops = {take_next, leave};
    enum { PARTS = 4, PART = MIB / 2 };
    struct row row = {.used = 0};
    struct sl_blocks *blocks = NULL;
    void *parts[PARTS];
    row.memory = mmap(NULL, (size_t)64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)row.memory, MAP_FAILED);
    cr_assert_eq(sl_blocks_open(sl_mem_default(), &row_ops, &row, &blocks), SLUICE_OK);
    void *first = sl_blocks_alloc(blocks, 3 * MIB);
    void *second = sl_blocks_alloc(blocks, 3 * MIB);
    sl_blocks_free(blocks, second, 3 * MIB);
    for (int i = 0; i < PARTS; i++)
        parts[i] = sl_blocks_alloc(blocks, PART);
    for (int i = 0; i < PARTS; i++)
        sl_blocks_free(blocks, parts[i], PART);
    second = sl_blocks_alloc(blocks, 3 * MIB);
    cr_expect_leq(sl_blocks_taken(blocks), (uint64_t)8 * MIB, "no third block");
    sl_blocks_free(blocks, second, 3 * MIB);
    sl_blocks_free(blocks, first, 3 * MIB);
    sl_blocks_close(blocks);
    cr_assert_eq(munmap(row.memory, (size_t)64 * MIB), 0);
}
