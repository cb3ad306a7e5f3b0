/*
 * Invariants: pass one plans every window of one rank after the other and keeps counts only; pass two
 * builds all ranks' operations of the windows that pass one could not accept.
 */
#include "scheduler/check.h"

struct pass {
    const struct sl_cuts *cuts;
    const struct sl_nccl_config *nccl;
    struct sl_mem *mem;
    uint8_t *suspect; /* per window: some rank has several plans */
    struct sl_check *check;
};

static void count_window(struct pass *p, uint32_t rank, uint32_t window, const struct sl_nccl_plans *plans)
{
    struct sl_check *check = p->check;
    if (plans->plan_count > check->plans[rank])
        check->plans[rank] = plans->plan_count;
    if (plans->items > check->max_group_items)
        check->max_group_items = plans->items;
    if (plans->fifo_bytes > check->max_fifo_bytes)
        check->max_fifo_bytes = plans->fifo_bytes;
    if (plans->plan_count > 1)
        p->suspect[window] = 1;
    if (plans->fifo_exceeded && (check->verdict != SL_NCCL_HOST_HANGS || window < check->window)) {
        check->verdict = SL_NCCL_HOST_HANGS;
        check->window = window;
        check->host_rank = rank;
    }
}

static sluice_status plan_rank(struct pass *p, uint32_t rank)
{
    struct sl_schedule schedule;
    sluice_status status = sl_cuts_schedule(p->cuts, rank, &schedule);
    if (status != SLUICE_OK)
        return status;
    struct sl_nccl_op *ops = sl_new_array(p->mem, schedule.message_count, sizeof *ops, "window operations");
    status = ops == NULL ? SLUICE_NOMEM : SLUICE_OK;
    for (uint32_t w = 0; status == SLUICE_OK && w < schedule.rule.windows; w++) {
        struct sl_nccl_plans plans;
        sl_window_ops(&p->cuts->halves[rank], &schedule, w, ops);
        status = sl_nccl_plan(p->nccl, rank, ops, schedule.windows[w].message_count, p->mem, &plans);
        if (status != SLUICE_OK)
            break;
        count_window(p, rank, w, &plans);
        sl_nccl_plans_drop(&plans);
    }
    sl_free(p->mem, ops);
    sl_schedule_drop(&schedule);
    return status;
}

/* All ranks' schedules at once, for the windows that have to be executed. */
struct execution {
    struct sl_schedule *schedules;
    struct sl_nccl_plans *plans;
    struct sl_nccl_op **ops;
    uint32_t world;
};

static void drop_window(const struct pass *p, struct execution *e)
{
    for (uint32_t r = 0; r < e->world; r++) {
        sl_nccl_plans_drop(&e->plans[r]);
        sl_free(p->mem, e->ops[r]);
        e->ops[r] = NULL;
    }
}

static void drop_execution(const struct pass *p, struct execution *e)
{
    if (e->schedules != NULL && e->plans != NULL && e->ops != NULL)
        drop_window(p, e);
    for (uint32_t r = 0; e->schedules != NULL && r < e->world; r++)
        sl_schedule_drop(&e->schedules[r]);
    sl_free(p->mem, e->schedules);
    sl_free(p->mem, e->plans);
    sl_free(p->mem, e->ops);
}

static sluice_status open_execution(const struct pass *p, struct execution *e)
{
    e->world = p->check->world;
    e->schedules = sl_new_array(p->mem, e->world, sizeof *e->schedules, "schedules");
    e->plans = sl_new_array(p->mem, e->world, sizeof *e->plans, "kernel plans");
    e->ops = sl_new_array(p->mem, e->world, sizeof *e->ops, "window operations");
    sluice_status status = e->schedules && e->plans && e->ops ? SLUICE_OK : SLUICE_NOMEM;
    for (uint32_t r = 0; status == SLUICE_OK && r < e->world; r++)
        status = sl_cuts_schedule(p->cuts, r, &e->schedules[r]);
    return status;
}

static sluice_status execute_window(struct pass *p, struct execution *e, uint32_t window)
{
    sluice_status status = SLUICE_OK;
    for (uint32_t r = 0; status == SLUICE_OK && r < e->world; r++) {
        uint32_t count = e->schedules[r].windows[window].message_count;
        e->ops[r] = sl_new_array(p->mem, count, sizeof *e->ops[r], "window operations");
        if (e->ops[r] == NULL)
            return SLUICE_NOMEM;
        sl_window_ops(&p->cuts->halves[r], &e->schedules[r], window, e->ops[r]);
        status = sl_nccl_plan(p->nccl, r, e->ops[r], count, p->mem, &e->plans[r]);
    }
    struct sl_nccl_result result;
    if (status == SLUICE_OK)
        status =
            sl_nccl_execute(p->nccl, e->plans, (const struct sl_nccl_op *const *)e->ops, e->world, p->mem, &result);
    if (status != SLUICE_OK)
        return status;
    if (result.verdict == SL_NCCL_HANGS) {
        p->check->verdict = SL_NCCL_HANGS;
        p->check->window = window;
        p->check->cycle = result.cycle;
        p->check->cycle_count = result.cycle_count;
    } else {
        sl_nccl_result_drop(&result);
    }
    return SLUICE_OK;
}

static sluice_status execute_suspects(struct pass *p)
{
    uint32_t last = p->check->verdict == SL_NCCL_HOST_HANGS ? p->check->window : p->check->windows;
    struct execution e = {0};
    sluice_status status = SLUICE_OK;
    for (uint32_t w = 0; status == SLUICE_OK && w < last && p->check->verdict != SL_NCCL_HANGS; w++) {
        if (!p->suspect[w])
            continue;
        if (e.schedules == NULL)
            status = open_execution(p, &e);
        if (status == SLUICE_OK)
            status = execute_window(p, &e, w);
        if (status == SLUICE_OK)
            drop_window(p, &e);
    }
    drop_execution(p, &e);
    return status;
}

sluice_status sl_check_run(const struct sl_cuts *cuts, const struct sl_nccl_config *nccl, struct sl_mem *mem,
                           struct sl_check *ret)
{
    uint32_t world = cuts->plan->world;
    if ((uint64_t)nccl->nodes * nccl->ranks_per_node != world)
        return sl_fail(SLUICE_INVALID, "check", "%u nodes of %u ranks are not the plan's world of %u", nccl->nodes,
                       nccl->ranks_per_node, world);
    struct sl_check check = {.mem = mem, .world = world, .windows = cuts->rule.windows, .blocks = cuts->rule.blocks};
    struct pass p = {.cuts = cuts, .nccl = nccl, .mem = mem, .check = &check};
    check.plans = sl_new_array(mem, world, sizeof *check.plans, "kernel plans");
    p.suspect = sl_new_array(mem, check.windows, 1, "windows");
    sluice_status status = check.plans && p.suspect ? SLUICE_OK : SLUICE_NOMEM;
    for (uint32_t r = 0; status == SLUICE_OK && r < world; r++)
        status = plan_rank(&p, r);
    if (status == SLUICE_OK)
        status = execute_suspects(&p);
    sl_free(mem, p.suspect);
    if (status != SLUICE_OK) {
        sl_check_drop(&check);
        return status;
    }
    *ret = check;
    return SLUICE_OK;
}

void sl_check_drop(struct sl_check *check)
{
    if (check == NULL || check->mem == NULL)
        return;
    sl_free(check->mem, check->plans);
    sl_free(check->mem, check->cycle);
    *check = (struct sl_check){0};
}
