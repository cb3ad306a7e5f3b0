/* The JSON form: round trips with the binary one, and errors with line, column and path. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/plan_maker.h"

struct file {
    char *data;
    size_t bytes;
};

typedef sluice_status (*write_fn)(const struct sl_plan *plan, FILE *file);

static struct file write_with(const struct sl_plan *plan, write_fn write)
{
    struct file file = {NULL, 0};
    FILE *stream = open_memstream(&file.data, &file.bytes);
    cr_assert_eq(write(plan, stream), SLUICE_OK, "%s", sluice_last_error()->text);
    fclose(stream);
    return file;
}

/* Reads `head` + `tail` as x.json and expects the refusal. */
static void refused(const char *text, sluice_status expected, const char *error)
{
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_json(text, strlen(text), "x.json", &plan), expected, "%s", text);
    cr_assert_str_eq(sluice_last_error()->text, error);
}

#define HEAD   "{\"format\":\"sluice-plan\",\"version\":1,\"world\":4,\n"
#define PARAMS "\"params\":[{\"id\":0,\"name\":\"w\",\"dtype\":\"bf16\",\"bytes\":64}],\n"
#define TASK   "{\"id\":1,\"param\":0,\"from\":{\"rank\":0,\"bytes\":8},\"to\":{\"rank\":1,\"bytes\":8}}"

static void task_refused(const char *task, sluice_status expected, const char *error)
{
    char text[2048];
    snprintf(text, sizeof(text), HEAD PARAMS "\"tasks\":[%s]}", task);
    refused(text, expected, error);
}

static struct sl_plan read_task(const char *task)
{
    struct sl_plan plan;
    char text[2048];
    snprintf(text, sizeof(text), HEAD PARAMS "\"tasks\":[%s]}", task);
    cr_assert_eq(sl_plan_read_json(text, strlen(text), "x.json", &plan), SLUICE_OK, "%s", sluice_last_error()->text);
    return plan;
}

Test(plan_json, both_forms_say_the_same)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sl_plan plan, back;
        maker_random(&plan, seed, (uint32_t)seed * 2);
        cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
        struct file binary = write_with(&plan, sl_plan_write_binary), json = write_with(&plan, sl_plan_write_json);
        cr_assert_eq(sl_plan_read_json(json.data, json.bytes, "x", &back), SLUICE_OK, "%s", sluice_last_error()->text);
        struct file binary_again = write_with(&back, sl_plan_write_binary);
        struct file json_again = write_with(&back, sl_plan_write_json);
        cr_assert_eq(binary_again.bytes, binary.bytes);
        cr_assert_arr_eq(binary_again.data, binary.data, binary.bytes);
        cr_assert_eq(json_again.bytes, json.bytes);
        cr_assert_arr_eq(json_again.data, json.data, json.bytes);
        sl_plan_drop(&plan);
        sl_plan_drop(&back);
        free(binary.data);
        free(json.data);
        free(binary_again.data);
        free(json_again.data);
    }
}

Test(plan_json, writes_one_record_a_line)
{
    struct sl_plan plan;
    maker_open(&plan, 2, 1);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_DESTINATION, 64), SLUICE_OK);
    struct sluice_task task = maker_task(7, 0, 1, 0, maker_range(0, 16));
    task.to = maker_rows(8, 8, 2, 16);
    task.origin = 5;
    maker_add(&plan, task);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct file json = write_with(&plan, sl_plan_write_json);
    cr_assert_str_eq(json.data,
                     "{\n"
                     "  \"format\": \"sluice-plan\",\n"
                     "  \"version\": 1,\n"
                     "  \"world\": 2,\n"
                     "  \"params\": [\n"
                     "    {\"id\":0,\"name\":\"p0\",\"dtype\":\"bf16\",\"bytes\":4096}\n"
                     "  ],\n"
                     "  \"buffers\": [\n"
                     "    {\"param\":0,\"rank\":1,\"role\":\"destination\",\"bytes\":64}\n"
                     "  ],\n"
                     "  \"tasks\": [\n"
                     "    {\"id\":7,\"param\":0,\"from\":{\"rank\":0,\"offset\":0,\"bytes\":16},\"to\":{\"rank\":1,"
                     "\"offset\":8,\"row_bytes\":8,\"rows\":2,\"pitch\":16},\"origin\":5}\n"
                     "  ]\n"
                     "}\n");
    free(json.data);
    sl_plan_drop(&plan);
}

Test(plan_json, reads_defaults)
{
    struct sl_plan plan = read_task("{\"id\":1,\"param\":0,\"from\":{\"rank\":0,\"row_bytes\":8,\"rows\":2},"
                                    "\"to\":{\"rank\":1,\"offset\":4,\"bytes\":16}}");
    cr_assert_eq(plan.tasks[0].from.offset, 0);
    cr_assert_eq(plan.tasks[0].from.pitch, 8);
    cr_assert_eq(plan.tasks[0].to.offset, 4);
    cr_assert_eq(plan.tasks[0].to.rows, 1);
    cr_assert_eq(plan.tasks[0].source_dtype, SLUICE_DTYPE_BF16);
    cr_assert_eq(plan.tasks[0].origin, SLUICE_ORIGIN_NONE);
    cr_assert_eq(plan.params[0].row_bytes, 0);
    sl_plan_drop(&plan);
}

Test(plan_json, keeps_integers_beyond_53_bits)
{
    struct sl_plan plan = read_task("{\"id\":9223372036854775807,\"param\":0,"
                                    "\"from\":{\"rank\":0,\"offset\":9007199254740993,\"bytes\":8},"
                                    "\"to\":{\"rank\":1,\"bytes\":8}}");
    cr_assert_eq(plan.tasks[0].id, UINT64_C(9223372036854775807));
    cr_assert_eq(plan.tasks[0].from.offset, UINT64_C(9007199254740993));
    sl_plan_drop(&plan);
}

Test(plan_json, keeps_the_largest_integer)
{
    struct sl_plan plan = read_task("{\"id\":18446744073709551615,\"param\":0,\"from\":{\"rank\":0,\"bytes\":8},"
                                    "\"to\":{\"rank\":1,\"bytes\":8}}");
    cr_assert_eq(plan.tasks[0].id, UINT64_MAX);
    struct file json = write_with(&plan, sl_plan_write_json);
    cr_assert_not_null(strstr(json.data, "\"id\":18446744073709551615"));
    free(json.data);
    sl_plan_drop(&plan);
}

Test(plan_json, refuses_what_is_no_64_bit_integer)
{
    task_refused("{\"id\":1e3,\"param\":0}", SLUICE_PARSE,
                 "x.json: line 3, column 16: tasks[0].id: a real number, want an integer");
    task_refused("{\"id\":1,\"param\":0,\"origin\": 4096.0}", SLUICE_PARSE,
                 "x.json: line 3, column 38: tasks[0].origin: a real number, want an integer");
    task_refused("{\"id\":-1,\"param\":0}", SLUICE_PARSE,
                 "x.json: line 3, column 16: tasks[0].id: a negative number, want an integer from 0 up");
    task_refused("{\"id\":18446744073709551616,\"param\":0}", SLUICE_PARSE,
                 "x.json: line 3, column 16: tasks[0].id: an integer beyond 2^64-1");
    task_refused("{\"id\":99999999999999999999999999,\"param\":0}", SLUICE_PARSE,
                 "x.json: line 3, column 16: tasks[0].id: an integer beyond 2^64-1");
    task_refused("{\"id\":007,\"param\":0}", SLUICE_PARSE,
                 "x.json: line 3, column 16: tasks[0].id: an integer with a leading zero");
    task_refused("{\"id\":+7,\"param\":0}", SLUICE_PARSE, "x.json: line 3, column 16: tasks[0].id: want an integer");
    task_refused("{\"id\":1,\"param\":\"0\"}", SLUICE_PARSE,
                 "x.json: line 3, column 26: tasks[0].param: want an integer");
    task_refused("{\"id\":1,\"param\":4294967295}", SLUICE_PARSE,
                 "x.json: line 3, column 26: tasks[0].param: 4294967295 is too large");
    task_refused("{\"id\":1,\"param\":0,\"origin\":18446744073709551615}", SLUICE_PARSE,
                 "x.json: line 3, column 37: tasks[0].origin: an origin of 2^64-1; leave it out for none");
}

Test(plan_json, refuses_unknown_and_repeated_keys)
{
    task_refused("{\"id\":1,\"param\":0,\n \"colour\":1}", SLUICE_PARSE,
                 "x.json: line 4, column 2: tasks[0]: unknown key 'colour'");
    task_refused(TASK ",\n{\"id\":2,\"param\":0,\"from\":{\"rank\":0,\"bits\":1}}", SLUICE_PARSE,
                 "x.json: line 4, column 36: tasks[1].from: unknown key 'bits'");
    task_refused("{\"id\":1,\"id\":2}", SLUICE_PARSE, "x.json: line 3, column 18: tasks[0].id: repeated key");
    task_refused("{\"id\":1,\"\\u0069d\":2}", SLUICE_PARSE, "x.json: line 3, column 18: tasks[0].id: repeated key");
    refused("{\"format\":\"sluice-plan\",\"versions\":1}", SLUICE_PARSE,
            "x.json: line 1, column 25: unknown key 'versions'");
}

Test(plan_json, refuses_missing_members)
{
    refused("{}", SLUICE_PARSE, "x.json: line 1, column 1: format: missing");
    refused(HEAD PARAMS "\"buffers\":[]}", SLUICE_PARSE, "x.json: line 1, column 1: tasks: missing");
    task_refused("{\"id\":1}", SLUICE_PARSE, "x.json: line 3, column 10: tasks[0].param: missing");
    task_refused("{\"id\":1,\"param\":0,\"from\":{\"bytes\":0}}", SLUICE_PARSE,
                 "x.json: line 3, column 35: tasks[0].from.rank: missing");
    task_refused("{\"id\":1,\"param\":0,\"from\":{\"rank\":0}}", SLUICE_PARSE,
                 "x.json: line 3, column 35: tasks[0].from: bytes or row_bytes is missing");
}

Test(plan_json, refuses_broken_syntax)
{
    task_refused("{\"id\":1,}", SLUICE_PARSE, "x.json: line 3, column 18: tasks[0]: want a string");
    task_refused(TASK ",", SLUICE_PARSE, "x.json: line 3, column 83: tasks[1]: want an object");
    task_refused(TASK TASK, SLUICE_PARSE, "x.json: line 3, column 82: tasks[0]: want ',' or ']'");
    task_refused("{\"id\" 1}", SLUICE_PARSE, "x.json: line 3, column 16: tasks[0].id: want ':'");
    task_refused("{\"id\":1 \"param\":0}", SLUICE_PARSE, "x.json: line 3, column 18: tasks[0].id: want ',' or '}'");
    task_refused("null", SLUICE_PARSE, "x.json: line 3, column 10: tasks[0]: want an object");
    refused("{} {}", SLUICE_PARSE, "x.json: line 1, column 1: format: missing");
    refused(HEAD PARAMS "\"tasks\":[]}\n{", SLUICE_PARSE, "x.json: line 4, column 1: trailing bytes behind the object");
}

Test(plan_json, refuses_foreign_heads)
{
    refused("[]", SLUICE_PARSE, "x.json: line 1, column 1: want an object");
    refused("{\"format\":\"other\"}", SLUICE_PARSE, "x.json: line 1, column 11: format: 'other' is not sluice-plan");
    refused("{\"format\":\"sluice-plan\",\"version\":2}", SLUICE_PARSE,
            "x.json: line 1, column 35: version: version 2, this library reads version 1");
    refused("{\"format\":\"sluice-plan\",\"version\":1,\"world\":65537}", SLUICE_PARSE,
            "x.json: line 1, column 45: world: a world of 65537 ranks, want 1 to 65536");
    refused("{\"format\":\"sluice-plan\",\"version\":1,\"world\": 0}", SLUICE_PARSE,
            "x.json: line 1, column 46: world: a world of 0 ranks, want 1 to 65536");
}

Test(plan_json, refuses_bad_parameters_and_buffers)
{
    refused(HEAD "\"params\":[{\"id\":1,\"name\":\"w\",\"dtype\":\"bf16\",\"bytes\":1}],\"tasks\":[]}", SLUICE_PARSE,
            "x.json: line 2, column 11: params[0]: parameter 1: ids are dense and in order, the next one is 0");
    refused(HEAD "\"params\":[{\"id\":0,\"name\":\"w\",\"dtype\":\"bf17\",\"bytes\":1}],\"tasks\":[]}", SLUICE_PARSE,
            "x.json: line 2, column 38: params[0].dtype: 'bf17' is not a dtype");
    refused(HEAD "\"params\":[{\"id\":0,\"name\":\"a\\nb\",\"dtype\":\"u8\",\"bytes\":1}],\"tasks\":[]}", SLUICE_PARSE,
            "x.json: line 2, column 11: params[0]: parameter 0: its name has a control character");
    refused(HEAD PARAMS "\"buffers\":[{\"param\":0,\"rank\":9,\"role\":\"source\",\"bytes\":1}],\"tasks\":[]}",
            SLUICE_PARSE,
            "x.json: line 3, column 12: buffers[0]: buffer of parameter 0: rank 9 is outside the world of 4");
    refused("{\"format\":\"sluice-plan\",\"version\":1," PARAMS
            "\"buffers\":[{\"param\":0,\"rank\":9,\"role\":\"source\",\"bytes\":1}],\"tasks\":[],\"world\":4}",
            SLUICE_PLAN, "a buffer of parameter 0 'w' is on rank 9, outside the world of 4");
    refused(HEAD PARAMS "\"buffers\":[{\"param\":0,\"rank\":1,\"role\":\"sink\",\"bytes\":1}],\"tasks\":[]}",
            SLUICE_PARSE, "x.json: line 3, column 39: buffers[0].role: 'sink' is not source or destination");
}

Test(plan_json, members_may_come_in_any_order)
{
    static const char text[] =
        "{\"tasks\":[" TASK "],\"params\":[{\"bytes\":64,\"dtype\":\"f32\",\"name\":\"w\",\"id\":0}],"
        "\"buffers\":[{\"param\":0,\"rank\":1,\"role\":\"source\",\"bytes\":8}],\"world\":4,\"version\":1,"
        "\"format\":\"sluice-plan\"}";
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_json(text, strlen(text), "x.json", &plan), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(plan.tasks[0].source_dtype, SLUICE_DTYPE_F32);
    cr_assert_eq(plan.world, 4);
    sl_plan_drop(&plan);
}

/* One parameter with the given name, between quotes. */
static sluice_status read_name(const char *name, struct sl_plan *ret)
{
    char text[2048];
    snprintf(text, sizeof(text),
             HEAD "\"params\":[{\"id\":0,\"name\":\"%s\",\"dtype\":\"u8\",\"bytes\":1}],\"tasks\":[]}", name);
    return sl_plan_read_json(text, strlen(text), "x.json", ret);
}

Test(plan_json, decodes_strings)
{
    struct sl_plan plan;
    cr_assert_eq(read_name("a\\\"\\\\\\/\\u00e9\\u20AC\\ud83d\\ude00\xc3\xa9", &plan), SLUICE_OK, "%s",
                 sluice_last_error()->text);
    cr_assert_str_eq(sl_param_name(&plan, 0), "a\"\\/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9");
    struct file json = write_with(&plan, sl_plan_write_json);
    struct sl_plan back;
    cr_assert_eq(sl_plan_read_json(json.data, json.bytes, "x", &back), SLUICE_OK);
    cr_assert_str_eq(sl_param_name(&back, 0), sl_param_name(&plan, 0));
    free(json.data);
    sl_plan_drop(&plan);
    sl_plan_drop(&back);
}

Test(plan_json, refuses_bad_strings)
{
    static const char *const names[] = {"\\x",     "\\u12g4", "\\u0000", "\\ud800", "\\ud800\\n", "\\ud800\\u0041",
                                        "\\udc00", "a\tb",    "\xff",    "\xc3",    "\\b"};
    struct sl_plan plan;
    for (size_t i = 0; i < SL_COUNT(names); i++)
        cr_assert_eq(read_name(names[i], &plan), SLUICE_PARSE, "%s", names[i]);
    char name[600];
    memset(name, 'x', sizeof(name));
    name[512] = '\0';
    cr_assert_eq(read_name(name, &plan), SLUICE_PARSE);
    name[511] = '\0';
    cr_assert_eq(read_name(name, &plan), SLUICE_OK);
    sl_plan_drop(&plan);
}

Test(plan_json, a_region_has_one_form)
{
    task_refused("{\"id\":1,\"param\":0,\"from\":{\"rank\":0,\"bytes\":8,\"rows\":2}}", SLUICE_PARSE,
                 "x.json: line 3, column 35: tasks[0].from: bytes and rows exclude each other");
}

Test(plan_json, hands_a_task_without_an_end_to_the_validation)
{
    task_refused("{\"id\":3,\"param\":0,\"to\":{\"rank\":1,\"bytes\":8}}", SLUICE_PLAN,
                 "task 3 is unmatched: rank 1 receives it, but no rank sends it");
    task_refused("{\"id\":3,\"param\":0,\"from\":{\"rank\":2,\"bytes\":8}}", SLUICE_PLAN,
                 "task 3 is unmatched: rank 2 sends it, but no rank receives it");
    task_refused(TASK "," TASK, SLUICE_PLAN,
                 "task id 1 is used twice: entry 0 (parameter 0 'w', rank 0 to rank 1) and entry 1 (parameter 0 'w', "
                 "rank 0 to rank 1)");
    task_refused("{\"id\":3,\"param\":0,\"from\":{\"rank\":1057455228,\"bytes\":8},\"to\":{\"rank\":1,\"bytes\":8}}",
                 SLUICE_PLAN, "task 3: its source rank 1057455228 is outside the world of 4");
    task_refused("{\"id\":3,\"param\":7,\"from\":{\"rank\":0,\"bytes\":8},\"to\":{\"rank\":1,\"bytes\":8}}",
                 SLUICE_PLAN, "task 3: parameter 7 is unknown, the plan has 1 parameters");
}

Test(plan_json, a_dtype_may_differ_from_the_parameter_only_as_bytes)
{
    struct sl_plan plan = read_task("{\"id\":1,\"param\":0,\"from\":{\"rank\":0,\"bytes\":8,\"dtype\":\"bytes\"},"
                                    "\"to\":{\"rank\":1,\"bytes\":8,\"dtype\":\"bytes\"}}");
    cr_assert_eq(plan.tasks[0].source_dtype, SLUICE_DTYPE_BYTES);
    sl_plan_drop(&plan);
    task_refused("{\"id\":1,\"param\":0,\"from\":{\"rank\":0,\"bytes\":8,\"dtype\":\"f32\"},"
                 "\"to\":{\"rank\":1,\"bytes\":8}}",
                 SLUICE_PLAN, "task 1: its ends differ: rank 0 sends 8 bytes of f32, rank 1 expects 8 bytes of bf16");
}

Test(plan_json, refuses_deep_nesting)
{
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    refused(deep, SLUICE_PARSE, "x.json: line 1, column 1: nesting too deep, at most 64 levels");
    free(deep);
}

Test(plan_json, refuses_an_empty_file)
{
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_json(NULL, 0, "x.json", &plan), SLUICE_PARSE);
}

static struct file random_json(uint64_t seed)
{
    struct sl_plan plan;
    maker_random(&plan, seed, 6);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct file json = write_with(&plan, sl_plan_write_json);
    sl_plan_drop(&plan);
    return json;
}

Test(plan_json, refuses_a_truncation_at_every_byte)
{
    struct file json = random_json(3);
    for (size_t bytes = 0; bytes + 2 < json.bytes; bytes++) { /* the last bytes are "}" and a newline */
        struct sl_plan plan;
        char *cut = malloc(bytes + 1);
        memcpy(cut, json.data, bytes);
        cr_assert_eq(sl_plan_read_json(cut, bytes, "x", &plan), SLUICE_PARSE, "%zu bytes", bytes);
        cr_assert_not_null(strstr(sluice_last_error()->text, "x: line "));
        free(cut);
    }
    free(json.data);
}

Test(plan_json, survives_random_damage)
{
    static const char alphabet[] = "{}[]\",:0123456789-e.\\ \nidrankbytes\0\xff";
    struct sl_random random = {11};
    int accepted = 0;
    for (int round = 0; round < 5000; round++) {
        struct file json = random_json((uint64_t)round % 10);
        for (uint64_t hits = 1 + sl_random_below(&random, 3); hits > 0; hits--)
            json.data[sl_random_below(&random, json.bytes)] = alphabet[sl_random_below(&random, sizeof(alphabet))];
        struct sl_plan plan;
        sluice_status status = sl_plan_read_json(json.data, json.bytes, "x", &plan);
        cr_assert(status == SLUICE_OK || status == SLUICE_PARSE || status == SLUICE_PLAN, "%d", (int)status);
        if (status == SLUICE_OK) {
            sl_plan_drop(&plan);
            accepted++;
        }
        free(json.data);
    }
    cr_assert_gt(accepted, 0);
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

Test(plan_json, a_large_file_that_is_no_plan_is_not_read_through)
{
    static const char *const begins[] = {"", "{", "{\"world\": ", "{\"wor"};
    size_t bytes;
    char *text = page_before_a_guard(&bytes);
    for (size_t i = 0; i < SL_COUNT(begins); i++) {
        struct sl_plan plan;
        memset(text, 0, bytes / 2);
        memcpy(text, begins[i], strlen(begins[i]));
        cr_assert_eq(sl_plan_read_json(text, bytes, "x.json", &plan), SLUICE_PARSE);
    }
    SL_IGNORE(munmap(text, bytes));
}
