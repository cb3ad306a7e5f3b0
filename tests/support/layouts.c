/*
 * layouts.c: plans from models and layouts.
 *
 * - Every plan passes the validator before a test sees it.
 */
#include "support/layouts.h"

#include <stdio.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

static void must(sluice_status status)
{
    if (status != SLUICE_OK)
        SL_IGNORE(fprintf(stderr, "%s\n", sluice_last_error()->text));
    SL_ASSERT(status == SLUICE_OK);
}

void layouts_model(const char *name, struct sl_model *ret)
{
    char path[256];
    SL_IGNORE(snprintf(path, sizeof path, "tools/models/%s.json", name));
    struct sl_map map;
    must(sl_map_open(path, &map));
    must(sl_model_read((const char *)map.data, map.bytes, name, sl_mem_default(), ret));
    sl_map_close(&map);
}

void layouts_plan(const struct sl_model *model, const char *from, const char *to,
                  const struct sl_layout_options *options, struct sl_plan *ret)
{
    static struct sl_layout sides[2];
    static const struct sl_layout_options none;
    must(sl_layout_parse(from, "--from", &sides[0]));
    must(sl_layout_parse(to, "--to", &sides[1]));
    must(sl_plan_make(model, &sides[0], &sides[1], options ? options : &none, sl_mem_default(), ret));
    must(sl_plan_validate(ret));
}

void layouts_named_plan(const char *name, const char *from, const char *to, const struct sl_layout_options *options,
                        struct sl_plan *ret)
{
    struct sl_model model;
    layouts_model(name, &model);
    layouts_plan(&model, from, to, options, ret);
    sl_model_drop(&model);
}

struct layouts_rank *layouts_ranks(const struct sl_plan *plan)
{
    struct layouts_rank *ranks = sl_new_array(sl_mem_default(), plan->world, sizeof *ranks, "ranks");
    SL_ASSERT(ranks != NULL);
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        if (task->source == task->destination) {
            ranks[task->source].locals++;
            continue;
        }
        ranks[task->source].sends++;
        ranks[task->source].send_bytes += sl_task_bytes(task);
        ranks[task->destination].recvs++;
        ranks[task->destination].recv_bytes += sl_task_bytes(task);
    }
    return ranks;
}
