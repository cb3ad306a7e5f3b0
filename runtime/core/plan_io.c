/*
 * Plans and files.
 *
 * Invariant: a path is read or written as one mapped or temporary file; which form it has is decided by its
 * first byte when reading and by its name when writing.
 */
#include "runtime/core/plan_io.h"

#include <string.h>

static _Bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static _Bool begins_json(const char *text, size_t bytes)
{
    size_t blanks = 0;
    while (blanks < bytes && is_blank(text[blanks]))
        blanks++;
    return blanks < bytes && (text[blanks] == '{' || text[blanks] == '[');
}

sluice_status sl_plan_open(const char *path, struct sl_plan *ret_plan, struct sl_map *ret_map)
{
    struct sl_map map;
    sluice_status status = sl_map_open(path, &map);
    if (status != SLUICE_OK)
        return status;
    _Bool binary = sl_plan_is_binary(map.data, map.bytes);
    if (binary)
        status = sl_plan_read_binary(map.data, map.bytes, path, ret_plan);
    else if (!begins_json((const char *)map.data, map.bytes))
        status =
            sl_fail(SLUICE_PARSE, "plan", "%.300s: no plan file: it begins neither as a binary plan nor as JSON", path);
    else
        status = sl_plan_read_json((const char *)map.data, map.bytes, path, ret_plan);
    if (status != SLUICE_OK || !binary)
        sl_map_close(&map);
    if (status == SLUICE_OK)
        *ret_map = binary ? map : (struct sl_map){0};
    return status;
}

static _Bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

sluice_status sl_plan_store(const struct sl_plan *plan, const char *path)
{
    struct sl_out out;
    sluice_status status = sl_out_open(path, &out);
    if (status != SLUICE_OK)
        return status;
    status = ends_with(path, ".json") ? sl_plan_write_json(plan, out.file) : sl_plan_write_binary(plan, out.file);
    return sl_out_end(&out, status);
}
