/* What the tool says of itself, and of options that do not go together. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/tool.h"

static void shows(const char *part)
{
    cr_expect_eq(tool_result.status, 0, "%s", tool_result.err);
    cr_expect_not_null(strstr(tool_result.out, part), "%s", tool_result.out);
    command_drop(&tool_result);
}

Test(help, is_there_in_short_and_in_long_for_every_command)
{
    static const char *const commands[] = {"plan", "show", "check", "sim", "run", "info", "make-checkpoint"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        tool_run("--help");
        shows(commands[i]);
        tool_run(commands[i], "--help");
        shows("-h, --help");
        tool_run(commands[i], "-h");
        shows("Usage: sluice ");
    }
    tool_run("bench", "-h");
    shows("overlap");
    tool_run("bench", "overlap", "-h");
    shows("Usage: sluice bench overlap");
}

Test(help, sim_says_which_options_do_not_go_together)
{
    tool_run("sim", "a.plan", "b.plan");
    tool_fails(2, "several plans are for --compare");
    tool_run("sim", "--faults", "a.plan");
    tool_fails(2, "--faults makes its own plans");
    tool_run("sim", "--faults", "--json");
    tool_fails(2, "--faults goes with --seed and --seeds alone");
    tool_run("sim", "--faults", "--seeds", "0");
    tool_fails(2, "--seeds 0 would try nothing");
    tool_run("sim", "--seeds", "3", "a.plan");
    tool_fails(2, "--seed and --seeds are for --faults");
}
