/*
 * model.h: a model as the planner sees it: tensors, how each is split, and the order of layers. Pure.
 *
 * Invariants of a model that was read: at least one layer; every letter of the pattern has a kind; a split
 * tensor's blocks add up to its dimension; the whole model has at most SLUICE_BYTES_MAX bytes. The schema of the file is
 * in docs/planner.md. Names and sources are borrowed from `root`.
 */
#ifndef SL_SCHEDULER_MODEL_H
#define SL_SCHEDULER_MODEL_H

#include <jansson.h>

#include "runtime/base/memory.h"
#include "sluice/plan.h"

#define SL_TENSOR_DIMS   4
#define SL_TENSOR_BLOCKS 8
#define SL_MODEL_LAYERS  4096u
#define SL_MODEL_EXPERTS 65536u
#define SL_MODEL_KINDS   32u

enum sl_split { SL_SPLIT_NONE = 0, SL_SPLIT_TP = 1, SL_SPLIT_ETP = 2 };

/* One tensor, or one per expert, of a layer kind or of an end of the model. */
struct sl_tensor {
    const char *name;    /* may hold {layer} and {expert} */
    const char *tied_to; /* the last stage's copy of that tensor of the first stage; NULL: a tensor of its own */
    uint64_t shape[SL_TENSOR_DIMS];
    uint64_t blocks[SL_TENSOR_BLOCKS]; /* along `dim`, each split on its own; at least one when split */
    uint64_t query, kv;                /* heads of a fused query-key-value tensor; 0: not one */
    _Bool even;                        /* such a tensor is cut evenly even where tp exceeds the key-value heads */
    uint64_t units;                    /* indivisible parts of the dimension (key-value heads); 0: elements */
    uint32_t experts;                  /* 0: not an expert tensor */
    uint32_t stride;                   /* tensors that were fused along `dim`: 2 for gate and up */
    uint8_t dims;
    uint8_t dim;
    uint8_t block_count;
    uint8_t split; /* enum sl_split */
    uint8_t dtype;
};

/* A run of sl_model.tensors. */
struct sl_tensors {
    uint32_t first;
    uint32_t count;
};

struct sl_model {
    struct sl_mem *mem;
    json_t *root;
    const char *name;
    const char *pattern; /* one letter per layer */
    uint32_t layers;
    struct sl_tensor *tensors;
    uint32_t tensor_count;
    struct sl_tensors first, last;
    struct sl_tensors kinds[SL_MODEL_KINDS];
    char letters[SL_MODEL_KINDS];
    uint32_t kind_count;
};

/* `what` names the input in errors. PARSE (line and column, or the path of the member), INVALID, NOMEM. */
sluice_status sl_model_read(const char *text, size_t bytes, const char *what, struct sl_mem *mem, struct sl_model *ret);
void sl_model_drop(struct sl_model *model);
/* The tensors of layer `layer`, 0-based. */
struct sl_tensors sl_model_layer(const struct sl_model *model, uint32_t layer);
/* Parameters of the whole model, and their bytes (UINT64_MAX when those do not fit). */
uint64_t sl_model_params(const struct sl_model *model, uint64_t *ret_bytes);
/* Elements of one dimension onwards: the product of shape[from..to). */
uint64_t sl_tensor_span(const struct sl_tensor *tensor, uint32_t from, uint32_t to);
/* Writes the name with its placeholders filled; false when it does not fit. */
_Bool sl_tensor_name(const struct sl_tensor *tensor, uint32_t layer, uint32_t expert, char *text, size_t capacity);

#endif
