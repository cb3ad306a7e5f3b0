/*
 * Do destinations overlap? Exact, O(n log n) in tasks.
 *
 * The spans (first byte to last) of a (rank, parameter) are sorted; spans that chain into each other form a
 * cluster, and a cluster of one is free. Row-parallel slices interleave: their spans cross, their bytes
 * don't. With P the cluster's pitch, every region falls into at most three rectangles of the plane
 * (row = offset / P, column = offset % P), and a sweep says whether any two of them cross.
 *
 * Invariants: regions were checked before, so nothing here wraps around; a cluster of several pitches keeps
 * the one with most rows and lays the others' rows out one by one, at most EXPAND_MAX of them. Beyond that
 * the plan is refused, and the text says so.
 */
#include <stdlib.h>

#include "runtime/base/int128.h"
#include "scheduler/plan_internal.h"
#include "scheduler/plan_sweep.h"

#define EXPAND_MAX (1u << 18)

struct span {
    uint64_t begin;
    uint32_t rank, param;
    uint32_t task;
};

struct pitch_rows {
    uint64_t pitch, rows;
    uint32_t task;
};

struct check {
    const struct sl_plan *plan;
    struct sl_mem *mem;
    struct sl_rectangle *rectangles; /* of the current cluster */
    size_t count, capacity;
    struct pitch_rows *pitches; /* of its strided members */
    size_t pitch_count, pitch_capacity;
    uint64_t pitch; /* 0: all contiguous, one endless row */
};

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_begin(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->rank != b->rank)
        return compare(a->rank, b->rank);
    if (a->param != b->param)
        return compare(a->param, b->param);
    return a->begin != b->begin ? compare(a->begin, b->begin) : compare(a->task, b->task);
}

static int by_pitch(const void *left, const void *right)
{
    const struct pitch_rows *a = left, *b = right;
    return a->pitch != b->pitch ? compare(a->pitch, b->pitch) : compare(a->task, b->task);
}

static const struct sluice_region *region_of(const struct check *check, uint32_t task)
{
    return &check->plan->tasks[task].to;
}

/* --- from regions to rectangles --- */

static sluice_status put(struct check *check, uint32_t task, uint64_t row, uint64_t rows, uint64_t column,
                         uint64_t width)
{
    sluice_status status = sl_grow(check->mem, &check->rectangles, &check->capacity, check->count + 1,
                                   sizeof(*check->rectangles), "overlap check");
    if (status != SLUICE_OK)
        return status;
    check->rectangles[check->count++] = (struct sl_rectangle){
        .row = row, .row_end = row + rows, .column = column, .column_end = column + width, .owner = task};
    return SLUICE_OK;
}

/* Rows at the cluster's pitch; a row that runs over the edge goes on in the next line. */
static sluice_status put_rows(struct check *check, uint32_t task, const struct sluice_region *region)
{
    SL_ASSERT(check->pitch > 0);
    uint64_t row = region->offset / check->pitch, column = region->offset % check->pitch;
    uint64_t room = check->pitch - column;
    if (region->row_bytes <= room)
        return put(check, task, row, region->rows, column, region->row_bytes);
    sluice_status status = put(check, task, row, region->rows, column, room);
    return status == SLUICE_OK ? put(check, task, row + 1, region->rows, 0, region->row_bytes - room) : status;
}

/* A contiguous range: the rest of a line, whole lines, the beginning of a line. */
static sluice_status put_range(struct check *check, uint32_t task, uint64_t begin, uint64_t bytes)
{
    if (check->pitch == 0)
        return put(check, task, 0, 1, begin, bytes);
    uint64_t column = begin % check->pitch, head = (check->pitch - column) % check->pitch;
    head = head < bytes ? head : bytes;
    uint64_t lines = (bytes - head) / check->pitch, tail = (bytes - head) % check->pitch;
    sluice_status status = SLUICE_OK;
    if (head > 0)
        status = put(check, task, begin / check->pitch, 1, column, head);
    if (status == SLUICE_OK && lines > 0)
        status = put(check, task, (begin + head) / check->pitch, lines, 0, check->pitch);
    if (status == SLUICE_OK && tail > 0)
        status = put(check, task, (begin + bytes - tail) / check->pitch, 1, 0, tail);
    return status;
}

static sluice_status put_region(struct check *check, uint32_t task)
{
    const struct sluice_region *region = region_of(check, task);
    if (sl_region_contiguous(region))
        return put_range(check, task, region->offset, sl_region_bytes(region));
    if (region->pitch == check->pitch)
        return put_rows(check, task, region);
    sluice_status status = SLUICE_OK;
    for (uint64_t i = 0; i < region->rows && status == SLUICE_OK; i++)
        status = put_range(check, task, region->offset + i * region->pitch, region->row_bytes);
    return status;
}

/* --- one cluster --- */

static sluice_status collect_pitches(struct check *check, const struct span *spans, size_t count)
{
    check->pitch_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct sluice_region *region = region_of(check, spans[i].task);
        if (sl_region_contiguous(region))
            continue;
        sluice_status status = sl_grow(check->mem, &check->pitches, &check->pitch_capacity, check->pitch_count + 1,
                                       sizeof(*check->pitches), "overlap check");
        if (status != SLUICE_OK)
            return status;
        check->pitches[check->pitch_count++] = (struct pitch_rows){region->pitch, region->rows, spans[i].task};
    }
    if (check->pitch_count > 1)
        qsort(check->pitches, check->pitch_count, sizeof(*check->pitches), by_pitch);
    return SLUICE_OK;
}

/* The pitch with most rows; refuses when the others have too many to lay out. */
static sluice_status choose_pitch(struct check *check)
{
    sl_u128 total = 0, best = 0;
    size_t chosen = 0;
    for (size_t i = 0, end; i < check->pitch_count; i = end) {
        sl_u128 rows = 0;
        for (end = i; end < check->pitch_count && check->pitches[end].pitch == check->pitches[i].pitch; end++)
            rows += check->pitches[end].rows;
        total += rows;
        if (rows > best) {
            best = rows;
            chosen = i;
        }
    }
    check->pitch = check->pitch_count == 0 ? 0 : check->pitches[chosen].pitch;
    if (total - best <= EXPAND_MAX)
        return SLUICE_OK;
    const struct pitch_rows *one = &check->pitches[chosen];
    const struct pitch_rows *two = &check->pitches[chosen == 0 ? check->pitch_count - 1 : 0];
    const struct sluice_task *a = &check->plan->tasks[one->task], *b = &check->plan->tasks[two->task];
    return sl_fail(SLUICE_PLAN, "plan",
                   "tasks %" PRIu64 " and %" PRIu64 " cross in %s on rank %u with pitches %" PRIu64 " and %" PRIu64
                   ": more than %u rows of other pitches can't be checked for overlap; use one pitch",
                   a->id, b->id, sl_param_label(check->plan, a->param).text, a->destination, one->pitch, two->pitch,
                   EXPAND_MAX);
}

static sluice_status report(const struct check *check, const struct sl_crossing *crossing)
{
    const struct sluice_task *a = &check->plan->tasks[crossing->one], *b = &check->plan->tasks[crossing->two];
    uint64_t line = crossing->row * check->pitch;
    return sl_fail(SLUICE_PLAN, "plan",
                   "tasks %" PRIu64 " and %" PRIu64 " overlap: both write bytes [%" PRIu64 ", %" PRIu64
                   ") of %s on rank %u",
                   a->id < b->id ? a->id : b->id, a->id < b->id ? b->id : a->id, line + crossing->column,
                   line + crossing->column_end, sl_param_label(check->plan, a->param).text, a->destination);
}

static sluice_status check_cluster(struct check *check, const struct span *spans, size_t count)
{
    sluice_status status = collect_pitches(check, spans, count);
    if (status == SLUICE_OK)
        status = choose_pitch(check);
    check->count = 0;
    for (size_t i = 0; i < count && status == SLUICE_OK; i++)
        status = put_region(check, spans[i].task);
    _Bool found = 0;
    struct sl_crossing crossing;
    if (status == SLUICE_OK)
        status = sl_sweep(check->mem, check->rectangles, check->count, &found, &crossing);
    return status == SLUICE_OK && found ? report(check, &crossing) : status;
}

/* --- all destinations --- */

static size_t cluster_end(const struct check *check, const struct span *spans, size_t first, size_t count)
{
    uint64_t reach = sl_region_end(region_of(check, spans[first].task));
    size_t end = first + 1;
    while (end < count && spans[end].rank == spans[first].rank && spans[end].param == spans[first].param &&
           spans[end].begin < reach) {
        uint64_t last = sl_region_end(region_of(check, spans[end].task));
        reach = last > reach ? last : reach;
        end++;
    }
    return end;
}

static sluice_status check_spans(struct check *check, const struct span *spans, size_t count)
{
    sluice_status status = SLUICE_OK;
    for (size_t i = 0, end; i < count && status == SLUICE_OK; i = end) {
        end = cluster_end(check, spans, i, count);
        if (end - i > 1)
            status = check_cluster(check, spans + i, end - i);
    }
    return status;
}

static size_t collect_spans(const struct sl_plan *plan, struct span *spans)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        if (task->destination_dtype != SLUICE_DTYPE_NONE && sl_region_bytes(&task->to) > 0)
            spans[count++] = (struct span){task->to.offset, task->destination, task->param, (uint32_t)i};
    }
    return count;
}

sluice_status sl_plan_check_overlap(const struct sl_plan *plan)
{
    struct span *spans = sl_new_aligned(plan->mem, (plan->task_count + 1) * sizeof(*spans), 8, "overlap check");
    if (spans == NULL)
        return SLUICE_NOMEM;
    size_t count = collect_spans(plan, spans);
    qsort(spans, count, sizeof(*spans), by_begin);
    struct check check = {.plan = plan, .mem = plan->mem};
    sluice_status status = check_spans(&check, spans, count);
    sl_free(plan->mem, check.rectangles);
    sl_free(plan->mem, check.pitches);
    sl_free(plan->mem, spans);
    return status;
}
