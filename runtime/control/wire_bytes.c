/*
 * wire_bytes.c: fields and byte strings. Invariants: integers are little-endian whatever the machine;
 * a reader's data never moves past its end; text that was read is printable in a log line.
 */
#include "runtime/control/wire_bytes.h"

#include <ctype.h>
#include <string.h>

#include "runtime/base/error.h"

void sl_writer_init(struct sl_writer *w, struct sl_mem *mem)
{
    *w = (struct sl_writer){.mem = mem};
}

void sl_writer_drop(struct sl_writer *w)
{
    sl_free(w->mem, w->data);
    *w = (struct sl_writer){.mem = w->mem};
}

sluice_status sl_writer_take(struct sl_writer *w, uint8_t **ret_data, size_t *ret_bytes)
{
    if (w->failed) {
        sl_writer_drop(w);
        return sl_fail(SLUICE_NOMEM, "control", "out of memory for a message");
    }
    *ret_data = w->data;
    *ret_bytes = w->bytes;
    *w = (struct sl_writer){.mem = w->mem};
    return SLUICE_OK;
}

void sl_put_bytes(struct sl_writer *w, const void *data, size_t bytes)
{
    if (w->failed || bytes == 0)
        return;
    if (sl_grow(w->mem, &w->data, &w->capacity, w->bytes + bytes, 1, "a message") != SLUICE_OK) {
        w->failed = 1;
        return;
    }
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void put_integer(struct sl_writer *w, uint64_t value, size_t bytes)
{
    uint8_t out[8];
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
    sl_put_bytes(w, out, bytes);
}

void sl_put_u8(struct sl_writer *w, uint8_t value)
{
    put_integer(w, value, 1);
}

void sl_put_u16(struct sl_writer *w, uint16_t value)
{
    put_integer(w, value, 2);
}

void sl_put_u32(struct sl_writer *w, uint32_t value)
{
    put_integer(w, value, 4);
}

void sl_put_u64(struct sl_writer *w, uint64_t value)
{
    put_integer(w, value, 8);
}

void sl_put_text(struct sl_writer *w, const char *text, size_t max)
{
    size_t bytes = strnlen(text, max < UINT16_MAX ? max : UINT16_MAX);
    sl_put_u16(w, (uint16_t)bytes);
    sl_put_bytes(w, text, bytes);
}

void sl_put_error(struct sl_writer *w, const struct sluice_error *error)
{
    sl_put_u32(w, (uint32_t)error->status);
    sl_put_u32(w, (uint32_t)error->domain);
    sl_put_u64(w, (uint64_t)error->native);
    sl_put_text(w, error->where, SLUICE_ERROR_WHERE_MAX - 1);
    sl_put_text(w, error->text, SLUICE_ERROR_TEXT_MAX - 1);
}

const uint8_t *sl_get_bytes(struct sl_reader *r, size_t bytes)
{
    if (r->failed || bytes > r->left) {
        r->failed = 1;
        return NULL;
    }
    const uint8_t *data = r->data;
    r->data += bytes;
    r->left -= bytes;
    return data;
}

static uint64_t get_integer(struct sl_reader *r, size_t bytes)
{
    const uint8_t *in = sl_get_bytes(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; in != NULL && i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

uint8_t sl_get_u8(struct sl_reader *r)
{
    return (uint8_t)get_integer(r, 1);
}

uint16_t sl_get_u16(struct sl_reader *r)
{
    return (uint16_t)get_integer(r, 2);
}

uint32_t sl_get_u32(struct sl_reader *r)
{
    return (uint32_t)get_integer(r, 4);
}

uint64_t sl_get_u64(struct sl_reader *r)
{
    return get_integer(r, 8);
}

void sl_get_text(struct sl_reader *r, char *text, size_t capacity)
{
    size_t bytes = sl_get_u16(r);
    const uint8_t *in = sl_get_bytes(r, bytes);
    text[0] = '\0';
    if (in == NULL)
        return;
    if (bytes >= capacity || memchr(in, 0, bytes) != NULL) {
        r->failed = 1;
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        text[i] = iscntrl(in[i]) ? ' ' : (char)in[i]; /* a peer cannot forge log lines */
    text[bytes] = '\0';
}

void sl_get_error(struct sl_reader *r, struct sluice_error *ret)
{
    *ret = (struct sluice_error){0};
    ret->status = (sluice_status)(int32_t)sl_get_u32(r);
    ret->domain = (int32_t)sl_get_u32(r);
    ret->native = (int64_t)sl_get_u64(r);
    sl_get_text(r, ret->where, sizeof(ret->where));
    sl_get_text(r, ret->text, sizeof(ret->text));
    if (ret->status >= SLUICE_OK)
        ret->status = SLUICE_PROTOCOL;
}
