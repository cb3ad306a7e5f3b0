/* model.c: no bytes make the model reader or the planner crash, read too far or leak; "LAYOUT LAYOUT {model}". */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/error.h"
#include "scheduler/layout.h"

#define RANKS_MAX  64u
#define PARAMS_MAX 2000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The word at `*at`, as a layout; false when it is none or larger than a fuzzer should plan. */
static _Bool next_layout(const char **at, const char *end, const char *what, struct sl_layout *ret)
{
    char text[256];
    const char *space = memchr(*at, ' ', (size_t)(end - *at));
    if (!space || space - *at >= (ptrdiff_t)sizeof text || memchr(*at, 0, (size_t)(space - *at)))
        return 0;
    memcpy(text, *at, (size_t)(space - *at));
    text[space - *at] = '\0';
    *at = space + 1;
    return sl_layout_parse(text, what, ret) == SLUICE_OK && ret->world + ret->offset <= RANKS_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct sl_layout from, to;
    struct sl_layout_options options = {.scale = bytes % 3};
    struct sl_model model;
    struct sl_plan plan;
    uint64_t size = 0;
    const char *at = (const char *)data;
    const char *end = at + bytes;
    if (!next_layout(&at, end, "--from", &from) || !next_layout(&at, end, "--to", &to))
        return 0;
    if (sl_model_read(at, (size_t)(end - at), "input", sl_mem_default(), &model) != SLUICE_OK)
        return 0;
    if (sl_model_params(&model, &size) <= PARAMS_MAX &&
        sl_plan_make(&model, &from, &to, &options, sl_mem_default(), &plan) == SLUICE_OK) {
        SL_ASSERT(sl_plan_validate(&plan) == SLUICE_OK);
        sl_plan_drop(&plan);
    }
    sl_model_drop(&model);
    return 0;
}
