/*
 * sluice sim: how long would a plan take, by a model of links and groups, in virtual time.
 *
 * Invariant: the numbers come from the same schedule that a run would use; nothing is executed.
 */
#include <string.h>

#include "groups.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"
#include "runtime/core/simulation.h"
#include "scheduler/cost.h"
#include "sim_faults.h"
#include "timeline.h"

enum {
    OPT_LINK = TOOL_LONG + 1,
    OPT_OVERHEAD,
    OPT_PACK_RATE,
    OPT_SLOTS,
    OPT_COMPARE,
    OPT_LOCKSTEP,
    OPT_TIMELINE,
    OPT_FAULTS,
    OPT_SEED,
    OPT_SEEDS,
    OPT_JSON
};

static const struct tool_option options[] = {
    {"compare", NULL, "a table of all policies for one plan or several", OPT_COMPARE},
    {"link", "GB/S", "link of a rank each way, 10^9 bytes per second (default 50)", OPT_LINK},
    {"group-overhead", "SECONDS", "of every group (default 0.0002)", OPT_OVERHEAD},
    {"pack-rate", "GB/S", "packing, unpacking and local copies (default 1500)", OPT_PACK_RATE},
    {"slots", "S", "staging slots in rotation, 2 to 8 (default 3)", OPT_SLOTS},
    {"lockstep", NULL, "every group waits for the one before it on all ranks, as published executors do", OPT_LOCKSTEP},
    {"timeline", "FILE", "write a picture of ranks by time, as one HTML page", OPT_TIMELINE},
    {"faults", NULL, "no plan: made-up jobs with faults by seed, until one does not settle as it must", OPT_FAULTS},
    {"seed", "S", "of --faults: the first (default 0)", OPT_SEED},
    {"seeds", "N", "of --faults: how many (default 1000; 1 with --seed)", OPT_SEEDS},
    TOOL_GROUP_OPTIONS,
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "sim",
    .synopsis = "PLAN... [OPTIONS] | --faults [--seed S] [--seeds N]",
    .about = "Simulates a plan on all its ranks in virtual time: makespan against the plan's lower bound (the busiest\n"
             "rank's bytes at link rate), time per stage, peak staging, and when parameters become complete.",
    .options = options,
};

struct sim_options {
    struct tool_groups groups;
    struct sl_cost_options cost;
    const char *timeline;
    _Bool compare, json;
    _Bool faults;
    uint64_t seed, seeds; /* 0 seeds: the default */
    _Bool seed_given;
};

static _Bool take_rate(struct tool_args *args, double *ret)
{
    double gigabytes;
    if (!tool_double(args, 1e-6, 1e6, &gigabytes))
        return 0;
    *ret = gigabytes * 1e9;
    return 1;
}

static _Bool take_option(struct tool_args *args, int option, struct sim_options *ret)
{
    switch (option) {
    case OPT_LINK:
        return take_rate(args, &ret->cost.link);
    case OPT_PACK_RATE:
        return take_rate(args, &ret->cost.pack_rate);
    case OPT_OVERHEAD:
        return tool_double(args, 0, 1000, &ret->cost.group_overhead);
    case OPT_SLOTS:
        return tool_u32(args, 2, 8, &ret->groups.cuts.slots);
    case OPT_COMPARE:
        ret->compare = 1;
        return 1;
    case OPT_LOCKSTEP:
        ret->cost.lockstep = 1;
        return 1;
    case OPT_TIMELINE:
        ret->timeline = args->value;
        return 1;
    case OPT_FAULTS:
        ret->faults = 1;
        return 1;
    case OPT_SEED:
        ret->seed_given = 1;
        return tool_u64(args, &ret->seed);
    case OPT_SEEDS:
        if (!tool_u64(args, &ret->seeds))
            return 0;
        if (ret->seeds == 0)
            args->status = tool_usage(args, "--seeds 0 would try nothing");
        return ret->seeds > 0;
    case OPT_JSON:
        ret->json = 1;
        return 1;
    default:
        return tool_group_option(args, option, &ret->groups);
    }
}

/* --- one simulation --- */

static void span_to_bar(void *context, const struct sl_cost_span *span)
{
    static const enum timeline_kind kinds[] = {TIMELINE_PACK, TIMELINE_WAIT, TIMELINE_GROUP, TIMELINE_UNPACK,
                                               TIMELINE_LOCAL};
    timeline_bar(context, span->rank, span->window, kinds[span->node], span->begin, span->end);
}

static sluice_status simulate(const struct sl_plan *plan, const struct sim_options *opt, enum sluice_policy policy,
                              const char *timeline_path, struct sl_cost *ret)
{
    struct sl_cuts_options cuts_options = opt->groups.cuts;
    cuts_options.policy = policy;
    struct sl_cuts cuts;
    sluice_status status = sl_cuts_decide(plan, &cuts_options, sl_mem_default(), &cuts);
    if (status != SLUICE_OK)
        return status;
    struct timeline timeline;
    if (timeline_path != NULL) {
        char title[128];
        (void)snprintf(title, sizeof title, "%u ranks, policy %s, %u windows", plan->world, tool_policies[policy],
                       cuts.rule.windows);
        status = timeline_open(timeline_path, title, &timeline);
    }
    if (status == SLUICE_OK && timeline_path != NULL) {
        status = sl_cost_run(&cuts, &opt->cost, span_to_bar, &timeline, ret);
        if (status == SLUICE_OK)
            status = timeline_close(&timeline);
        else
            timeline_drop(&timeline);
    } else if (status == SLUICE_OK) {
        status = sl_cost_run(&cuts, &opt->cost, NULL, NULL, ret);
    }
    sl_cuts_drop(&cuts);
    return status;
}

static double ratio_of(const struct sl_cost *cost)
{
    return cost->bound > 0 ? cost->makespan / cost->bound : 1;
}

/* The engine itself is run beside the model where that is quick. */
enum { ENGINE_RANKS_MAX = 8, ENGINE_TASKS_MAX = 20000 };

static _Bool wants_engine(const struct sl_plan *plan, const struct sim_options *opt)
{
    return plan->world <= ENGINE_RANKS_MAX && plan->task_count <= ENGINE_TASKS_MAX && !opt->cost.lockstep;
}

static sluice_status run_engine(const struct sl_plan *plan, const struct sim_options *opt, struct sl_simulation *ret)
{
    struct sl_simulation_options run = {
        .world = {opt->cost.link, opt->cost.pack_rate, opt->cost.group_overhead, 0, &opt->groups.nccl},
        .seal = SLUICE_SEAL_OPTIONS_INIT,
    };
    run.seal.policy = opt->groups.cuts.policy;
    run.seal.window_bytes = opt->groups.cuts.window_bytes;
    run.seal.direct_min = opt->groups.cuts.direct_min;
    run.seal.slots = opt->groups.cuts.slots;
    run.seal.force = 1; /* what hangs is the result */
    return sl_simulate(plan, &run, sl_mem_default(), ret);
}

static void put_cost(struct sl_json_writer *w, enum sluice_policy policy, const struct sl_cost *cost,
                     const struct sl_simulation *engine)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"makespan_seconds", cost->makespan},
        {"bound_seconds", cost->bound},
        {"ratio", ratio_of(cost)},
        {"pack_seconds", cost->pack_seconds},
        {"wait_seconds", cost->wait_seconds},
        {"group_seconds", cost->group_seconds},
        {"unpack_seconds", cost->unpack_seconds},
        {"local_seconds", cost->local_seconds},
    };
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"windows", cost->windows},
        {"blocks", cost->blocks},
        {"groups_max", cost->groups_max},
        {"messages_max", cost->items_max},
        {"bytes", cost->bytes},
        {"plan_bound_bytes", cost->bound_bytes},
        {"peak_staging_bytes", cost->staging_max},
    };
    sl_json_object(w);
    sl_json_key(w, "policy");
    sl_json_put_text(w, tool_policies[policy]);
    for (size_t i = 0; i < SL_COUNT(numbers); i++) {
        sl_json_key(w, numbers[i].key);
        sl_json_put_double(w, numbers[i].value);
    }
    for (size_t i = 0; i < SL_COUNT(counts); i++) {
        sl_json_key(w, counts[i].key);
        sl_json_put_u64(w, counts[i].value);
    }
    sl_json_key(w, "params_complete_seconds"); /* when 10 %, 20 % ... 100 % were whole */
    sl_json_list(w);
    for (int i = 0; i < SL_COST_MARKS; i++)
        sl_json_put_double(w, cost->param_marks[i]);
    sl_json_list_end(w);
    if (engine != NULL) {
        sl_json_key(w, "engine");
        sl_json_object(w);
        sl_json_key(w, "status");
        sl_json_put_text(w, sluice_status_name(engine->status));
        sl_json_key(w, "makespan_seconds");
        sl_json_put_double(w, engine->makespan);
        sl_json_key(w, "trace");
        sl_json_put_u64(w, engine->trace);
        sl_json_object_end(w);
    }
    sl_json_object_end(w);
}

static void print_cost(enum sluice_policy policy, const struct sl_cost *cost)
{
    char bytes[32], staging[32];
    printf("policy %s: %u windows, %u blocks, at most %u messages of a rank in a group\n", tool_policies[policy],
           cost->windows, cost->blocks, cost->items_max);
    printf("bytes           %s\n", sl_format_bytes(cost->bytes, bytes, sizeof bytes));
    printf("makespan        %.4f s\n", cost->makespan);
    printf("plan bound      %.4f s\n", cost->bound);
    printf("ratio           %.3f\n", ratio_of(cost));
    printf("peak staging    %s\n", sl_format_bytes(cost->staging_max, staging, sizeof staging));
    printf("stages (summed) pack %.4f s, wait %.4f s, group %.4f s, unpack %.4f s, local %.4f s\n", cost->pack_seconds,
           cost->wait_seconds, cost->group_seconds, cost->unpack_seconds, cost->local_seconds);
    printf("parameters      ");
    for (int i = 0; i < SL_COST_MARKS; i++)
        printf("%d%% %.3f s%s", (i + 1) * 100 / SL_COST_MARKS, cost->param_marks[i],
               i + 1 < SL_COST_MARKS ? ", " : "\n");
}

static void print_engine(const struct sl_simulation *engine)
{
    if (engine->status == SLUICE_OK)
        printf("engine          %.4f s in virtual time, trace %016llx\n", engine->makespan,
               (unsigned long long)engine->trace);
    else
        printf("engine          %s: %s\n", sluice_status_words(engine->status), engine->error.text);
}

static int simulate_one(const struct sl_plan *plan, const struct sim_options *opt)
{
    struct sl_cost cost;
    struct sl_simulation engine;
    _Bool with_engine = wants_engine(plan, opt);
    if (simulate(plan, opt, opt->groups.cuts.policy, opt->timeline, &cost) != SLUICE_OK)
        return tool_fail();
    if (with_engine && run_engine(plan, opt, &engine) != SLUICE_OK)
        return tool_fail();
    if (!opt->json) {
        print_cost(opt->groups.cuts.policy, &cost);
        if (with_engine)
            print_engine(&engine);
        return tool_finish(TOOL_OK);
    }
    struct sl_json_writer w;
    sl_json_begin(&w, stdout, 0);
    put_cost(&w, opt->groups.cuts.policy, &cost, with_engine ? &engine : NULL);
    SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
    return tool_finish(TOOL_OK);
}

/* --- the table of policies by plans --- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int compare_one(const struct tool_input *input, const struct sim_options *opt, struct sl_json_writer *w)
{
    struct sl_cost costs[SLUICE_POLICY_SINGLE + 1];
    for (uint32_t p = 0; p <= SLUICE_POLICY_SINGLE; p++)
        if (simulate(&input->plan, opt, (enum sluice_policy)p, NULL, &costs[p]) != SLUICE_OK)
            return tool_fail();
    if (opt->json) {
        sl_json_object(w);
        sl_json_key(w, "plan");
        sl_json_put_text(w, input->path);
        sl_json_key(w, "policies");
        sl_json_list(w);
        for (uint32_t p = 0; p <= SLUICE_POLICY_SINGLE; p++)
            put_cost(w, (enum sluice_policy)p, &costs[p], NULL);
        sl_json_list_end(w);
        sl_json_object_end(w);
        return TOOL_OK;
    }
    printf("| %s | %u | %.3f |", base_name(input->path), input->plan.world, costs[0].bound);
    for (uint32_t p = 0; p <= SLUICE_POLICY_SINGLE; p++)
        printf(" %.3f (%.3f) |", costs[p].makespan, ratio_of(&costs[p]));
    printf("\n");
    return TOOL_OK;
}

static int compare(struct tool_args *args, struct sim_options *opt, char **paths, int count)
{
    struct sl_json_writer w;
    const struct sl_nccl_config asked = opt->groups.nccl;
    if (opt->json) {
        sl_json_begin(&w, stdout, 0);
        sl_json_list(&w);
    } else {
        printf("| plan | ranks | bound, s |");
        for (int p = 0; tool_policies[p] != NULL; p++)
            printf(" %s, s (ratio) |", tool_policies[p]);
        printf("\n|---|---|---|---|---|---|---|---|\n");
    }
    for (int i = 0; i < count; i++) {
        struct tool_input input;
        if (!tool_input_open(args, paths[i], NULL, &input))
            return args->status;
        opt->groups.nccl = asked;
        int status =
            tool_group_settle(args, input.plan.world, &opt->groups) ? compare_one(&input, opt, &w) : args->status;
        tool_input_close(&input);
        if (status != TOOL_OK)
            return status;
    }
    if (opt->json) {
        sl_json_list_end(&w);
        SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
    }
    return tool_finish(TOOL_OK);
}

enum { SEEDS_DEFAULT = 1000 };

static int run_faults(struct tool_args *args, const struct sim_options *opt, int operands)
{
    if (!opt->faults)
        return tool_usage(args, "--seed and --seeds are for --faults");
    if (operands > 0)
        return tool_usage(args, "--faults makes its own plans");
    if (opt->compare || opt->timeline != NULL || opt->json)
        return tool_usage(args, "--faults goes with --seed and --seeds alone");
    uint64_t seeds = opt->seeds;
    if (seeds == 0)
        seeds = opt->seed_given ? 1 : SEEDS_DEFAULT;
    return sim_faults(opt->seed, seeds);
}

int cmd_sim(int argc, char **argv)
{
    struct tool_args args;
    struct sim_options opt = {.cost = {.link = 50e9, .pack_rate = 1500e9, .group_overhead = 0.0002}};
    tool_groups_init(&opt.groups);
    tool_begin(&args, &syntax, argc, argv);
    int option;
    while ((option = tool_next(&args)) >= 0)
        if (!take_option(&args, option, &opt))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    char **paths;
    int count = tool_operands(&args, &paths);
    if (opt.faults || opt.seed_given || opt.seeds > 0)
        return run_faults(&args, &opt, count);
    if (opt.compare && count > 0)
        return compare(&args, &opt, paths, count);
    if (count > 1)
        return tool_usage(&args, "several plans are for --compare");
    const char *path = tool_one_operand(&args, "PLAN");
    struct tool_input input;
    if (path == NULL || !tool_input_open(&args, path, NULL, &input))
        return args.status;
    int status =
        tool_group_settle(&args, input.plan.world, &opt.groups) ? simulate_one(&input.plan, &opt) : args.status;
    tool_input_close(&input);
    return status;
}
