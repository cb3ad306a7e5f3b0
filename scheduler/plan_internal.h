/* plan_internal.h: what the files of the plan share among themselves; nobody else includes it. */
#ifndef SL_SCHEDULER_PLAN_INTERNAL_H
#define SL_SCHEDULER_PLAN_INTERNAL_H

#include <assert.h>
#include <inttypes.h>

#include "scheduler/plan.h"

/* Why a name is refused ("is not UTF-8"), or NULL. */
const char *sl_name_fault(const char *name);
/* Appends without asking whether the plan is whole or partial. */
sluice_status sl_plan_append_task(struct sl_plan *plan, const struct sluice_task *task);
/* Makes parameter `param` exist, with placeholders before it; gives it `dtype` if it has none. */
sluice_status sl_plan_need_param(struct sl_plan *plan, uint32_t param, uint8_t dtype);

/* Puts tasks into (id, part) order; PLAN on a repeated id of a whole plan. */
sluice_status sl_plan_sort_tasks(struct sl_plan *plan);
/* The same for halves, and numbers the parts of repeated ids in order of addition. */
sluice_status sl_plan_sort_halves(struct sl_plan *plan);
/* Sorts buffers; PLAN on two sizes for one buffer or an unknown parameter. */
sluice_status sl_plan_sort_buffers(struct sl_plan *plan);
/* Order of buffers: rank, role, parameter. */
int sl_buffer_compare(const void *left, const void *right);
/* STATE when a plan is partial or was not validated. */
sluice_status sl_plan_check_writable(const struct sl_plan *plan);
/* tasks[i] = old tasks[order[i]]. */
sluice_status sl_plan_permute_tasks(struct sl_plan *plan, const uint32_t *order);
/* PLAN naming two tasks whose destinations overlap, and the range. Regions were checked before. */
sluice_status sl_plan_check_overlap(const struct sl_plan *plan);

/* "'model.w' (parameter 3)" or "parameter 3", for error texts. */
struct sl_label {
    char text[120];
};
struct sl_label sl_param_label(const struct sl_plan *plan, uint32_t param);

/* plan.c: everything in memory of its own. NOMEM. */
sluice_status sl_plan_copy(const struct sl_plan *plan, struct sl_plan *ret);

#endif
