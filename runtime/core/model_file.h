/* model_file.h: models by name or path, and plans from them. */
#ifndef SL_CORE_MODEL_FILE_H
#define SL_CORE_MODEL_FILE_H

#include "scheduler/layout.h"

/*
 * Opens a model: a file when `model` has a '/' or ends in ".json", else an installed model's name, else a
 * file all the same. NOT_FOUND, IO, PARSE, LIMIT, NOMEM.
 */
sluice_status sl_model_open(const char *model, struct sl_mem *mem, struct sl_model *ret);

/* The names of the installed models, sorted. */
struct sl_model_names {
    struct sl_mem *mem;
    char **names;
    size_t count, capacity;
};
/* NOT_FOUND when no folder of models is there; NOMEM. */
sluice_status sl_model_names(struct sl_mem *mem, struct sl_model_names *ret);
void sl_model_names_drop(struct sl_model_names *names);

/* sluice_plan_from_layouts without the handle: a validated plan, to be dropped by the caller. */
sluice_status sl_plan_from_layouts(const char *model, const char *from, const char *to,
                                   const struct sluice_layout_options *options, struct sl_mem *mem,
                                   struct sl_plan *ret);

#endif
