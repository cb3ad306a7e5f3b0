/*
 * A sweep over rows that keeps the columns in use.
 *
 * Invariants:
 * - it stops at the first crossing, so the intervals in use are disjoint, begin at distinct columns, and the
 *   one with the largest begin below a new interval's end is the only one that can cross it.
 * - columns in use are bits over the sorted begins, with a summary bit per word on each level above, so that
 *   the next lower one is found in a step per level.
 */
#include <stdlib.h>

#include "scheduler/plan_sweep.h"

#define LEVELS 6 /* 64^6 begins */
#define NONE   UINT32_MAX

struct ending {
    uint64_t row_end;
    uint32_t rectangle;
};

struct sweep {
    const struct sl_rectangle *rectangles;
    size_t count;
    uint64_t *columns;      /* all begins, sorted */
    struct ending *endings; /* sorted by row_end */
    uint32_t *in_use;       /* per begin: the rectangle that uses it */
    uint64_t *bits[LEVELS];
};

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_row(const void *left, const void *right)
{
    const struct sl_rectangle *a = left, *b = right;
    if (a->row != b->row)
        return compare(a->row, b->row);
    return a->column != b->column ? compare(a->column, b->column) : compare(a->owner, b->owner);
}

static int by_row_end(const void *left, const void *right)
{
    const struct ending *a = left, *b = right;
    return a->row_end != b->row_end ? compare(a->row_end, b->row_end) : compare(a->rectangle, b->rectangle);
}

static int by_value(const void *left, const void *right)
{
    return compare(*(const uint64_t *)left, *(const uint64_t *)right);
}

/* How many begins are below `column`. */
static uint32_t place(const struct sweep *sweep, uint64_t column)
{
    size_t low = 0, high = sweep->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sweep->columns[middle] < column)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

static void use(struct sweep *sweep, uint32_t at)
{
    for (int level = 0; level < LEVELS; level++, at >>= 6)
        sweep->bits[level][at >> 6] |= UINT64_C(1) << (at & 63);
}

static void leave(struct sweep *sweep, uint32_t at)
{
    for (int level = 0; level < LEVELS; level++, at >>= 6) {
        uint64_t *word = &sweep->bits[level][at >> 6];
        *word &= ~(UINT64_C(1) << (at & 63));
        if (*word != 0)
            return;
    }
}

static uint32_t highest(uint64_t word)
{
    return 63u - (uint32_t)__builtin_clzll(word);
}

/* The largest begin in use below place `at`. */
static uint32_t below(const struct sweep *sweep, uint32_t at)
{
    for (int level = 0; level < LEVELS; level++, at >>= 6) {
        uint64_t word = sweep->bits[level][at >> 6] & ((UINT64_C(1) << (at & 63)) - 1);
        if (word == 0)
            continue;
        uint32_t found = (at & ~63u) | highest(word);
        while (level-- > 0)
            found = found << 6 | highest(sweep->bits[level][found]);
        return found;
    }
    return NONE;
}

static _Bool run(struct sweep *sweep, struct sl_crossing *ret)
{
    size_t ended = 0;
    for (size_t i = 0; i < sweep->count; i++) {
        const struct sl_rectangle *now = &sweep->rectangles[i];
        for (; ended < sweep->count && sweep->endings[ended].row_end <= now->row; ended++)
            leave(sweep, place(sweep, sweep->rectangles[sweep->endings[ended].rectangle].column));
        uint32_t before = below(sweep, place(sweep, now->column_end));
        const struct sl_rectangle *other = before == NONE ? NULL : &sweep->rectangles[sweep->in_use[before]];
        if (other != NULL && other->column_end > now->column) {
            *ret = (struct sl_crossing){.one = other->owner,
                                        .two = now->owner,
                                        .row = now->row,
                                        .column = other->column > now->column ? other->column : now->column,
                                        .column_end =
                                            other->column_end < now->column_end ? other->column_end : now->column_end};
            return 1;
        }
        uint32_t at = place(sweep, now->column);
        sweep->in_use[at] = (uint32_t)i;
        use(sweep, at);
    }
    return 0;
}

static void prepare(struct sweep *sweep)
{
    for (size_t i = 0; i < sweep->count; i++) {
        sweep->columns[i] = sweep->rectangles[i].column;
        sweep->endings[i] = (struct ending){sweep->rectangles[i].row_end, (uint32_t)i};
    }
    qsort(sweep->columns, sweep->count, sizeof(*sweep->columns), by_value);
    qsort(sweep->endings, sweep->count, sizeof(*sweep->endings), by_row_end);
}

static size_t words_of(size_t count, int level)
{
    return (count >> (6 * (level + 1))) + 1;
}

/* One block for all levels, handed out by `open`. */
static uint64_t *open_bits(struct sl_mem *mem, struct sweep *sweep)
{
    size_t words = 0;
    for (int level = 0; level < LEVELS; level++)
        words += words_of(sweep->count, level);
    uint64_t *block = sl_new_array(mem, words, sizeof(*block), "overlap check");
    uint64_t *next = block;
    for (int level = 0; level < LEVELS && block != NULL; level++) {
        sweep->bits[level] = next;
        next += words_of(sweep->count, level);
    }
    return block;
}

sluice_status sl_sweep(struct sl_mem *mem, struct sl_rectangle *rectangles, size_t count, _Bool *ret_found,
                       struct sl_crossing *ret_crossing)
{
    if (count >= NONE)
        return sl_fail(SLUICE_LIMIT, "plan", "overlap check: more than 2^32 pieces");
    qsort(rectangles, count, sizeof(*rectangles), by_row);
    struct sweep sweep = {.rectangles = rectangles, .count = count};
    sweep.columns = sl_new_array(mem, count, sizeof(*sweep.columns), "overlap check");
    sweep.endings = sl_new_array(mem, count, sizeof(*sweep.endings), "overlap check");
    sweep.in_use = sl_new_array(mem, count, sizeof(*sweep.in_use), "overlap check");
    uint64_t *bits = open_bits(mem, &sweep);
    sluice_status status = SLUICE_NOMEM;
    if (sweep.columns != NULL && sweep.endings != NULL && sweep.in_use != NULL && bits != NULL) {
        prepare(&sweep);
        *ret_found = run(&sweep, ret_crossing);
        status = SLUICE_OK;
    }
    sl_free(mem, sweep.columns);
    sl_free(mem, sweep.endings);
    sl_free(mem, sweep.in_use);
    sl_free(mem, bits);
    return status;
}
