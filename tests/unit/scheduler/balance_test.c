#include <criterion/criterion.h>

#include "scheduler/schedule.h"
#include "support/taskplan.h"

static struct sl_half half_of(const struct sl_plan *plan, uint32_t rank)
{
    struct sl_half half = {0};
    cr_assert_eq(sl_half_build(plan, rank, sl_mem_default(), &half), SLUICE_OK);
    return half;
}

Test(balance, shares_of_ten_units_in_four_are_2_3_2_3)
{
    static const uint64_t bounds[5] = {0, 2, 5, 7, 10};
    for (uint32_t k = 0; k < 4; k++) {
        uint64_t begin, end;
        sl_share(10, k, 4, &begin, &end);
        cr_assert_eq(begin, bounds[k]);
        cr_assert_eq(end, bounds[k + 1]);
    }
}

Test(balance, shares_of_the_largest_stream_do_not_overflow)
{
    uint64_t begin, end;
    sl_share((UINT64_C(1) << 59) - 1, SLUICE_WINDOWS_MAX - 1, SLUICE_WINDOWS_MAX, &begin, &end);
    cr_assert_eq(end, (UINT64_C(1) << 59) - 1);
    cr_assert_eq(end - begin, UINT64_C(1) << 39);
}

Test(balance, fewer_units_than_shares_leave_shares_empty)
{
    uint64_t begin, end;
    sl_share(1, 0, 3, &begin, &end);
    cr_assert_eq(begin, end);
    sl_share(1, 2, 3, &begin, &end);
    cr_assert_eq(end - begin, 1);
}

/* Largest padded bytes of any window in one direction, by looking at all of them. */
static uint64_t peak_by_hand(const struct sl_half *half, uint32_t windows, uint32_t blocks, const uint16_t *block_of,
                             _Bool receive)
{
    uint64_t peak = 0;
    for (uint32_t window = 0; window < windows; window++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < half->stream_count; i++) {
            uint64_t begin, end;
            sl_share(half->streams[i].units, window / blocks, windows / blocks, &begin, &end);
            if (half->streams[i].receive == receive && block_of[i] == window % blocks) {
                bytes += (end - begin) * 16;
            }
        }
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

static _Bool fits_by_hand(const struct sl_half *half, uint32_t windows, uint32_t blocks, const uint16_t *block_of,
                          uint64_t window_bytes)
{
    return peak_by_hand(half, windows, blocks, block_of, 0) <= window_bytes &&
           peak_by_hand(half, windows, blocks, block_of, 1) <= window_bytes;
}

static void check_proposal(const struct sl_half *half, struct sl_random *random)
{
    uint32_t blocks = 1 + taskplan_below(random, 3);
    uint16_t block_of[16] = {0};
    cr_assert(half->stream_count <= 16);
    for (uint32_t i = 0; i < half->stream_count; i++) {
        block_of[i] = (uint16_t)taskplan_below(random, blocks);
    }
    uint64_t window_bytes = 300 + taskplan_below(random, 200000);
    uint32_t windows = 0;
    cr_assert_eq(sl_propose_windows(half, window_bytes, blocks, block_of, 0, &windows), SLUICE_OK, "%s",
                 sluice_last_error()->text);
    cr_assert(windows > 0 && windows % blocks == 0);
    cr_assert(fits_by_hand(half, windows, blocks, block_of, window_bytes));
    for (uint32_t fewer = blocks; fewer < windows; fewer += blocks) {
        cr_assert(!fits_by_hand(half, fewer, blocks, block_of, window_bytes), "%u windows are enough", fewer);
    }
    cr_assert(fits_by_hand(half, windows + blocks, blocks, block_of, window_bytes), "more windows stay within");
}

Test(balance, the_proposal_is_the_smallest_number_of_windows_that_fits)
{
    struct sl_random random = {3};
    for (uint32_t round = 0; round < 400; round++) {
        struct sl_plan plan;
        taskplan_random(&plan, &random);
        struct sl_half half = half_of(&plan, taskplan_below(&random, plan.world));
        check_proposal(&half, &random);
        sl_half_drop(&half);
        taskplan_drop(&plan);
    }
}

/* Rank 0 sends 1000 bytes to rank 1 and 600 to rank 2. */
static void make(struct sl_plan *plan)
{
    taskplan_open(plan, 3, 1);
    taskplan_add(plan, 0, 0, 0, 1, 1000);
    taskplan_add(plan, 1, 0, 0, 2, 600);
}

Test(balance, literal_proposals)
{
    struct sl_plan plan;
    make(&plan);
    struct sl_half half = half_of(&plan, 0); /* 63 and 38 units */
    uint32_t windows = 0;
    cr_assert_eq(sl_propose_windows(&half, 1616, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 1);
    cr_assert_eq(sl_propose_windows(&half, 1615, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 2); /* 32 + 19 units = 816 bytes */
    cr_assert_eq(sl_propose_windows(&half, 815, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 3);
    cr_assert_eq(sl_propose_windows(&half, 32, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 63);
    uint16_t blocks[2] = {0, 1};
    cr_assert_eq(sl_propose_windows(&half, 512, 2, blocks, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 4); /* block 0: 63 units in 2 shares of at most 32 */
    cr_assert_eq(sl_propose_windows(&half, 512, 2, blocks, 5, &windows), SLUICE_OK);
    cr_assert_eq(windows, 6); /* at least 5, a multiple of 2 */
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(balance, a_window_without_room_for_a_unit_of_every_peer_is_a_setting_that_is_named)
{
    struct sl_plan plan;
    make(&plan);
    struct sl_half half = half_of(&plan, 0);
    uint32_t windows = 7;
    cr_assert_eq(sl_propose_windows(&half, 31, 1, NULL, 0, &windows), SLUICE_CONFIG);
    cr_assert_str_eq(sluice_last_error()->text,
                     "window_bytes 31 is too small: rank 0 has 2 peers at once and needs at least 32");
    cr_assert_eq(sl_propose_windows(&half, 0, 1, NULL, 0, &windows), SLUICE_CONFIG);
    cr_assert_eq(windows, 7, "outputs are set on success only");
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(balance, too_many_windows_name_the_rank_and_the_limit)
{
    struct sl_plan plan;
    taskplan_open(&plan, 4, 1);
    taskplan_add(&plan, 0, 0, 1, 3, (UINT64_C(1) << 24) + 1);
    struct sl_half half = half_of(&plan, 3);
    uint32_t windows = 0;
    cr_assert_eq(sl_propose_windows(&half, 32, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, (1u << 19) + 1); /* 2^20 + 1 units, two a window */
    cr_assert_eq(sl_propose_windows(&half, 16, 1, NULL, 0, &windows), SLUICE_LIMIT);
    cr_assert_str_eq(sluice_last_error()->text,
                     "rank 3 would need more than 1048576 windows of window_bytes 16; raise window_bytes");
    cr_assert_eq(sl_propose_windows(&half, 1000, 1, NULL, SLUICE_WINDOWS_MAX + 1, &windows), SLUICE_LIMIT);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}

Test(balance, a_rank_without_bytes_needs_one_window)
{
    struct sl_plan plan;
    make(&plan);
    plan.world = 4;
    struct sl_half half = half_of(&plan, 3);
    uint32_t windows = 0;
    cr_assert_eq(sl_propose_windows(&half, 16, 1, NULL, 0, &windows), SLUICE_OK);
    cr_assert_eq(windows, 1);
    sl_half_drop(&half);
    taskplan_drop(&plan);
}
