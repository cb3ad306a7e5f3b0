/* Blocks, arenas, growth, and what a full memory does. */
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/memory.h"

Test(memory, new_block_is_zeroed_and_aligned)
{
    unsigned char *block = sl_new(sl_mem_default(), 1000, "test");
    cr_assert_not_null(block);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(block[i], 0);
    cr_assert_eq((uintptr_t)block % 16, 0);
    sl_free(sl_mem_default(), block);
    sl_free(sl_mem_default(), NULL);
}

Test(memory, zero_bytes_give_a_block)
{
    void *block = sl_new(sl_mem_default(), 0, "test");
    cr_assert_not_null(block);
    sl_free(sl_mem_default(), block);
}

Test(memory, alignment_is_kept_in_every_arena)
{
    struct sl_mem *mem = sl_mem_open();
    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        void *block = sl_new_aligned(mem, 100, alignment, "test");
        cr_assert_not_null(block);
        cr_assert_eq((uintptr_t)block % alignment, 0);
        sl_free(mem, block);
        block = sl_new_aligned(sl_mem_default(), 100, alignment, "test");
        cr_assert_eq((uintptr_t)block % alignment, 0);
        sl_free(sl_mem_default(), block);
    }
    sl_mem_close(mem);
}

static uint64_t address_space(void)
{
    char line[64] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert(file != NULL && fgets(line, sizeof line, file) != NULL);
    (void)fclose(file);
    return strtoull(line, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

Test(memory, arenas_that_were_closed_leave_no_addresses_in_use)
{
    uint64_t before = 0;
    for (int i = 0; i < 40; i++) {
        before = i == 8 ? address_space() : before;
        struct sl_mem *mem = sl_mem_open();
        void *block = sl_new(mem, 1000, "test");
        cr_assert_not_null(block);
        sl_free(mem, block);
        sl_mem_close(mem);
    }
    cr_expect_eq(address_space(), before);
}

Test(memory, array_too_large_to_count_is_out_of_memory)
{
    cr_assert_null(sl_new_array(sl_mem_default(), SIZE_MAX / 2, 3, "many things"));
    cr_assert_eq(sluice_last_error()->status, SLUICE_NOMEM);
    cr_assert_not_null(strstr(sluice_last_error()->text, "many things"));
    cr_assert_null(sl_new(sl_mem_default(), SIZE_MAX, "all"));
}

Test(memory, grow_keeps_contents_and_doubles)
{
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        cr_assert_eq(sl_grow(sl_mem_default(), &array, &capacity, i + 1, sizeof *array, "test"), SLUICE_OK);
        array[i] = i * 3;
    }
    cr_assert_eq(capacity, 1024);
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert_eq(array[i], i * 3);
    sl_free(sl_mem_default(), array);
}

Test(memory, failed_grow_leaves_the_array_as_it_was)
{
    uint64_t first = 7;
    uint64_t *array = &first;
    size_t capacity = 1;
    cr_assert_eq(sl_grow(sl_mem_default(), &array, &capacity, SIZE_MAX / 4, sizeof *array, "test"), SLUICE_NOMEM);
    cr_assert_eq(array, &first);
    cr_assert_eq(capacity, 1);
    cr_assert_eq(first, 7);
}

Test(memory, strdup_copies)
{
    char *copy = sl_strdup(sl_mem_default(), "weights");
    cr_assert_str_eq(copy, "weights");
    sl_free(sl_mem_default(), copy);
}

/* More arenas than jemalloc has indices: they come back, with all that was left inside. */
Test(memory, closing_an_arena_gives_everything_back)
{
    for (int i = 0; i < 10000; i++) {
        struct sl_mem *mem = sl_mem_open();
        cr_assert_not_null(mem, "arena %d", i);
        void *forgotten = sl_new(mem, 100000, "test");
        cr_assert_not_null(forgotten);
        if (strcmp(sl_mem_name(), "libc") == 0)
            sl_free(mem, forgotten);
        sl_mem_close(mem);
    }
    sl_mem_close(NULL);
}

Test(memory, name_tells_the_allocator)
{
#ifdef SLUICE_LIBC_ALLOCATOR
    cr_assert_str_eq(sl_mem_name(), "libc");
#else
    cr_assert_eq(strncmp(sl_mem_name(), "jemalloc 5", 10), 0);
#endif
}

Test(memory, installed_table_counts_and_fails)
{
    struct test_memory memory;
    test_memory_install(&memory);
    cr_assert_str_eq(sl_mem_name(), "counted");
    struct sl_mem *mem = sl_mem_open();
    void *first = sl_new(mem, 10, "test");
    void *second = sl_new(sl_mem_default(), 10, "test");
    cr_assert_eq(memory.live, 3);
    test_memory_fail_at(&memory, 2);
    void *third = sl_new(mem, 10, "test");
    cr_assert_not_null(third);
    cr_assert_null(sl_new(mem, 10, "the second"));
    cr_assert_eq(memory.failed, 1);
    cr_assert_not_null(strstr(sluice_last_error()->text, "the second"));
    sl_free(mem, first);
    sl_free(mem, third);
    sl_free(sl_mem_default(), second);
    sl_mem_close(mem);
    cr_assert_eq(memory.live, 0);
    test_memory_remove();
}

Test(memory, arena_keeps_the_table_it_was_opened_with)
{
    struct sl_mem *before = sl_mem_open();
    void *block = sl_new(before, 10, "test");
    struct test_memory memory;
    test_memory_install(&memory);
    sl_free(before, block);
    sl_mem_close(before);
    cr_assert_eq(memory.allocations, 0);
    cr_assert_eq(memory.live, 0);
}

Test(memory, failing_to_open_an_arena_is_null)
{
    struct test_memory memory;
    test_memory_install(&memory);
    test_memory_fail_at(&memory, 1);
    cr_assert_null(sl_mem_open());
}
