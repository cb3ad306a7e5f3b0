/* plan_io.h: plans and files. */
#ifndef SL_CORE_PLAN_IO_H
#define SL_CORE_PLAN_IO_H

#include "runtime/base/file.h"
#include "scheduler/plan.h"

/*
 * Reads and validates a plan file of either form, told apart by its first byte. A binary plan borrows
 * from `ret_map`, which must stay open as long; after a JSON plan `ret_map` is empty. Close it in any
 * case. IO, PARSE, PLAN, LIMIT, NOMEM.
 */
sluice_status sl_plan_open(const char *path, struct sl_plan *ret_plan, struct sl_map *ret_map);

/*
 * Writes a validated whole plan: JSON when the name ends in ".json", else binary. The file appears whole
 * or not at all. STATE, IO, LIMIT, NOMEM.
 */
sluice_status sl_plan_store(const struct sl_plan *plan, const char *path);

#endif
