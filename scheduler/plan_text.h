/*
 * plan_text.h: strict JSON as a stream, for plans of a million tasks: nothing is built, nothing is
 * allocated, every key is known in advance. Errors say line, column and member:
 * "plan.json: line 7, column 31: tasks[3].from.rank: want an integer".
 */
#ifndef SL_SCHEDULER_PLAN_TEXT_H
#define SL_SCHEDULER_PLAN_TEXT_H

#include "runtime/base/error.h"

#define SL_TEXT_DEPTH 4

struct sl_text {
    const char *begin, *at, *end;
    const char *what; /* names the input in errors */
    /* Where we are: the current key of every open object, and the element where its value is a list. */
    struct sl_text_step {
        const char *key;
        size_t index; /* SIZE_MAX: no list */
    } steps[SL_TEXT_DEPTH];
    int depth;
};

/* Progress through one object: `seen` has a bit per key of the list. */
struct sl_members {
    const char *const *keys; /* NULL-terminated, at most 32 */
    const char *place;       /* of the object */
    uint32_t seen;
};

void sl_text_begin(struct sl_text *text, const char *data, size_t bytes, const char *what);
/* Nothing but blanks is left. */
sluice_status sl_text_end(struct sl_text *text);

/* PARSE at `place`, with the current path. */
sluice_status sl_text_fail(const struct sl_text *text, const char *place, const char *format, ...) SLUICE_PRINTF(3, 4);
/* The same with the text of the thread's last error; NOMEM stays NOMEM. */
sluice_status sl_text_fail_last(const struct sl_text *text, const char *place);

/*
 * An object: begin, then next until it gives -1, reading the value of each key in between. Unknown and
 * repeated keys are errors; `needed` is the mask of keys that must have been there at the end.
 */
sluice_status sl_text_object(struct sl_text *text, const char *const *keys, struct sl_members *ret);
sluice_status sl_text_next(struct sl_text *text, struct sl_members *members, uint32_t needed, int *ret_key);
/* A list: begin, then element until it gives 0. */
sluice_status sl_text_list(struct sl_text *text);
sluice_status sl_text_element(struct sl_text *text, _Bool *ret_more);

/* Values. Integers are digits only: no sign, fraction, exponent or leading zero. */
sluice_status sl_text_u64(struct sl_text *text, uint64_t *ret);
sluice_status sl_text_u32(struct sl_text *text, uint32_t *ret);
/* Decoded and terminated; longer than the buffer, or with a zero character, is an error. */
sluice_status sl_text_string(struct sl_text *text, char *ret, size_t capacity);
/* The index of a string in a NULL-terminated list; an error names what it is not. */
sluice_status sl_text_choice(struct sl_text *text, const char *const *choices, const char *kind, int *ret);

#endif
