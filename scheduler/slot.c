/*
 * slot.c: where messages lie in a slot, and in which windows a parameter is touched.
 *
 * Invariants: the staged messages of a window lie one behind the other, sends and receives each in their own part of
 * the slot, every one at a multiple of SL_SLOT_ALIGN; a part is as large as its largest window, alignment counted.
 */
#include "scheduler/schedule.h"

/* Is this piece of the region one run of bytes? A strided region's piece is when it stays within a row. */
static _Bool is_run(const struct sluice_region *region, const struct sl_piece *piece)
{
    return sl_region_contiguous(region) || piece->begin / region->row_bytes == (piece->end - 1) / region->row_bytes;
}

static _Bool is_staged(const struct sl_plan *plan, const struct sl_half *half, const struct sl_schedule *schedule,
                       const struct sl_message *message, _Bool asked)
{
    if (asked || !message->single) {
        return 1;
    }
    const struct sl_piece *piece = &schedule->pieces[message->first_piece];
    const struct sluice_task *task = &plan->tasks[half->entries[piece->entry].task];
    return !is_run(message->receive ? &task->to : &task->from, piece);
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + SL_SLOT_ALIGN - 1) / SL_SLOT_ALIGN * SL_SLOT_ALIGN;
}

void sl_schedule_place(const struct sl_plan *plan, const struct sl_half *half, const _Bool *stage,
                       struct sl_schedule *schedule)
{
    uint64_t peak[2] = {0, 0}; /* send, receive */
    for (uint32_t w = 0; w < schedule->rule.windows; w++) {
        const struct sl_window *window = &schedule->windows[w];
        uint64_t used[2] = {0, 0};
        for (uint32_t i = window->first_message; i < window->first_message + window->message_count; i++) {
            struct sl_message *message = &schedule->messages[i];
            uint64_t *part = &used[message->receive ? 1 : 0];
            message->offset = SL_NO_SLOT;
            if (is_staged(plan, half, schedule, message, stage != NULL && stage[i])) {
                message->offset = *part;
                *part += aligned(message->bytes);
            }
        }
        peak[0] = used[0] > peak[0] ? used[0] : peak[0];
        peak[1] = used[1] > peak[1] ? used[1] : peak[1];
    }
    schedule->slot_send_bytes = peak[0];
    schedule->slot_recv_bytes = peak[1];
}

struct touch {
    const struct sl_plan *plan;
    const struct sl_half *half;
    uint32_t *source;      /* may be NULL */
    uint32_t *destination; /* may be NULL */
    _Bool last;            /* keep the last window, not the first */
};

static void touch_param(const struct touch *touch, uint32_t *windows, uint32_t param, uint32_t window)
{
    uint32_t *own = &windows[param];
    if (*own == UINT32_MAX || (touch->last ? window > *own : window < *own)) {
        *own = window;
    }
}

static void touch_entry(const struct touch *touch, uint32_t entry, uint32_t window)
{
    const struct sluice_task *task = &touch->plan->tasks[touch->half->entries[entry].task];
    if (touch->source != NULL && task->source == touch->half->rank) {
        touch_param(touch, touch->source, task->param, window);
    }
    if (touch->destination != NULL && task->destination == touch->half->rank) {
        touch_param(touch, touch->destination, task->param, window);
    }
}

static void touch_all(const struct touch *touch, const struct sl_schedule *schedule)
{
    for (size_t i = 0; i < touch->plan->param_count; i++) {
        if (touch->source != NULL) {
            touch->source[i] = UINT32_MAX;
        }
        if (touch->destination != NULL) {
            touch->destination[i] = UINT32_MAX;
        }
    }
    for (uint32_t w = 0; w < schedule->rule.windows; w++) {
        const struct sl_window *window = &schedule->windows[w];
        size_t first =
            window->message_count > 0 ? schedule->messages[window->first_message].first_piece : window->first_local;
        size_t end = window->first_local + (size_t)window->local_count;
        for (size_t i = first; i < end; i++) {
            touch_entry(touch, schedule->pieces[i].entry, w);
        }
    }
    for (size_t i = 0; i < schedule->empty_count; i++) {
        touch_entry(touch, schedule->empties[i].entry, schedule->empties[i].window);
    }
}

void sl_schedule_first_windows(const struct sl_plan *plan, const struct sl_half *half,
                               const struct sl_schedule *schedule, uint32_t *source, uint32_t *destination)
{
    struct touch touch = {.plan = plan, .half = half, .source = source, .destination = destination};
    touch_all(&touch, schedule);
}

void sl_schedule_last_windows(const struct sl_plan *plan, const struct sl_half *half,
                              const struct sl_schedule *schedule, uint32_t *destination)
{
    struct touch touch = {.plan = plan, .half = half, .destination = destination, .last = 1};
    touch_all(&touch, schedule);
}
