/*
 * registry.h: backends by name.
 *
 * "host" and what else is linked in are in a small static array; "cuda" is a module that is loaded when it is
 * first asked for. A table is checked before anybody sees it, so callers need not look at sizes or NULL slots.
 */
#ifndef SL_BACKEND_REGISTRY_H
#define SL_BACKEND_REGISTRY_H

#include "sluice/backend.h"

/* The host backend: worker threads and shared memory. Never NULL. */
const struct sluice_backend_ops *sl_host_backend(void);

/*
 * The table of a backend. NOT_FOUND: no backend of that name (the text lists the names). UNSUPPORTED: its module
 * cannot be loaded or its table does not fit; the text says why. Any thread.
 */
sluice_status sl_backend_find(const char *name, const struct sluice_backend_ops **ret);

/* INVALID when a table has another ABI, another size, no name or an empty slot; the text names it. */
sluice_status sl_backend_check(const struct sluice_backend_ops *ops);

#define SL_BACKENDS_MAX 8u

/* One row of `sluice info`. */
struct sl_backend_entry {
    const char *name;
    _Bool built;                        /* its code is there */
    _Bool usable;                       /* open would work on this machine */
    char reason[SLUICE_ERROR_TEXT_MAX]; /* why not; or what the device is */
    struct sluice_backend_info info;    /* zero when not built */
};

/* Fills at most SL_BACKENDS_MAX rows and returns their number. May load modules. Any thread. */
uint32_t sl_backend_list(struct sl_backend_entry *ret);

/* Where a module lies beside this library or the program that has it inside; false: left to the loader's search. */
_Bool sl_backend_module_path(const char *file, char *ret, size_t bytes);

/*
 * What a device is opened with where there is no runtime (tools, tests): rank 0 of 1 on device 0, the system's clock, an
 * abort deadline of a second, errors in the caller's sluice_last_error, a `wake` that does nothing. Any thread.
 */
struct sluice_backend_config sl_backend_config_alone(void);

/*
 * Loads one module by path; no other place is tried. The module stays loaded for the life of the process.
 * UNSUPPORTED with the loader's words. sl_backend_find uses it.
 */
sluice_status sl_backend_load(const char *path, const struct sluice_backend_ops **ret);

#endif
