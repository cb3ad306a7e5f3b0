/*
 * json.c: strict reading over jansson.
 *
 * - Depth is counted before jansson runs: its own limit is far higher and its parser recurses.
 * - Typed readers never convert: 1e3 and 4096.0 are real numbers and no integers.
 */
#include "runtime/base/json.h"

#include <string.h>

#include "runtime/base/error.h"

#define DEPTH_MAX 64

struct place {
    size_t line;
    size_t column;
};

static struct place place_of(const char *text, size_t offset)
{
    struct place place = {.line = 1, .column = 1};
    for (size_t i = 0; i < offset; i++) {
        place.column++;
        if (text[i] == '\n')
            place = (struct place){.line = place.line + 1, .column = 1};
    }
    return place;
}

/* What no JSON text holds in this place: jansson will stop here, so nobody looks further, however large the file. */
static _Bool ends_text(char c, _Bool in_string)
{
    _Bool blank = c == '\n' || c == '\t' || c == '\r';
    return (unsigned char)c < 0x20 && (in_string || !blank);
}

/* Offset behind the string that begins at `offset`; an unterminated one ends with the text. */
static size_t skip_string(const char *text, size_t bytes, size_t offset)
{
    for (offset++; offset < bytes && text[offset] != '"'; offset++) {
        if (ends_text(text[offset], 1))
            return bytes;
        if (text[offset] == '\\')
            offset++;
    }
    return offset + 1;
}

/* Offset of the bracket that goes too deep, or `bytes`. */
static size_t find_too_deep(const char *text, size_t bytes)
{
    size_t depth = 0;
    for (size_t i = 0; i < bytes;) {
        char c = text[i];
        if (c == '"') {
            i = skip_string(text, bytes, i);
            continue;
        }
        if (ends_text(c, 0))
            return bytes;
        if ((c == '[' || c == '{') && ++depth > DEPTH_MAX)
            return i;
        if ((c == ']' || c == '}') && depth > 0)
            depth--;
        i++;
    }
    return bytes;
}

static sluice_status parse_failed(const json_error_t *error, const char *what)
{
    if (json_error_code(error) == json_error_out_of_memory)
        return sl_fail(SLUICE_NOMEM, "json", "%s: out of memory", what);
    return sl_fail(SLUICE_PARSE, "json", "%s: line %d, column %d: %s", what, error->line, error->column, error->text);
}

sluice_status sl_json_parse(const char *text, size_t bytes, const char *what, json_t **ret)
{
    size_t deep = find_too_deep(text, bytes);
    if (deep < bytes) {
        struct place place = place_of(text, deep);
        return sl_fail(SLUICE_PARSE, "json", "%s: line %zu, column %zu: nesting too deep, at most %d levels", what,
                       place.line, place.column, DEPTH_MAX);
    }
    json_error_t error;
    json_t *root = json_loadb(bytes ? text : "", bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return parse_failed(&error, what);
    *ret = root;
    return SLUICE_OK;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

/* "tasks[3].id", or "id" at the top, where the path is empty. */
static const char *dot(const char *path)
{
    return *path ? "." : "";
}

static sluice_status not_there(const char *key, const char *path)
{
    return sl_fail(SLUICE_PARSE, "json", "%s%s%s: missing", path, dot(path), key);
}

static sluice_status wrong_type(const json_t *value, const char *key, const char *path, const char *want)
{
    return sl_fail(SLUICE_PARSE, "json", "%s%s%s: want %s, not %s", path, dot(path), key, want, type_name(value));
}

static sluice_status read_u64(const json_t *value, const char *key, const char *path, uint64_t *ret)
{
    if (!json_is_integer(value))
        return wrong_type(value, key, path, "an integer");
    json_int_t number = json_integer_value(value);
    if (number < 0)
        return sl_fail(SLUICE_PARSE, "json", "%s%s%s: %lld is negative", path, dot(path), key, (long long)number);
    *ret = (uint64_t)number;
    return SLUICE_OK;
}

sluice_status sl_json_u64(const json_t *object, const char *key, const char *path, uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    return value ? read_u64(value, key, path, ret) : not_there(key, path);
}

sluice_status sl_json_u64_or(const json_t *object, const char *key, const char *path, uint64_t fallback, uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    if (value)
        return read_u64(value, key, path, ret);
    *ret = fallback;
    return SLUICE_OK;
}

sluice_status sl_json_text(const json_t *object, const char *key, const char *path, const char **ret)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return not_there(key, path);
    if (!json_is_string(value))
        return wrong_type(value, key, path, "a string");
    *ret = json_string_value(value);
    return SLUICE_OK;
}

sluice_status sl_json_array(const json_t *object, const char *key, const char *path, const json_t **ret)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return not_there(key, path);
    if (!json_is_array(value))
        return wrong_type(value, key, path, "an array");
    *ret = value;
    return SLUICE_OK;
}

static _Bool is_known(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(key, *keys) == 0)
            return 1;
    return 0;
}

sluice_status sl_json_only(const json_t *object, const char *const *keys, const char *path)
{
    if (!json_is_object(object))
        return sl_fail(SLUICE_PARSE, "json", "%s: want an object, not %s", *path ? path : "top level",
                       type_name(object));
    json_t *mutable_object = (json_t *)(uintptr_t)object; /* jansson's iterators take no const */
    for (void *i = json_object_iter(mutable_object); i; i = json_object_iter_next(mutable_object, i))
        if (!is_known(json_object_iter_key(i), keys))
            return sl_fail(SLUICE_PARSE, "json", "%s%s%s: no such key", path, dot(path), json_object_iter_key(i));
    return SLUICE_OK;
}
