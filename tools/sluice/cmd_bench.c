/*
 * sluice bench: finds the measurement and hands the rest of the line to it.
 *
 * Invariant: a measurement is one line of the table and one file cmd_bench_NAME.c.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const struct tool_command benches[] = {
    {"local", cmd_bench_local, "copies within one GPU: the fused kernel against the device's own copies"},
    {"group", cmd_bench_group, "a plan between the ranks of this machine, by the policies that cut it"},
    {"refit", cmd_bench_refit, "what a refit costs beside its bytes: commit, gate to launch, completion to callback"},
    {"overlap", cmd_bench_overlap,
     "what a refit costs a generator's kernels on the same GPU, by pace and multiprocessors"},
    {"host", cmd_bench_host, "the host backend between processes against a bare copy loop"},
    {NULL, NULL, NULL},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

double bench_p99(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[(uint32_t)(UINT64_C(99) * count / 100)];
}

static int help(void)
{
    puts("Usage: sluice bench WHAT [OPTIONS]\n\nMeasures on this machine. What:");
    for (const struct tool_command *bench = benches; bench->name != NULL; bench++)
        printf("  %-8s  %s\n", bench->name, bench->help);
    puts("\n'sluice bench WHAT --help' describes a measurement.");
    return tool_finish(TOOL_OK);
}

int cmd_bench(int argc, char **argv)
{
    if (argc < 2) {
        tool_say("bench: no measurement given (see 'sluice bench --help')");
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    for (const struct tool_command *bench = benches; bench->name != NULL; bench++)
        if (strcmp(bench->name, argv[1]) == 0)
            return bench->run(argc - 1, argv + 1);
    tool_say("bench: unknown measurement '%s' (see 'sluice bench --help')", argv[1]);
    return TOOL_USAGE;
}
