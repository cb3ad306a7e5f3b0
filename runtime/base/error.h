/*
 * error.h: how internal code reports failures.
 *
 * The first function that decides which error it is fills the detail and returns the status; callers
 * pass the status on and add nothing. Synchronous failures go to the thread's last error; code that
 * fails asynchronously fills a struct sluice_error that travels with its object.
 */
#ifndef SL_BASE_ERROR_H
#define SL_BASE_ERROR_H

#include <stdarg.h>

#include "sluice/base.h"

/*
 * Sets the thread's last error and returns `status`. `where` is the component: "plan", "seal".
 * sl_fail(status, where, format, ...)
 * The same with a native code; for SYSTEM, strerror(native) is appended to the text.
 * sl_fail_native(status, domain, native, where, format, ...)
 *
 * Macros, so that compiler and analyzer see at the place of the call that a failure is not OK.
 */
#define sl_fail(status, ...)        (sl_fail_text((status), __VA_ARGS__), sl_same_status(status))
#define sl_fail_native(status, ...) (sl_fail_native_text((status), __VA_ARGS__), sl_same_status(status))
void sl_fail_text(sluice_status status, const char *where, const char *format, ...) SLUICE_PRINTF(3, 4);
void sl_fail_native_text(sluice_status status, int32_t domain, int64_t native, const char *where, const char *format,
                         ...) SLUICE_PRINTF(5, 6);
static inline sluice_status sl_same_status(sluice_status status)
{
    return status;
}
/* Copies an error that an object carried into the thread's last error; returns its status. */
sluice_status sl_fail_copy(const struct sluice_error *error);

/* Fills `error` without touching the thread's last error. Returns `status`. */
sluice_status sl_error_set(struct sluice_error *error, sluice_status status, const char *where, const char *format, ...)
    SLUICE_PRINTF(4, 5);
/* Copies the thread's last error into `error`. */
void sl_error_take(struct sluice_error *error);

/* "No such file or directory"; never NULL. Any thread, unlike strerror. */
const char *sl_errno_words(int error);

/* Invariants: always on, prints one line with file and line and aborts. */
#define SL_ASSERT(condition) ((condition) ? (void)0 : sl_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void sl_assert_failed(const char *condition, const char *file, int line);

/* A result that is ignored on purpose. */
#define SL_IGNORE(expression)                                                                                          \
    do {                                                                                                               \
        if (expression) {                                                                                              \
        }                                                                                                              \
    } while (0)

#define SL_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
