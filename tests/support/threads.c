/* threads.c: see threads.h. */
#include "support/threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Bool read_thread(const char *id, struct test_thread *ret)
{
    char path[300], line[256];
    *ret = (struct test_thread){.id = (int)strtol(id, NULL, 10)};
    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", id);
    FILE *file = ret->id != 0 ? fopen(path, "re") : NULL;
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Name:\t", 6) == 0)
            (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)strcspn(line + 6, "\n"), line + 6);
        if (strncmp(line, "SigBlk:", 7) == 0)
            ret->blocked = strtoull(line + 7, NULL, 16);
    }
    (void)fclose(file);
    return 1;
}

uint32_t test_threads(struct test_thread *ret, uint32_t max)
{
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry = readdir(tasks); entry != NULL && count < max; entry = readdir(tasks))
        count += entry->d_name[0] != '.' && read_thread(entry->d_name, &ret[count]);
    (void)closedir(tasks);
    return count;
}

_Bool test_thread_blocks(const struct test_thread *thread, int signal_number)
{
    return (thread->blocked >> (signal_number - 1) & 1u) != 0;
}
