/* builder.h: how the builder of a schedule turns the pieces of a stream into messages. Internal to the scheduler. */
#ifndef SL_SCHEDULER_BUILDER_H
#define SL_SCHEDULER_BUILDER_H

#include "scheduler/schedule.h"

struct sl_builder {
    const struct sl_plan *plan;
    const struct sl_half *half;
    struct sl_schedule *schedule; /* grows; the caller drops it after a failure */
    size_t message_capacity, piece_capacity, empty_capacity;
    struct sl_piece *scratch; /* pieces of one stream in one window, in stream order */
    size_t scratch_count, scratch_capacity;
};

/* Adds bytes [begin, end) of an entry to the scratch. NOMEM. */
sluice_status sl_builder_add(struct sl_builder *builder, uint32_t entry, uint64_t begin, uint64_t end);
/* Adds an entry without bytes to the schedule's empties. NOMEM. */
sluice_status sl_builder_add_empty(struct sl_builder *builder, uint32_t entry, uint32_t window);
/* Empties the scratch into messages of the window: singles, largest first, then one packed. NOMEM, LIMIT. */
sluice_status sl_builder_flush(struct sl_builder *builder, uint32_t window, const struct sl_stream *stream);
/* Empties the scratch into local pieces of the window. NOMEM, LIMIT. */
sluice_status sl_builder_flush_local(struct sl_builder *builder, uint32_t window);

#endif
