/*
 * Regions: strided 2-D pieces of a buffer.
 *
 * Invariants: nothing here wraps around; a value that does not fit is UINT64_MAX, which no legal
 * region reaches. rows == 0 or row_bytes == 0 is an empty region, whatever its pitch says.
 */
#include "runtime/base/int128.h"
#include "scheduler/plan.h"

uint64_t sl_region_bytes(const struct sluice_region *region)
{
    sl_u128 bytes = (sl_u128)region->row_bytes * region->rows;
    return bytes > SLUICE_BYTES_MAX ? UINT64_MAX : (uint64_t)bytes;
}

uint64_t sl_region_end(const struct sluice_region *region)
{
    if (region->rows == 0 || region->row_bytes == 0)
        return region->offset;
    sl_u128 end = (sl_u128)region->pitch * (region->rows - 1) + region->row_bytes;
    end += region->offset;
    return end > UINT64_MAX ? UINT64_MAX : (uint64_t)end;
}

_Bool sl_region_contiguous(const struct sluice_region *region)
{
    return region->rows <= 1 || region->row_bytes == 0 || region->pitch == region->row_bytes;
}

uint64_t sl_task_bytes(const struct sluice_task *task)
{
    return sl_region_bytes(task->source_dtype != SLUICE_DTYPE_NONE ? &task->from : &task->to);
}
