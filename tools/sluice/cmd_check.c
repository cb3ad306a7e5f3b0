/*
 * sluice check: would the groups of a policy hang?
 *
 * Invariant: exit status 0 means that no group of the plan can hang under the given settings, 3 that one
 * does.
 */
#include <string.h>

#include "groups.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"
#include "scheduler/check.h"

enum { OPT_JSON = TOOL_LONG + 1, OPT_MESSAGES };

static const struct tool_option options[] = {
    {"messages", "FILE", "in place of a plan: {\"world\": N, \"messages\": [[source, destination, bytes], ...]}",
     OPT_MESSAGES},
    TOOL_GROUP_OPTIONS,
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "check",
    .synopsis = "PLAN | --messages FILE [OPTIONS]",
    .about = "Validates a plan and says whether NCCL's groups of a policy would hang, by a model of NCCL's own\n"
             "planner: 'hangs' (ranks wait for each other in a cycle), 'host-hangs' (a group needs more of NCCL's\n"
             "work FIFO than it can ever get), or 'ok'. 'plans' is the most kernel plans that one group has on a\n"
             "rank, 0 for a rank without messages. Channels count as exact when both numbers are given.\n"
             "Exit status 3 when it hangs.",
    .options = options,
};

struct check_options {
    struct tool_groups groups;
    const char *messages;
    _Bool json;
};

static const char *const verdicts[] = {"ok", "hangs", "host-hangs"};

static _Bool take_option(struct tool_args *args, int option, struct check_options *ret)
{
    switch (option) {
    case OPT_MESSAGES:
        ret->messages = args->value;
        return 1;
    case OPT_JSON:
        ret->json = 1;
        return 1;
    default:
        return tool_group_option(args, option, &ret->groups);
    }
}

static void print_json(const struct sl_check *check, const struct sl_plan *plan)
{
    struct sl_json_writer w;
    sl_json_begin(&w, stdout, 0);
    sl_json_object(&w);
    sl_json_key(&w, "verdict");
    sl_json_put_text(&w, verdicts[check->verdict]);
    sl_json_key(&w, "windows");
    sl_json_put_u64(&w, check->windows);
    sl_json_key(&w, "blocks");
    sl_json_put_u64(&w, check->blocks);
    sl_json_key(&w, "max_group_items");
    sl_json_put_u64(&w, check->max_group_items);
    sl_json_key(&w, "max_fifo_bytes");
    sl_json_put_u64(&w, check->max_fifo_bytes);
    sl_json_key(&w, "plans");
    sl_json_list(&w);
    for (uint32_t r = 0; r < check->world; r++)
        sl_json_put_u64(&w, check->plans[r]);
    sl_json_list_end(&w);
    sl_json_key(&w, "cycle");
    sl_json_list(&w);
    for (uint32_t i = 0; i < check->cycle_count; i++) {
        sl_json_object(&w);
        sl_json_key(&w, "rank");
        sl_json_put_u64(&w, check->cycle[i].rank);
        sl_json_key(&w, "plan");
        sl_json_put_u64(&w, check->cycle[i].plan);
        sl_json_key(&w, "message");
        sl_json_put_u64(&w, plan->tasks[check->cycle[i].message].id);
        sl_json_key(&w, "waits_for");
        sl_json_put_u64(&w, check->cycle[i].waits_for);
        sl_json_object_end(&w);
    }
    sl_json_list_end(&w);
    sl_json_object_end(&w);
    SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
}

static void print_cycle(const struct sl_check *check, const struct sl_plan *plan)
{
    printf("window %u: the ranks wait for each other in a cycle:\n", check->window);
    for (uint32_t i = 0; i < check->cycle_count; i++) {
        const struct sl_nccl_wait *wait = &check->cycle[i];
        const struct sluice_task *task = &plan->tasks[wait->message];
        char bytes[32];
        printf("  rank %u, in its kernel plan %u, waits for rank %u to %s task %llu (rank %u to rank %u, %s)\n",
               wait->rank, wait->plan, wait->waits_for, wait->rank == task->source ? "receive" : "send",
               (unsigned long long)task->id, task->source, task->destination,
               sl_format_bytes(sl_task_bytes(task), bytes, sizeof bytes));
    }
}

static void print_text(const struct sl_check *check, const struct sl_plan *plan, const struct check_options *opt)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < check->world; r++)
        most = check->plans[r] > most ? check->plans[r] : most;
    printf("%s: policy %s, NCCL %u.%u.%u, %u nodes of %u ranks\n", verdicts[check->verdict],
           tool_policies[opt->groups.cuts.policy], opt->groups.nccl.version / 10000,
           opt->groups.nccl.version / 100 % 100, opt->groups.nccl.version % 100, opt->groups.nccl.nodes,
           opt->groups.nccl.ranks_per_node);
    printf("groups %u, blocks %u, largest group %u items, most kernel plans of a group %u\n", check->windows,
           check->blocks, check->max_group_items, most);
    if (check->verdict == SL_NCCL_HANGS)
        print_cycle(check, plan);
    if (check->verdict == SL_NCCL_HOST_HANGS)
        printf("window %u: the group of rank %u needs %llu bytes of a work FIFO of %u; it waits for itself\n",
               check->window, check->host_rank, (unsigned long long)check->max_fifo_bytes, opt->groups.nccl.fifo_bytes);
}

static int check_plan(const struct sl_plan *plan, const struct check_options *opt)
{
    struct sl_cuts cuts;
    struct sl_check check;
    if (sl_cuts_decide(plan, &opt->groups.cuts, sl_mem_default(), &cuts) != SLUICE_OK)
        return tool_fail();
    if (sl_check_run(&cuts, &opt->groups.nccl, sl_mem_default(), &check) != SLUICE_OK) {
        sl_cuts_drop(&cuts);
        return tool_fail();
    }
    if (opt->json)
        print_json(&check, plan);
    else
        print_text(&check, plan, opt);
    int status = check.verdict == SL_NCCL_OK ? TOOL_OK : TOOL_HANG;
    sl_check_drop(&check);
    sl_cuts_drop(&cuts);
    return tool_finish(status);
}

int cmd_check(int argc, char **argv)
{
    struct tool_args args;
    struct check_options opt = {0};
    tool_groups_init(&opt.groups);
    tool_begin(&args, &syntax, argc, argv);
    int option;
    while ((option = tool_next(&args)) >= 0)
        if (!take_option(&args, option, &opt))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    char **operands;
    const char *path = NULL;
    if (opt.messages == NULL) {
        path = tool_one_operand(&args, "PLAN or --messages FILE");
        if (path == NULL)
            return args.status;
    } else if (tool_operands(&args, &operands) > 0) {
        return tool_usage(&args, "unexpected argument '%s' beside --messages", operands[0]);
    }
    struct tool_input input;
    if (!tool_input_open(&args, path, opt.messages, &input))
        return args.status;
    int status = tool_group_settle(&args, input.plan.world, &opt.groups) ? check_plan(&input.plan, &opt) : args.status;
    tool_input_close(&input);
    return status;
}
