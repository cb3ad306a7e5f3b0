/*
 * parse.h: strict text to number. The whole string must match: no blanks, no '+', no sign on unsigned
 * values, decimal only. Out of range is an error, never a default.
 */
#ifndef SL_BASE_PARSE_H
#define SL_BASE_PARSE_H

#include "sluice/base.h"

/* Each returns false (and touches nothing) on bad text. */
_Bool sl_parse_u64(const char *text, uint64_t *ret);
_Bool sl_parse_u32(const char *text, uint32_t *ret);
_Bool sl_parse_double(const char *text, double *ret); /* finite, decimal */
/* "64", "64k", "64Ki", "1.5G" is refused: integers with k M G T (powers of ten) or Ki Mi Gi Ti. */
_Bool sl_parse_size(const char *text, uint64_t *ret);
/* "30s", "250ms", "100us", "5ns", "2m"; a bare number is refused. Nanoseconds. "none" is UINT64_MAX. */
_Bool sl_parse_duration(const char *text, uint64_t *ret);
/* "0", "1", "true", "false", "on", "off". */
_Bool sl_parse_bool(const char *text, _Bool *ret);
/* "256.0 MB" style, powers of ten, into a caller's buffer; returns it. */
const char *sl_format_bytes(uint64_t bytes, char *text, size_t capacity);
const char *sl_format_duration(uint64_t ns, char *text, size_t capacity);

#endif
