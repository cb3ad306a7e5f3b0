/* Model files: what the schema takes and refuses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "scheduler/model.h"
#include "support/memory.h"

static const char whole[] =
    "{\"schema\":1,\"name\":\"m\",\"sources\":[\"a\"],\"dtype\":\"bf16\",\"pattern\":\"AAB\","
    "\"first\":[{\"name\":\"embed\",\"shape\":[8,2],\"split\":\"tp\",\"dim\":0}],"
    "\"layers\":{\"A\":[{\"name\":\"{layer}.w\",\"shape\":[4]}],"
    "\"B\":[{\"name\":\"{layer}.e{expert}\",\"shape\":[4,2],\"dtype\":\"f32\",\"split\":\"etp\",\"dim\":1,"
    "\"experts\":3}]},"
    "\"last\":[{\"name\":\"out\",\"tied_to\":\"embed\"}]}";

static struct sl_model model;

static void refused_text(const char *text, const char *words)
{
    cr_expect_eq(sl_model_read(text, strlen(text), "m.json", sl_mem_default(), &model), SLUICE_PARSE, "%s", text);
    cr_expect_str_eq(sluice_last_error()->text, words);
}

/* The whole model with `old` replaced by `new`. */
static void refused(const char *old, const char *new, const char *words)
{
    char text[2048];
    const char *at = strstr(whole, old);
    cr_assert_not_null(at, "%s", old);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, new, at + strlen(old));
    refused_text(text, words);
}

Test(model, reads_tensors_in_file_order)
{
    cr_assert_eq(sl_model_read(whole, strlen(whole), "m.json", sl_mem_default(), &model), SLUICE_OK);
    uint64_t bytes = 0;
    cr_expect_str_eq(model.name, "m");
    cr_expect_eq(model.layers, 3);
    cr_expect_eq(sl_model_params(&model, &bytes), 1 + 2 + 3);
    cr_expect_eq(bytes, 32 + 2 * 8 + 3 * 32);
    struct sl_tensors last_layer = sl_model_layer(&model, 2);
    const struct sl_tensor *expert = &model.tensors[last_layer.first];
    cr_expect_eq(expert->experts, 3);
    cr_expect_eq(expert->dtype, SLUICE_DTYPE_F32);
    cr_expect_eq(expert->split, SL_SPLIT_ETP);
    char name[32];
    cr_expect(sl_tensor_name(expert, 2, 1, name, sizeof name));
    cr_expect_str_eq(name, "2.e1");
    cr_expect_not(sl_tensor_name(expert, 2, 1, name, 4));
    sl_model_drop(&model);
}

Test(model, unknown_missing_and_mistyped_members_are_named)
{
    refused("\"schema\":1", "\"schema\":2", "m.json: schema: only schema 1 is known");
    refused("\"name\":\"m\",", "", "m.json.name: missing");
    refused("\"name\":\"m\"", "\"name\":\"m\",\"size\":1", "m.json.size: no such key");
    refused("\"bf16\"", "\"bf17\"", "m.json: unknown dtype 'bf17'");
    refused("[8,2]", "[8,0]", "m.json.first[0].shape[1]: want an integer from 1 to 2^62");
    refused("[8,2]", "[8,2,1,1,1]", "m.json.first[0].shape: wants 1 to 4 numbers, has 5");
    refused("[8,2]", "[4611686018427387904,2]", "m.json.first[0]: larger than 2^62 bytes");
    refused("[8,2]", "[1152921504606846976,2],\"experts\":2",
            "m.json.first[0]: expert tensors split by \"etp\", all others by \"tp\"");
    refused("\"shape\":[4]}", "\"shape\":[2305843009213693952]}", "m.json: the model is larger than 2^62 bytes");
    refused("\"dim\":0", "\"dim\":2", "m.json.first[0]: dim must be a dimension of the shape, stride 1 to 1024");
    refused("\"dim\":0", "\"dim\":0.5", "m.json.first[0].dim: want an integer, not a real number");
    refused("\"split\":\"tp\",", "", "m.json.first[0].dim: only with \"split\"");
    refused("\"split\":\"tp\"", "\"split\":\"pp\"", "m.json.first[0]: split: want \"tp\" or \"etp\"");
    refused("\"split\":\"tp\"", "\"split\":\"etp\"",
            "m.json.first[0]: expert tensors split by \"etp\", all others by \"tp\"");
}

Test(model, shapes_that_contradict_themselves_are_refused)
{
    refused("\"dim\":0", "\"dim\":0,\"blocks\":[4,3]", "m.json.first[0]: the blocks add up to 7, dimension 0 has 8");
    refused("\"dim\":0", "\"dim\":0,\"units\":3", "m.json.first[0]: units must divide the dimension");
    refused("\"dim\":0", "\"dim\":0,\"units\":2,\"stride\":2",
            "m.json.first[0]: at most one of heads, units, stride and blocks");
    refused("\"dim\":0", "\"dim\":0,\"heads\":{\"query\":3,\"kv\":2}",
            "m.json.first[0]: heads: kv must divide query, and query + 2 kv the dimension");
    refused("\"dim\":0", "\"dim\":0,\"heads\":{\"query\":2,\"kv\":1,\"cut\":\"odd\"}",
            "m.json.first[0]: heads: cut: want \"heads\" or \"even\"");
    refused("\"pattern\":\"AAB\"", "\"pattern\":\"AAC\"",
            "m.json: pattern: layer 2 is a 'C', which \"layers\" does not have");
    refused("\"pattern\":\"AAB\"", "\"pattern\":\"\"", "m.json: pattern: want one letter per layer, 1 to 4096");
    refused("\"A\":", "\"AB\":", "m.json.layers.AB: want one character as key and a list of tensors");
    refused("\"tied_to\":\"embed\"", "\"tied_to\":\"none\"", "m.json.last[0]: tied_to: names no tensor of \"first\"");
}

Test(model, names_hold_their_placeholders)
{
    refused("{layer}.w", "w", "m.json.layers.A[0]: name: {layer} belongs into names of layer tensors, and only there");
    refused("\"embed\",\"shape\"", "\"embed{layer}\",\"shape\"",
            "m.json.first[0]: name: {layer} belongs into names of layer tensors, and only there");
    refused("{layer}.e{expert}", "{layer}.e",
            "m.json.layers.B[0]: name: {expert} belongs into names of expert tensors, and only there");
    refused("{layer}.w", "", "m.json.layers.A[0]: name: empty or longer than 511 bytes");
}

Test(model, malformed_json_is_refused_with_its_place)
{
    refused_text("{\"schema\":1,", "m.json: line 1, column 12: string or '}' expected near end of file");
    refused_text("[]", "m.json: want an object, not an array");
}

/* Whichever allocation fails, nothing is kept. */
Test(model, running_out_of_memory_leaves_nothing_behind)
{
    static struct test_memory memory;
    test_memory_install(&memory);
    for (uint64_t n = 1;; n++) {
        test_memory_fail_at(&memory, n);
        sluice_status status = sl_model_read(whole, strlen(whole), "m.json", sl_mem_default(), &model);
        if (status == SLUICE_OK)
            break;
        cr_expect_eq(status, SLUICE_NOMEM);
        cr_expect_eq(memory.live, 0);
    }
    sl_model_drop(&model);
    cr_expect_eq(memory.live, 0);
    test_memory_remove();
}
