/* What must hold for every plan, rule and rank: seeded random plans, each end from its own half alone. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "scheduler/dag.h"
#include "support/check_schedule.h"
#include "support/memory.h"
#include "support/taskplan.h"

#define RANKS_MAX 6

/* All ends of a plan, each built from what that rank alone knows where `partial`. */
struct ends {
    struct sl_plan plans[RANKS_MAX];
    struct check_end ends[RANKS_MAX];
    struct sl_pair_total *pairs;
    uint16_t *block_of_pair;
    size_t pair_count;
    struct sl_rule rule;
};

static void open_ends(const struct sl_plan *plan, struct ends *ends, uint64_t window_bytes, uint32_t items_max)
{
    struct sl_mem *mem = sl_mem_default();
    cr_assert_eq(sl_pair_totals(plan, mem, &ends->pairs, &ends->pair_count), SLUICE_OK);
    ends->block_of_pair = sl_new_array(mem, ends->pair_count, sizeof(uint16_t), "blocks");
    ends->rule.blocks = 1;
    if (items_max > 0) {
        cr_assert_eq(sl_deal_blocks(ends->pairs, ends->pair_count, plan->world, items_max, mem, ends->block_of_pair,
                                    &ends->rule.blocks),
                     SLUICE_OK);
    }
    ends->rule.windows = ends->rule.blocks;
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        struct check_end *end = &ends->ends[rank];
        taskplan_half(plan, rank, &ends->plans[rank]);
        end->plan = &ends->plans[rank];
        cr_assert_eq(sl_half_build(end->plan, rank, mem, &end->half), SLUICE_OK);
        uint16_t block_of_stream[2 * RANKS_MAX];
        sl_blocks_of_half(&end->half, ends->pairs, ends->block_of_pair, ends->pair_count, block_of_stream);
        cr_assert_eq(sl_propose_windows(&end->half, window_bytes, ends->rule.blocks, block_of_stream,
                                        ends->rule.windows, &ends->rule.windows),
                     SLUICE_OK);
    }
}

static void close_ends(struct ends *ends, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        sl_schedule_drop(&ends->ends[rank].schedule);
        sl_half_drop(&ends->ends[rank].half);
        taskplan_drop(&ends->plans[rank]);
    }
    sl_free(sl_mem_default(), ends->pairs);
    sl_free(sl_mem_default(), ends->block_of_pair);
}

static void build_end(struct ends *ends, uint32_t rank)
{
    struct check_end *end = &ends->ends[rank];
    uint16_t block_of_stream[2 * RANKS_MAX];
    sl_blocks_of_half(&end->half, ends->pairs, ends->block_of_pair, ends->pair_count, block_of_stream);
    cr_assert_eq(
        sl_schedule_build(end->plan, &end->half, &ends->rule, block_of_stream, NULL, sl_mem_default(), &end->schedule),
        SLUICE_OK);
}

/* Loads of any two windows of a pair differ by less than two units; every window stays within window_bytes. */
static void check_balance(const struct check_end *end, uint64_t window_bytes)
{
    const struct sl_rule *rule = &end->schedule.rule;
    for (uint32_t i = 0; i < end->half.stream_count; i++) {
        const struct sl_stream *stream = &end->half.streams[i];
        uint64_t least = UINT64_MAX, most = 0, all = 0;
        uint32_t used = 0;
        for (uint32_t w = 0; w < rule->windows; w++) {
            uint64_t load = check_pair_load(end, w, stream->peer, stream->receive);
            used += load > 0;
            all += load;
            most = load > most ? load : most;
            least = load < least ? load : least;
        }
        cr_assert_eq(all, stream->units * 16);
        cr_assert(used <= rule->windows / rule->blocks, "a pair outside of its block");
        cr_assert(rule->blocks > 1 || most - least < 32, "%lu and %lu", most, least);
    }
    for (uint32_t w = 0; w < rule->windows; w++) {
        cr_assert(end->schedule.windows[w].send_bytes <= window_bytes);
        cr_assert(end->schedule.windows[w].recv_bytes <= window_bytes);
    }
}

static void check_items(const struct check_end *end, uint32_t items_max)
{
    for (uint32_t w = 0; w < end->schedule.rule.windows && items_max > 0; w++) {
        cr_assert(end->schedule.windows[w].message_count <= items_max);
    }
}

static void check_all_pairs(const struct ends *ends, uint32_t world, uint32_t round)
{
    for (uint32_t source = 0; source < world; source++) {
        for (uint32_t destination = 0; destination < world; destination++) {
            const char *wrong =
                source == destination ? NULL : check_pair(&ends->ends[source], &ends->ends[destination]);
            cr_assert_null(wrong, "round %u pair %u %u: %s", round, source, destination, wrong);
        }
    }
}

static void check_balanced_round(struct sl_random *random, uint32_t round)
{
    struct sl_plan plan;
    struct ends ends = {0};
    taskplan_random(&plan, random);
    uint64_t window_bytes = 200 + sl_random_below(random, 300000);
    uint32_t items_max = taskplan_below(random, 3) == 0 ? 2 + taskplan_below(random, 6) : 0;
    ends.rule = (struct sl_rule){.slots = 3, .direct_min = taskplan_below(random, 2) * sl_random_below(random, 3000)};
    open_ends(&plan, &ends, window_bytes, items_max);
    for (uint32_t rank = 0; rank < plan.world; rank++) {
        build_end(&ends, rank);
        const char *wrong = check_whole(&ends.ends[rank]);
        cr_assert_null(wrong, "round %u rank %u: %s", round, rank, wrong);
        check_balance(&ends.ends[rank], window_bytes);
        if (ends.rule.direct_min == 0) {
            check_items(&ends.ends[rank], items_max);
        }
    }
    check_all_pairs(&ends, plan.world, round);
    close_ends(&ends, plan.world);
    taskplan_drop(&plan);
}

Test(schedule_property, balanced_halves_cover_every_byte_once_match_and_stay_within_limits)
{
    struct sl_random random = {11};
    for (uint32_t round = 0; round < 600; round++) {
        check_balanced_round(&random, round);
    }
}

/* Every rank builds from the whole plan: the windows of tasks of these policies need it. */
static void check_assigned_round(struct sl_random *random, enum sluice_policy policy, uint32_t round)
{
    struct sl_plan plan;
    struct ends ends = {0};
    taskplan_random(&plan, random);
    uint32_t *window_of_task = NULL;
    ends.rule = (struct sl_rule){.policy = policy,
                                 .slots = 3,
                                 .blocks = 1,
                                 .direct_min = taskplan_below(random, 2) * sl_random_below(random, 3000)};
    cr_assert_eq(sl_assign_windows(&plan, policy, 1 + sl_random_below(random, 300000), sl_mem_default(),
                                   &window_of_task, &ends.rule.windows),
                 SLUICE_OK);
    for (uint32_t rank = 0; rank < plan.world; rank++) {
        struct check_end *end = &ends.ends[rank];
        end->plan = &plan;
        cr_assert_eq(sl_half_build(&plan, rank, sl_mem_default(), &end->half), SLUICE_OK);
        cr_assert_eq(
            sl_schedule_build(&plan, &end->half, &ends.rule, NULL, window_of_task, sl_mem_default(), &end->schedule),
            SLUICE_OK);
        const char *wrong = check_whole(end);
        cr_assert_null(wrong, "policy %u round %u rank %u: %s", (unsigned)policy, round, rank, wrong);
    }
    check_all_pairs(&ends, plan.world, round);
    for (uint32_t rank = 0; rank < plan.world; rank++) {
        sl_schedule_drop(&ends.ends[rank].schedule);
        sl_half_drop(&ends.ends[rank].half);
    }
    sl_free(sl_mem_default(), window_of_task);
    taskplan_drop(&plan);
}

Test(schedule_property, every_other_policy_covers_every_byte_once_and_matches)
{
    static const enum sluice_policy policies[] = {SLUICE_POLICY_ORDERED, SLUICE_POLICY_LOCKSTEP, SLUICE_POLICY_WINDOWS,
                                                  SLUICE_POLICY_SINGLE};
    struct sl_random random = {12};
    for (uint32_t i = 0; i < SL_COUNT(policies); i++) {
        for (uint32_t round = 0; round < 150; round++) {
            check_assigned_round(&random, policies[i], round);
        }
    }
}

/* One of everything that allocates; returns the first failure. */
static sluice_status build_everything(const struct sl_plan *plan)
{
    struct sl_mem *mem = sl_mem_default();
    struct sl_plan_index index = {0};
    struct sl_half half = {0};
    struct sl_schedule schedule = {0};
    struct sl_dag dag = {0};
    struct sl_pair_total *pairs = NULL;
    uint32_t *window_of_task = NULL;
    struct sl_rule rule = {.policy = SLUICE_POLICY_LOCKSTEP, .slots = 3, .blocks = 1};
    size_t count = 0;
    uint32_t blocks = 0;
    uint16_t block_of_pair[64];
    sluice_status status = sl_plan_index_build(plan, mem, &index);
    status = status == SLUICE_OK ? sl_half_build_indexed(plan, &index, 0, mem, &half) : status;
    status = status == SLUICE_OK ? sl_pair_totals(plan, mem, &pairs, &count) : status;
    status = status == SLUICE_OK ? sl_deal_blocks(pairs, count, plan->world, 2, mem, block_of_pair, &blocks) : status;
    status = status == SLUICE_OK
                 ? sl_assign_windows(plan, SLUICE_POLICY_LOCKSTEP, 5000, mem, &window_of_task, &rule.windows)
                 : status;
    status = status == SLUICE_OK ? sl_schedule_build(plan, &half, &rule, NULL, window_of_task, mem, &schedule) : status;
    status = status == SLUICE_OK ? sl_dag_build(&schedule, 0, rule.windows, mem, &dag) : status;
    sl_schedule_drop(&schedule);
    rule = (struct sl_rule){.slots = 3, .blocks = 1, .windows = 3};
    status = status == SLUICE_OK ? sl_schedule_build(plan, &half, &rule, NULL, NULL, mem, &schedule) : status;
    sl_dag_drop(&dag);
    sl_schedule_drop(&schedule);
    sl_free(mem, window_of_task);
    sl_free(mem, pairs);
    sl_half_drop(&half);
    sl_plan_index_drop(&index);
    return status;
}

Test(schedule_property, every_allocation_may_fail_and_nothing_leaks)
{
    static struct test_memory memory;
    test_memory_install(&memory);
    struct sl_random random = {13};
    struct sl_plan plan;
    taskplan_random(&plan, &random);
    while (plan.world < 4 || plan.task_count < 100) {
        taskplan_drop(&plan);
        taskplan_random(&plan, &random);
    }
    int64_t live = memory.live;
    sluice_status status = SLUICE_NOMEM;
    for (uint64_t n = 1; status != SLUICE_OK; n++) {
        cr_assert(n < 200);
        test_memory_fail_at(&memory, n);
        status = build_everything(&plan);
        cr_assert(status == SLUICE_OK || status == SLUICE_NOMEM);
        cr_assert_eq(memory.live, live, "allocation %lu leaves %ld blocks", n, memory.live - live);
    }
    cr_assert_eq(memory.failed, 0, "the loop ends with a clean pass");
    taskplan_drop(&plan);
}

/* Adds up what is ever asked for: more than what is held at once. */
static void *summing_alloc(void *context, size_t bytes, size_t alignment)
{
    *(size_t *)context += bytes;
    return aligned_alloc(alignment < 16 ? 16 : alignment, (bytes + 15) / 16 * 16 + (bytes == 0 ? 16 : 0));
}

static void summing_free(void *context, void *block)
{
    (void)context;
    free(block);
}

Test(schedule_property, a_rank_with_470000_tasks_needs_less_than_200_mib)
{
    static const struct sl_mem_ops ops = {"summing", summing_alloc, summing_free};
    static size_t asked;
    sl_mem_install(&ops, &asked);
    struct sl_random random = {14};
    struct sl_plan plan;
    taskplan_open(&plan, 256, 30000);
    for (uint32_t id = 0; id < 470000; id++) {
        uint64_t bytes = id % 10 == 0 ? 1 + sl_random_below(&random, 65536) : 131072;
        taskplan_add(&plan, id, taskplan_below(&random, 30000), 0, 1 + taskplan_below(&random, 255), bytes);
    }
    asked = 0;
    struct check_end end = {.plan = &plan};
    uint32_t windows = 0;
    cr_assert_eq(sl_half_build(&plan, 0, sl_mem_default(), &end.half), SLUICE_OK);
    for (uint32_t i = 0; i < end.half.stream_count; i++) {
        cr_assert_neq(sl_stream_digest(&plan, &end.half, &end.half.streams[i]), 0);
    }
    cr_assert_eq(sl_propose_windows(&end.half, 256000000, 1, NULL, 0, &windows), SLUICE_OK);
    struct sl_rule rule = {.windows = windows, .blocks = 1, .slots = 3};
    cr_assert_eq(sl_schedule_build(&plan, &end.half, &rule, NULL, NULL, sl_mem_default(), &end.schedule), SLUICE_OK);
    cr_assert(asked < (size_t)200 << 20, "%zu bytes", asked);
    cr_assert(end.schedule.piece_count > 470000);
    const char *wrong = check_whole(&end);
    cr_assert_null(wrong, "%s", wrong);
    sl_schedule_drop(&end.schedule);
    sl_half_drop(&end.half);
    taskplan_drop(&plan);
}
