/* nomem_test.c: every allocation of two ranks fails once in turn: no crash, no hang, no leak, and a clean pass at the end. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/base/error.h"
#include "support/memory.h"
#include "support/ranks.h"

#define SHORT (400 * SLUICE_MILLISECOND)

/* Opens, does one round and a few notes, closes; true when all of it went well. */
static _Bool live_once(struct test_ranks *ranks)
{
    test_ranks_open(ranks, 3);
    _Bool good = ranks->rank[0].opened == SLUICE_OK && ranks->rank[1].opened == SLUICE_OK;
    uint32_t before[2] = {ranks->rank[0].rounds, ranks->rank[1].rounds};
    _Bool given[2] = {0, 0};
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_note note = {.kind = SL_NOTE_JOIN, .key = 1, .a = 2, .b = 1};
        struct test_rank *rank = &ranks->rank[i];
        if (rank->opened != SLUICE_OK)
            continue;
        good = sl_control_tell(rank->control, &note) == SLUICE_OK && good;
        given[i] = sl_control_round(rank->control, 1, 1, "x", 1, SHORT) == SLUICE_OK;
        good = good && given[i];
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (!given[i])
            continue;
        cr_assert(test_wait_rounds(&ranks->rank[i], before[i] + 1), "rank %u: no end of a round", i);
        good = good && ranks->rank[i].round_status == SLUICE_OK;
    }
    test_ranks_close(ranks, 3);
    return good;
}

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
        _Bool good = live_once(ranks);
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
