/*
 * Invariants: N is the smallest number that every rank accepts; where NCCL's rule is broken, first all is
 * packed, then pairs are dealt into blocks by the sufficient bound, which cannot fail after that.
 */
#include "scheduler/cuts.h"

static sluice_status build_halves(struct sl_cuts *cuts)
{
    uint32_t world = cuts->plan->world;
    cuts->halves = sl_new_array(cuts->mem, world, sizeof *cuts->halves, "halves");
    if (cuts->halves == NULL)
        return SLUICE_NOMEM;
    struct sl_plan_index index;
    sluice_status status = sl_plan_index_build(cuts->plan, cuts->mem, &index);
    if (status != SLUICE_OK)
        return status;
    for (uint32_t r = 0; status == SLUICE_OK && r < world; r++)
        status = sl_half_build_indexed(cuts->plan, &index, r, cuts->mem, &cuts->halves[r]);
    sl_plan_index_drop(&index);
    return status;
}

static const uint16_t *blocks_of(const struct sl_cuts *cuts, uint32_t rank)
{
    return cuts->block_of_stream == NULL ? NULL : cuts->block_of_stream[rank];
}

/* A proposal holds for every larger number, so the largest is right for all ranks. */
static sluice_status agree_windows(struct sl_cuts *cuts)
{
    uint32_t agreed = cuts->rule.blocks;
    for (uint32_t r = 0; r < cuts->plan->world; r++) {
        uint32_t proposal;
        sluice_status status = sl_propose_windows(&cuts->halves[r], cuts->rule.window_bytes, cuts->rule.blocks,
                                                  blocks_of(cuts, r), agreed, &proposal);
        if (status != SLUICE_OK)
            return status;
        agreed = proposal;
    }
    cuts->rule.windows = agreed;
    return SLUICE_OK;
}

void sl_window_ops(const struct sl_half *half, const struct sl_schedule *schedule, uint32_t window,
                   struct sl_nccl_op *ops)
{
    const struct sl_window *w = &schedule->windows[window];
    for (uint32_t i = 0; i < w->message_count; i++) {
        const struct sl_message *message = &schedule->messages[w->first_message + i];
        const struct sl_piece *piece = &schedule->pieces[message->first_piece];
        ops[i] = (struct sl_nccl_op){.bytes = message->bytes,
                                     .peer = message->peer,
                                     .tag = half->entries[piece->entry].task,
                                     .receive = message->receive};
    }
}

static sluice_status rank_is_safe(const struct sl_cuts *cuts, const struct sl_nccl_config *nccl, uint32_t rank,
                                  _Bool *ret_safe)
{
    struct sl_schedule schedule;
    sluice_status status = sl_cuts_schedule(cuts, rank, &schedule);
    if (status != SLUICE_OK)
        return status;
    struct sl_nccl_op *ops = sl_new_array(cuts->mem, schedule.message_count, sizeof *ops, "window operations");
    status = ops == NULL ? SLUICE_NOMEM : SLUICE_OK;
    _Bool safe = 1;
    for (uint32_t w = 0; status == SLUICE_OK && safe && w < schedule.rule.windows; w++) {
        struct sl_nccl_safety safety;
        sl_window_ops(&cuts->halves[rank], &schedule, w, ops);
        status = sl_nccl_safe(nccl, rank, ops, schedule.windows[w].message_count, cuts->mem, &safety);
        if (status == SLUICE_OK)
            safe = safety.items_ok && (safety.single_plan || sl_nccl_order_kept(nccl->version));
    }
    sl_free(cuts->mem, ops);
    sl_schedule_drop(&schedule);
    if (status == SLUICE_OK)
        *ret_safe = safe;
    return status;
}

static sluice_status all_safe(const struct sl_cuts *cuts, const struct sl_nccl_config *nccl, _Bool *ret_safe)
{
    *ret_safe = 1;
    for (uint32_t r = 0; *ret_safe && r < cuts->plan->world; r++) {
        sluice_status status = rank_is_safe(cuts, nccl, r, ret_safe);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

static sluice_status spread_blocks(struct sl_cuts *cuts, const struct sl_pair_total *pairs, size_t count,
                                   const uint16_t *block_of_pair)
{
    uint32_t world = cuts->plan->world;
    cuts->block_of_stream = sl_new_array(cuts->mem, world, sizeof *cuts->block_of_stream, "blocks");
    if (cuts->block_of_stream == NULL)
        return SLUICE_NOMEM;
    for (uint32_t r = 0; r < world; r++) {
        const struct sl_half *half = &cuts->halves[r];
        cuts->block_of_stream[r] = sl_new_array(cuts->mem, half->stream_count, sizeof(uint16_t), "blocks");
        if (cuts->block_of_stream[r] == NULL)
            return SLUICE_NOMEM;
        sl_blocks_of_half(half, pairs, block_of_pair, count, cuts->block_of_stream[r]);
    }
    return SLUICE_OK;
}

static sluice_status cut_blocks(struct sl_cuts *cuts, uint32_t items_max)
{
    struct sl_pair_total *pairs;
    size_t count;
    sluice_status status = sl_pair_totals(cuts->plan, cuts->mem, &pairs, &count);
    if (status != SLUICE_OK)
        return status;
    uint16_t *block_of_pair = sl_new_array(cuts->mem, count, sizeof *block_of_pair, "blocks");
    uint32_t blocks = 1;
    if (block_of_pair == NULL)
        status = SLUICE_NOMEM;
    if (status == SLUICE_OK)
        status = sl_deal_blocks(pairs, count, cuts->plan->world, items_max, cuts->mem, block_of_pair, &blocks);
    if (status == SLUICE_OK && blocks > 1)
        status = spread_blocks(cuts, pairs, count, block_of_pair);
    sl_free(cuts->mem, pairs);
    sl_free(cuts->mem, block_of_pair);
    cuts->rule.blocks = blocks;
    return status == SLUICE_OK ? agree_windows(cuts) : status;
}

static sluice_status decide_balanced(struct sl_cuts *cuts, const struct sl_nccl_config *nccl)
{
    sluice_status status = agree_windows(cuts);
    if (status != SLUICE_OK || nccl == NULL)
        return status;
    _Bool safe;
    status = all_safe(cuts, nccl, &safe);
    if (status == SLUICE_OK && !safe && cuts->rule.direct_min > 0) {
        cuts->rule.direct_min = 0;
        status = all_safe(cuts, nccl, &safe);
    }
    if (status != SLUICE_OK || safe)
        return status;
    return cut_blocks(cuts, sl_nccl_order_kept(nccl->version) ? SL_NCCL_ITEMS_MAX : sl_nccl_items_max(nccl));
}

uint64_t sl_direct_min(enum sluice_policy policy, uint64_t wanted)
{
    _Bool packs = policy == SLUICE_POLICY_BALANCED || policy == SLUICE_POLICY_ORDERED;
    return wanted == 0 && !packs ? 1 : wanted;
}

sluice_status sl_cuts_decide(const struct sl_plan *plan, const struct sl_cuts_options *options, struct sl_mem *mem,
                             struct sl_cuts *ret)
{
    struct sl_cuts cuts = {.mem = mem, .plan = plan};
    cuts.rule = (struct sl_rule){.policy = options->policy,
                                 .window_bytes = options->window_bytes,
                                 .direct_min = sl_direct_min(options->policy, options->direct_min),
                                 .slots = options->slots,
                                 .windows = 1,
                                 .blocks = 1};
    sluice_status status = build_halves(&cuts);
    if (status == SLUICE_OK && options->policy == SLUICE_POLICY_BALANCED)
        status = decide_balanced(&cuts, options->nccl);
    else if (status == SLUICE_OK)
        status = sl_assign_windows(plan, options->policy, options->window_bytes, mem, &cuts.window_of_task,
                                   &cuts.rule.windows);
    if (status != SLUICE_OK) {
        sl_cuts_drop(&cuts);
        return status;
    }
    *ret = cuts;
    return SLUICE_OK;
}

sluice_status sl_cuts_schedule(const struct sl_cuts *cuts, uint32_t rank, struct sl_schedule *ret)
{
    return sl_schedule_build(cuts->plan, &cuts->halves[rank], &cuts->rule, blocks_of(cuts, rank), cuts->window_of_task,
                             cuts->mem, ret);
}

void sl_cuts_drop(struct sl_cuts *cuts)
{
    if (cuts == NULL || cuts->plan == NULL)
        return;
    for (uint32_t r = 0; r < cuts->plan->world; r++) {
        if (cuts->halves != NULL)
            sl_half_drop(&cuts->halves[r]);
        if (cuts->block_of_stream != NULL)
            sl_free(cuts->mem, cuts->block_of_stream[r]);
    }
    sl_free(cuts->mem, cuts->halves);
    sl_free(cuts->mem, cuts->block_of_stream);
    sl_free(cuts->mem, cuts->window_of_task);
    *cuts = (struct sl_cuts){0};
}
