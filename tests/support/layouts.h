/* layouts.h: plans from models and layouts, for tests. Failures are assertions of the test. */
#ifndef SL_TESTS_LAYOUTS_H
#define SL_TESTS_LAYOUTS_H

#include "scheduler/layout.h"

/* One of tools/models; tests run in the source tree. Drop with sl_model_drop. */
void layouts_model(const char *name, struct sl_model *ret);
/* The validated plan of a model; options may be NULL. Drop with sl_plan_drop. */
void layouts_plan(const struct sl_model *model, const char *from, const char *to,
                  const struct sl_layout_options *options, struct sl_plan *ret);
/* The same for one of tools/models. */
void layouts_named_plan(const char *model, const char *from, const char *to, const struct sl_layout_options *options,
                        struct sl_plan *ret);

/* Totals of one rank; local tasks are left out of sends and receives. */
struct layouts_rank {
    uint64_t sends, recvs, send_bytes, recv_bytes, locals;
};
/* One per rank of the plan; free with sl_free of the default memory. */
struct layouts_rank *layouts_ranks(const struct sl_plan *plan);

#endif
