/*
 * The command-line tool: finds the command and hands the rest of the line to it.
 *
 * Invariant: a command is one line of the table and one file cmd_NAME.c.
 */
#include <event2/event.h>
#include <string.h>

#include "tool.h"

extern char **environ;

static const struct tool_command commands[] = {
    {"plan", cmd_plan, "make a plan from a model and two parallel layouts"},
    {"show", cmd_show, "show a plan: tasks, bytes, peers, sizes"},
    {"check", cmd_check, "say whether the groups of a plan would hang"},
    {"sim", cmd_sim, "simulate a plan in virtual time"},
    {"run", cmd_run, "move a plan or a checkpoint between processes and verify it"},
    {"bench", cmd_bench, "measure on this machine"},
    {"info", cmd_info, "show versions, backends, devices and settings"},
    {"make-checkpoint", cmd_make_checkpoint, "write a small checkpoint, to try 'run --checkpoint' with"},
    {NULL, NULL, NULL},
};

static int help(void)
{
    puts("Usage: sluice COMMAND [OPTIONS]\n\n"
         "Moves a model's weights from the ranks that train it to the ranks that serve it.\n\nCommands:");
    for (const struct tool_command *command = commands; command->name != NULL; command++)
        printf("  %-15s  %s\n", command->name, command->help);
    puts("\n'sluice COMMAND --help' describes a command; 'sluice --version' shows the version.\n"
         "Exit status: 0 done, 1 failed at run time, 2 bad usage or input, 3 a hang was found, 130 interrupted.");
    return tool_finish(TOOL_OK);
}

static int version(void)
{
    uint32_t number = sluice_version_number();
    printf("sluice %u.%u.%u (ABI %u)\n", number >> 16, (number >> 8) & 255, number & 255, sluice_abi_version());
    return tool_finish(TOOL_OK);
}

static const struct tool_command *find(const char *name)
{
    for (const struct tool_command *command = commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

/* What libevent has to say: the library's errors tell the rest, so its warnings only where SLUICE_LOG asks for more. */
static void on_libevent(int severity, const char *text)
{
    _Bool asked = sl_environment_get((const char *const *)environ, "SLUICE_LOG") != NULL;
    if (severity == EVENT_LOG_ERR || (severity == EVENT_LOG_WARN && asked))
        tool_say("libevent: %s", text);
}

int main(int argc, char **argv)
{
    event_set_log_callback(on_libevent);
    if (argc < 2) {
        tool_say("no command given (see 'sluice --help')");
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help();
    if (strcmp(argv[1], "--version") == 0)
        return version();
    const struct tool_command *command = find(argv[1]);
    if (command == NULL) {
        tool_say("unknown command '%s' (see 'sluice --help')", argv[1]);
        return TOOL_USAGE;
    }
    return command->run(argc - 1, argv + 1);
}
