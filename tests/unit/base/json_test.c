/* Strict JSON in, well-formed JSON out. */
#include "runtime/base/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/error.h"

static json_t *parse(const char *text)
{
    json_t *root = NULL;
    cr_assert_eq(sl_json_parse(text, strlen(text), "input", &root), SLUICE_OK, "%s", sluice_last_error()->text);
    return root;
}

static const char *refuse(const char *text, size_t bytes)
{
    json_t *root = NULL;
    cr_assert_eq(sl_json_parse(text, bytes, "input", &root), SLUICE_PARSE, "%s", text);
    cr_assert_null(root);
    return sluice_last_error()->text;
}

Test(json, malformed_text_is_refused_with_line_and_column)
{
    static const char *const bad[] = {"",           "{",          "[1,]",      "{\"a\":1} x", "{\"a\":NaN}",
                                      "{'a':1}",    "{\"a\":01}", "[\"\\x\"]", "nul",         "[1e999]",
                                      "[\"\xff\"]", "[\"a\nb\"]", "{\"a\" 1}", "[1] [2]",     "[+1]",
                                      "[.5]",       "[0x10]",     "// c\n[]",  "[Infinity]",  "[\"\\u0000\"]"};
    for (size_t i = 0; i < SL_COUNT(bad); i++)
        cr_assert_not_null(strstr(refuse(bad[i], strlen(bad[i])), "input: line "), "%s", bad[i]);
    cr_assert_not_null(strstr(refuse("{\n \"a\": 1,\n \"b\": ]\n}", 20), "line 3, column"));
}

Test(json, truncation_at_every_byte_is_refused)
{
    static const char text[] = "{\"tasks\": [{\"id\": 12, \"name\": \"a\\u00e9b\"}], \"x\": -1.5e3, \"y\": null}";
    for (size_t bytes = 0; bytes < sizeof text - 1; bytes++) {
        char *exact = malloc(bytes + 1); /* so that a sanitizer sees a read behind the end */
        memcpy(exact, text, bytes);
        SL_IGNORE(refuse(exact, bytes));
        free(exact);
    }
    json_decref(parse(text));
}

Test(json, duplicate_key_is_refused)
{
    cr_assert_not_null(strstr(refuse("{\"a\":1,\"a\":1}", 13), "duplicate"));
}

Test(json, trailing_zero_byte_is_refused)
{
    SL_IGNORE(refuse("{}\0", 3));
}

Test(json, hundred_thousand_brackets_are_refused_with_their_place)
{
    enum { DEEP = 100000 };
    char *text = malloc(DEEP);
    memset(text, '[', DEEP);
    cr_assert_str_eq(refuse(text, DEEP), "input: line 1, column 65: nesting too deep, at most 64 levels");
    for (size_t i = 0; i < DEEP; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    cr_assert_not_null(strstr(refuse(text, DEEP), "nesting too deep"));
    free(text);
}

Test(json, depth_counts_containers_and_no_text)
{
    char text[400] = "";
    for (int i = 0; i < 64; i++)
        strcat(text, "[");
    strcat(text, "\"[[[[\\\"[[[\"");
    for (int i = 0; i < 64; i++)
        strcat(text, "]");
    json_decref(parse(text));
}

Test(json, integers_above_2_to_53_are_exact)
{
    json_t *root = parse("{\"a\":9007199254740993,\"b\":9223372036854775807}");
    uint64_t value = 0;
    cr_assert_eq(sl_json_u64(root, "a", "", &value), SLUICE_OK);
    cr_assert_eq(value, UINT64_C(9007199254740993));
    cr_assert_eq(sl_json_u64(root, "b", "", &value), SLUICE_OK);
    cr_assert_eq(value, UINT64_C(9223372036854775807));
    json_decref(root);
}

Test(json, integer_beyond_63_bits_is_refused)
{
    SL_IGNORE(refuse("{\"a\":18446744073709551615}", 26));
    SL_IGNORE(refuse("{\"a\":9223372036854775808}", 25));
}

Test(json, real_numbers_and_others_are_no_integers)
{
    static const char *const bad[] = {"1e3", "4096.0", "-1", "\"7\"", "true", "null", "[]", "{}", "0.0", "-0.0"};
    for (size_t i = 0; i < SL_COUNT(bad); i++) {
        char text[64];
        SL_IGNORE(snprintf(text, sizeof text, "{\"id\":%s}", bad[i]));
        json_t *root = parse(text);
        uint64_t value = 42;
        cr_assert_eq(sl_json_u64(root, "id", "tasks[3]", &value), SLUICE_PARSE, "%s", bad[i]);
        cr_assert_eq(strncmp(sluice_last_error()->text, "tasks[3].id: ", 13), 0, "%s", sluice_last_error()->text);
        cr_assert_eq(sl_json_u64_or(root, "id", "", 1, &value), SLUICE_PARSE, "%s", bad[i]);
        cr_assert_eq(value, 42);
        json_decref(root);
    }
}

Test(json, missing_member_is_named_or_falls_back)
{
    json_t *root = parse("{}");
    uint64_t value = 0;
    const char *text = NULL;
    const json_t *list = NULL;
    cr_assert_eq(sl_json_u64(root, "id", "tasks[3]", &value), SLUICE_PARSE);
    cr_assert_str_eq(sluice_last_error()->text, "tasks[3].id: missing");
    cr_assert_eq(sl_json_text(root, "name", "", &text), SLUICE_PARSE);
    cr_assert_str_eq(sluice_last_error()->text, "name: missing");
    cr_assert_eq(sl_json_array(root, "tasks", "", &list), SLUICE_PARSE);
    cr_assert_eq(sl_json_u64_or(root, "id", "", 9, &value), SLUICE_OK);
    cr_assert_eq(value, 9);
    json_decref(root);
}

Test(json, typed_members_are_read)
{
    json_t *root = parse("{\"name\":\"w\",\"list\":[1,2]}");
    const char *text = NULL;
    const json_t *list = NULL;
    cr_assert_eq(sl_json_text(root, "name", "", &text), SLUICE_OK);
    cr_assert_str_eq(text, "w");
    cr_assert_eq(sl_json_array(root, "list", "", &list), SLUICE_OK);
    cr_assert_eq(json_array_size(list), 2);
    cr_assert_eq(sl_json_text(root, "list", "", &text), SLUICE_PARSE);
    cr_assert_eq(sl_json_array(root, "name", "", &list), SLUICE_PARSE);
    json_decref(root);
}

Test(json, unknown_key_is_named)
{
    static const char *const keys[] = {"id", "bytes", NULL};
    json_t *root = parse("{\"id\":1,\"byte\":2}");
    cr_assert_eq(sl_json_only(root, keys, "tasks[0]"), SLUICE_PARSE);
    cr_assert_str_eq(sluice_last_error()->text, "tasks[0].byte: no such key");
    json_decref(root);
    root = parse("[1]");
    cr_assert_eq(sl_json_only(root, keys, "tasks[0]"), SLUICE_PARSE);
    json_decref(root);
    root = parse("{\"bytes\":1}");
    cr_assert_eq(sl_json_only(root, keys, ""), SLUICE_OK);
    json_decref(root);
}

static void write_sample(struct sl_json_writer *w)
{
    sl_json_object(w);
    sl_json_key(w, "big");
    sl_json_put_u64(w, UINT64_MAX);
    sl_json_key(w, "list");
    sl_json_list(w);
    sl_json_put_bool(w, 1);
    sl_json_object(w);
    sl_json_object_end(w);
    sl_json_put_double(w, 0.1);
    sl_json_put_double(w, INFINITY);
    sl_json_list_end(w);
    sl_json_key(w, "q\"k");
    sl_json_put_text(w, "a\\\n\x01\xc3\xa9");
    sl_json_object_end(w);
}

Test(json, writer_makes_compact_and_indented_text)
{
    for (int compact = 0; compact < 2; compact++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);
        struct sl_json_writer w;
        sl_json_begin(&w, file, compact);
        write_sample(&w);
        cr_assert_eq(sl_json_end(&w), SLUICE_OK);
        fclose(file);
        cr_assert_str_eq(text, compact
                                   ? "{\"big\":18446744073709551615,\"list\":[true,{},0.1,null],"
                                     "\"q\\\"k\":\"a\\\\\\u000a\\u0001\xc3\xa9\"}\n"
                                   : "{\n  \"big\": 18446744073709551615,\n  \"list\": [\n    true,\n    {},\n"
                                     "    0.1,\n    null\n  ],\n  \"q\\\"k\": \"a\\\\\\u000a\\u0001\xc3\xa9\"\n}\n");
        free(text);
    }
}

Test(json, doubles_come_back_as_they_were)
{
    static const double values[] = {0.1, 1.0 / 3.0, 1e300, 5e-324, 123456789.123456789};
    for (size_t i = 0; i < SL_COUNT(values); i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *file = open_memstream(&text, &bytes);
        struct sl_json_writer w;
        sl_json_begin(&w, file, 1);
        sl_json_put_double(&w, values[i]);
        cr_assert_eq(sl_json_end(&w), SLUICE_OK);
        fclose(file);
        cr_assert_float_eq(strtod(text, NULL), values[i], 0.0);
        free(text);
    }
}

Test(json, full_disk_is_an_io_error)
{
    FILE *file = fopen("/dev/full", "w");
    struct sl_json_writer w;
    sl_json_begin(&w, file, 0);
    write_sample(&w);
    cr_assert_eq(sl_json_end(&w), SLUICE_IO);
    fclose(file);
}

/* One page of text and then memory that must not be read: what stands for a file of any size. */
static char *page_before_a_guard(size_t *ret_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *text = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(text, MAP_FAILED);
    cr_assert_eq(mprotect(text + page, page, PROT_NONE), 0);
    *ret_bytes = 2 * page;
    return text;
}

Test(json, nothing_is_read_behind_a_byte_that_ends_all_text)
{
    static const char *const begins[] = {"", "{", "{\"a\": [1, ", "{\"a", "{\"a\\", "x"};
    size_t bytes;
    char *text = page_before_a_guard(&bytes);
    for (size_t i = 0; i < SL_COUNT(begins); i++) {
        memset(text, 0, bytes / 2);
        memcpy(text, begins[i], strlen(begins[i]));
        SL_IGNORE(refuse(text, bytes));
    }
    SL_IGNORE(munmap(text, bytes));
}
