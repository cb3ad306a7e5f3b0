/*
 * parse.c: text to number and back.
 *
 * - A number is one or more digits and nothing else; a value that does not fit is refused, not cut.
 * - Outputs are written only when the whole text is good.
 * - The program's locale changes nothing.
 */
#include "runtime/base/parse.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"

static _Bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits from *text and moves it behind them. */
static _Bool take_u64(const char **text, uint64_t *ret)
{
    const char *c = *text;
    uint64_t value = 0;
    if (!is_digit(*c))
        return 0;
    for (; is_digit(*c); c++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return 0;
    *text = c;
    *ret = value;
    return 1;
}

_Bool sl_parse_u64(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    if (!take_u64(&text, &value) || *text)
        return 0;
    *ret = value;
    return 1;
}

_Bool sl_parse_u32(const char *text, uint32_t *ret)
{
    uint64_t value = 0;
    if (!sl_parse_u64(text, &value) || value > UINT32_MAX)
        return 0;
    *ret = (uint32_t)value;
    return 1;
}

static size_t skip_digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* -?digits(.digits)?([eE][+-]?digits)? */
static _Bool is_decimal(const char *text)
{
    text += *text == '-';
    size_t whole = skip_digits(text);
    text += whole;
    if (*text == '.') {
        size_t fraction = skip_digits(text + 1);
        if (fraction == 0)
            return 0;
        text += 1 + fraction;
    }
    if (whole > 0 && (*text == 'e' || *text == 'E')) {
        text++;
        text += *text == '+' || *text == '-';
        size_t exponent = skip_digits(text);
        if (exponent == 0)
            return 0;
        text += exponent;
    }
    return whole > 0 && *text == '\0';
}

_Bool sl_parse_double(const char *text, double *ret)
{
    if (!is_decimal(text))
        return 0;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return 0;
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (!isfinite(value))
        return 0;
    *ret = value;
    return 1;
}

struct suffix {
    const char *text;
    uint64_t factor;
};

static _Bool parse_with(const char *text, const struct suffix *suffixes, size_t count, uint64_t *ret)
{
    uint64_t value = 0;
    if (!take_u64(&text, &value))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, suffixes[i].text) == 0 && !__builtin_mul_overflow(value, suffixes[i].factor, &value)) {
            *ret = value;
            return 1;
        }
    return 0;
}

_Bool sl_parse_size(const char *text, uint64_t *ret)
{
    static const struct suffix suffixes[] = {
        {"", 1},
        {"k", UINT64_C(1000)},
        {"M", UINT64_C(1000000)},
        {"G", UINT64_C(1000000000)},
        {"T", UINT64_C(1000000000000)},
        {"Ki", UINT64_C(1) << 10},
        {"Mi", UINT64_C(1) << 20},
        {"Gi", UINT64_C(1) << 30},
        {"Ti", UINT64_C(1) << 40},
    };
    return parse_with(text, suffixes, SL_COUNT(suffixes), ret);
}

_Bool sl_parse_duration(const char *text, uint64_t *ret)
{
    static const struct suffix suffixes[] = {
        {"ns", 1},
        {"us", SLUICE_MICROSECOND},
        {"ms", SLUICE_MILLISECOND},
        {"s", SLUICE_SECOND},
        {"m", 60 * SLUICE_SECOND},
    };
    if (strcmp(text, "none") == 0) {
        *ret = UINT64_MAX;
        return 1;
    }
    return parse_with(text, suffixes, SL_COUNT(suffixes), ret);
}

_Bool sl_parse_bool(const char *text, _Bool *ret)
{
    static const struct {
        const char *text;
        _Bool value;
    } words[] = {{"0", 0}, {"1", 1}, {"false", 0}, {"true", 1}, {"off", 0}, {"on", 1}};
    for (size_t i = 0; i < SL_COUNT(words); i++)
        if (strcmp(text, words[i].text) == 0) {
            *ret = words[i].value;
            return 1;
        }
    return 0;
}

/* One decimal, rounded down, in integers: exact and without a locale. */
static const char *one_decimal(uint64_t value, uint64_t unit, const char *name, char *text, size_t capacity)
{
    uint64_t tenths = value % unit / (unit / 10);
    SL_IGNORE(
        snprintf(text, capacity, "%llu.%llu %s", (unsigned long long)(value / unit), (unsigned long long)tenths, name));
    return text;
}

const char *sl_format_bytes(uint64_t bytes, char *text, size_t capacity)
{
    static const char *const names[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        SL_IGNORE(snprintf(text, capacity, "%u B", (unsigned)bytes));
        return text;
    }
    uint64_t unit = 1000;
    size_t i = 0;
    while (i + 1 < SL_COUNT(names) && bytes / unit >= 1000) {
        unit *= 1000;
        i++;
    }
    return one_decimal(bytes, unit, names[i], text, capacity);
}

const char *sl_format_duration(uint64_t ns, char *text, size_t capacity)
{
    uint64_t seconds = ns / SLUICE_SECOND;
    if (ns == UINT64_MAX)
        SL_IGNORE(snprintf(text, capacity, "none"));
    else if (ns < SLUICE_MICROSECOND)
        SL_IGNORE(snprintf(text, capacity, "%u ns", (unsigned)ns));
    else if (ns < SLUICE_MILLISECOND)
        return one_decimal(ns, SLUICE_MICROSECOND, "us", text, capacity);
    else if (ns < SLUICE_SECOND)
        return one_decimal(ns, SLUICE_MILLISECOND, "ms", text, capacity);
    else if (seconds < 60)
        return one_decimal(ns, SLUICE_SECOND, "s", text, capacity);
    else if (seconds < 3600)
        SL_IGNORE(snprintf(text, capacity, "%um %02us", (unsigned)(seconds / 60), (unsigned)(seconds % 60)));
    else
        SL_IGNORE(snprintf(text, capacity, "%lluh %02um", (unsigned long long)(seconds / 3600),
                           (unsigned)(seconds % 3600 / 60)));
    return text;
}
