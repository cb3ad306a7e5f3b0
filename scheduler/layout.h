/*
 * layout.h: parallel layouts and the mapping between two of them. Pure.
 *
 * A layout has two grids over the same ranks: the dense grid (tp, cp, dp, pp) and the expert grid
 * (etp, ep, edp, pp), both ordered by `order`, fastest axis first. Ranks of a layout are offset,
 * offset + 1 ... offset + world - 1; all ranks below are relative to the offset unless said otherwise.
 */
#ifndef SL_SCHEDULER_LAYOUT_H
#define SL_SCHEDULER_LAYOUT_H

#include "scheduler/model.h"
#include "scheduler/plan.h"
#include "sluice/layout.h"

#define SL_STAGES_MAX 1024u

enum sl_axis { SL_AXIS_TP, SL_AXIS_CP, SL_AXIS_EP, SL_AXIS_DP, SL_AXIS_PP, SL_AXES };

/* One grid: rank = sum of coordinate * stride. The expert grid counts etp under TP and edp under DP. */
struct sl_grid {
    uint32_t size[SL_AXES];
    uint32_t stride[SL_AXES];
};

/* Fused query-key-value tensors where tp exceeds the key-value heads. */
enum sl_kv { SL_KV_AS_MODEL = 0, SL_KV_SPLIT = 1, SL_KV_REPLICATE = 2 };

struct sl_layout {
    uint32_t tp, cp, ep, etp, pp, dp, edp;
    uint32_t world, offset;
    _Bool offset_given;
    uint8_t kv;                     /* enum sl_kv */
    uint32_t splits[SL_STAGES_MAX]; /* layers per stage */
    uint32_t split_count;           /* 0: even */
    uint8_t order[SL_AXES];         /* enum sl_axis, fastest first */
    const char *what;               /* "--from", for errors; a literal */
    struct sl_grid dense, expert;
};

/*
 * Parses "tp=8,ep=16,pp=2,world=32". INVALID names the key; what does not divide names dimension and
 * sizes. `what` must outlive the layout.
 */
sluice_status sl_layout_parse(const char *text, const char *what, struct sl_layout *ret);
/* Fills the stages of `layout` for that many layers: splits[0..pp). INVALID. */
sluice_status sl_layout_stages(struct sl_layout *layout, uint32_t layers);

static inline uint32_t sl_grid_at(const struct sl_grid *grid, enum sl_axis axis, uint32_t rank)
{
    return rank / grid->stride[axis] % grid->size[axis];
}

/* Parallel layouts of the two sides, the choices, and the result: a plan that is not validated yet. */
struct sl_layout_options {
    enum sluice_source_choice source_choice;
    enum sluice_id_order id_order;
    uint64_t scale; /* divides row bytes; 0 and 1: off */
};

/*
 * The plan that moves `model` from one layout to the other. A function of its arguments alone. INVALID
 * names dimension, tensor and sizes; LIMIT, NOMEM. On success the caller drops `ret`.
 */
sluice_status sl_plan_make(const struct sl_model *model, const struct sl_layout *from, const struct sl_layout *to,
                           const struct sl_layout_options *options, struct sl_mem *mem, struct sl_plan *ret);

#endif
