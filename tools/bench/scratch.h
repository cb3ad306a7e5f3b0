/* scratch.h: the runtime directory of a bench whose ranks are killed. */
#ifndef SL_BENCH_SCRATCH_H
#define SL_BENCH_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/error.h"

/* Rank 0's token file stays where it was killed before the job began. */
static inline void scratch_remove(const char *directory)
{
    static const char folder[] = "/sluice";
    char path[600];
    for (int i = 0; i < 2; i++) {
        SL_IGNORE(snprintf(path, sizeof path, "%s%s", directory, i == 0 ? folder : ""));
        DIR *list = opendir(path);
        for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
            SL_IGNORE(unlinkat(dirfd(list), entry->d_name, 0));
        if (list != NULL)
            SL_IGNORE(closedir(list));
        SL_IGNORE(rmdir(path));
    }
}

#endif
