/*
 * The engine on simulated devices: agrees with the cost model, gives one trace for one input, and is caught by
 * NCCL's order of messages where the model says that a group hangs.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "runtime/base/file.h"
#include "runtime/core/simulation.h"
#include "scheduler/cost.h"
#include "scheduler/messages.h"
#include "support/plans.h"

static struct sl_simulation_options options_of(uint32_t policy, uint64_t window_bytes)
{
    return (struct sl_simulation_options){
        .world = {.link = 1e9, .pack_rate = 1e10, .group_overhead = 0.001},
        .seal = {.size = sizeof(struct sluice_seal_options),
                 .policy = policy,
                 .window_bytes = window_bytes,
                 .slots = 3},
    };
}

static double model_of(const struct sl_plan *plan, const struct sl_simulation_options *options)
{
    struct sl_cuts cuts;
    struct sl_cost cost;
    struct sl_cuts_options cut = {.policy = (enum sluice_policy)options->seal.policy,
                                  .window_bytes = options->seal.window_bytes,
                                  .slots = options->seal.slots};
    struct sl_cost_options rates = {options->world.link, options->world.pack_rate, options->world.group_overhead, 0};
    cr_assert_eq(sl_cuts_decide(plan, &cut, sl_mem_default(), &cuts), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sl_cost_run(&cuts, &rates, NULL, NULL, &cost), SLUICE_OK);
    sl_cuts_drop(&cuts);
    return cost.makespan;
}

static struct sl_simulation simulate(const struct sl_plan *plan, const struct sl_simulation_options *options)
{
    struct sl_simulation result;
    cr_assert_eq(sl_simulate(plan, options, sl_mem_default(), &result), SLUICE_OK, "%s", sluice_last_error()->text);
    return result;
}

Test(simulation, one_pair_in_four_windows_takes_the_hand_worked_time)
{
    struct sl_plan plan;
    struct sl_simulation_options options = options_of(SLUICE_POLICY_BALANCED, 250000000);
    options.world.group_overhead = 0.1;
    sl_plan_init(&plan, sl_mem_default(), 2);
    plans_add(&plan, 0, 1, 1000000000);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct sl_simulation result = simulate(&plan, &options);
    cr_expect_eq(result.status, SLUICE_OK);
    cr_expect_eq(result.windows, 4);
    cr_expect_float_eq(result.makespan, 1.45, 1e-6);
    sl_plan_drop(&plan);
}

Test(simulation, engine_and_cost_model_agree_within_one_per_cent_for_all_policies)
{
    struct sl_random random = {31};
    for (int round = 0; round < 200; round++) {
        struct sl_plan plan;
        plans_random(&random, 2 + (uint32_t)sl_random_below(&random, 5), 30, 20000000, &plan);
        uint32_t policy = (uint32_t)round % (SLUICE_POLICY_SINGLE + 1);
        struct sl_simulation_options options = options_of(policy, 10000000);
        options.seal.force = policy == SLUICE_POLICY_SINGLE;
        struct sl_simulation result = simulate(&plan, &options);
        cr_assert_eq(result.status, SLUICE_OK, "%s", result.error.text);
        double model = model_of(&plan, &options);
        cr_assert_leq(fabs(result.makespan - model), 0.01 * model + 1e-6, "plan %d, policy %u: engine %.6f, model %.6f",
                      round, policy, result.makespan, model);
        sl_plan_drop(&plan);
    }
}

Test(simulation, equal_inputs_have_equal_traces_and_others_do_not)
{
    struct sl_random random = {32};
    struct sl_plan plan, other;
    struct sl_simulation_options options = options_of(SLUICE_POLICY_BALANCED, 5000000);
    plans_random(&random, 5, 40, 10000000, &plan);
    plans_random(&random, 5, 40, 10000000, &other);
    uint64_t trace = simulate(&plan, &options).trace;
    cr_expect_eq(simulate(&plan, &options).trace, trace);
    cr_expect_neq(simulate(&other, &options).trace, trace);
    sl_plan_drop(&plan);
    sl_plan_drop(&other);
}

Test(simulation, the_134_messages_stall_as_one_group_and_pass_when_balanced)
{
    struct sl_nccl_config nccl = {.version = 22809,
                                  .channels = 32,
                                  .channels_per_peer = 32,
                                  .nodes = 4,
                                  .ranks_per_node = 1,
                                  .chunk_bytes = 8192,
                                  .args_bytes = 4096,
                                  .fifo_bytes = 1 << 20,
                                  .known = 1};
    struct sl_map map;
    struct sl_plan plan;
    cr_assert_eq(sl_map_open(SLUICE_TEST_DATA "/hang-4ranks.json", &map), SLUICE_OK);
    cr_assert_eq(sl_messages_read((const char *)map.data, map.bytes, "list", sl_mem_default(), &plan), SLUICE_OK);
    struct sl_simulation_options options = options_of(SLUICE_POLICY_SINGLE, 256000000);
    options.world.nccl = &nccl;
    options.seal.force = 1;
    cr_expect_eq(simulate(&plan, &options).status, SLUICE_TIMEOUT);
    options.seal.policy = SLUICE_POLICY_BALANCED;
    cr_expect_eq(simulate(&plan, &options).status, SLUICE_OK);
    options.seal.policy = SLUICE_POLICY_SINGLE;
    nccl.version = 23007;
    cr_expect_eq(simulate(&plan, &options).status, SLUICE_OK);
    sl_plan_drop(&plan);
    sl_map_close(&map);
}
