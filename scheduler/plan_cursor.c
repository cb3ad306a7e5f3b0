/*
 * Typed reading with places.
 *
 * Invariant: the text was parsed before, so the walk over it meets well-formed JSON only, of bounded depth;
 * it still never leaves the text.
 */
#include "scheduler/plan_cursor.h"

#include <inttypes.h>
#include <string.h>

/* --- finding a place in the text --- */

struct walk {
    const char *at, *end;
};

static void skip_blanks(struct walk *walk)
{
    while (walk->at < walk->end && strchr(" \t\r\n,:", *walk->at) != NULL)
        walk->at++;
}

static void skip_string(struct walk *walk)
{
    for (walk->at++; walk->at < walk->end && *walk->at != '"'; walk->at++)
        if (*walk->at == '\\')
            walk->at++;
    walk->at++;
}

static void skip_value(struct walk *walk)
{
    int depth = 0;
    skip_blanks(walk);
    do {
        char c = walk->at < walk->end ? *walk->at : '\0';
        if (c == '"') {
            skip_string(walk);
        } else if (c == '{' || c == '[') {
            depth++;
            walk->at++;
        } else if (c == '}' || c == ']') {
            depth--;
            walk->at++;
        } else {
            while (walk->at < walk->end && strchr(" \t\r\n,:]}", *walk->at) == NULL)
                walk->at++;
        }
        skip_blanks(walk);
    } while (depth > 0 && walk->at < walk->end);
}

/* Moves to the value of member `key` of the object at hand; `ret_key` is where the key stands. */
static _Bool enter_member(struct walk *walk, const char *key, const char **ret_key)
{
    size_t length = strlen(key);
    walk->at++;
    for (skip_blanks(walk); walk->at < walk->end && *walk->at == '"'; skip_value(walk)) {
        const char *name = walk->at;
        skip_string(walk);
        skip_blanks(walk);
        if ((size_t)(walk->end - name) > length + 1 && memcmp(name + 1, key, length) == 0 && name[length + 1] == '"') {
            *ret_key = name;
            return 1;
        }
    }
    return 0;
}

static void enter_element(struct walk *walk, size_t index)
{
    walk->at++;
    for (size_t i = 0; i < index; i++)
        skip_value(walk);
    skip_blanks(walk);
}

static const char *find(const struct sl_cursor *cursor, const char *key)
{
    struct walk walk = {cursor->text, cursor->text + cursor->bytes};
    const char *place = walk.at;
    skip_blanks(&walk);
    for (int i = 0; i < cursor->depth; i++) {
        if (!enter_member(&walk, cursor->steps[i].key, &place))
            return place;
        if (cursor->steps[i].index != SIZE_MAX)
            enter_element(&walk, cursor->steps[i].index);
    }
    place = walk.at;
    if (key != NULL)
        enter_member(&walk, key, &place);
    return place < walk.end ? place : walk.end;
}

/* --- errors --- */

void sl_cursor_down(struct sl_cursor *cursor, const char *key, size_t index)
{
    SL_ASSERT(cursor->depth < SL_CURSOR_STEPS);
    cursor->steps[cursor->depth++] = (struct sl_step){key, index};
}

void sl_cursor_up(struct sl_cursor *cursor)
{
    SL_ASSERT(cursor->depth > 0);
    cursor->depth--;
}

static void append(char *path, size_t capacity, const char *key, size_t index)
{
    size_t used = strlen(path);
    const char *dot = used == 0 ? "" : ".";
    if (index == SIZE_MAX)
        snprintf(path + used, capacity - used, "%s%.60s", dot, key);
    else
        snprintf(path + used, capacity - used, "%s%.60s[%zu]", dot, key, index);
}

static sluice_status fail_text(const struct sl_cursor *cursor, const char *key, const char *text)
{
    char path[256] = "";
    for (int i = 0; i < cursor->depth; i++)
        append(path, sizeof(path), cursor->steps[i].key, cursor->steps[i].index);
    if (key != NULL)
        append(path, sizeof(path), key, SIZE_MAX);
    const char *place = find(cursor, key);
    size_t line = 1, column = 1;
    for (const char *c = cursor->text; c < place; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return sl_fail(SLUICE_PARSE, "plan", "%.200s: line %zu, column %zu: %s%s%s", cursor->what, line, column, path,
                   path[0] == '\0' ? "" : ": ", text);
}

sluice_status sl_cursor_fail(const struct sl_cursor *cursor, const char *key, const char *format, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fail_text(cursor, key, text);
}

sluice_status sl_cursor_fail_last(const struct sl_cursor *cursor, const char *key)
{
    struct sluice_error error;
    sl_error_take(&error);
    return error.status == SLUICE_NOMEM ? SLUICE_NOMEM : fail_text(cursor, key, error.text);
}

/* --- typed members --- */

static sluice_status read_u64(const struct sl_cursor *cursor, const json_t *value, const char *key, uint64_t *ret)
{
    if (value == NULL)
        return sl_cursor_fail(cursor, key, "missing");
    if (!json_is_integer(value))
        return sl_cursor_fail(cursor, key, "want an integer");
    if (json_integer_value(value) < 0)
        return sl_cursor_fail(cursor, key, "%lld is negative", (long long)json_integer_value(value));
    *ret = (uint64_t)json_integer_value(value);
    return SLUICE_OK;
}

sluice_status sl_cursor_u64(const struct sl_cursor *cursor, const json_t *object, const char *key, uint64_t *ret)
{
    return read_u64(cursor, json_object_get(object, key), key, ret);
}

sluice_status sl_cursor_u64_or(const struct sl_cursor *cursor, const json_t *object, const char *key, uint64_t fallback,
                               uint64_t *ret)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL)
        return read_u64(cursor, value, key, ret);
    *ret = fallback;
    return SLUICE_OK;
}

sluice_status sl_cursor_u32(const struct sl_cursor *cursor, const json_t *object, const char *key, uint32_t *ret)
{
    uint64_t value;
    sluice_status status = sl_cursor_u64(cursor, object, key, &value);
    if (status != SLUICE_OK)
        return status;
    if (value >= UINT32_MAX)
        return sl_cursor_fail(cursor, key, "%" PRIu64 " is too large", value);
    *ret = (uint32_t)value;
    return SLUICE_OK;
}

sluice_status sl_cursor_text(const struct sl_cursor *cursor, const json_t *object, const char *key, const char **ret)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return sl_cursor_fail(cursor, key, "missing");
    if (!json_is_string(value))
        return sl_cursor_fail(cursor, key, "want a string");
    *ret = json_string_value(value);
    return SLUICE_OK;
}

sluice_status sl_cursor_array(const struct sl_cursor *cursor, const json_t *object, const char *key, const json_t **ret)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return sl_cursor_fail(cursor, key, "missing");
    if (!json_is_array(value))
        return sl_cursor_fail(cursor, key, "want an array");
    *ret = value;
    return SLUICE_OK;
}

static _Bool listed(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

sluice_status sl_cursor_only(const struct sl_cursor *cursor, const json_t *object, const char *const *keys)
{
    if (!json_is_object(object))
        return sl_cursor_fail(cursor, NULL, "want an object");
    json_t *iterable = (json_t *)(uintptr_t)object; /* jansson's iterators take no const */
    for (void *i = json_object_iter(iterable); i != NULL; i = json_object_iter_next(iterable, i))
        if (!listed(json_object_iter_key(i), keys))
            return sl_cursor_fail(cursor, json_object_iter_key(i), "unknown key");
    return SLUICE_OK;
}
