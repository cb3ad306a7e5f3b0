/*
 * wire_bytes.h: little-endian fields into and out of byte strings. Used by everything that the control
 * plane puts on the wire. A writer grows; a reader never reads past its end. Both remember a failure,
 * so that callers check once, at the end.
 */
#ifndef SL_CONTROL_WIRE_BYTES_H
#define SL_CONTROL_WIRE_BYTES_H

#include "runtime/base/memory.h"

struct sl_writer {
    struct sl_mem *mem;
    uint8_t *data;
    size_t bytes, capacity;
    _Bool failed; /* out of memory */
};

void sl_writer_init(struct sl_writer *w, struct sl_mem *mem);
void sl_writer_drop(struct sl_writer *w);
/* Hands the bytes over; free them with sl_free. NOMEM when any put failed. */
sluice_status sl_writer_take(struct sl_writer *w, uint8_t **ret_data, size_t *ret_bytes);
void sl_put_u8(struct sl_writer *w, uint8_t value);
void sl_put_u16(struct sl_writer *w, uint16_t value);
void sl_put_u32(struct sl_writer *w, uint32_t value);
void sl_put_u64(struct sl_writer *w, uint64_t value);
void sl_put_bytes(struct sl_writer *w, const void *data, size_t bytes);
/* A u16 length and the text without its terminator; longer than `max` is cut. */
void sl_put_text(struct sl_writer *w, const char *text, size_t max);
void sl_put_error(struct sl_writer *w, const struct sluice_error *error);

struct sl_reader {
    const uint8_t *data;
    size_t left;
    _Bool failed; /* something was missing */
};

static inline struct sl_reader sl_reader_of(const void *data, size_t bytes)
{
    return (struct sl_reader){.data = data, .left = bytes, .failed = 0};
}
/* Zero after a failure. */
uint8_t sl_get_u8(struct sl_reader *r);
uint16_t sl_get_u16(struct sl_reader *r);
uint32_t sl_get_u32(struct sl_reader *r);
uint64_t sl_get_u64(struct sl_reader *r);
/* Borrowed; NULL after a failure. */
const uint8_t *sl_get_bytes(struct sl_reader *r, size_t bytes);
/* Copies into `text` of `capacity`, terminator included; too long, or a NUL inside, is a failure. */
void sl_get_text(struct sl_reader *r, char *text, size_t capacity);
/* Never gives status OK: a peer's error that claims success becomes PROTOCOL. */
void sl_get_error(struct sl_reader *r, struct sluice_error *ret);
/* All was there and nothing is left over. */
static inline _Bool sl_reader_done(const struct sl_reader *r)
{
    return !r->failed && r->left == 0;
}

#endif
