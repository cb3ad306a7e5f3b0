/* options.h: public option structs: `size` first, zero means default, later fields appended. */
#ifndef SL_CORE_OPTIONS_H
#define SL_CORE_OPTIONS_H

#include <string.h>

#include "runtime/base/error.h"

/*
 * Copies a caller's struct that may be older (shorter) or newer (longer) than ours; NULL: all defaults.
 * INVALID when `size` is not set, or when a newer caller uses a field that we do not know.
 */
static inline sluice_status sl_options_copy(void *ret, size_t bytes, const void *given, const char *what)
{
    uint32_t size = 0, own = (uint32_t)bytes;
    memset(ret, 0, bytes);
    memcpy(ret, &own, sizeof own);
    if (given == NULL)
        return SLUICE_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > 4096)
        return sl_fail(SLUICE_INVALID, "options", "%s: size is not set: begin with the INIT macro", what);
    for (size_t i = bytes; i < size; i++)
        if (((const uint8_t *)given)[i] != 0)
            return sl_fail(SLUICE_INVALID, "options", "%s: the option at byte %zu is not known to this version", what,
                           i);
    memcpy(ret, given, size < bytes ? size : bytes);
    memcpy(ret, &own, sizeof own);
    return SLUICE_OK;
}

#endif
