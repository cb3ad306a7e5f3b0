/*
 * life.c: see life.h.
 *
 * A series is flat when the least of its last three samples is at most 1 % and 64 KiB above the most of the first three:
 * what is sampled moves by a few pages as it is taken while versions move. Descriptors and threads may not grow at all.
 */
#include "life.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENDS = 3, JUDGED = 2 * ENDS, CLUSTER_KB = 64 };

static uint32_t entries(pid_t pid, const char *what)
{
    char path[64];
    uint32_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    DIR *list = opendir(path);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        count += entry->d_name[0] != '.';
    if (list != NULL)
        (void)closedir(list);
    return count;
}

static struct life_sample measure(pid_t pid)
{
    struct life_sample sample = {.descriptors = entries(pid, "fd"), .threads = entries(pid, "task")};
    char path[64], line[256];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            sample.resident_kb = (uint32_t)strtoul(line + 6, NULL, 10);
        if (strncmp(line, "RssShmem:", 9) == 0)
            sample.shared_kb = (uint32_t)strtoul(line + 9, NULL, 10);
    }
    if (file != NULL)
        (void)fclose(file);
    return sample;
}

void life_sample(struct life *life, pid_t pid)
{
    if (life->count < LIFE_SAMPLES_MAX)
        life->samples[life->count++] = measure(pid);
}

uint32_t life_last(const struct life *life)
{
    return life->count > 0 ? life->samples[life->count - 1].resident_kb : 0;
}

static uint32_t most(const struct life *life, uint32_t from, size_t offset, _Bool least)
{
    uint32_t best = least ? UINT32_MAX : 0;
    for (uint32_t i = from; i < from + ENDS; i++) {
        uint32_t value;
        memcpy(&value, (const char *)&life->samples[i] + offset, sizeof value);
        best = (value < best) == least ? value : best;
    }
    return best;
}

static _Bool is_flat(const struct life *life)
{
    uint32_t last = life->count - ENDS;
    uint32_t before = most(life, 0, offsetof(struct life_sample, resident_kb), 0);
    uint32_t after = most(life, last, offsetof(struct life_sample, resident_kb), 1);
    return after <= before + before / 100 + CLUSTER_KB &&
           most(life, last, offsetof(struct life_sample, descriptors), 1) <=
               most(life, 0, offsetof(struct life_sample, descriptors), 0) &&
           most(life, last, offsetof(struct life_sample, threads), 1) <=
               most(life, 0, offsetof(struct life_sample, threads), 0);
}

_Bool life_end(struct life *life, uint32_t rank)
{
    _Bool judged = life->count >= JUDGED, flat = !judged || is_flat(life);
    if (judged) {
        printf("a life of rank %u, %u samples, %s; resident KB (shared among it), descriptors, threads:", rank,
               life->count, flat ? "flat" : "NOT flat");
        for (uint32_t i = 0; i < life->count; i++) {
            const struct life_sample *sample = &life->samples[i];
            printf(" %u(%u),%u,%u", sample->resident_kb, sample->shared_kb, sample->descriptors, sample->threads);
        }
        printf("\n");
        fflush(stdout);
    }
    life->count = 0;
    return flat;
}
