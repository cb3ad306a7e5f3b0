/* `sluice run --checkpoint`: shards of the demo's and of a real checkpoint, rules, index files, hostile files. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/tool.h"

TestSuite(run_checkpoint, .init = tool_make_folder, .fini = tool_remove_folder);

static void run(const char *path, const char *from, const char *to, const char *rules)
{
    tool_run("run", "--checkpoint", path, "--from", from, "--to", to, "--window-bytes", "4M", rules ? "--rules" : NULL,
             rules);
}

/* It is moved, every byte right, and the report has `part` in it. */
static void moves(const char *path, const char *from, const char *to, const char *part)
{
    run(path, from, to, NULL);
    cr_assert_not_null(strstr(tool_result.out, ", 0 wrong; "), "%s%s", tool_result.out, tool_result.err);
    tool_succeeds(part);
}

static void refuses(const char *path, const char *from, const char *to, const char *part)
{
    run(path, from, to, NULL);
    tool_fails(2, part);
}

/* A safetensors file with that header and `bytes` of data. */
static void write_tensors(const char *path, const char *header, size_t bytes)
{
    uint8_t content[4096] = {0};
    size_t length = strlen(header);
    cr_assert_leq(8 + length + bytes, sizeof content);
    for (int i = 0; i < 8; i++)
        content[i] = (uint8_t)(length >> 8 * i);
    memcpy(content + 8, header, length);
    for (size_t i = 0; i < bytes; i++)
        content[8 + length + i] = (uint8_t)(i * 7 + 1);
    tool_write(path, content, 8 + length + bytes);
}

static const char *demo_checkpoint(void)
{
    const char *path = tool_in_folder("model.safetensors");
    tool_run("make-checkpoint", path);
    cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
    command_drop(&tool_result);
    return path;
}

Test(run_checkpoint, is_moved_to_another_layout_and_verified)
{
    const char *path = demo_checkpoint();
    moves(path, "tp=2,ep=2", "tp=4,ep=4", " in 135 parameters, 2 to 4 ranks, ");
    moves(tool_folder, "tp=2,ep=2", "tp=1,ep=4", " in 135 parameters, 2 to 4 ranks, ");
    moves(path, "tp=2,ep=2", "tp=2,etp=2,offset=0", " in 135 parameters, 2 to 2 ranks, ");
}

Test(run_checkpoint, is_refitted_with_changed_weights)
{
    tool_run("run", "--checkpoint", demo_checkpoint(), "--from", "tp=2,ep=2", "--to", "tp=1", "--repeat", "3",
             "--landing", "shadow");
    tool_succeeds(", 3 refits: ");
}

Test(run_checkpoint, that_is_real_is_moved)
{
    if (access(SLUICE_TEST_CHECKPOINT, R_OK) != 0)
        cr_skip_test("no real checkpoint at %s: tools/real-checkpoint brings it (needs a network)",
                     SLUICE_TEST_CHECKPOINT);
    moves(SLUICE_TEST_CHECKPOINT, "tp=2", "tp=4", " in 104 parameters, 2 to 4 ranks, ");
    moves(SLUICE_TEST_CHECKPOINT, "tp=3", "tp=2,dp=2", " in 104 parameters, 3 to 4 ranks, ");
}

/* --- small files --- */

#define TWO                                                                                                            \
    "{\"a.q_proj.weight\":{\"dtype\":\"U8\",\"shape\":[4,4],\"data_offsets\":[0,16]},"                                 \
    "\"b.scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}"
#define ONE "{\"c.o_proj.weight\":{\"dtype\":\"U8\",\"shape\":[4,4],\"data_offsets\":[0,16]}}"

Test(run_checkpoint, rules_of_a_file_come_first)
{
    const char *path = tool_in_folder("small.safetensors"), *rules = tool_in_folder("rules");
    write_tensors(path, TWO, 20);
    moves(path, "tp=1", "tp=4", "moved 32 B in 2 parameters"); /* four shards of 4 bytes, four scalars */
    tool_write_text(rules, "# everything whole\n\n*.q_proj.*  replicated # here too\n");
    run(path, "tp=1", "tp=4", rules);
    tool_succeeds("moved 80 B in 2 parameters");
    tool_write_text(rules, "*q_proj* row\n");
    run(path, "tp=2", "tp=4", rules);
    tool_succeeds("moved 32 B in 2 parameters");
    tool_write_text(rules, "ok column\n*q_proj* diagonal\n");
    run(path, "tp=2", "tp=4", rules);
    tool_fails(2, "rules: line 2: want PATTERN and one of column, row, vocabulary, replicated");
    run(path, "tp=2", "tp=4", tool_in_folder("none"));
    tool_fails(2, "none");
}

Test(run_checkpoint, that_does_not_divide_names_tensor_dimension_and_sizes)
{
    const char *path = tool_in_folder("small.safetensors");
    write_tensors(path, TWO, 20);
    refuses(path, "tp=1", "tp=3", "--to: tp=3 does not divide dimension 0 of tensor 'a.q_proj.weight', 4 elements");
    refuses(path, "tp=1,pp=2", "tp=1", "--from: ");
    refuses(path, "tp=x", "tp=1", "--from: ");
}

Test(run_checkpoint, through_an_index_reads_all_its_files)
{
    const char *index = tool_in_folder("model.safetensors.index.json");
    write_tensors(tool_in_folder("1.safetensors"), TWO, 20);
    write_tensors(tool_in_folder("2.safetensors"), ONE, 16);
    tool_write_text(index, "{\"metadata\":{},\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\","
                           "\"b.scalar\":\"1.safetensors\",\"c.o_proj.weight\":\"2.safetensors\"}}");
    moves(index, "tp=2", "tp=1", "moved 36 B in 3 parameters, 2 to 1 ranks");
    moves(tool_folder, "tp=2", "tp=1", "moved 36 B in 3 parameters, 2 to 1 ranks");
}

Test(run_checkpoint, through_an_index_that_differs_from_its_files_is_refused)
{
    const char *index = tool_in_folder("index.json");
    write_tensors(tool_in_folder("1.safetensors"), TWO, 20);
    write_tensors(tool_in_folder("2.safetensors"), TWO, 20);
    tool_write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "tensor 'b.scalar' of 1.safetensors is not in the index");
    tool_write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\",\"b.scalar\":\"1.safetensors\","
                           "\"z\":\"1.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "tensor 'z' is not in 1.safetensors");
    tool_write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\",\"b.scalar\":\"2.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "tensor 'a.q_proj.weight' is in ");
    tool_write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"3.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "3.safetensors");
    tool_write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"../1.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "want the name of a file in the same directory");
    tool_write_text(index, "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    refuses(index, "tp=2", "tp=1", "index.json: line 1");
    tool_write_text(index, "{\"weight_map\":[]}");
    refuses(index, "tp=2", "tp=1", "want an object 'weight_map'");
    refuses("/nonexistent", "tp=2", "tp=1", "/nonexistent");
    refuses(tool_folder, "tp=2", "tp=1", "neither model.safetensors nor model.safetensors.index.json");
}

Test(run_checkpoint, with_experts_that_are_missing_or_differ_is_refused)
{
    const char *path = tool_in_folder("experts.safetensors");
    write_tensors(path,
                  "{\"l.experts.0.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"l.experts.2.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                  8);
    refuses(path, "ep=2", "ep=1", "tensor 'l.experts.2.w1.weight': there are only 2 of these experts");
    write_tensors(path,
                  "{\"l.experts.0.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"l.experts.1.w1.weight\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                  8);
    refuses(path, "ep=2", "ep=1",
            "tensor 'l.experts.1.w1.weight' has another shape or type than 'l.experts.0.w1.weight'");
}

Test(run_checkpoint, that_is_damaged_is_refused)
{
    const char *path = tool_in_folder("bad.safetensors");
    tool_write_text(path, "");
    refuses(path, "tp=1", "tp=1", "bad.safetensors: 0 bytes are no safetensors file");
    tool_write(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    refuses(path, "tp=1", "tp=1", "offset 0: a header of 18446744073709551615 bytes");
    write_tensors(path, TWO, 19);
    refuses(path, "tp=1", "tp=1", "data_offsets do not lie in the file's 19 bytes");
    write_tensors(path, ONE, 20);
    refuses(path, "tp=1", "tp=1", "4 bytes belong to no tensor");
    write_tensors(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,16]}}", 16);
    refuses(path, "tp=1", "tp=1", "its shape has more than 2^62 bytes");
    char deep[2000];
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    write_tensors(path, deep, 0);
    refuses(path, "tp=1", "tp=1", "bad.safetensors");
}
