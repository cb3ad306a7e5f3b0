/*
 * sealed_view.c: which part of a sealed plan a run moves, and its tables.
 *
 * Invariants: both ends of a pair come to the same messages, because the bitmap is agreed with the run and piece
 * order and sizes are the schedule's; a view never needs more room in a slot or in shadow than the full one.
 */
#include <stdlib.h>

#include "runtime/core/sealed.h"

_Bool sl_view_has(const struct sl_view *view, uint32_t param)
{
    if (view->params == NULL)
        return 1;
    return param / 64 < view->words && (view->params[param / 64] >> (param % 64) & 1) != 0;
}

static uint64_t wire_bytes(const struct sl_message *message, const struct sl_piece *piece)
{
    uint64_t bytes = piece->end - piece->begin;
    return message->single ? bytes : (bytes + SLUICE_UNIT - 1) / SLUICE_UNIT * SLUICE_UNIT;
}

uint64_t sl_view_message_bytes(const struct sl_sealed *sealed, const struct sl_view *view,
                               const struct sl_message *message)
{
    if (view->params == NULL)
        return message->bytes;
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < message->piece_count; p++) {
        const struct sl_piece *piece = &sealed->schedule.pieces[message->first_piece + p];
        bytes += sl_view_has(view, sl_piece_param(sealed, piece)) ? wire_bytes(message, piece) : 0;
    }
    return bytes;
}

static uint64_t local_bytes(const struct sl_sealed *sealed, const struct sl_view *view, const struct sl_window *w)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < w->local_count; p++) {
        const struct sl_piece *piece = &sealed->schedule.pieces[w->first_local + p];
        bytes += sl_view_has(view, sl_piece_param(sealed, piece)) ? piece->end - piece->begin : 0;
    }
    return bytes;
}

/* Flags and bytes of one window; which sets there will be follows from what there is to copy. */
static void measure_window(const struct sl_sealed *sealed, struct sl_view *view, uint32_t window)
{
    const struct sl_window *w = &sealed->schedule.windows[window];
    uint64_t local = local_bytes(sealed, view, w);
    unsigned flags = local > 0 ? SL_WINDOW_LOCAL : 0u;
    uint64_t total = local, landing = local;
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &sealed->schedule.messages[w->first_message + m];
        uint64_t bytes = sl_view_message_bytes(sealed, view, message);
        if (bytes == 0)
            continue;
        total += bytes;
        landing += message->receive ? bytes : 0;
        flags |= SL_WINDOW_GROUP;
        if (message->offset != SL_NO_SLOT)
            flags |= message->receive ? SL_WINDOW_UNPACK : SL_WINDOW_PACK;
    }
    view->landing_bytes += window < sealed->staged ? landing : 0;
    view->flags[window] = (uint8_t)flags;
    view->window_bytes[window] = total;
    view->bytes += total;
}

static int by_window(const void *a, const void *b)
{
    const struct sl_arrival *x = a;
    const struct sl_arrival *y = b;
    if (x->window != y->window)
        return x->window < y->window ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

static sluice_status index_arrivals(const struct sl_sealed *sealed, struct sl_view *view)
{
    const struct sl_plan *store = &sealed->plan->store;
    uint32_t *last = sl_new_array(sealed->plan->mem, store->param_count, sizeof *last, "last windows");
    if (last == NULL)
        return SLUICE_NOMEM;
    sl_schedule_last_windows(store, &sealed->half, &sealed->schedule, last);
    for (uint32_t param = 0; param < store->param_count; param++)
        if (last[param] != UINT32_MAX && sl_view_has(view, param))
            view->arrivals[view->arrival_count++] = (struct sl_arrival){last[param], param};
    qsort(view->arrivals, view->arrival_count, sizeof *view->arrivals, by_window);
    sl_free(sealed->plan->mem, last);
    return SLUICE_OK;
}

static sluice_status take_tables(const struct sl_sealed *sealed, struct sl_view *view)
{
    struct sl_mem *mem = sealed->plan->mem;
    size_t windows = sealed->schedule.rule.windows;
    size_t messages = sealed->schedule.message_count;
    view->in_place = sl_new_array(mem, windows, sizeof *view->in_place, "windows");
    view->messages = sl_new_array(mem, messages, sizeof *view->messages, "messages");
    view->flags = sl_new_array(mem, windows, 1, "window flags");
    view->window_bytes = sl_new_array(mem, windows, sizeof *view->window_bytes, "bytes of windows");
    view->arrivals = sl_new_array(mem, sealed->plan->store.param_count, sizeof *view->arrivals, "arrivals");
    _Bool complete = view->in_place != NULL && view->messages != NULL && view->flags != NULL &&
                     view->window_bytes != NULL && view->arrivals != NULL;
    if (sealed->staged > 0 && complete) {
        view->landed = sl_new_array(mem, sealed->staged, sizeof *view->landed, "shadow windows");
        view->landed_messages = sl_new_array(mem, messages, sizeof *view->landed_messages, "shadow messages");
        complete = view->landed != NULL && view->landed_messages != NULL;
    }
    return complete ? SLUICE_OK : SLUICE_NOMEM;
}

sluice_status sl_view_open(const struct sl_sealed *sealed, const uint64_t *params, size_t words, struct sl_view *ret)
{
    *ret = (struct sl_view){.params = params, .words = words};
    sluice_status status = take_tables(sealed, ret);
    if (status != SLUICE_OK)
        return status;
    for (uint32_t w = 0; w < sealed->schedule.rule.windows; w++)
        measure_window(sealed, ret, w);
    return index_arrivals(sealed, ret);
}

void sl_view_drop(const struct sl_sealed *sealed, struct sl_view *view)
{
    struct sl_mem *mem = sealed->plan->mem;
    sl_free(mem, view->in_place);
    sl_free(mem, view->landed);
    sl_free(mem, view->messages);
    sl_free(mem, view->landed_messages);
    sl_free(mem, view->flags);
    sl_free(mem, view->window_bytes);
    sl_free(mem, view->arrivals);
}

/* The largest number of pieces that one set can have. */
static size_t scratch_need(const struct sl_sealed *sealed)
{
    const struct sl_schedule *schedule = &sealed->schedule;
    size_t most = 1;
    size_t staged = 0;
    for (uint32_t i = 0; i < schedule->rule.windows; i++) {
        const struct sl_window *w = &schedule->windows[i];
        size_t pieces = w->local_count;
        for (uint32_t m = 0; m < w->message_count; m++)
            pieces += schedule->messages[w->first_message + m].piece_count;
        most = pieces > most ? pieces : most;
        staged += i < sealed->staged ? pieces : 0;
    }
    return staged > most ? staged : most;
}

sluice_status sl_sealed_scratch(struct sl_sealed *sealed)
{
    sealed->scratch = sl_new_array(sealed->plan->mem, scratch_need(sealed), sizeof *sealed->scratch, "copies of a set");
    sealed->scratch_count = 0;
    return sealed->scratch != NULL ? SLUICE_OK : SLUICE_NOMEM;
}

void sl_sealed_scratch_drop(struct sl_sealed *sealed)
{
    sl_free(sealed->plan->mem, sealed->scratch);
    sealed->scratch = NULL;
}

sluice_status sl_view_build(struct sl_sealed *sealed, struct sl_view *view)
{
    sluice_status status = sl_sealed_scratch(sealed);
    for (uint32_t w = 0; w < sealed->schedule.rule.windows && status == SLUICE_OK; w++)
        status = sl_view_build_window(sealed, view, w);
    if (status == SLUICE_OK && sealed->staged > 0)
        status = sl_view_build_commit(sealed, view);
    sl_sealed_scratch_drop(sealed);
    return status;
}
