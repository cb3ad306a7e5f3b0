/*
 * sluice bench group: a plan between the ranks of one machine, by the policies that cut it.
 *
 * Invariants: every policy runs the same plan in processes of its own, one policy after the other and the whole row
 * again for each round, so that a slow phase of the machine hits all; every byte is verified by `sluice run`. One more
 * start a policy is traced and counts for nothing but the processor time of the scheduler thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

enum { OPT_REPEAT = TOOL_LONG + 1, OPT_ROUNDS, OPT_RANKS, OPT_BACKEND, OPT_WINDOW, OPT_JSON, ROUNDS_MAX = 32 };

static const struct tool_option options[] = {
    {"rounds", "N", "how often each policy is started (default 3)", OPT_ROUNDS},
    {"repeat", "N", "refits a start, of which the first does not count (default 6)", OPT_REPEAT},
    {"ranks-per-gpu", "N", "cuda: how many ranks share a GPU", OPT_RANKS},
    {"backend", "NAME", "host or cuda (default cuda where usable)", OPT_BACKEND},
    {"window-bytes", "SIZE", "most bytes a rank moves each way per window", OPT_WINDOW},
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "bench group",
    .synopsis = "PLAN [OPTIONS]",
    .about =
        "Runs a plan with the policies balanced, lockstep and windows, several times each, and compares the median\n"
        "time of a refit, pack and unpack included.",
    .options = options,
};

static const char *const policies[] = {"balanced", "lockstep", "windows"};
enum { POLICIES = 3 };
#define TRACED UINT32_MAX /* in place of a round */

struct group {
    const char *plan, *backend, *ranks, *window;
    uint32_t rounds, repeat;
    _Bool json;
    double seconds[POLICIES][ROUNDS_MAX];
    double cpu_us[POLICIES];  /* of the scheduler thread per window and rank */
    double own_us[POLICIES];  /* the same in the traced start, less what NCCL's calls took */
    double nccl_us[POLICIES]; /* and that */
    uint64_t windows[POLICIES];
};

/* --- one run --- */

static _Noreturn void be_run(const struct group *group, const char *policy, const char *trace, int out)
{
    char repeat[16];
    const char *argv[24] = {"sluice", "run", group->plan, "--json", "--policy", policy, "--repeat", repeat};
    int argc = 8;
    snprintf(repeat, sizeof repeat, "%u", group->repeat);
    const char *const pairs[][2] = {{"--backend", group->backend},
                                    {"--ranks-per-gpu", group->ranks},
                                    {"--window-bytes", group->window},
                                    {"--trace", trace}};
    for (size_t i = 0; i < SL_COUNT(pairs); i++)
        if (pairs[i][1] != NULL) {
            argv[argc++] = pairs[i][0];
            argv[argc++] = pairs[i][1];
        }
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (dup2(out, STDOUT_FILENO) < 0 || (nowhere >= 0 && dup2(nowhere, STDERR_FILENO) < 0))
        _exit(TOOL_FAILED);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(TOOL_FAILED);
}

static sluice_status read_all(int from, char *text, size_t bytes)
{
    size_t used = 0;
    ssize_t got = 0;
    while (used + 1 < bytes && (got = read(from, text + used, bytes - 1 - used)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bench", "reading a report");
        used += (size_t)got;
    }
    text[used] = '\0';
    return SLUICE_OK;
}

static sluice_status run_once(const struct group *group, const char *policy, const char *trace, char *report,
                              size_t bytes)
{
    int ends[2], state = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bench", "pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        be_run(group, policy, trace, ends[1]);
    SL_IGNORE(close(ends[1]));
    sluice_status status = child > 0 ? read_all(ends[0], report, bytes)
                                     : sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bench", "fork");
    SL_IGNORE(close(ends[0]));
    if (child > 0 && waitpid(child, &state, 0) != child)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bench", "waitpid");
    if (status == SLUICE_OK && (!WIFEXITED(state) || WEXITSTATUS(state) != TOOL_OK))
        return sl_fail(SLUICE_TRANSPORT, "bench",
                       "policy %s failed: 'sluice run %s --policy %s' with the same options says why", policy,
                       group->plan, policy);
    return status;
}

/* --- the figures --- */

static double sum_of(const json_t *ranks, const char *key)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++)
        sum += json_real_value(json_object_get(json_array_get(ranks, i), key));
    return sum;
}

/* The median of a start's refits but the first, which meets cold connections. */
static sluice_status take_report(struct group *group, int policy, uint32_t round, const char *report)
{
    double refits[1024];
    uint32_t count = 0;
    json_t *json = NULL;
    sluice_status status = sl_json_parse(report, strlen(report), "report", &json);
    if (status != SLUICE_OK)
        return status;
    const json_t *seconds = json_object_get(json, "seconds"), *ranks = json_object_get(json, "ranks");
    for (size_t i = json_array_size(seconds) > 1 ? 1 : 0; i < json_array_size(seconds) && count < SL_COUNT(refits); i++)
        refits[count++] = json_real_value(json_array_get(seconds, i));
    double cpu = sum_of(ranks, "scheduler_cpu_seconds"), nccl = sum_of(ranks, "transport_cpu_seconds");
    uint64_t windows = (uint64_t)json_integer_value(json_object_get(json, "windows"));
    uint64_t refit_count = json_array_size(seconds), world = json_array_size(ranks);
    json_decref(json);
    if (count == 0 || windows == 0 || world == 0)
        return sl_fail(SLUICE_PARSE, "bench", "the report of policy %s has no refits", policies[policy]);
    double each = 1e6 / (double)(windows * refit_count * world);
    if (round == TRACED) {
        group->nccl_us[policy] = nccl * each;
        group->own_us[policy] = (cpu - nccl) * each;
        return SLUICE_OK;
    }
    group->seconds[policy][round] = bench_median(refits, count);
    group->windows[policy] = windows;
    group->cpu_us[policy] += cpu * each / group->rounds;
    return SLUICE_OK;
}

static void print_figures(struct group *group)
{
    double best = bench_median(group->seconds[0], group->rounds);
    if (!group->json)
        puts("policy    windows   seconds  /balanced  us/window     (traced) own     NCCL");
    for (int p = 0; p < POLICIES; p++) {
        double seconds = bench_median(group->seconds[p], group->rounds);
        if (group->json)
            printf("{\"policy\": \"%s\", \"windows\": %llu, \"seconds\": %.6f, \"to_balanced\": %.3f, "
                   "\"scheduler_us_per_window\": %.1f, \"traced_own_us_per_window\": %.1f, "
                   "\"traced_nccl_us_per_window\": %.1f}\n",
                   policies[p], (unsigned long long)group->windows[p], seconds, seconds / best, group->cpu_us[p],
                   group->own_us[p], group->nccl_us[p]);
        else
            printf("%-9s %7llu %9.4f %10.2f %10.1f %16.1f %8.1f\n", policies[p], (unsigned long long)group->windows[p],
                   seconds, seconds / best, group->cpu_us[p], group->own_us[p], group->nccl_us[p]);
    }
}

/* The trace itself is of no use here. */
static sluice_status run_traced(struct group *group, int policy, char *report, size_t bytes)
{
    char path[] = "/tmp/sluice-bench-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "bench", "making a file in /tmp");
    SL_IGNORE(close(file));
    sluice_status status = run_once(group, policies[policy], path, report, bytes);
    SL_IGNORE(unlink(path));
    return status == SLUICE_OK ? take_report(group, policy, TRACED, report) : status;
}

static sluice_status run_all(struct group *group)
{
    enum { REPORT_BYTES = 1 << 20 };
    char *report = sl_new(sl_mem_default(), REPORT_BYTES, "report");
    sluice_status status = report != NULL ? SLUICE_OK : SLUICE_NOMEM;
    for (uint32_t round = 0; round < group->rounds && status == SLUICE_OK; round++)
        for (int p = 0; p < POLICIES && status == SLUICE_OK; p++) {
            status = run_once(group, policies[p], NULL, report, REPORT_BYTES);
            if (status == SLUICE_OK)
                status = take_report(group, p, round, report);
        }
    for (int p = 0; p < POLICIES && status == SLUICE_OK; p++)
        status = run_traced(group, p, report, REPORT_BYTES);
    sl_free(sl_mem_default(), report);
    return status;
}

static _Bool take_option(struct tool_args *args, int option, struct group *group)
{
    switch (option) {
    case OPT_ROUNDS:
        return tool_u32(args, 1, ROUNDS_MAX, &group->rounds);
    case OPT_REPEAT:
        return tool_u32(args, 1, 1000, &group->repeat);
    case OPT_RANKS:
        group->ranks = args->value;
        return 1;
    case OPT_BACKEND:
        group->backend = args->value;
        return 1;
    case OPT_WINDOW:
        group->window = args->value;
        return 1;
    default:
        group->json = 1;
        return 1;
    }
}

int cmd_bench_group(int argc, char **argv)
{
    struct tool_args args;
    struct group *group = sl_new(sl_mem_default(), sizeof *group, "measurement");
    int option;
    if (group == NULL)
        return tool_fail();
    group->rounds = 3;
    group->repeat = 6;
    tool_begin(&args, &syntax, argc, argv);
    while ((option = tool_next(&args)) >= 0 && take_option(&args, option, group))
        ;
    if (option == TOOL_DONE)
        group->plan = tool_one_operand(&args, "PLAN");
    int exit_status = args.status;
    if (group->plan != NULL)
        exit_status = run_all(group) == SLUICE_OK ? TOOL_OK : tool_fail();
    if (group->plan != NULL && exit_status == TOOL_OK)
        print_figures(group);
    sl_free(sl_mem_default(), group);
    return tool_finish(exit_status);
}
