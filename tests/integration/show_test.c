/* The tool's frame and `sluice show`, as a user runs them: exit statuses, one-line errors, hostile files. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/plan_maker.h"
#include "support/tool.h"

#define SMALL SLUICE_TEST_DATA "/small-plan.json"

static void run(const char *one, const char *two, const char *three)
{
    tool_run(one, two, three);
}

Test(tool, says_its_version_and_commands)
{
    run("--version", NULL, NULL);
    cr_assert_eq(tool_result.status, 0);
    cr_assert_eq(strncmp(tool_result.out, "sluice ", 7), 0);
    cr_assert_eq(tool_result.err_bytes, 0);
    command_drop(&tool_result);
    run("--help", NULL, NULL);
    cr_assert_eq(tool_result.status, 0);
    cr_assert_not_null(strstr(tool_result.out, "\n  show "));
    command_drop(&tool_result);
}

Test(tool, refuses_bad_command_lines)
{
    run(NULL, NULL, NULL);
    tool_fails(2, "no command given");
    run("fetch", NULL, NULL);
    tool_fails(2, "unknown command 'fetch'");
    run("show", NULL, NULL);
    tool_fails(2, "show: PLAN is missing");
    run("show", "--jsn", SMALL);
    tool_fails(2, "unknown option '--jsn'");
    run("show", "-q", SMALL);
    tool_fails(2, "unknown option '-q'");
    run("show", "--json=1", SMALL);
    tool_fails(2, "--json takes no value");
    run("show", SMALL, "more");
    tool_fails(2, "unexpected argument 'more'");
}

Test(show, helps)
{
    run("show", "--help", NULL);
    cr_assert_eq(tool_result.status, 0);
    cr_assert_not_null(strstr(tool_result.out, "--json"));
    command_drop(&tool_result);
}

Test(show, prints_a_table)
{
    run("show", SMALL, NULL);
    cr_assert_eq(tool_result.status, 0);
    cr_assert_not_null(strstr(tool_result.out, "7 tasks of 2 parameters between 4 ranks"));
    command_drop(&tool_result);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

Test(show, prints_json)
{
    run("show", SMALL, "--json");
    cr_assert_eq(tool_result.status, 0);
    json_t *root = json_loads(tool_result.out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root);
    cr_assert_eq(number(root, "world"), 4);
    cr_assert_eq(number(root, "tasks"), 7);
    cr_assert_eq(number(root, "params"), 2);
    cr_assert_eq(number(root, "bytes"), 4608);
    cr_assert_eq(number(root, "strided_tasks"), 4);
    cr_assert_eq(number(root, "plan_bound_bytes"), 2304);
    cr_assert_eq(number(root, "task_bytes_p50"), 1024);
    const json_t *ranks = json_object_get(root, "ranks");
    cr_assert_eq(json_array_size(ranks), 4);
    const json_t *last = json_array_get(ranks, 3);
    cr_assert_eq(number(last, "rank"), 3);
    cr_assert_eq(number(last, "sends"), 0);
    cr_assert_eq(number(last, "recvs"), 3);
    cr_assert_eq(number(last, "send_bytes"), 0);
    cr_assert_eq(number(last, "recv_bytes"), 2304);
    cr_assert_eq(number(last, "local_tasks"), 1);
    cr_assert_eq(number(last, "send_peers"), 0);
    cr_assert_eq(number(last, "recv_peers"), 2);
    json_decref(root);
    command_drop(&tool_result);
}

Test(show, names_the_input_that_it_cannot_read)
{
    run("show", "/nonexistent/x.plan", NULL);
    tool_fails(2, "/nonexistent/x.plan");
    run("show", "/tmp", NULL);
    tool_fails(2, "/tmp");
    run("show", TOOL_PATH, NULL);
    tool_fails(2, "no plan file: it begins neither as a binary plan nor as JSON");
}

/* --- hostile files --- */

static char file[] = "/tmp/sluice-show-XXXXXX";

static void make_file(void)
{
    int fd = mkstemp(file);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void drop_file(void)
{
    unlink(file);
}

TestSuite(show_file, .init = make_file, .fini = drop_file);

static void show_bytes(const void *data, size_t bytes)
{
    FILE *stream = fopen(file, "w");
    cr_assert_eq(fwrite(data, 1, bytes, stream), bytes);
    fclose(stream);
    run("show", file, NULL);
}

Test(show_file, a_refused_plan_is_named_with_its_task)
{
    static const char text[] =
        "{\"format\":\"sluice-plan\",\"version\":1,\"world\":4,"
        "\"params\":[{\"id\":0,\"name\":\"w\",\"dtype\":\"u8\",\"bytes\":64}],\"tasks\":["
        "{\"id\":7,\"param\":0,\"from\":{\"rank\":1057455228,\"bytes\":8},\"to\":{\"rank\":1,\"bytes\":8}}]}";
    show_bytes(text, sizeof(text) - 1);
    cr_assert_not_null(strstr(tool_result.err, file));
    tool_fails(2, "task 7: its source rank 1057455228 is outside the world of 4");
}

Test(show_file, deep_nesting_is_refused)
{
    char *deep = malloc(100000);
    memset(deep, '[', 100000);
    show_bytes(deep, 100000);
    tool_fails(2, "nesting too deep");
    free(deep);
}

Test(show_file, damaged_files_never_crash_it)
{
    struct sl_random random = {3};
    struct sl_plan plan;
    maker_random(&plan, 1, 8);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    for (int round = 0; round < 120; round++) {
        char *data = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&data, &bytes);
        cr_assert_eq((round % 2 ? sl_plan_write_json : sl_plan_write_binary)(&plan, stream), SLUICE_OK);
        fclose(stream);
        data[sl_random_below(&random, bytes)] = (char)sl_random_next(&random);
        if (round % 3 == 0)
            bytes = sl_random_below(&random, bytes);
        show_bytes(data, bytes);
        cr_assert(tool_result.status == 0 || tool_result.status == 2, "status %d: %s", tool_result.status,
                  tool_result.err);
        cr_assert_eq(command_lines(tool_result.err), tool_result.status == 0 ? 0 : 1);
        command_drop(&tool_result);
        free(data);
    }
    sl_plan_drop(&plan);
}
