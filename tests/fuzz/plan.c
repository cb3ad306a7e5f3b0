/*
 * plan.c: no bytes make the readers of plans crash, read too far or leak; an accepted plan writes itself again.
 *
 * Checksums would stop every mutation at the door, so a binary input is also tried with right ones.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "scheduler/plan.h"

#define HEADER 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef sluice_status (*write_fn)(const struct sl_plan *plan, FILE *file);

static char *write_again(const struct sl_plan *plan, write_fn write, size_t *ret_bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, ret_bytes);
    SL_ASSERT(stream != NULL && write(plan, stream) == SLUICE_OK);
    SL_ASSERT(fclose(stream) == 0);
    return text;
}

static void check_refusal(sluice_status status)
{
    const struct sluice_error *error = sluice_last_error();
    SL_ASSERT(status == SLUICE_PARSE || status == SLUICE_PLAN);
    SL_ASSERT(error->status == status && error->text[0] != '\0' && strchr(error->text, '\n') == NULL);
}

/* A JSON plan reads back from its own text as the same records. */
static void try_json(const char *text, size_t bytes)
{
    struct sl_plan plan, back;
    sluice_status status = sl_plan_read_json(text, bytes, "input", &plan);
    if (status != SLUICE_OK) {
        check_refusal(status);
        return;
    }
    size_t again_bytes;
    char *again = write_again(&plan, sl_plan_write_json, &again_bytes);
    SL_ASSERT(sl_plan_read_json(again, again_bytes, "again", &back) == SLUICE_OK);
    SL_ASSERT(back.task_count == plan.task_count);
    for (size_t i = 0; i < plan.task_count; i++)
        SL_ASSERT(memcmp(&plan.tasks[i], &back.tasks[i], sizeof(plan.tasks[i])) == 0);
    sl_plan_drop(&back);
    sl_plan_drop(&plan);
    free(again);
}

/* A binary plan is its own text, byte for byte. */
static void try_binary(const uint8_t *data, size_t bytes)
{
    struct sl_plan plan;
    sluice_status status = sl_plan_read_binary(data, bytes, "input", &plan);
    if (status != SLUICE_OK) {
        check_refusal(status);
        return;
    }
    size_t again_bytes;
    char *again = write_again(&plan, sl_plan_write_binary, &again_bytes);
    SL_ASSERT(again_bytes == bytes && memcmp(again, data, bytes) == 0);
    sl_plan_drop(&plan);
    free(again);
}

static void set_checksums(uint8_t *data, size_t bytes)
{
    uint64_t length = bytes, hash = sl_hash64(data + HEADER, bytes - HEADER, 0);
    memcpy(data + 16, &length, 8);
    memcpy(data + 112, &hash, 8);
    hash = sl_hash64(data, 120, 0);
    memcpy(data + 120, &hash, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!sl_plan_is_binary(data, bytes)) {
        try_json((const char *)data, bytes);
        return 0;
    }
    uint8_t *aligned = malloc(bytes);
    SL_ASSERT(aligned != NULL);
    memcpy(aligned, data, bytes);
    try_binary(aligned, bytes);
    if (bytes >= HEADER) {
        set_checksums(aligned, bytes);
        try_binary(aligned, bytes);
    }
    free(aligned);
    return 0;
}
