/* options.h: public option structs: `size` first, zero means default, later fields appended. */
#ifndef SL_CORE_OPTIONS_H
#define SL_CORE_OPTIONS_H

#include <string.h>

#include "runtime/base/error.h"

/*
 * Copies a caller's struct that may be older (shorter) or newer (longer) than ours. INVALID when `size`
 * is not set, or when a newer caller uses a field that we do not know.
 */
static inline sluice_status sl_options_copy(void *ret, size_t bytes, const void *given, const char *what)
{
    uint32_t size = 0;
    if (given == NULL)
        return sl_fail(SLUICE_INVALID, "options", "%s: no options given", what);
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > 4096)
        return sl_fail(SLUICE_INVALID, "options", "%s: size is not set: begin with the INIT macro", what);
    for (size_t i = bytes; i < size; i++)
        if (((const uint8_t *)given)[i] != 0)
            return sl_fail(SLUICE_INVALID, "options", "%s: the option at byte %zu is not known to this version", what,
                           i);
    memset(ret, 0, bytes);
    memcpy(ret, given, size < bytes ? size : bytes);
    return SLUICE_OK;
}

#endif
