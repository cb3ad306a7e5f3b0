/*
 * json.h: strict JSON reading over jansson, and a small streaming writer.
 *
 * Reading: duplicate keys, trailing bytes, NaN, integers that do not fit 64 bits and nesting deeper
 * than 64 are errors with line and column. A path names what is wrong ("tasks[3].id").
 * Integers are exact up to 2^63-1; larger ones and real numbers are errors.
 */
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "sluice/base.h"

/* `what` names the input in errors. PARSE with line and column. Free with json_decref. */
sluice_status sl_json_parse(const char *text, size_t bytes, const char *what, json_t **ret);

/* Typed members of an object; PARSE naming `path` and key when missing or of another type. */
sluice_status sl_json_u64(const json_t *object, const char *key, const char *path, uint64_t *ret);
sluice_status sl_json_u64_or(const json_t *object, const char *key, const char *path, uint64_t fallback, uint64_t *ret);
sluice_status sl_json_text(const json_t *object, const char *key, const char *path, const char **ret);
sluice_status sl_json_array(const json_t *object, const char *key, const char *path, const json_t **ret);
/* Every key of `object` must be in the NULL-terminated list, else PARSE naming it. */
sluice_status sl_json_only(const json_t *object, const char *const *keys, const char *path);

/* Writer: commas, quoting and indentation are its business. Errors stick and come out of `end`. */
struct sl_json_writer {
    FILE *file;
    int depth;
    _Bool compact;
    _Bool first;
    _Bool after_key;
    _Bool failed;
};
void sl_json_begin(struct sl_json_writer *w, FILE *file, _Bool compact);
void sl_json_object(struct sl_json_writer *w);
void sl_json_object_end(struct sl_json_writer *w);
void sl_json_list(struct sl_json_writer *w);
void sl_json_list_end(struct sl_json_writer *w);
void sl_json_key(struct sl_json_writer *w, const char *key);
void sl_json_put_u64(struct sl_json_writer *w, uint64_t value);
void sl_json_put_double(struct sl_json_writer *w, double value);
void sl_json_put_text(struct sl_json_writer *w, const char *text);
void sl_json_put_bool(struct sl_json_writer *w, _Bool value);
/* IO when anything failed. */
sluice_status sl_json_end(struct sl_json_writer *w);

#endif
