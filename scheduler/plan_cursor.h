/*
 * plan_cursor.h: typed reading of a parsed JSON plan with errors that say where: line, column and path
 * ("plan.json: line 7, column 31: tasks[3].from.rank: want an integer"). The place is looked up in the
 * text only when there is an error.
 */
#ifndef SL_SCHEDULER_PLAN_CURSOR_H
#define SL_SCHEDULER_PLAN_CURSOR_H

#include <jansson.h>

#include "runtime/base/error.h"

#define SL_CURSOR_STEPS 4

/* One step down: a member, or an element of the member's array. */
struct sl_step {
    const char *key;
    size_t index; /* SIZE_MAX: the member itself */
};

struct sl_cursor {
    const char *text;
    size_t bytes;
    const char *what;
    struct sl_step steps[SL_CURSOR_STEPS];
    int depth;
};

void sl_cursor_down(struct sl_cursor *cursor, const char *key, size_t index);
void sl_cursor_up(struct sl_cursor *cursor);

/* PARSE at member `key` of the current object, or at the object itself where it is NULL or missing. */
sluice_status sl_cursor_fail(const struct sl_cursor *cursor, const char *key, const char *format, ...)
    SLUICE_PRINTF(3, 4);
/* The same with the text of the thread's last error; NOMEM stays NOMEM. */
sluice_status sl_cursor_fail_last(const struct sl_cursor *cursor, const char *key);

/* Typed members; a missing one is an error, except in sl_cursor_u64_or. */
sluice_status sl_cursor_u64(const struct sl_cursor *cursor, const json_t *object, const char *key, uint64_t *ret);
sluice_status sl_cursor_u64_or(const struct sl_cursor *cursor, const json_t *object, const char *key, uint64_t fallback,
                               uint64_t *ret);
sluice_status sl_cursor_u32(const struct sl_cursor *cursor, const json_t *object, const char *key, uint32_t *ret);
sluice_status sl_cursor_text(const struct sl_cursor *cursor, const json_t *object, const char *key, const char **ret);
sluice_status sl_cursor_array(const struct sl_cursor *cursor, const json_t *object, const char *key,
                              const json_t **ret);
/* The current value is an object and has no key outside the NULL-terminated list. */
sluice_status sl_cursor_only(const struct sl_cursor *cursor, const json_t *object, const char *const *keys);

#endif
