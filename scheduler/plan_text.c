/*
 * Strict JSON as a stream.
 *
 * Invariants:
 * - `at` never passes `end`; peek gives '\0' there and for a zero byte, and no value begins with one.
 * - a failed call leaves the stream useless: the reader gives up.
 * - line and column are counted only for an error.
 */
#include "scheduler/plan_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64

/* How far an error looks for nesting: a large file that is no plan is refused at once. */
#define LOOK_AHEAD 1024

/* --- errors --- */

static void append_step(char *path, size_t capacity, const struct sl_text_step *step)
{
    size_t used = strlen(path);
    const char *dot = used == 0 ? "" : ".";
    if (step->key == NULL)
        return;
    if (step->index == SIZE_MAX)
        snprintf(path + used, capacity - used, "%s%s", dot, step->key);
    else
        snprintf(path + used, capacity - used, "%s%s[%zu]", dot, step->key, step->index);
}

static sluice_status fail_at(const struct sl_text *text, const char *place, const char *words)
{
    char path[128] = "";
    for (int i = 0; i < text->depth; i++)
        append_step(path, sizeof(path), &text->steps[i]);
    size_t line = 1, column = 1;
    for (const char *c = text->begin; c < place; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return sl_fail(SLUICE_PARSE, "plan", "%.200s: line %zu, column %zu: %s%s%s", text->what, line, column, path,
                   path[0] == '\0' ? "" : ": ", words);
}

sluice_status sl_text_fail(const struct sl_text *text, const char *place, const char *format, ...)
{
    char words[SLUICE_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    return fail_at(text, place, words);
}

sluice_status sl_text_fail_last(const struct sl_text *text, const char *place)
{
    struct sluice_error error;
    sl_error_take(&error);
    return error.status == SLUICE_NOMEM ? SLUICE_NOMEM : fail_at(text, place, error.text);
}

/* --- characters --- */

static char peek(const struct sl_text *text)
{
    return text->at < text->end ? *text->at : '\0';
}

static char skip_blanks(struct sl_text *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
        text->at++;
    return peek(text);
}

/* Whoever nests brackets where none belong gets told so, if there are very many. */
static _Bool too_deep(const struct sl_text *text)
{
    int depth = text->depth;
    const char *end = text->end - text->at > LOOK_AHEAD ? text->at + LOOK_AHEAD : text->end;
    for (const char *c = text->at; c < end && *c != '"' && depth <= DEPTH_MAX; c++)
        depth += (*c == '[' || *c == '{') - (*c == ']' || *c == '}');
    return depth > DEPTH_MAX;
}

static sluice_status unwanted(const struct sl_text *text, const char *wanted)
{
    if (text->at == text->end)
        return sl_text_fail(text, text->at, "the text ends here, want %s", wanted);
    if (too_deep(text))
        return sl_text_fail(text, text->at, "nesting too deep, at most %d levels", DEPTH_MAX);
    return sl_text_fail(text, text->at, "want %s", wanted);
}

static sluice_status take(struct sl_text *text, char c, const char *wanted)
{
    if (skip_blanks(text) != c)
        return unwanted(text, wanted);
    text->at++;
    return SLUICE_OK;
}

void sl_text_begin(struct sl_text *text, const char *data, size_t bytes, const char *what)
{
    const char *begin = bytes > 0 ? data : "";
    *text = (struct sl_text){.begin = begin, .at = begin, .end = begin + bytes, .what = what};
}

sluice_status sl_text_end(struct sl_text *text)
{
    skip_blanks(text);
    return text->at == text->end ? SLUICE_OK : sl_text_fail(text, text->at, "trailing bytes behind the object");
}

/* --- numbers --- */

sluice_status sl_text_u64(struct sl_text *text, uint64_t *ret)
{
    char c = skip_blanks(text);
    const char *place = text->at;
    uint64_t value = 0;
    if (c == '-')
        return sl_text_fail(text, place, "a negative number, want an integer from 0 up");
    if (c < '0' || c > '9')
        return unwanted(text, "an integer");
    for (; peek(text) >= '0' && peek(text) <= '9'; text->at++) {
        uint64_t digit = (uint64_t)(*text->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return sl_text_fail(text, place, "an integer beyond 2^64-1");
        value = value * 10 + digit;
    }
    if (c == '0' && text->at - place > 1)
        return sl_text_fail(text, place, "an integer with a leading zero");
    c = peek(text);
    if (c == '.' || c == 'e' || c == 'E')
        return sl_text_fail(text, place, "a real number, want an integer");
    *ret = value;
    return SLUICE_OK;
}

sluice_status sl_text_u32(struct sl_text *text, uint32_t *ret)
{
    uint64_t value = 0;
    skip_blanks(text);
    const char *place = text->at;
    sluice_status status = sl_text_u64(text, &value);
    if (status != SLUICE_OK)
        return status;
    if (value >= UINT32_MAX)
        return sl_text_fail(text, place, "%" PRIu64 " is too large", value);
    *ret = (uint32_t)value;
    return SLUICE_OK;
}

/* --- strings --- */

struct decoded {
    char *to;
    size_t used, capacity;
};

static sluice_status put(const struct sl_text *text, struct decoded *out, uint32_t c)
{
    if (out->used + 1 >= out->capacity)
        return sl_text_fail(text, text->at, "a string of more than %zu bytes", out->capacity - 1);
    out->to[out->used++] = (char)c;
    return SLUICE_OK;
}

static sluice_status put_code(const struct sl_text *text, struct decoded *out, uint32_t code)
{
    if (code < 0x80)
        return put(text, out, code);
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t heads[] = {0, 0xc0, 0xe0, 0xf0};
    sluice_status status = put(text, out, heads[more] | code >> (6 * more));
    while (more-- > 0 && status == SLUICE_OK)
        status = put(text, out, 0x80 | ((code >> (6 * more)) & 0x3f));
    return status;
}

/* Four hexadecimal digits, after "\u". */
static sluice_status take_hex(struct sl_text *text, uint32_t *ret)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, text->at++) {
        char c = peek(text);
        static const char digits[] = "0123456789abcdef";
        const char *digit = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c);
        if (digit == NULL)
            return unwanted(text, "four hexadecimal digits");
        code = code << 4 | (uint32_t)(digit - digits);
    }
    *ret = code;
    return SLUICE_OK;
}

static sluice_status take_unicode(struct sl_text *text, struct decoded *out)
{
    uint32_t code = 0, low = 0;
    sluice_status status = take_hex(text, &code);
    if (status != SLUICE_OK)
        return status;
    if (code == 0 || (code >= 0xdc00 && code < 0xe000))
        return sl_text_fail(text, text->at, "\\u%04x stands for no character", code);
    if (code < 0xd800 || code >= 0xe000)
        return put_code(text, out, code);
    if (text->end - text->at < 2 || text->at[0] != '\\' || text->at[1] != 'u')
        return unwanted(text, "the second half of a surrogate pair");
    text->at += 2;
    status = take_hex(text, &low);
    if (status == SLUICE_OK && (low < 0xdc00 || low >= 0xe000))
        return sl_text_fail(text, text->at, "\\u%04x is not the second half of a surrogate pair", low);
    return status == SLUICE_OK ? put_code(text, out, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)) : status;
}

static sluice_status take_escape(struct sl_text *text, struct decoded *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(text);
    if (c == 'u') {
        text->at++;
        return take_unicode(text, out);
    }
    const char *known = c == '\0' ? NULL : strchr(from, c);
    if (known == NULL)
        return unwanted(text, "an escape");
    text->at++;
    return put(text, out, (unsigned char)to[known - from]);
}

sluice_status sl_text_string(struct sl_text *text, char *ret, size_t capacity)
{
    struct decoded out = {.to = ret, .capacity = capacity};
    sluice_status status = take(text, '"', "a string");
    while (status == SLUICE_OK && peek(text) != '"') {
        unsigned char c = (unsigned char)peek(text);
        if (c < 0x20)
            return unwanted(text, "the end of the string");
        text->at++;
        status = c == '\\' ? take_escape(text, &out) : put(text, &out, c);
    }
    if (status == SLUICE_OK) {
        text->at++;
        out.to[out.used] = '\0';
    }
    return status;
}

static int find(const char *const *list, const char *name)
{
    for (int i = 0; list[i] != NULL; i++)
        if (strcmp(list[i], name) == 0)
            return i;
    return -1;
}

sluice_status sl_text_choice(struct sl_text *text, const char *const *choices, const char *kind, int *ret)
{
    char name[64];
    skip_blanks(text);
    const char *place = text->at;
    sluice_status status = sl_text_string(text, name, sizeof(name));
    if (status != SLUICE_OK)
        return status;
    int found = find(choices, name);
    if (found < 0)
        return sl_text_fail(text, place, "'%s' is not %s", name, kind);
    *ret = found;
    return SLUICE_OK;
}

/* --- objects and lists --- */

sluice_status sl_text_object(struct sl_text *text, const char *const *keys, struct sl_members *ret)
{
    sluice_status status = take(text, '{', "an object");
    if (status != SLUICE_OK)
        return status;
    SL_ASSERT(text->depth < SL_TEXT_DEPTH);
    *ret = (struct sl_members){.keys = keys, .place = text->at - 1};
    text->steps[text->depth++] = (struct sl_text_step){NULL, SIZE_MAX};
    return SLUICE_OK;
}

static sluice_status check_needed(struct sl_text *text, const struct sl_members *members, uint32_t needed)
{
    uint32_t missing = needed & ~members->seen;
    if (missing == 0)
        return SLUICE_OK;
    text->steps[text->depth - 1] = (struct sl_text_step){members->keys[__builtin_ctz(missing)], SIZE_MAX};
    return sl_text_fail(text, members->place, "missing");
}

static sluice_status take_key(struct sl_text *text, struct sl_members *members, int *ret_key)
{
    char name[64];
    skip_blanks(text);
    const char *place = text->at;
    text->steps[text->depth - 1] = (struct sl_text_step){NULL, SIZE_MAX};
    sluice_status status = sl_text_string(text, name, sizeof(name));
    if (status != SLUICE_OK)
        return status;
    int key = find(members->keys, name);
    if (key < 0)
        return sl_text_fail(text, place, "unknown key '%s'", name);
    text->steps[text->depth - 1].key = members->keys[key];
    if ((members->seen >> key & 1) != 0)
        return sl_text_fail(text, place, "repeated key");
    members->seen |= UINT32_C(1) << key;
    *ret_key = key;
    status = take(text, ':', "':'");
    skip_blanks(text); /* so that `at` is the value's place */
    return status;
}

sluice_status sl_text_next(struct sl_text *text, struct sl_members *members, uint32_t needed, int *ret_key)
{
    sluice_status status = SLUICE_OK;
    if (skip_blanks(text) == '}') {
        text->at++;
        status = check_needed(text, members, needed);
        text->depth--;
        *ret_key = -1;
        return status;
    }
    if (members->seen != 0)
        status = take(text, ',', "',' or '}'");
    return status == SLUICE_OK ? take_key(text, members, ret_key) : status;
}

sluice_status sl_text_list(struct sl_text *text)
{
    sluice_status status = take(text, '[', "a list");
    if (status == SLUICE_OK)
        text->steps[text->depth - 1].index = SIZE_MAX - 1; /* before the first element */
    return status;
}

sluice_status sl_text_element(struct sl_text *text, _Bool *ret_more)
{
    size_t *index = &text->steps[text->depth - 1].index;
    _Bool first = *index == SIZE_MAX - 1;
    sluice_status status = SLUICE_OK;
    if (skip_blanks(text) == ']') {
        text->at++;
        *index = SIZE_MAX;
        *ret_more = 0;
        return SLUICE_OK;
    }
    if (!first)
        status = take(text, ',', "',' or ']'");
    skip_blanks(text);
    *index = first ? 0 : *index + 1;
    *ret_more = 1;
    return status;
}
