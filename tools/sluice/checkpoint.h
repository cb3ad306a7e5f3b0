/*
 * checkpoint.h: a Hugging Face checkpoint: one safetensors file, or several through an index file; and the
 * plan that moves it from one parallel layout to another by a table of rules.
 */
#ifndef SL_TOOL_CHECKPOINT_H
#define SL_TOOL_CHECKPOINT_H

#include "scheduler/plan.h"

enum { CHECKPOINT_DIMS = 8 };

/* One tensor of a checkpoint; `name` and `data` belong to it. */
struct checkpoint_tensor {
    const char *name;
    const uint8_t *data; /* in the mapped file */
    uint64_t shape[CHECKPOINT_DIMS];
    uint32_t dims;
    uint8_t dtype; /* enum sluice_dtype */
    uint64_t bytes;
};

struct checkpoint_file;

struct checkpoint {
    struct sl_mem *mem;
    struct checkpoint_file *files;
    size_t file_count;
    struct checkpoint_tensor *tensors; /* file by file, in the order of their bytes */
    size_t count;
};

/*
 * Opens a .safetensors file, an index (.json), or a directory that holds model.safetensors.index.json or
 * model.safetensors. IO or PARSE naming file and tensor: what is said in safetensors.h; a file of the index that
 * is missing; a tensor that its file lacks, that the index lacks, or that two files have.
 */
sluice_status checkpoint_open(const char *path, struct checkpoint *ret);
void checkpoint_close(struct checkpoint *checkpoint);

/* How a tensor is split over tensor-parallel ranks. */
enum checkpoint_split {
    CHECKPOINT_COLUMN,     /* dimension 0 */
    CHECKPOINT_ROW,        /* dimension 1; a tensor of one dimension is replicated */
    CHECKPOINT_VOCABULARY, /* dimension 0 where it divides on both sides, else replicated */
    CHECKPOINT_REPLICATED
};

struct checkpoint_rule {
    char *pattern; /* of names, as a shell matches files */
    enum checkpoint_split split;
};

struct checkpoint_rules {
    struct sl_mem *mem;
    struct checkpoint_rule *rules;
    size_t count, capacity;
};

/* Rules of a text file ("PATTERN SPLIT" per line, # for remarks), ahead of the built-in ones; `path` NULL: only those. */
sluice_status checkpoint_rules_open(const char *path, struct checkpoint_rules *ret);
void checkpoint_rules_close(struct checkpoint_rules *rules);
/* The first rule that matches decides; without one a tensor is replicated. */
enum checkpoint_split checkpoint_rule_for(const struct checkpoint_rules *rules, const char *name);

/*
 * A validated plan, and by parameter the whole tensor's bytes (freed by the caller). INVALID naming the layout, or
 * the tensor, dimension and sizes that do not divide. A layout without world and dp gets the least world.
 */
sluice_status checkpoint_plan(const struct checkpoint *checkpoint, const struct checkpoint_rules *rules,
                              const char *from, const char *to, struct sl_plan *ret_plan, const uint8_t ***ret_data);

#endif
