/* file.h: mapped reading and crash-safe writing (unnamed or temporary, fsync, rename; nothing half-written stays). */
#ifndef SL_BASE_FILE_H
#define SL_BASE_FILE_H

#include <stdio.h>

#include "sluice/base.h"

struct sl_map {
    const uint8_t *data; /* NULL when bytes is 0 */
    size_t bytes;
};
/* IO naming the path. Directories and unreadable files too. */
sluice_status sl_map_open(const char *path, struct sl_map *ret);
void sl_map_close(struct sl_map *map);

struct sl_out {
    FILE *file;
    char *temporary; /* its name, when it has one that is not the target's */
    char *path;
    _Bool unnamed; /* it was made without a name */
};
sluice_status sl_out_open(const char *path, struct sl_out *ret);
/* Flushes, syncs, renames; IO (a full disk too) removes the temporary file. */
sluice_status sl_out_commit(struct sl_out *out);
/*
 * The end of what a writer gave `written` for: OK is committed; IO, which a writer knows nothing about but that it
 * happened, becomes an error with path and reason; after anything else nothing is left. Returns the status.
 */
sluice_status sl_out_end(struct sl_out *out, sluice_status written);
/* Removes the temporary file. */
void sl_out_drop(struct sl_out *out);

#endif
