/* `sluice plan` as a user runs it: files, exit statuses, one-line errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "support/layouts.h"
#include "support/tool.h"

static const char *paths[2];

static void setup(void)
{
    tool_make_folder();
    paths[0] = tool_in_folder("a.plan");
    paths[1] = tool_in_folder("b.plan");
}

TestSuite(plan_command, .init = setup, .fini = tool_remove_folder);

#define RUN(...) tool_run("plan", __VA_ARGS__)

static char *read_whole(const char *path, size_t *ret_bytes)
{
    struct sl_map map;
    cr_assert_eq(sl_map_open(path, &map), SLUICE_OK);
    char *copy = sl_new(sl_mem_default(), map.bytes, "file");
    memcpy(copy, map.data, map.bytes);
    *ret_bytes = map.bytes;
    sl_map_close(&map);
    return copy;
}

Test(plan_command, equal_command_lines_write_equal_files)
{
    size_t bytes[2];
    char *files[2];
    for (int i = 0; i < 2; i++) {
        RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "--to", "tp=4,world=8", "-o", paths[i]);
        cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
        cr_assert_not_null(strstr(tool_result.err, "7720 tasks of 483 parameters between 16 ranks"), "%s",
                           tool_result.err);
        command_drop(&tool_result);
        files[i] = read_whole(paths[i], &bytes[i]);
    }
    cr_assert_eq(bytes[0], bytes[1]);
    cr_assert_arr_eq(files[0], files[1], bytes[0]);
    sl_free(sl_mem_default(), files[0]);
    sl_free(sl_mem_default(), files[1]);
}

Test(plan_command, takes_a_model_file_and_every_option)
{
    RUN("--model", "tools/models/qwen3-30b-a3b.json", "--from", "tp=4,ep=8,world=16", "--to",
        "tp=2,ep=4,world=16,offset=0", "--source-choice", "first", "--id-order", "destination", "--scale", "1/1000",
        "--output", paths[0]);
    cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
    cr_assert_not_null(strstr(tool_result.err, "56144 tasks of 12627 parameters between 16 ranks"), "%s",
                       tool_result.err);
    command_drop(&tool_result);
}

Test(plan_command, lists_the_models_it_knows)
{
    RUN("--list-models");
    cr_assert_eq(tool_result.status, 0);
    cr_assert_eq(command_lines(tool_result.out), 8, "%s", tool_result.out);
    cr_assert_not_null(strstr(tool_result.out, "moe-67b "));
    command_drop(&tool_result);
    RUN("--list-models", "--json");
    cr_assert_eq(tool_result.status, 0);
    json_t *root = json_loads(tool_result.out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_eq(json_array_size(json_object_get(root, "models")), 8);
    json_decref(root);
    command_drop(&tool_result);
}

Test(plan_command, refuses_what_it_cannot_plan)
{
    RUN("--model", "llama4", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    tool_fails(2, "no model 'llama4'");
    RUN("--model", "./none.json", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    tool_fails(2, "cannot open ./none.json");
    RUN("--model", "CHANGES", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    tool_fails(2, "CHANGES: line 1, column 1");
    RUN("--model", "llama3-70b", "--from", "tp=3,world=3", "--to", "world=1", "-o", paths[0]);
    tool_fails(2, "--from: tp=3 does not divide the 64 query heads of "
                  "decoder.layers.{layer}.self_attention.linear_qkv.weight");
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "--to", "tp=4,wrld=8", "-o", paths[0]);
    tool_fails(2, "--to: unknown key 'wrld'");
    cr_assert_neq(access(paths[0], F_OK), 0);
}

Test(plan_command, refuses_bad_command_lines)
{
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "-o", paths[0]);
    tool_fails(2, "--to is missing");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--scale", "2");
    tool_fails(2, "--scale: '2' is not 1/N");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--scale", "1/0");
    tool_fails(2, "--scale: '1/0' is not 1/N");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--id-order", "none");
    tool_fails(2, "--id-order: 'none' is not one of model, destination");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "more");
    tool_fails(2, "unexpected argument 'more'");
    RUN("--json");
    tool_fails(2, "--json goes with --list-models");
}

Test(plan_command, fails_when_the_file_cannot_be_written)
{
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "--to", "tp=4,world=8", "-o", "/proc/none/a.plan");
    tool_fails(1, "/proc/none/a.plan");
}
