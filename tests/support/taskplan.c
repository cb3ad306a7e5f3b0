#include "support/taskplan.h"

#include <stdlib.h>

void taskplan_open(struct sl_plan *plan, uint32_t world, uint32_t params)
{
    *plan = (struct sl_plan){.mem = sl_mem_default(), .world = world, .validated = 1, .param_count = params};
    plan->params = sl_new_array(plan->mem, params, sizeof(*plan->params), "parameters");
    SL_ASSERT(plan->params != NULL);
    for (uint32_t i = 0; i < params; i++) {
        plan->params[i] = (struct sl_param){.id = i, .dtype = SLUICE_DTYPE_BF16};
    }
}

static void add(struct sl_plan *plan, struct sluice_task task)
{
    if (plan->task_count > 0) {
        const struct sluice_task *last = &plan->own_tasks[plan->task_count - 1];
        SL_ASSERT(last->id <= task.id);
        task.part = last->id == task.id ? (uint16_t)(last->part + 1) : 0;
    }
    SL_ASSERT(task.source < plan->world && task.destination < plan->world && task.param < plan->param_count);
    SL_ASSERT(sl_grow(plan->mem, &plan->own_tasks, &plan->task_capacity, plan->task_count + 1, sizeof(*plan->own_tasks),
                      "tasks") == SLUICE_OK);
    plan->own_tasks[plan->task_count++] = task;
    plan->tasks = plan->own_tasks;
}

void taskplan_add(struct sl_plan *plan, uint64_t id, uint32_t param, uint32_t source, uint32_t destination,
                  uint64_t bytes)
{
    taskplan_add_rows(plan, id, param, source, destination, bytes, 1, 0, 0);
}

void taskplan_add_rows(struct sl_plan *plan, uint64_t id, uint32_t param, uint32_t source, uint32_t destination,
                       uint64_t row_bytes, uint64_t rows, _Bool strided_source, _Bool strided_destination)
{
    struct sluice_region from = {0, row_bytes, rows, row_bytes + (strided_source ? 8 : 0)};
    struct sluice_region to = {0, row_bytes, rows, row_bytes + (strided_destination ? 24 : 0)};
    add(plan, (struct sluice_task){
                  .id = id,
                  .source = source,
                  .destination = destination,
                  .param = param,
                  .source_dtype = SLUICE_DTYPE_BF16,
                  .destination_dtype = SLUICE_DTYPE_BF16,
                  .from = from,
                  .to = to,
                  .origin = SLUICE_ORIGIN_NONE,
              });
}

static uint64_t random_bytes(struct sl_random *random)
{
    switch (taskplan_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return taskplan_below(random, 33);
    case 3:
    case 4:
    case 5:
        return taskplan_below(random, 3000);
    case 6:
        return 16 * taskplan_below(random, 3000);
    default:
        return taskplan_below(random, 200000);
    }
}

void taskplan_random(struct sl_plan *plan, struct sl_random *random)
{
    uint32_t world = 1 + taskplan_below(random, 6);
    uint32_t params = 1 + taskplan_below(random, 40);
    uint32_t tasks = taskplan_below(random, 4) == 0 ? taskplan_below(random, 4) : taskplan_below(random, 200);
    uint32_t skew = 1 + taskplan_below(random, 4); /* 1: even pairs; more: low ranks have most */
    uint64_t id = taskplan_below(random, 100);
    taskplan_open(plan, world, params);
    for (uint32_t i = 0; i < tasks; i++) {
        uint32_t source = taskplan_below(random, 1 + (i % skew == 0 ? world - 1 : world / 2));
        uint32_t destination = taskplan_below(random, world);
        uint32_t param = taskplan_below(random, params);
        uint64_t rows = taskplan_below(random, 3) == 0 ? 1 + taskplan_below(random, 9) : 1;
        taskplan_add_rows(plan, id, param, source, destination, random_bytes(random) / rows, rows,
                          taskplan_below(random, 2) == 0, taskplan_below(random, 2) == 0);
        id += taskplan_below(random, 10) == 0 ? taskplan_below(random, 50) : taskplan_below(random, 2);
    }
}

void taskplan_half(const struct sl_plan *whole, uint32_t rank, struct sl_plan *ret)
{
    taskplan_open(ret, whole->world, (uint32_t)whole->param_count);
    ret->partial = 1;
    for (size_t i = 0; i < whole->task_count; i++) {
        struct sluice_task task = whole->tasks[i];
        if (task.source != rank && task.destination != rank) {
            continue;
        }
        if (task.source != rank) {
            task.source_dtype = SLUICE_DTYPE_NONE;
            task.from = (struct sluice_region){0};
        }
        if (task.destination != rank) {
            task.destination_dtype = SLUICE_DTYPE_NONE;
            task.to = (struct sluice_region){0};
        }
        uint16_t part = task.part;
        add(ret, task);
        ret->own_tasks[ret->task_count - 1].part = part;
    }
}

void taskplan_drop(struct sl_plan *plan)
{
    sl_free(plan->mem, plan->params);
    sl_free(plan->mem, plan->own_tasks);
    *plan = (struct sl_plan){0};
}
