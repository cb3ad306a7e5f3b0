/* strided.h: the one cursor over a strided region, and the one loop that moves bytes which the processor reaches. */
#ifndef SL_BACKEND_STRIDED_H
#define SL_BACKEND_STRIDED_H

#include "sluice/backend.h"

/* A place in a strided region. */
struct sl_cursor {
    uint64_t address;   /* of the next byte */
    uint64_t left;      /* in this row */
    uint64_t row_bytes; /* UINT64_MAX: contiguous, there is one endless row */
    uint64_t pitch;
};

static inline _Bool sl_strided_is_flat(const struct sluice_strided *place)
{
    return place->row_bytes == UINT64_MAX || place->row_bytes == place->pitch;
}

/* At the place's first byte; `delta` is added to every address (wraps). */
static inline struct sl_cursor sl_cursor_at(const struct sluice_strided *place, uint64_t delta)
{
    if (sl_strided_is_flat(place))
        return (struct sl_cursor){place->address + delta + place->begin, UINT64_MAX, UINT64_MAX, 0};
    /* Most pieces begin in their first row: two divisions a piece would cost as much as 1 KiB of copying. */
    uint64_t row = place->begin < place->row_bytes ? 0 : place->begin / place->row_bytes;
    uint64_t column = place->begin - row * place->row_bytes;
    return (struct sl_cursor){.address = place->address + delta + row * place->pitch + column,
                              .left = place->row_bytes - column,
                              .row_bytes = place->row_bytes,
                              .pitch = place->pitch};
}

/* On by at most what is left of the row. */
static inline void sl_cursor_advance(struct sl_cursor *cursor, uint64_t bytes)
{
    cursor->address += bytes;
    if (cursor->row_bytes == UINT64_MAX)
        return;
    cursor->left -= bytes;
    if (cursor->left == 0) {
        cursor->address += cursor->pitch - cursor->row_bytes; /* wraps for pitch < row_bytes */
        cursor->left = cursor->row_bytes;
    }
}

/* Copies one piece; `delta` is added to the address that it is read from (wraps). */
void sl_strided_copy(const struct sluice_copy *piece, uint64_t delta);

/* A digest of `bytes` stream bytes from `from->begin` on; the layout does not matter. */
uint64_t sl_strided_digest(const struct sluice_strided *from, uint64_t bytes);

#endif
