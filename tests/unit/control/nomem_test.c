/* nomem_test.c: every allocation of two ranks fails once in turn: no crash, no hang, no leak, and a clean pass at the end. */
#include <criterion/criterion.h>

#include "runtime/base/error.h"
#include "support/memory.h"
#include "support/ranks.h"

#define SHORT (400 * SLUICE_MILLISECOND)

Test(nomem, survives_every_allocation_that_fails_once)
{
    static struct test_memory memory;
    test_memory_install(&memory);
    _Bool clean = 0;
    uint64_t n = 1;
    for (; n < 1000 && !clean; n++) {
        struct test_ranks *ranks = test_ranks_new(2, SHORT);
        int64_t before = memory.live;
        test_memory_fail_at(&memory, n);
        _Bool good = test_ranks_live(ranks, SHORT);
        clean = good && memory.failed == 0;
        cr_assert_eq(memory.live, before, "allocation %lu: %ld blocks are left", n, (long)(memory.live - before));
        for (uint32_t i = 0; i < 2; i++)
            if (ranks->rank[i].opened != SLUICE_OK)
                cr_assert_neq(ranks->rank[i].error.text[0], '\0', "allocation %lu: an error without words", n);
        test_memory_fail_at(&memory, 0);
        test_ranks_end(ranks);
    }
    cr_assert(clean);
    cr_assert_gt(n, 10);
}
