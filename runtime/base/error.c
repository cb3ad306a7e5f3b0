/*
 * error.c: the thread's last error.
 *
 * - `last` is written by the failing thread only; nobody else reads it.
 * - A text is always one terminated line: line breaks in what a caller quotes become blanks.
 */
#include "runtime/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct sluice_error last;

const struct sluice_error *sluice_last_error(void)
{
    return &last;
}

static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            *text = ' ';
}

const char *sl_errno_words(int error)
{
    const char *words = strerrordesc_np(error);
    return words ? words : "unknown error";
}

/* Formats into a local copy first: an argument may be the text of the error that is replaced. */
static void SLUICE_PRINTF(6, 0) fill(struct sluice_error *error, sluice_status status, int32_t domain, int64_t native,
                                     const char *where, const char *format, va_list arguments)
{
    struct sluice_error fresh = {.status = status, .domain = domain, .native = native};
    SL_IGNORE(snprintf(fresh.where, sizeof fresh.where, "%s", where));
    int length = vsnprintf(fresh.text, sizeof fresh.text, format, arguments);
    if (domain == SLUICE_DOMAIN_SYSTEM && length >= 0 && (size_t)length < sizeof fresh.text) {
        SL_IGNORE(
            snprintf(fresh.text + length, sizeof fresh.text - (size_t)length, ": %s", sl_errno_words((int)native)));
    }
    one_line(fresh.text);
    *error = fresh;
}

void sl_fail_text(sluice_status status, const char *where, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(&last, status, SLUICE_DOMAIN_SLUICE, 0, where, format, arguments);
    va_end(arguments);
}

void sl_fail_native_text(sluice_status status, int32_t domain, int64_t native, const char *where, const char *format,
                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(&last, status, domain, native, where, format, arguments);
    va_end(arguments);
}

sluice_status sl_fail_copy(const struct sluice_error *error)
{
    if (error != &last)
        last = *error;
    return last.status;
}

sluice_status sl_error_set(struct sluice_error *error, sluice_status status, const char *where, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(error, status, SLUICE_DOMAIN_SLUICE, 0, where, format, arguments);
    va_end(arguments);
    return status;
}

void sl_error_take(struct sluice_error *error)
{
    *error = last;
}

void sl_assert_failed(const char *condition, const char *file, int line)
{
    SL_IGNORE(dprintf(2, "sluice: %s:%d: assertion failed: %s\n", file, line, condition));
    abort();
}
