/* `sluice run --checkpoint`: shards of the demo's and of a real checkpoint, rules, index files, hostile files. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"

static char folder[] = "/tmp/sluice-checkpoint-test-XXXXXX";
static struct command_result result;

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    const char *arguments[] = {"/bin/rm", "-rf", folder, NULL};
    result = command_run(arguments);
    command_drop(&result);
}

TestSuite(run_checkpoint, .init = make_folder, .fini = remove_folder);

static void run(const char *path, const char *from, const char *to, const char *rules)
{
    const char *words[] = {SLUICE,           "run", "--checkpoint",           path,  "--from", from, "--to", to,
                           "--window-bytes", "4M",  rules ? "--rules" : NULL, rules, NULL};
    result = command_run(words);
}

static void succeeds(const char *part)
{
    cr_assert_eq(result.status, 0, "status %d: %s", result.status, result.err);
    cr_assert_eq(command_lines(result.out), 1, "%s", result.out);
    cr_assert_not_null(strstr(result.out, part), "%s", result.out);
    cr_assert_not_null(strstr(result.out, ", 0 wrong; "), "%s", result.out);
    command_drop(&result);
}

static void fails(const char *part)
{
    cr_assert_eq(result.status, 2, "status %d: %s", result.status, result.err);
    cr_assert_eq(command_lines(result.err), 1, "%s", result.err);
    cr_assert_eq(strncmp(result.err, "sluice: ", 8), 0, "%s", result.err);
    cr_assert_not_null(strstr(result.err, part), "%s", result.err);
    cr_assert_eq(result.out_bytes, 0);
    command_drop(&result);
}

static const char *in_folder(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    cr_assert_eq(fclose(file), 0);
}

static void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
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
    write_bytes(path, content, 8 + length + bytes);
}

static const char *demo_checkpoint(void)
{
    const char *path = in_folder("model.safetensors");
    const char *words[] = {SLUICE, "make-checkpoint", path, NULL};
    result = command_run(words);
    cr_assert_eq(result.status, 0, "%s", result.err);
    command_drop(&result);
    return path;
}

Test(run_checkpoint, is_moved_to_another_layout_and_verified)
{
    const char *path = demo_checkpoint();
    run(path, "tp=2,ep=2", "tp=4,ep=4", NULL);
    succeeds(" in 135 parameters, 2 to 4 ranks, ");
    run(folder, "tp=2,ep=2", "tp=1,ep=4", NULL);
    succeeds(" in 135 parameters, 2 to 4 ranks, ");
    run(path, "tp=2,ep=2", "tp=2,etp=2,offset=0", NULL);
    succeeds(" in 135 parameters, 2 to 2 ranks, ");
}

Test(run_checkpoint, is_refitted_with_changed_weights)
{
    const char *words[] = {SLUICE,     "run", "--checkpoint", demo_checkpoint(), "--from", "tp=2,ep=2", "--to", "tp=1",
                           "--repeat", "3",   "--landing",    "shadow",          NULL};
    result = command_run(words);
    succeeds(", 3 refits: ");
}

Test(run_checkpoint, that_is_real_is_moved)
{
    if (access(SLUICE_TEST_CHECKPOINT, R_OK) != 0)
        cr_skip_test("no real checkpoint at %s: tools/real-checkpoint brings it (needs a network)",
                     SLUICE_TEST_CHECKPOINT);
    run(SLUICE_TEST_CHECKPOINT, "tp=2", "tp=4", NULL);
    succeeds(" in 104 parameters, 2 to 4 ranks, ");
    run(SLUICE_TEST_CHECKPOINT, "tp=3", "tp=2,dp=2", NULL);
    succeeds(" in 104 parameters, 3 to 4 ranks, ");
}

/* --- small files --- */

#define TWO                                                                                                            \
    "{\"a.q_proj.weight\":{\"dtype\":\"U8\",\"shape\":[4,4],\"data_offsets\":[0,16]},"                                 \
    "\"b.scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}"
#define ONE "{\"c.o_proj.weight\":{\"dtype\":\"U8\",\"shape\":[4,4],\"data_offsets\":[0,16]}}"

Test(run_checkpoint, rules_of_a_file_come_first)
{
    const char *path = in_folder("small.safetensors"), *rules = in_folder("rules");
    write_tensors(path, TWO, 20);
    run(path, "tp=1", "tp=4", NULL);
    succeeds("moved 32 B in 2 parameters"); /* four shards of 4 bytes, four scalars */
    write_text(rules, "# everything whole\n\n*.q_proj.*  replicated # here too\n");
    run(path, "tp=1", "tp=4", rules);
    succeeds("moved 80 B in 2 parameters");
    write_text(rules, "*q_proj* row\n");
    run(path, "tp=2", "tp=4", rules);
    succeeds("moved 32 B in 2 parameters");
    write_text(rules, "ok column\n*q_proj* diagonal\n");
    run(path, "tp=2", "tp=4", rules);
    fails("rules: line 2: want PATTERN and one of column, row, vocabulary, replicated");
    run(path, "tp=2", "tp=4", in_folder("none"));
    fails("none");
}

Test(run_checkpoint, that_does_not_divide_names_tensor_dimension_and_sizes)
{
    const char *path = in_folder("small.safetensors");
    write_tensors(path, TWO, 20);
    run(path, "tp=1", "tp=3", NULL);
    fails("--to: tp=3 does not divide dimension 0 of tensor 'a.q_proj.weight', 4 elements");
    run(path, "tp=1,pp=2", "tp=1", NULL);
    fails("--from: ");
    run(path, "tp=x", "tp=1", NULL);
    fails("--from: ");
}

Test(run_checkpoint, through_an_index_reads_all_its_files)
{
    const char *index = in_folder("model.safetensors.index.json");
    write_tensors(in_folder("1.safetensors"), TWO, 20);
    write_tensors(in_folder("2.safetensors"), ONE, 16);
    write_text(index, "{\"metadata\":{},\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\","
                      "\"b.scalar\":\"1.safetensors\",\"c.o_proj.weight\":\"2.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    succeeds("moved 36 B in 3 parameters, 2 to 1 ranks");
    run(folder, "tp=2", "tp=1", NULL);
    succeeds("moved 36 B in 3 parameters, 2 to 1 ranks");
}

Test(run_checkpoint, through_an_index_that_differs_from_its_files_is_refused)
{
    const char *index = in_folder("index.json");
    write_tensors(in_folder("1.safetensors"), TWO, 20);
    write_tensors(in_folder("2.safetensors"), TWO, 20);
    write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("tensor 'b.scalar' of 1.safetensors is not in the index");
    write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\",\"b.scalar\":\"1.safetensors\","
                      "\"z\":\"1.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("tensor 'z' is not in 1.safetensors");
    write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"1.safetensors\",\"b.scalar\":\"2.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("tensor 'a.q_proj.weight' is in ");
    write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"3.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("3.safetensors");
    write_text(index, "{\"weight_map\":{\"a.q_proj.weight\":\"../1.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("want the name of a file in the same directory");
    write_text(index, "{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}");
    run(index, "tp=2", "tp=1", NULL);
    fails("index.json: line 1");
    write_text(index, "{\"weight_map\":[]}");
    run(index, "tp=2", "tp=1", NULL);
    fails("want an object 'weight_map'");
    run("/nonexistent", "tp=2", "tp=1", NULL);
    fails("/nonexistent");
    run(folder, "tp=2", "tp=1", NULL);
    fails("neither model.safetensors nor model.safetensors.index.json");
}

Test(run_checkpoint, with_experts_that_are_missing_or_differ_is_refused)
{
    const char *path = in_folder("experts.safetensors");
    write_tensors(path,
                  "{\"l.experts.0.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"l.experts.2.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                  8);
    run(path, "ep=2", "ep=1", NULL);
    fails("tensor 'l.experts.2.w1.weight': there are only 2 of these experts");
    write_tensors(path,
                  "{\"l.experts.0.w1.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"l.experts.1.w1.weight\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                  8);
    run(path, "ep=2", "ep=1", NULL);
    fails("tensor 'l.experts.1.w1.weight' has another shape or type than 'l.experts.0.w1.weight'");
}

Test(run_checkpoint, that_is_damaged_is_refused)
{
    const char *path = in_folder("bad.safetensors");
    write_text(path, "");
    run(path, "tp=1", "tp=1", NULL);
    fails("bad.safetensors: 0 bytes are no safetensors file");
    write_bytes(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    run(path, "tp=1", "tp=1", NULL);
    fails("offset 0: a header of 18446744073709551615 bytes");
    write_tensors(path, TWO, 19);
    run(path, "tp=1", "tp=1", NULL);
    fails("data_offsets do not lie in the file's 19 bytes");
    write_tensors(path, ONE, 20);
    run(path, "tp=1", "tp=1", NULL);
    fails("4 bytes belong to no tensor");
    write_tensors(path, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,16]}}", 16);
    run(path, "tp=1", "tp=1", NULL);
    fails("its shape has more than 2^62 bytes");
    char deep[2000];
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    write_tensors(path, deep, 0);
    run(path, "tp=1", "tp=1", NULL);
    fails("bad.safetensors");
}
