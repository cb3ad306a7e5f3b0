#include <criterion/criterion.h>
#include <string.h>

#include "scheduler/schedule.h"
#include "support/layouts.h"
#include "support/taskplan.h"

#define PAIRS_MAX 20000

static struct sl_pair_total pairs[PAIRS_MAX];
static uint16_t block_of[PAIRS_MAX];
static size_t count;
static uint32_t blocks;

static void add(uint32_t source, uint32_t destination, uint64_t units)
{
    cr_assert(count < PAIRS_MAX);
    pairs[count++] = (struct sl_pair_total){source, destination, units};
}

static void deal(uint32_t world, uint32_t items_max)
{
    cr_assert_eq(sl_deal_blocks(pairs, count, world, items_max, sl_mem_default(), block_of, &blocks), SLUICE_OK);
}

static uint32_t items_at_most(uint32_t world)
{
    uint32_t *items = sl_new_array(sl_mem_default(), (size_t)world * blocks, sizeof(*items), "items");
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        cr_assert(block_of[i] < blocks);
        if (pairs[i].units > 0) {
            uint32_t send = ++items[pairs[i].source * blocks + block_of[i]];
            uint32_t recv = ++items[pairs[i].destination * blocks + block_of[i]];
            most = send > most ? send : most;
            most = recv > most ? recv : most;
        }
    }
    sl_free(sl_mem_default(), items);
    return most;
}

/* The blocks' busiest ranks summed, over the busiest rank: how much longer all blocks take than one group would. */
static double spread(uint32_t world)
{
    double *load = sl_new_array(sl_mem_default(), 2 * (size_t)world * (blocks + 1), sizeof(*load), "loads");
    for (size_t i = 0; i < count; i++) {
        for (uint32_t half = 0; half < 2; half++) {
            double *own = &load[((half ? world + pairs[i].destination : pairs[i].source)) * (blocks + 1)];
            own[block_of[i]] += (double)pairs[i].units;
            own[blocks] += (double)pairs[i].units;
        }
    }
    double sum = 0, whole = 0;
    for (uint32_t block = 0; block <= blocks; block++) {
        double most = 0;
        for (uint32_t lane = 0; lane < 2 * world; lane++) {
            most = load[lane * (blocks + 1) + block] > most ? load[lane * (blocks + 1) + block] : most;
        }
        sum += block < blocks ? most : 0;
        whole = block == blocks ? most : whole;
    }
    sl_free(sl_mem_default(), load);
    return sum / whole;
}

Test(blocks, pairs_that_fit_one_group_stay_in_one_block)
{
    add(0, 1, 5);
    add(1, 0, 7);
    deal(2, 2);
    cr_assert_eq(blocks, 1);
    cr_assert_eq(block_of[0], 0);
    cr_assert_eq(block_of[1], 0);
}

Test(blocks, the_largest_pairs_are_dealt_first_and_even_out)
{
    add(0, 1, 10);
    add(0, 2, 40);
    add(0, 3, 30);
    add(0, 4, 20);
    deal(5, 2);
    cr_assert_eq(blocks, 2);
    static const uint16_t expected[4] = {0, 0, 1, 1};
    cr_assert_arr_eq(block_of, expected, sizeof(expected)); /* 40 + 10 and 30 + 20 */
}

Test(blocks, the_deal_does_not_depend_on_the_order_of_the_pairs)
{
    struct sl_random random = {31};
    for (uint32_t source = 0; source < 12; source++) {
        for (uint32_t destination = 12; destination < 40; destination++) {
            add(source, destination, 1 + sl_random_below(&random, 5)); /* many ties */
        }
    }
    deal(40, 8);
    uint16_t before[PAIRS_MAX];
    for (size_t i = 0; i < count; i++) {
        before[i] = block_of[i];
        block_of[i] = 0;
    }
    for (size_t i = 0; i < count / 2; i++) {
        struct sl_pair_total kept = pairs[i];
        pairs[i] = pairs[count - 1 - i];
        pairs[count - 1 - i] = kept;
    }
    deal(40, 8);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(block_of[i], before[count - 1 - i]);
    }
}

Test(blocks, the_fewest_blocks_are_kept_where_more_gain_nothing)
{
    for (uint32_t destination = 1; destination <= 16; destination++) {
        add(0, destination, 10000000);
    }
    deal(17, 6);
    cr_assert_eq(blocks, 3);
}

Test(blocks, one_source_with_256_peers_needs_nine_blocks_of_31)
{
    for (uint32_t destination = 1; destination <= 256; destination++) {
        add(0, destination, 1000 + destination);
    }
    deal(257, 31);
    cr_assert_eq(blocks, 9);
    cr_assert(items_at_most(257) <= 31);
    cr_assert(spread(257) < 1.01);
}

Test(blocks, pairs_without_units_count_as_no_item)
{
    add(0, 1, 0);
    add(0, 2, 9);
    add(0, 3, 0);
    deal(4, 1);
    cr_assert_eq(blocks, 1);
}

Test(blocks, a_group_of_no_items_is_refused)
{
    add(0, 1, 1);
    cr_assert_eq(sl_deal_blocks(pairs, count, 2, 0, sl_mem_default(), block_of, &blocks), SLUICE_INVALID);
}

Test(blocks, every_deal_ends_within_the_limit_and_under_twice_the_fewest_blocks)
{
    struct sl_random random = {32};
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t world = 2 + taskplan_below(&random, 40);
        uint32_t items_max = 1 + taskplan_below(&random, 12);
        uint32_t density = 1 + taskplan_below(&random, 4);
        uint32_t degree[42] = {0}, most = 1;
        count = 0;
        for (uint32_t a = 0; a < world; a++) {
            for (uint32_t b = 0; b < world; b++) {
                if (a != b && sl_random_below(&random, density) == 0) {
                    add(a, b, 1 + (sl_random_below(&random, 3) ? 0 : sl_random_below(&random, 1000000)));
                    degree[a]++;
                    degree[b]++;
                }
            }
        }
        for (uint32_t rank = 0; rank < world; rank++) {
            most = degree[rank] > most ? degree[rank] : most;
        }
        deal(world, items_max);
        uint32_t fewest = (most - 1) / items_max + 1;
        cr_assert(items_at_most(world) <= items_max, "round %u", round);
        cr_assert(blocks >= fewest && blocks <= 2 * fewest - 1, "round %u: %u blocks, at least %u", round, blocks,
                  fewest);
    }
}

static void deal_named(const char *model, const char *from, const char *to)
{
    struct sl_plan plan;
    struct sl_pair_total *totals;
    struct sl_layout_options options = {.source_choice = SLUICE_SOURCE_FIRST};
    layouts_named_plan(model, from, to, &options, &plan);
    cr_assert_eq(sl_pair_totals(&plan, sl_mem_default(), &totals, &count), SLUICE_OK);
    cr_assert(count <= PAIRS_MAX);
    memcpy(pairs, totals, count * sizeof(*totals));
    deal(plan.world, 31);
    cr_assert(items_at_most(plan.world) <= 31);
    cr_assert(spread(plan.world) <= 1.01, "%s: %f in %u blocks", model, spread(plan.world), blocks);
    sl_free(sl_mem_default(), totals);
    sl_plan_drop(&plan);
}

Test(blocks, large_published_plans_lose_less_than_one_per_cent_in_groups_of_31)
{
    deal_named("qwen3-235b-a22b", "tp=4,ep=16,pp=8,splits=11+12*6+11,world=128", "tp=8,ep=8,world=128");
    deal_named("deepseek-v3", "tp=1,ep=16,pp=16,splits=3+4*14+2,world=256", "tp=32,ep=32,world=256");
}

/* 128 sources in 8 stages, 128 destinations in groups of 8, as a large mixture of experts has it. */
Test(blocks, a_plan_of_many_uneven_pairs_loses_little)
{
    struct sl_random random = {33};
    for (uint32_t destination = 0; destination < 128; destination++) {
        for (uint32_t stage = 0; stage < 8; stage++) {
            for (uint32_t k = 0; k < 2; k++) {
                uint32_t expert = stage * 16 + (destination % 8) * 2 + k;
                add(expert, 128 + destination, 700000 + sl_random_below(&random, 100000));
            }
            add(stage * 16 + (destination * 5) % 16, 128 + destination, 3000);
            add(stage * 16 + (destination * 5 + 3) % 16, 128 + destination, 12000);
        }
    }
    deal(256, 15);
    cr_assert(items_at_most(256) <= 15);
    cr_assert(blocks <= 4);
    cr_assert(spread(256) <= 1.12, "%f in %u blocks", spread(256), blocks);
}

Test(blocks, totals_join_the_tasks_of_a_pair_and_leave_local_ones_out)
{
    struct sl_plan plan;
    struct sl_pair_total *totals;
    size_t totals_count;
    taskplan_open(&plan, 3, 1);
    taskplan_add(&plan, 0, 0, 2, 0, 17);
    taskplan_add(&plan, 1, 0, 0, 1, 16);
    taskplan_add(&plan, 2, 0, 1, 1, 99);
    taskplan_add(&plan, 3, 0, 2, 0, 1);
    taskplan_add(&plan, 4, 0, 1, 0, 0);
    cr_assert_eq(sl_pair_totals(&plan, sl_mem_default(), &totals, &totals_count), SLUICE_OK);
    cr_assert_eq(totals_count, 3);
    cr_assert(totals[0].source == 0 && totals[0].destination == 1 && totals[0].units == 1);
    cr_assert(totals[1].source == 1 && totals[1].destination == 0 && totals[1].units == 0);
    cr_assert(totals[2].source == 2 && totals[2].destination == 0 && totals[2].units == 3);
    sl_free(sl_mem_default(), totals);
    taskplan_drop(&plan);
}
