/* log.c: one line per call, formatted on the stack; longer text is cut. Without a sink one write to stderr. */
#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

static const char *const names[] = {"error", "warn", "info", "debug", "trace"};

_Bool sl_log_level_parse(const char *text, enum sluice_log_level *ret)
{
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum sluice_log_level)i;
            return 1;
        }
    return 0;
}

const char *sl_log_level_name(enum sluice_log_level level)
{
    return (size_t)level < SL_COUNT(names) ? names[level] : "unknown";
}

void sl_log_write(const struct sl_log *log, enum sluice_log_level level, const char *topic, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    SL_IGNORE(vsnprintf(text, sizeof text, format, arguments));
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    if (log->sink)
        log->sink(level, topic, text, log->user);
    else
        SL_IGNORE(dprintf(2, "sluice: %s: %s: %s\n", sl_log_level_name(level), topic, text));
}
