/* wrap.h: system calls that fail when their time has come; the linker puts __wrap_X in the place of X. */
#ifndef TEST_SUPPORT_WRAP_H
#define TEST_SUPPORT_WRAP_H

#include <errno.h>

/* RETURN_TYPE CALL(PARAMETERS) as __wrap_CALL, which fails with CODE when the including file's strikes() says so. */
#define WRAP(type, call, code, parameters, arguments)                                                                  \
    type __real_##call parameters;                                                                                     \
    type __wrap_##call parameters;                                                                                     \
    type __wrap_##call parameters                                                                                      \
    {                                                                                                                  \
        if (strikes()) {                                                                                               \
            errno = (code);                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        return __real_##call arguments;                                                                                \
    }

#endif
