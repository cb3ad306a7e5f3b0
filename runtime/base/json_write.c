/*
 * json_write.c: the streaming writer.
 *
 * - `first` says that nothing stands yet in the innermost container; a container is a value of the one
 *   around it, so closing one always clears the flag.
 * - The program's locale changes nothing.
 */
#include "runtime/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"

static void put(struct sl_json_writer *w, const char *text)
{
    if (!w->failed && fputs(text, w->file) < 0)
        w->failed = 1;
}

static void put_char(struct sl_json_writer *w, char c)
{
    if (!w->failed && fputc(c, w->file) == EOF)
        w->failed = 1;
}

static void new_line(struct sl_json_writer *w)
{
    if (w->compact)
        return;
    put_char(w, '\n');
    for (int i = 0; i < w->depth; i++)
        put(w, "  ");
}

/* What stands before a value or a key: nothing after a key or at the top, else comma and line. */
static void separate(struct sl_json_writer *w)
{
    if (w->after_key || w->depth == 0) {
        w->after_key = 0;
        return;
    }
    if (!w->first)
        put_char(w, ',');
    w->first = 0;
    new_line(w);
}

static void open_container(struct sl_json_writer *w, char bracket)
{
    separate(w);
    put_char(w, bracket);
    w->depth++;
    w->first = 1;
}

static void close_container(struct sl_json_writer *w, char bracket)
{
    SL_ASSERT(w->depth > 0 && !w->after_key);
    _Bool empty = w->first;
    w->depth--;
    w->first = 0;
    if (!empty)
        new_line(w);
    put_char(w, bracket);
}

static void put_quoted(struct sl_json_writer *w, const char *text)
{
    put_char(w, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        char escaped[8] = {(char)*c, '\0'};
        if (*c == '"' || *c == '\\')
            SL_IGNORE(snprintf(escaped, sizeof escaped, "\\%c", *c));
        else if (*c < ' ')
            SL_IGNORE(snprintf(escaped, sizeof escaped, "\\u%04x", *c));
        put(w, escaped);
    }
    put_char(w, '"');
}

void sl_json_begin(struct sl_json_writer *w, FILE *file, _Bool compact)
{
    *w = (struct sl_json_writer){.file = file, .compact = compact, .first = 1};
}

void sl_json_object(struct sl_json_writer *w)
{
    open_container(w, '{');
}

void sl_json_object_end(struct sl_json_writer *w)
{
    close_container(w, '}');
}

void sl_json_list(struct sl_json_writer *w)
{
    open_container(w, '[');
}

void sl_json_list_end(struct sl_json_writer *w)
{
    close_container(w, ']');
}

void sl_json_key(struct sl_json_writer *w, const char *key)
{
    SL_ASSERT(w->depth > 0 && !w->after_key);
    separate(w);
    put_quoted(w, key);
    put(w, w->compact ? ":" : ": ");
    w->after_key = 1;
}

void sl_json_put_u64(struct sl_json_writer *w, uint64_t value)
{
    char text[24];
    SL_IGNORE(snprintf(text, sizeof text, "%llu", (unsigned long long)value));
    separate(w);
    put(w, text);
}

/* The shortest of 15 and 17 digits that gives the value again; JSON has no infinity, so null. */
void sl_json_put_double(struct sl_json_writer *w, double value)
{
    char text[32] = "null";
    if (isfinite(value)) {
        SL_IGNORE(snprintf(text, sizeof text, "%.15g", value));
        if (strtod(text, NULL) < value || strtod(text, NULL) > value)
            SL_IGNORE(snprintf(text, sizeof text, "%.17g", value));
    }
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
    separate(w);
    put(w, text);
}

void sl_json_put_text(struct sl_json_writer *w, const char *text)
{
    separate(w);
    put_quoted(w, text);
}

void sl_json_put_bool(struct sl_json_writer *w, _Bool value)
{
    separate(w);
    put(w, value ? "true" : "false");
}

sluice_status sl_json_end(struct sl_json_writer *w)
{
    SL_ASSERT(w->depth == 0 && !w->after_key);
    put_char(w, '\n');
    if (fflush(w->file) != 0 || ferror(w->file) || w->failed)
        return sl_fail(SLUICE_IO, "json", "cannot write JSON: is the disk full?");
    return SLUICE_OK;
}
