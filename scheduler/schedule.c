/*
 * schedule.c: one rank's windows.
 *
 * Two walks feed the builder of builder.c, window by window and stream by stream:
 * - balanced: a cursor per stream; window w takes share w / B of the streams of block w % B, and share w of N of the
 *   local stream.
 * - other policies: the entries sorted by their window, stable, so that within one they stay in stream order.
 *
 * A stream's entries are visited once each and once more for every window that cuts them; nothing depends on
 * another rank.
 */
#include "scheduler/schedule.h"

#include <string.h>

#include "scheduler/builder.h"

/* Entries with bytes before `end` that are not finished yet, and those without bytes that lie there. */
static sluice_status cut_stream(struct sl_builder *builder, const struct sl_stream *stream, uint32_t share,
                                uint32_t shares, uint32_t window, uint32_t *cursor)
{
    const struct sl_half *half = builder->half;
    uint64_t begin = 0;
    uint64_t end = 0;
    sl_share(stream->units, share, shares, &begin, &end);
    sluice_status status = SLUICE_OK;
    for (; *cursor < stream->count && status == SLUICE_OK; ++*cursor) {
        uint32_t index = stream->first + *cursor;
        const struct sl_entry *entry = &half->entries[index];
        if (entry->unit >= end && share + 1 < shares) {
            break;
        }
        if (entry->bytes == 0) {
            status = sl_builder_add_empty(builder, index, window);
            continue;
        }
        uint64_t from = begin > entry->unit ? (begin - entry->unit) * SLUICE_UNIT : 0;
        uint64_t to = (end - entry->unit) * SLUICE_UNIT;
        status = from < to ? sl_builder_add(builder, index, from, to < entry->bytes ? to : entry->bytes) : SLUICE_OK;
        if (to < entry->bytes) {
            break;
        }
    }
    return status;
}

static sluice_status cut_window(struct sl_builder *builder, uint32_t window, const uint16_t *block_of_stream,
                                uint32_t *cursors)
{
    const struct sl_half *half = builder->half;
    const struct sl_rule *rule = &builder->schedule->rule;
    uint32_t shares = rule->windows / rule->blocks;
    for (uint32_t i = 0; i < half->stream_count; i++) {
        uint32_t block = block_of_stream != NULL ? block_of_stream[i] : 0;
        if (block != window % rule->blocks) {
            continue;
        }
        const struct sl_stream *stream = &half->streams[i];
        sluice_status status = cut_stream(builder, stream, window / rule->blocks, shares, window, &cursors[i]);
        if (status == SLUICE_OK) {
            status = sl_builder_flush(builder, window, stream);
        }
        if (status != SLUICE_OK) {
            return status;
        }
    }
    sluice_status status =
        cut_stream(builder, &half->local, window, rule->windows, window, &cursors[half->stream_count]);
    return status == SLUICE_OK ? sl_builder_flush_local(builder, window) : status;
}

static sluice_status build_balanced(struct sl_builder *builder, const uint16_t *block_of_stream)
{
    struct sl_schedule *schedule = builder->schedule;
    const struct sl_half *half = builder->half;
    uint32_t *cursors = sl_new_array(schedule->mem, (size_t)half->stream_count + 1, sizeof(*cursors), "cursors");
    if (cursors == NULL) {
        return SLUICE_NOMEM;
    }
    sluice_status status = SLUICE_OK;
    for (uint32_t window = 0; window < schedule->rule.windows && status == SLUICE_OK; window++) {
        schedule->windows[window].first_message = (uint32_t)schedule->message_count;
        status = cut_window(builder, window, block_of_stream, cursors);
    }
    sl_free(schedule->mem, cursors);
    return status;
}

/* Entries in window order: a counting sort, stable. first[w + 1] is where window w ends. */
static sluice_status sort_entries(const struct sl_half *half, const uint32_t *window_of_task, uint32_t windows,
                                  struct sl_mem *mem, uint32_t **ret_order, uint32_t **ret_first)
{
    uint32_t *order = sl_new_array(mem, half->entry_count, sizeof(*order), "entries by window");
    uint32_t *first = sl_new_array(mem, (size_t)windows + 2, sizeof(*first), "entries by window");
    if (order == NULL || first == NULL) {
        sl_free(mem, order);
        sl_free(mem, first);
        return SLUICE_NOMEM;
    }
    for (size_t i = 0; i < half->entry_count; i++) {
        uint32_t window = window_of_task[half->entries[i].task];
        SL_ASSERT(window < windows);
        first[window + 2]++;
    }
    for (uint32_t window = 0; window < windows; window++) {
        first[window + 2] += first[window + 1];
    }
    for (size_t i = 0; i < half->entry_count; i++) {
        order[first[window_of_task[half->entries[i].task] + 1]++] = (uint32_t)i;
    }
    *ret_order = order;
    *ret_first = first;
    return SLUICE_OK;
}

/* Adds the leading entries of the list that belong to the stream; returns how many in ret_count. */
static sluice_status take_stream(struct sl_builder *builder, const struct sl_stream *stream, const uint32_t *list,
                                 uint32_t count, uint32_t window, uint32_t *ret_count)
{
    sluice_status status = SLUICE_OK;
    uint32_t taken = 0;
    for (; taken < count && list[taken] < stream->first + stream->count && status == SLUICE_OK; taken++) {
        uint64_t bytes = builder->half->entries[list[taken]].bytes;
        status = bytes == 0 ? sl_builder_add_empty(builder, list[taken], window)
                            : sl_builder_add(builder, list[taken], 0, bytes);
    }
    *ret_count = taken;
    return status;
}

static sluice_status fill_window(struct sl_builder *builder, const uint32_t *list, uint32_t count, uint32_t window)
{
    const struct sl_half *half = builder->half;
    uint32_t done = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < half->stream_count; i++) {
        const struct sl_stream *stream = &half->streams[i];
        sluice_status status = take_stream(builder, stream, list + done, count - done, window, &taken);
        if (status == SLUICE_OK && taken > 0) {
            status = sl_builder_flush(builder, window, stream);
        }
        if (status != SLUICE_OK) {
            return status;
        }
        done += taken;
    }
    sluice_status status = take_stream(builder, &half->local, list + done, count - done, window, &taken);
    SL_ASSERT(status != SLUICE_OK || done + taken == count);
    return status == SLUICE_OK ? sl_builder_flush_local(builder, window) : status;
}

static sluice_status build_assigned(struct sl_builder *builder, const uint32_t *window_of_task)
{
    struct sl_schedule *schedule = builder->schedule;
    uint32_t windows = schedule->rule.windows;
    uint32_t *order = NULL;
    uint32_t *first = NULL;
    sluice_status status = sort_entries(builder->half, window_of_task, windows, schedule->mem, &order, &first);
    if (status != SLUICE_OK) {
        return status;
    }
    for (uint32_t window = 0; window < windows && status == SLUICE_OK; window++) {
        schedule->windows[window].first_message = (uint32_t)schedule->message_count;
        schedule->windows[window].first_local = (uint32_t)schedule->piece_count;
        uint32_t count = first[window + 1] - first[window];
        if (count > 0) {
            status = fill_window(builder, order + first[window], count, window);
        }
    }
    sl_free(schedule->mem, order);
    sl_free(schedule->mem, first);
    return status;
}

static void add_totals(struct sl_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->rule.windows; i++) {
        schedule->send_bytes += schedule->windows[i].send_bytes;
        schedule->recv_bytes += schedule->windows[i].recv_bytes;
        schedule->local_bytes += schedule->windows[i].local_bytes;
    }
}

sluice_status sl_schedule_build(const struct sl_plan *plan, const struct sl_half *half, const struct sl_rule *rule,
                                const uint16_t *block_of_stream, const uint32_t *window_of_task, struct sl_mem *mem,
                                struct sl_schedule *ret)
{
    _Bool balanced = rule->policy == SLUICE_POLICY_BALANCED;
    SL_ASSERT(rule->windows > 0 && rule->blocks > 0 && rule->windows % rule->blocks == 0);
    SL_ASSERT(rule->blocks == 1 || (balanced && block_of_stream != NULL));
    SL_ASSERT(balanced || window_of_task != NULL);
    struct sl_schedule schedule = {.mem = mem, .rule = *rule};
    schedule.windows = sl_new_array(mem, rule->windows, sizeof(*schedule.windows), "windows");
    if (schedule.windows == NULL) {
        return SLUICE_NOMEM;
    }
    struct sl_builder builder = {.plan = plan, .half = half, .schedule = &schedule};
    sluice_status status =
        balanced ? build_balanced(&builder, block_of_stream) : build_assigned(&builder, window_of_task);
    sl_free(mem, builder.scratch);
    if (status != SLUICE_OK) {
        sl_schedule_drop(&schedule);
        return status;
    }
    add_totals(&schedule);
    sl_schedule_place(plan, half, NULL, &schedule);
    *ret = schedule;
    return SLUICE_OK;
}

void sl_schedule_drop(struct sl_schedule *schedule)
{
    if (schedule == NULL || schedule->mem == NULL) {
        return;
    }
    sl_free(schedule->mem, schedule->windows);
    sl_free(schedule->mem, schedule->messages);
    sl_free(schedule->mem, schedule->pieces);
    sl_free(schedule->mem, schedule->empties);
    *schedule = (struct sl_schedule){0};
}
