/* memory.c: libc behind counters. Every block counts once, whatever thread frees it. */
#include "tests/support/memory.h"

#include <stdlib.h>

static void *counted_alloc(void *context, size_t bytes, size_t alignment)
{
    struct test_memory *memory = context;
    uint64_t number = atomic_fetch_add(&memory->allocations, 1) + 1;
    if (number == atomic_load(&memory->fail_at)) {
        atomic_fetch_add(&memory->failed, 1);
        return NULL;
    }
    void *block = NULL;
    if (posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0)
        return NULL;
    atomic_fetch_add(&memory->live, 1);
    return block;
}

static void counted_free(void *context, void *block)
{
    struct test_memory *memory = context;
    if (block)
        atomic_fetch_sub(&memory->live, 1);
    free(block);
}

static const struct sl_mem_ops counted_ops = {.name = "counted", .alloc = counted_alloc, .free = counted_free};

void test_memory_install(struct test_memory *memory)
{
    *memory = (struct test_memory){0};
    sl_mem_install(&counted_ops, memory);
}

void test_memory_fail_at(struct test_memory *memory, uint64_t n)
{
    atomic_store(&memory->allocations, 0);
    atomic_store(&memory->failed, 0);
    atomic_store(&memory->fail_at, n);
}

void test_memory_remove(void)
{
    sl_mem_install(NULL, NULL);
}
