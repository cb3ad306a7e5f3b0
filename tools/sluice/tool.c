/*
 * What the commands share.
 *
 * Invariants: options come from one table, which parses and documents them; an error is one line, whatever
 * bytes a file name brings along; nothing here exits, so that commands can clean up.
 */
#include "tool.h"

#include <stdarg.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/parse.h"
#include "runtime/core/plan_io.h"

/* --- errors --- */

static void SLUICE_PRINTF(1, 0) say_line(const char *format, va_list arguments)
{
    char line[2 * SLUICE_ERROR_TEXT_MAX];
    vsnprintf(line, sizeof(line), format, arguments);
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fflush(stdout);
    fprintf(stderr, "sluice: %s\n", line);
}

void tool_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_line(format, arguments);
    va_end(arguments);
}

int tool_usage(struct tool_args *args, const char *format, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const char *command = args->syntax->command;
    tool_say("%s: %s (see 'sluice %s --help')", command, text, command);
    args->status = TOOL_USAGE;
    return TOOL_USAGE;
}

int tool_exit_of(sluice_status status)
{
    switch ((int)status) {
    case SLUICE_OK:
        return TOOL_OK;
    case SLUICE_INVALID:
    case SLUICE_LIMIT:
    case SLUICE_UNSUPPORTED:
    case SLUICE_NOT_FOUND:
    case SLUICE_PARSE:
    case SLUICE_PLAN:
    case SLUICE_CONFIG:
        return TOOL_USAGE;
    case SLUICE_HANG:
        return TOOL_HANG;
    case SLUICE_CANCELLED:
        return TOOL_INTERRUPTED;
    default:
        return TOOL_FAILED;
    }
}

int tool_fail(void)
{
    const struct sluice_error *error = sluice_last_error();
    tool_say("%s", error->text);
    return tool_exit_of(error->status);
}

int tool_fail_input(const char *path)
{
    const struct sluice_error *error = sluice_last_error();
    if (strstr(error->text, path) != NULL)
        tool_say("%s", error->text);
    else
        tool_say("%s: %s", path, error->text);
    return error->status == SLUICE_IO ? TOOL_USAGE : tool_exit_of(error->status);
}

_Bool tool_open_plan(const char *path, struct sl_plan *ret_plan, struct sl_map *ret_map, int *ret_status)
{
    if (sl_plan_open(path, ret_plan, ret_map) == SLUICE_OK)
        return 1;
    *ret_status = tool_fail_input(path);
    return 0;
}

_Bool tool_config(struct sl_config *ret, int *ret_status)
{
    extern char **environ;
    if (sl_config_read((const char *const *)environ, ret) == SLUICE_OK)
        return 1;
    *ret_status = tool_fail();
    return 0;
}

int tool_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    tool_say("cannot write to standard output");
    return TOOL_FAILED;
}

/* --- help --- */

#define HELP 'h'

static void print_option(const struct tool_option *option)
{
    char form[80];
    const char *name = option->argument == NULL ? "" : option->argument;
    if (option->value < TOOL_LONG)
        snprintf(form, sizeof(form), "-%c, --%s %s", option->value, option->name, name);
    else
        snprintf(form, sizeof(form), "    --%s %s", option->name, name);
    printf("  %-28s  %s\n", form, option->help);
}

static void print_help(const struct tool_syntax *syntax)
{
    printf("Usage: sluice %s %s\n\n%s\n\nOptions:\n", syntax->command, syntax->synopsis, syntax->about);
    for (const struct tool_option *option = syntax->options; option->name != NULL; option++)
        print_option(option);
    print_option(&(struct tool_option){"help", NULL, "show this and exit", HELP});
}

/* --- options --- */

void tool_begin(struct tool_args *args, const struct tool_syntax *syntax, int argc, char **argv)
{
    *args = (struct tool_args){.syntax = syntax, .argc = argc, .argv = argv};
    size_t count = 0, letters = 0;
    args->shorts[letters++] = ':'; /* a missing argument is told from an unknown option */
    args->shorts[letters++] = HELP;
    for (; syntax->options[count].name != NULL; count++) {
        const struct tool_option *option = &syntax->options[count];
        SL_ASSERT(count < TOOL_OPTIONS_MAX && option->value != HELP);
        args->longs[count] = (struct option){option->name, option->argument != NULL, NULL, option->value};
        if (option->value >= TOOL_LONG)
            continue;
        args->shorts[letters++] = (char)option->value;
        if (option->argument != NULL)
            args->shorts[letters++] = ':';
    }
    args->longs[count] = (struct option){"help", no_argument, NULL, HELP};
    opterr = 0;
    optind = 0;
}

/* What getopt_long complained about: the word itself, or the letter inside a cluster. */
static int bad_option(struct tool_args *args, int kind)
{
    const char *word = args->argv[optind - 1];
    for (const struct option *option = args->longs; option->name != NULL && optopt != 0; option++) {
        if (option->val != optopt)
            continue;
        if (kind == ':')
            return tool_usage(args, "--%s needs a value", option->name);
        return tool_usage(args, "--%s takes no value", option->name);
    }
    if (optopt != 0)
        return tool_usage(args, "unknown option '-%c'", optopt);
    return tool_usage(args, "unknown option '%s'", word);
}

int tool_next(struct tool_args *args)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): options are parsed before any thread starts */
    int value = getopt_long(args->argc, args->argv, args->shorts, args->longs, NULL);
    if (value == -1)
        return TOOL_DONE;
    if (value == HELP) {
        print_help(args->syntax);
        args->status = tool_finish(TOOL_OK);
        return TOOL_STOP;
    }
    if (value == '?' || value == ':') {
        args->status = bad_option(args, value);
        return TOOL_STOP;
    }
    for (const struct option *option = args->longs; option->name != NULL; option++)
        if (option->val == value)
            args->option = option->name;
    args->value = optarg;
    return value;
}

int tool_operands(const struct tool_args *args, char ***ret)
{
    *ret = args->argv + optind;
    return args->argc - optind;
}

const char *tool_one_operand(struct tool_args *args, const char *name)
{
    char **operands;
    int count = tool_operands(args, &operands);
    if (count == 1 && operands[0][0] != '\0')
        return operands[0];
    if (count > 1)
        tool_usage(args, "unexpected argument '%s'", operands[1]);
    else
        tool_usage(args, "%s is missing", name);
    return NULL;
}

/* --- values --- */

static _Bool bad_value(struct tool_args *args, const char *want)
{
    tool_usage(args, "--%s: '%s' is not %s", args->option, args->value, want);
    return 0;
}

_Bool tool_u32(struct tool_args *args, uint32_t min, uint32_t max, uint32_t *ret)
{
    char want[80];
    uint32_t value;
    snprintf(want, sizeof(want), "an integer from %u to %u", min, max);
    if (!sl_parse_u32(args->value, &value) || value < min || value > max)
        return bad_value(args, want);
    *ret = value;
    return 1;
}

_Bool tool_u64(struct tool_args *args, uint64_t *ret)
{
    return sl_parse_u64(args->value, ret) ? 1 : bad_value(args, "an unsigned integer");
}

_Bool tool_size(struct tool_args *args, uint64_t *ret)
{
    return sl_parse_size(args->value, ret) ? 1 : bad_value(args, "a size like 4096, 256M or 64Ki");
}

_Bool tool_duration(struct tool_args *args, uint64_t *ret)
{
    return sl_parse_duration(args->value, ret) ? 1 : bad_value(args, "a duration like 30s, 250ms or none");
}

_Bool tool_double(struct tool_args *args, double min, double max, double *ret)
{
    char want[80];
    double value;
    snprintf(want, sizeof(want), "a number from %g to %g", min, max);
    if (!sl_parse_double(args->value, &value) || value < min || value > max)
        return bad_value(args, want);
    *ret = value;
    return 1;
}

int tool_choice(struct tool_args *args, const char *const *choices)
{
    char want[200] = "one of ";
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(args->value, choices[i]) == 0)
            return i;
        size_t used = strlen(want);
        snprintf(want + used, sizeof(want) - used, "%s%s", i == 0 ? "" : ", ", choices[i]);
    }
    bad_value(args, want);
    return -1;
}
