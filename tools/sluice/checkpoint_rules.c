/*
 * The table of rules: which tensors are split, and along which dimension.
 *
 * Invariant: rules are tried in order, those of a file first; the first whose pattern matches decides.
 */
#include <fnmatch.h>
#include <string.h>

#include "checkpoint.h"
#include "runtime/base/file.h"

static const char *const split_names[] = {
    [CHECKPOINT_COLUMN] = "column",
    [CHECKPOINT_ROW] = "row",
    [CHECKPOINT_VOCABULARY] = "vocabulary",
    [CHECKPOINT_REPLICATED] = "replicated",
};

static const struct {
    const char *pattern;
    enum checkpoint_split split;
} built_in[] = {
    /* Llama, Qwen, Mistral */
    {"*q_proj.*", CHECKPOINT_COLUMN},
    {"*k_proj.*", CHECKPOINT_COLUMN},
    {"*v_proj.*", CHECKPOINT_COLUMN},
    {"*gate_proj.*", CHECKPOINT_COLUMN},
    {"*up_proj.*", CHECKPOINT_COLUMN},
    {"*o_proj.*", CHECKPOINT_ROW},
    {"*down_proj.*", CHECKPOINT_ROW},
    {"*.experts.*.w1.*", CHECKPOINT_COLUMN},
    {"*.experts.*.w3.*", CHECKPOINT_COLUMN},
    {"*.experts.*.w2.*", CHECKPOINT_ROW},
    {"*embed_tokens.*", CHECKPOINT_VOCABULARY},
    {"*lm_head.*", CHECKPOINT_VOCABULARY},
    /* BERT */
    {"*attention.self.query.*", CHECKPOINT_COLUMN},
    {"*attention.self.key.*", CHECKPOINT_COLUMN},
    {"*attention.self.value.*", CHECKPOINT_COLUMN},
    {"*intermediate.dense.*", CHECKPOINT_COLUMN},
    {"*output.dense.*", CHECKPOINT_ROW},
    {"*word_embeddings.*", CHECKPOINT_VOCABULARY},
};

static sluice_status add(struct checkpoint_rules *rules, const char *pattern, enum checkpoint_split split)
{
    sluice_status status =
        sl_grow(rules->mem, &rules->rules, &rules->capacity, rules->count + 1, sizeof *rules->rules, "rules");
    if (status != SLUICE_OK)
        return status;
    char *copy = sl_strdup(rules->mem, pattern);
    if (copy == NULL)
        return SLUICE_NOMEM;
    rules->rules[rules->count++] = (struct checkpoint_rule){copy, split};
    return SLUICE_OK;
}

/* One line without its end. */
static sluice_status add_line(struct checkpoint_rules *rules, const char *path, size_t line, char *text)
{
    char *save = NULL;
    char *hash = strchr(text, '#');
    if (hash != NULL)
        *hash = '\0';
    char *pattern = strtok_r(text, " \t\r", &save);
    if (pattern == NULL)
        return SLUICE_OK;
    char *split = strtok_r(NULL, " \t\r", &save);
    for (size_t i = 0; split != NULL && strtok_r(NULL, " \t\r", &save) == NULL && i < SL_COUNT(split_names); i++)
        if (strcmp(split, split_names[i]) == 0)
            return add(rules, pattern, (enum checkpoint_split)i);
    return sl_fail(SLUICE_PARSE, "rules", "%s: line %zu: want PATTERN and one of column, row, vocabulary, replicated",
                   path, line);
}

static sluice_status read_file(struct checkpoint_rules *rules, const char *path)
{
    struct sl_map map;
    sluice_status status = sl_map_open(path, &map);
    size_t line = 1;
    for (size_t at = 0; status == SLUICE_OK && at < map.bytes; line++) {
        char text[1024];
        const uint8_t *end = memchr(map.data + at, '\n', map.bytes - at);
        size_t length = end != NULL ? (size_t)(end - map.data) - at : map.bytes - at;
        if (length >= sizeof text || memchr(map.data + at, '\0', length) != NULL) {
            status = sl_fail(SLUICE_PARSE, "rules", "%s: line %zu: no text, or longer than %zu bytes", path, line,
                             sizeof text - 1);
            break;
        }
        memcpy(text, map.data + at, length);
        text[length] = '\0';
        status = add_line(rules, path, line, text);
        at += length + 1;
    }
    sl_map_close(&map);
    return status;
}

sluice_status checkpoint_rules_open(const char *path, struct checkpoint_rules *ret)
{
    struct checkpoint_rules rules = {.mem = sl_mem_default()};
    sluice_status status = path != NULL ? read_file(&rules, path) : SLUICE_OK;
    for (size_t i = 0; i < SL_COUNT(built_in) && status == SLUICE_OK; i++)
        status = add(&rules, built_in[i].pattern, built_in[i].split);
    if (status != SLUICE_OK) {
        checkpoint_rules_close(&rules);
        return status;
    }
    *ret = rules;
    return SLUICE_OK;
}

void checkpoint_rules_close(struct checkpoint_rules *rules)
{
    if (rules->mem == NULL)
        return;
    for (size_t i = 0; i < rules->count; i++)
        sl_free(rules->mem, rules->rules[i].pattern);
    sl_free(rules->mem, rules->rules);
    *rules = (struct checkpoint_rules){0};
}

enum checkpoint_split checkpoint_rule_for(const struct checkpoint_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->count; i++)
        if (fnmatch(rules->rules[i].pattern, name, 0) == 0)
            return rules->rules[i].split;
    return CHECKPOINT_REPLICATED;
}
