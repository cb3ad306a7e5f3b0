/*
 * tool.h: what the commands of the tool share: options, errors, exit statuses, opening plans.
 *
 * Results go to stdout, everything else to stderr; every error is one line that begins "sluice: ".
 * A command: describe the syntax in a table, loop over tool_next, do the work, return an exit status.
 */
#ifndef SL_TOOL_H
#define SL_TOOL_H

#include <getopt.h>
#include <stdio.h>

#include "runtime/base/config.h"
#include "runtime/base/file.h"
#include "scheduler/plan.h"

enum tool_exit { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_HANG = 3, TOOL_INTERRUPTED = 130 };

/* One line of main.c's table. `run` gets argv[0] = the command's name and returns an exit status. */
struct tool_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

int cmd_plan(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_make_checkpoint(int argc, char **argv);

/* `value` is returned by tool_next; a letter is the short form too. Long-only options count from TOOL_LONG. */
#define TOOL_LONG        256
#define TOOL_OPTIONS_MAX 64
struct tool_option {
    const char *name;     /* "json"; NULL ends the table */
    const char *argument; /* "FILE" as --help shows it; NULL: takes none */
    const char *help;
    int value;
};

struct tool_syntax {
    const char *command;  /* "show" */
    const char *synopsis; /* "PLAN [--json]" */
    const char *about;    /* sentences for --help */
    const struct tool_option *options;
};

/* Progress through a command line. `status` is the exit status to return after TOOL_STOP. */
struct tool_args {
    const struct tool_syntax *syntax;
    int argc;
    char **argv;
    const char *option; /* the current option's name */
    const char *value;  /* and argument */
    int status;
    struct option longs[TOOL_OPTIONS_MAX + 2];
    char shorts[2 * TOOL_OPTIONS_MAX + 4];
};

#define TOOL_DONE (-1)
#define TOOL_STOP (-2) /* --help was printed, or an error: return args->status */

void tool_begin(struct tool_args *args, const struct tool_syntax *syntax, int argc, char **argv);
/* The next option's `value`, TOOL_DONE behind the last, or TOOL_STOP. */
int tool_next(struct tool_args *args);
/* Operands left after TOOL_DONE. */
int tool_operands(const struct tool_args *args, char ***ret);
/* The only operand; NULL after an error line that calls it `name` (then return args->status). */
const char *tool_one_operand(struct tool_args *args, const char *name);

/* The current option's argument as a number; false after an error line (then return args->status). */
_Bool tool_u32(struct tool_args *args, uint32_t min, uint32_t max, uint32_t *ret);
_Bool tool_u64(struct tool_args *args, uint64_t *ret);
_Bool tool_size(struct tool_args *args, uint64_t *ret);
_Bool tool_duration(struct tool_args *args, uint64_t *ret);
_Bool tool_double(struct tool_args *args, double min, double max, double *ret);
/* The index of the current option's argument in a NULL-terminated list; -1 after an error line. */
int tool_choice(struct tool_args *args, const char *const *choices);

/* "sluice: show: TEXT (see 'sluice show --help')" and args->status = TOOL_USAGE, which it returns. */
int tool_usage(struct tool_args *args, const char *format, ...) SLUICE_PRINTF(2, 3);
/* "sluice: TEXT". */
void tool_say(const char *format, ...) SLUICE_PRINTF(1, 2);
/* Prints the thread's last error and returns its exit status. */
int tool_fail(void);
/* The same for an input file: its name comes first where the text lacks it, and IO is bad input too. */
int tool_fail_input(const char *path);
int tool_exit_of(sluice_status status);
/* Reads and validates a plan; false after an error line, with the exit status in `ret_status`. */
_Bool tool_open_plan(const char *path, struct sl_plan *ret_plan, struct sl_map *ret_map, int *ret_status);
/* Defaults and SLUICE_* variables; false after an error line, with the exit status in `ret_status`. */
_Bool tool_config(struct sl_config *ret, int *ret_status);
/* Flushes stdout; a full disk or closed pipe is an error line and TOOL_FAILED, else returns `status`. */
int tool_finish(int status);

#endif
