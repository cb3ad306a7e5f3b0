/*
 * Fills, poisons and verifies the regions of a task.
 *
 * Invariants: byte i of a task lies at `origin` + row * row_bytes of the parameter + column, where rows are
 * those of the source region; a task without an origin counts in the coordinates of its source buffer.
 * Both ends compute the same values from the task alone. Content is made in aligned words, a block at a
 * time, so that compilers vectorise it and odd offsets cost a copy only.
 */
#include "run_content.h"

#include <string.h>

#include "runtime/base/hash.h"

enum { BLOCK_BYTES = 4096, BLOCK_WORDS = BLOCK_BYTES / 8 };

/* A run of bytes that is contiguous in the parameter and in both buffers. */
struct run {
    uint64_t at;   /* in the whole parameter, or in the source buffer */
    uint64_t from; /* in the source buffer */
    uint64_t to;   /* in the destination buffer */
    uint64_t bytes;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static struct run run_of(const struct run_content *content, const struct sluice_task *task, uint64_t byte)
{
    uint64_t row = byte / task->from.row_bytes, column = byte % task->from.row_bytes;
    uint64_t to_row = byte / task->to.row_bytes, to_column = byte % task->to.row_bytes;
    struct run run = {
        .from = task->from.offset + row * task->from.pitch + column,
        .to = task->to.offset + to_row * task->to.pitch + to_column,
        .bytes = least(task->from.row_bytes - column, task->to.row_bytes - to_column),
    };
    uint64_t pitch = content->plan->params[task->param].row_bytes;
    pitch = pitch != 0 ? pitch : task->from.row_bytes;
    run.at = task->origin == SLUICE_ORIGIN_NONE ? run.from : task->origin + row * pitch + column;
    return run;
}

/* What makes the words of one parameter and version; without an origin the source rank is part of it. */
static uint64_t seed_of(const struct run_content *content, const struct sluice_task *task, uint64_t version)
{
    if (content->tensors != NULL)
        return version <= 1 ? 0 : sl_mix64(version);
    uint64_t rank = task->origin == SLUICE_ORIGIN_NONE ? task->source + UINT64_C(1) : 0;
    return sl_mix64(sl_mix64(sl_mix64(version) + task->param) + rank);
}

/* Up to a block of content that begins at `at`; returns how many bytes, and where they begin in `block`. */
static uint64_t make(const struct run_content *content, const struct sluice_task *task, uint64_t seed, uint64_t at,
                     uint64_t bytes, uint64_t *block, const uint8_t **ret)
{
    uint64_t head = at % 8, first = at / 8;
    uint64_t take = least(bytes, BLOCK_BYTES - head);
    *ret = (const uint8_t *)block + head;
    if (content->tensors == NULL) {
        uint64_t words = (head + take + 7) / 8;
        for (uint64_t i = 0; i < words; i++)
            block[i] = sl_mix64(seed + first + i);
        return take;
    }
    memcpy((uint8_t *)block + head, content->tensors[task->param] + at, take);
    for (uint64_t i = 0; seed != 0 && i < BLOCK_WORDS; i++)
        block[i] ^= seed;
    return take;
}

void run_content_fill(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                      uint8_t *buffer)
{
    uint64_t block[BLOCK_WORDS] = {0}, total = sl_task_bytes(task), seed = seed_of(content, task, version);
    const uint8_t *bytes;
    for (uint64_t done = 0; done < total;) {
        struct run run = run_of(content, task, done);
        for (uint64_t i = 0, took; i < run.bytes; i += took) {
            took = make(content, task, seed, run.at + i, run.bytes - i, block, &bytes);
            memcpy(buffer + run.from + i, bytes, took);
        }
        done += run.bytes;
    }
}

void run_content_poison(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                        uint8_t *buffer)
{
    uint64_t block[BLOCK_WORDS] = {0}, total = sl_task_bytes(task), seed = seed_of(content, task, version);
    const uint8_t *bytes;
    for (uint64_t done = 0; done < total;) {
        struct run run = run_of(content, task, done);
        for (uint64_t i = 0, took; i < run.bytes; i += took) {
            took = make(content, task, seed, run.at + i, run.bytes - i, block, &bytes);
            uint8_t *to = buffer + run.to + i;
            for (uint64_t j = 0; j < took; j++)
                to[j] = (uint8_t)~bytes[j];
        }
        done += run.bytes;
    }
}

static void find_difference(const uint8_t *have, const uint8_t *want, uint64_t offset, struct run_difference *ret)
{
    uint64_t i = 0;
    while (have[i] == want[i])
        i++;
    *ret = (struct run_difference){.offset = offset + i, .have = have[i], .want = want[i]};
}

_Bool run_content_verify(const struct run_content *content, const struct sluice_task *task, uint64_t version,
                         const uint8_t *buffer, struct run_difference *ret)
{
    uint64_t block[BLOCK_WORDS] = {0}, total = sl_task_bytes(task), seed = seed_of(content, task, version);
    const uint8_t *bytes;
    for (uint64_t done = 0; done < total;) {
        struct run run = run_of(content, task, done);
        for (uint64_t i = 0, took; i < run.bytes; i += took) {
            took = make(content, task, seed, run.at + i, run.bytes - i, block, &bytes);
            const uint8_t *have = buffer + run.to + i;
            if (memcmp(have, bytes, took) == 0)
                continue;
            find_difference(have, bytes, run.to + i, ret);
            return 0;
        }
        done += run.bytes;
    }
    return 1;
}
