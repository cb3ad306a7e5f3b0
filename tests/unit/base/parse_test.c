/* Strict text to number: the whole string or nothing. */
#include "runtime/base/parse.h"

#include <criterion/criterion.h>
#include <float.h>
#include <locale.h>
#include <string.h>

/* What a careless parser would take for 0, 5, 7, 16 or something huge. */
static const char *const never_a_number[] = {"",    " 7 ", " 7",  "7 ",    "+5",  "16abc", "0x10", "-1",  "-0",
                                             "abc", "1e3", "4.0", "1,000", "1_0", "١",     "\n",   "7\n", "0b1"};

Test(parse, bad_numbers_are_refused_and_touch_nothing)
{
    for (size_t i = 0; i < sizeof never_a_number / sizeof *never_a_number; i++) {
        uint64_t wide = 42;
        uint32_t narrow = 42;
        cr_assert_not(sl_parse_u64(never_a_number[i], &wide), "'%s'", never_a_number[i]);
        cr_assert_not(sl_parse_u32(never_a_number[i], &narrow), "'%s'", never_a_number[i]);
        cr_assert_not(sl_parse_size(never_a_number[i], &wide), "'%s'", never_a_number[i]);
        cr_assert_not(sl_parse_duration(never_a_number[i], &wide), "'%s'", never_a_number[i]);
        cr_assert_eq(wide, 42);
        cr_assert_eq(narrow, 42);
    }
}

Test(parse, integers_are_exact_to_the_last_value)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    cr_assert(sl_parse_u64("18446744073709551615", &wide));
    cr_assert_eq(wide, UINT64_MAX);
    cr_assert(sl_parse_u64("9007199254740993", &wide));
    cr_assert_eq(wide, UINT64_C(9007199254740993));
    cr_assert_not(sl_parse_u64("18446744073709551616", &wide));
    cr_assert_not(sl_parse_u64("99999999999999999999", &wide));
    cr_assert(sl_parse_u32("4294967295", &narrow));
    cr_assert_eq(narrow, UINT32_MAX);
    cr_assert_not(sl_parse_u32("4294967296", &narrow));
    cr_assert(sl_parse_u64("010", &wide));
    cr_assert_eq(wide, 10, "decimal, never octal");
}

Test(parse, sizes_take_one_suffix)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"64", 64},
                {"64k", 64000},
                {"64Ki", 65536},
                {"256M", 256000000},
                {"1Mi", 1048576},
                {"4G", UINT64_C(4000000000)},
                {"4Gi", UINT64_C(4294967296)},
                {"2T", UINT64_C(2000000000000)},
                {"1Ti", UINT64_C(1099511627776)}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bytes = 1;
        cr_assert(sl_parse_size(good[i].text, &bytes), "%s", good[i].text);
        cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
    }
    static const char *const bad[] = {"1.5G", "64K", "64KB", "64 k", "64kk", "k", "64m", "64MB", "16777216Ti", "30s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 42;
        cr_assert_not(sl_parse_size(bad[i], &bytes), "%s", bad[i]);
        cr_assert_eq(bytes, 42);
    }
}

Test(parse, durations_need_a_unit)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"5ns", 5},
                {"100us", 100000},
                {"250ms", 250000000},
                {"30s", UINT64_C(30000000000)},
                {"2m", UINT64_C(120000000000)},
                {"0s", 0},
                {"none", UINT64_MAX}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t ns = 1;
        cr_assert(sl_parse_duration(good[i].text, &ns), "%s", good[i].text);
        cr_assert_eq(ns, good[i].ns, "%s", good[i].text);
    }
    static const char *const bad[] = {"0", "30", "30 s", "s", "1.5s", "30S", "18446744074s", "None", "30s ", "64k"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t ns = 42;
        cr_assert_not(sl_parse_duration(bad[i], &ns), "%s", bad[i]);
        cr_assert_eq(ns, 42);
    }
}

Test(parse, booleans_are_six_words)
{
    static const char *const yes[] = {"1", "true", "on"};
    static const char *const no[] = {"0", "false", "off"};
    static const char *const bad[] = {"", "yes", "no", "2", "True", "TRUE", " 1", "1 ", "-1"};
    _Bool value = 0;
    for (size_t i = 0; i < 3; i++) {
        cr_assert(sl_parse_bool(yes[i], &value) && value);
        cr_assert(sl_parse_bool(no[i], &value) && !value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(sl_parse_bool(bad[i], &value), "%s", bad[i]);
}

Test(parse, doubles_are_decimal_and_finite)
{
    double value = 0;
    cr_assert(sl_parse_double("1.5", &value));
    cr_assert_float_eq(value, 1.5, DBL_EPSILON);
    cr_assert(sl_parse_double("-2e3", &value));
    cr_assert_float_eq(value, -2000.0, DBL_EPSILON);
    static const char *const bad[] = {"",   ".",     "1.", ".5", "nan", "inf", "0x1p3",
                                      "1e", "1e999", " 1", "1 ", "+1",  "1,5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(sl_parse_double(bad[i], &value), "%s", bad[i]);
}

Test(parse, quantities_are_shown_in_powers_of_ten)
{
    char text[32];
    cr_assert_str_eq(sl_format_bytes(0, text, sizeof text), "0 B");
    cr_assert_str_eq(sl_format_bytes(999, text, sizeof text), "999 B");
    cr_assert_str_eq(sl_format_bytes(1000, text, sizeof text), "1.0 kB");
    cr_assert_str_eq(sl_format_bytes(256000000, text, sizeof text), "256.0 MB");
    cr_assert_str_eq(sl_format_bytes(999999999, text, sizeof text), "999.9 MB");
    cr_assert_str_eq(sl_format_bytes(UINT64_MAX, text, sizeof text), "18.4 EB");
    cr_assert_str_eq(sl_format_duration(0, text, sizeof text), "0 ns");
    cr_assert_str_eq(sl_format_duration(1500, text, sizeof text), "1.5 us");
    cr_assert_str_eq(sl_format_duration(250000000, text, sizeof text), "250.0 ms");
    cr_assert_str_eq(sl_format_duration(UINT64_C(59900000000), text, sizeof text), "59.9 s");
    cr_assert_str_eq(sl_format_duration(UINT64_C(125000000000), text, sizeof text), "2m 05s");
    cr_assert_str_eq(sl_format_duration(UINT64_C(3720000000000), text, sizeof text), "1h 02m");
    cr_assert_str_eq(sl_format_duration(UINT64_MAX, text, sizeof text), "none");
}
