/* `sluice plan` as a user runs it: files, exit statuses, one-line errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "support/command.h"
#include "support/layouts.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"

static char folder[] = "/tmp/sluice-plan-XXXXXX";
static char paths[2][64];
static struct command_result result;

static void setup(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(paths[0], sizeof paths[0], "%s/a.plan", folder);
    snprintf(paths[1], sizeof paths[1], "%s/b.plan", folder);
}

static void teardown(void)
{
    unlink(paths[0]);
    unlink(paths[1]);
    rmdir(folder);
}

TestSuite(plan_command, .init = setup, .fini = teardown);

/* `sluice plan` and the words; NULL ends them. */
static void run(const char *const *words)
{
    const char *arguments[32] = {SLUICE, "plan"};
    for (size_t i = 0; words[i]; i++) {
        cr_assert_lt(i + 3, 32, "room for the NULL at the end");
        arguments[i + 2] = words[i];
    }
    result = command_run(arguments);
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static void fails(int status, const char *part)
{
    cr_assert_eq(result.status, status, "status %d: %s", result.status, result.err);
    cr_assert_eq(command_lines(result.err), 1, "%s", result.err);
    cr_assert_eq(strncmp(result.err, "sluice: ", 8), 0, "%s", result.err);
    cr_assert_not_null(strstr(result.err, part), "%s", result.err);
    cr_assert_eq(result.out_bytes, 0);
    command_drop(&result);
}

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
        cr_assert_eq(result.status, 0, "%s", result.err);
        cr_assert_not_null(strstr(result.err, "7720 tasks of 483 parameters between 16 ranks"), "%s", result.err);
        command_drop(&result);
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
    cr_assert_eq(result.status, 0, "%s", result.err);
    cr_assert_not_null(strstr(result.err, "56144 tasks of 12627 parameters between 16 ranks"), "%s", result.err);
    command_drop(&result);
}

Test(plan_command, lists_the_models_it_knows)
{
    RUN("--list-models");
    cr_assert_eq(result.status, 0);
    cr_assert_eq(command_lines(result.out), 8, "%s", result.out);
    cr_assert_not_null(strstr(result.out, "moe-67b "));
    command_drop(&result);
    RUN("--list-models", "--json");
    cr_assert_eq(result.status, 0);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_eq(json_array_size(json_object_get(root, "models")), 8);
    json_decref(root);
    command_drop(&result);
}

Test(plan_command, refuses_what_it_cannot_plan)
{
    RUN("--model", "llama4", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    fails(2, "no model 'llama4'");
    RUN("--model", "./none.json", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    fails(2, "cannot open ./none.json");
    RUN("--model", "CHANGES", "--from", "world=1", "--to", "world=1", "-o", paths[0]);
    fails(2, "CHANGES: line 1, column 1");
    RUN("--model", "llama3-70b", "--from", "tp=3,world=3", "--to", "world=1", "-o", paths[0]);
    fails(2, "--from: tp=3 does not divide the 64 query heads of "
             "decoder.layers.{layer}.self_attention.linear_qkv.weight");
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "--to", "tp=4,wrld=8", "-o", paths[0]);
    fails(2, "--to: unknown key 'wrld'");
    cr_assert_neq(access(paths[0], F_OK), 0);
}

Test(plan_command, refuses_bad_command_lines)
{
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "-o", paths[0]);
    fails(2, "--to is missing");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--scale", "2");
    fails(2, "--scale: '2' is not 1/N");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--scale", "1/0");
    fails(2, "--scale: '1/0' is not 1/N");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "--id-order", "none");
    fails(2, "--id-order: 'none' is not one of model, destination");
    RUN("--model", "llama3-70b", "--from", "world=1", "--to", "world=1", "-o", paths[0], "more");
    fails(2, "unexpected argument 'more'");
    RUN("--json");
    fails(2, "--json goes with --list-models");
}

Test(plan_command, fails_when_the_file_cannot_be_written)
{
    RUN("--model", "llama3-70b", "--from", "tp=8,world=8", "--to", "tp=4,world=8", "-o", "/proc/none/a.plan");
    fails(1, "/proc/none/a.plan");
}
