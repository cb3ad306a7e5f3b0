/*
 * layout.h: from a model and two parallel layouts to a plan.
 *
 * - A model is a JSON file (docs/planner.md has the schema) or the name of one that is installed.
 * - A layout is a text like "tp=8,ep=16,pp=2,world=32". Keys: tp, cp, ep, etp, pp, dp, world, offset,
 *   splits (layers per stage: "3+4*14+2"), order ("tp-cp-ep-dp-pp", fastest axis first) and kv ("split"
 *   or "replicate": fused query-key-value tensors where tp exceeds the key-value heads). Defaults: tp =
 *   cp = ep = etp = pp = 1, dp from world, offset 0, kv as the model says.
 * - The plan is a function of its inputs alone: every rank and machine gets the same one.
 */
#ifndef SLUICE_LAYOUT_H
#define SLUICE_LAYOUT_H

#include "sluice/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which of several ranks that hold the same bytes sends them. */
enum sluice_source_choice {
    SLUICE_SOURCE_BALANCED = 0, /* the busiest source sends as little as possible; then same rank, same node */
    SLUICE_SOURCE_FIRST = 1     /* round robin over data-parallel groups, as published; can be far from even */
};

/* How tasks are numbered. */
enum sluice_id_order {
    SLUICE_ID_MODEL = 0,      /* parameter, destination rank, slice: parameters complete in model order */
    SLUICE_ID_DESTINATION = 1 /* destination rank, parameter, slice, as published */
};

struct sluice_layout_options {
    uint32_t size;          /* of this struct */
    uint32_t source_choice; /* enum sluice_source_choice */
    uint32_t id_order;      /* enum sluice_id_order */
    uint32_t reserved;      /* 0 */
    uint64_t scale;         /* divides the row bytes of every task, rounded up to 16; 0 or 1: off */
};

#define SLUICE_LAYOUT_OPTIONS_INIT SLUICE_SIZED(struct sluice_layout_options)

/*
 * Makes the plan that moves a model from layout `from` to layout `to`. `model` is a file (it has a '/' or
 * ends in ".json") or a name. An `offset` that `to` leaves out is the first rank after those of `from`;
 * "offset=0" shares the ranks. `options` may be NULL. Free the plan with sluice_plan_destroy.
 * Errors: NOT_FOUND (no such model), IO, PARSE (model), INVALID (layout or option; what does not divide is
 * named with its dimension, parameter and sizes), LIMIT, NOMEM. Any thread.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_plan_from_layouts(const char *model, const char *from, const char *to,
                                                                   const struct sluice_layout_options *options,
                                                                   sluice_plan **ret_plan);

#ifdef __cplusplus
}
#endif
#endif
