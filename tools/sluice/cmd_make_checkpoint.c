/*
 * sluice make-checkpoint: writes the small MoE checkpoint of the demo and of tests.
 *
 * Invariant: the same bytes on every machine; names and shapes are those of Qwen3 MoE checkpoints.
 */
#include <inttypes.h>

#include "runtime/base/hash.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"
#include "tool.h"

enum {
    LAYERS = 4,
    EXPERTS = 8,
    HIDDEN = 512,
    EXPERT_HIDDEN = 768,
    QUERY = 512,
    KEY = 128,
    HEAD = 64,
    VOCABULARY = 8192,
    BF16 = 2,
    PREFIX_BYTES = 8,
    HEADER_ALIGN = 8
};

static const struct tool_option options[] = {{NULL, NULL, NULL, 0}};

static const struct tool_syntax syntax = {
    .command = "make-checkpoint",
    .synopsis = "FILE",
    .about = "Writes a small MoE checkpoint in safetensors form; always the same bytes.",
    .options = options,
};

struct shape {
    const char *name;       /* below the layer; %u: an expert */
    uint32_t rows, columns; /* columns 0: one dimension */
};

static const struct shape outer[] = {
    {"model.embed_tokens.weight", VOCABULARY, HIDDEN},
    {"model.norm.weight", HIDDEN, 0},
    {"lm_head.weight", VOCABULARY, HIDDEN},
};
static const struct shape layer_shapes[] = {
    {"input_layernorm.weight", HIDDEN, 0},      {"self_attn.q_proj.weight", QUERY, HIDDEN},
    {"self_attn.k_proj.weight", KEY, HIDDEN},   {"self_attn.v_proj.weight", KEY, HIDDEN},
    {"self_attn.q_norm.weight", HEAD, 0},       {"self_attn.k_norm.weight", HEAD, 0},
    {"self_attn.o_proj.weight", HIDDEN, QUERY}, {"post_attention_layernorm.weight", HIDDEN, 0},
    {"mlp.gate.weight", EXPERTS, HIDDEN},
};
static const struct shape expert_shapes[] = {
    {"gate_proj.weight", EXPERT_HIDDEN, HIDDEN},
    {"up_proj.weight", EXPERT_HIDDEN, HIDDEN},
    {"down_proj.weight", HIDDEN, EXPERT_HIDDEN},
};

/* Writes the header entry (header) or the bytes (!header) of every tensor, in one order. */
struct writer {
    FILE *file;
    _Bool header;
    struct sl_json_writer json;
    uint64_t at;     /* bytes of data so far */
    uint32_t number; /* tensors so far */
};

static uint64_t bytes_of(const struct shape *shape)
{
    return (uint64_t)shape->rows * (shape->columns != 0 ? shape->columns : 1) * BF16;
}

static void put_entry(struct writer *w, const char *name, const struct shape *shape)
{
    struct sl_json_writer *json = &w->json;
    sl_json_key(json, name);
    sl_json_object(json);
    sl_json_key(json, "dtype");
    sl_json_put_text(json, "BF16");
    sl_json_key(json, "shape");
    sl_json_list(json);
    sl_json_put_u64(json, shape->rows);
    if (shape->columns != 0)
        sl_json_put_u64(json, shape->columns);
    sl_json_list_end(json);
    sl_json_key(json, "data_offsets");
    sl_json_list(json);
    sl_json_put_u64(json, w->at);
    sl_json_put_u64(json, w->at + bytes_of(shape));
    sl_json_list_end(json);
    sl_json_object_end(json);
}

/* Numbers like those of weights: of either sign, from 2^-8 to 2^-4. */
static void put_values(struct writer *w, uint64_t count)
{
    uint8_t block[4096];
    size_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = sl_mix64(((uint64_t)w->number << 32) + i);
        uint32_t value = (uint32_t)(random & 0x8000) | (0x3b80 + (uint32_t)((random >> 16) & 0x1ff));
        block[used++] = (uint8_t)value;
        block[used++] = (uint8_t)(value >> 8);
        if (used == sizeof block || i + 1 == count) {
            SL_IGNORE(fwrite(block, 1, used, w->file) != used); /* the commit sees the stream's error */
            used = 0;
        }
    }
}

static void put(struct writer *w, const char *name, const struct shape *shape)
{
    if (w->header)
        put_entry(w, name, shape);
    else
        put_values(w, bytes_of(shape) / BF16);
    w->at += bytes_of(shape);
    w->number++;
}

static void put_layer(struct writer *w, uint32_t layer)
{
    char name[128];
    for (size_t i = 0; i < SL_COUNT(layer_shapes); i++) {
        SL_IGNORE(snprintf(name, sizeof name, "model.layers.%u.%s", layer, layer_shapes[i].name) < 0);
        put(w, name, &layer_shapes[i]);
    }
    for (uint32_t expert = 0; expert < EXPERTS; expert++)
        for (size_t i = 0; i < SL_COUNT(expert_shapes); i++) {
            SL_IGNORE(snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s", layer, expert,
                               expert_shapes[i].name) < 0);
            put(w, name, &expert_shapes[i]);
        }
}

static void put_all(struct writer *w)
{
    w->at = 0;
    w->number = 0;
    put(w, outer[0].name, &outer[0]);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        put_layer(w, layer);
    put(w, outer[1].name, &outer[1]);
    put(w, outer[2].name, &outer[2]);
}

static _Bool put_length(FILE *file, uint64_t length)
{
    _Bool good = 1;
    for (int i = 0; i < PREFIX_BYTES; i++)
        good = putc((int)(length >> 8 * i & 0xff), file) != EOF && good;
    return good;
}

/* The length comes first and is known last. */
static sluice_status write_header(struct writer *w)
{
    _Bool good = put_length(w->file, 0);
    w->header = 1;
    sl_json_begin(&w->json, w->file, 1);
    sl_json_object(&w->json);
    put_all(w);
    sl_json_object_end(&w->json);
    good = sl_json_end(&w->json) == SLUICE_OK && good;
    long end = ftell(w->file);
    for (; end > 0 && end % HEADER_ALIGN != 0; end++)
        good = putc(' ', w->file) != EOF && good;
    if (good && end > 0 && fseek(w->file, 0, SEEK_SET) == 0 && put_length(w->file, (uint64_t)end - PREFIX_BYTES) &&
        fseek(w->file, end, SEEK_SET) == 0)
        return SLUICE_OK;
    if (good)
        return sl_fail(SLUICE_INVALID, "checkpoint", "the target is no regular file, which the header needs");
    return sl_fail(SLUICE_IO, "checkpoint", "cannot write the header");
}

static int make(const char *path)
{
    struct sl_out out;
    if (sl_out_open(path, &out) != SLUICE_OK)
        return tool_fail();
    struct writer w = {.file = out.file};
    sluice_status status = write_header(&w);
    w.header = 0;
    if (status == SLUICE_OK)
        put_all(&w); /* the end sees the stream's error */
    if (sl_out_end(&out, status) != SLUICE_OK)
        return tool_fail();
    char size[32];
    fprintf(stderr, "%s: %" PRIu32 " tensors, %s\n", path, w.number, sl_format_bytes(w.at, size, sizeof size));
    return TOOL_OK;
}

int cmd_make_checkpoint(int argc, char **argv)
{
    struct tool_args args;
    tool_begin(&args, &syntax, argc, argv);
    if (tool_next(&args) != TOOL_DONE)
        return args.status;
    const char *path = tool_one_operand(&args, "FILE");
    return path != NULL ? make(path) : args.status;
}
