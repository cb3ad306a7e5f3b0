/* plan_sweep.h: do any two of many rectangles cross? Pure; used by the overlap check of plans. */
#ifndef SL_SCHEDULER_PLAN_SWEEP_H
#define SL_SCHEDULER_PLAN_SWEEP_H

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

/* Half-open and never empty: rows [row, row_end), columns [column, column_end). */
struct sl_rectangle {
    uint64_t row, row_end;
    uint64_t column, column_end;
    uint32_t owner;
};

struct sl_crossing {
    uint32_t one, two;           /* owners */
    uint64_t row;                /* the first row that both have */
    uint64_t column, column_end; /* the columns that both have */
};

/* Sorts `rectangles` by row and looks for a pair that crosses. O(n log n). NOMEM. */
sluice_status sl_sweep(struct sl_mem *mem, struct sl_rectangle *rectangles, size_t count, _Bool *ret_found,
                       struct sl_crossing *ret_crossing);

#endif
