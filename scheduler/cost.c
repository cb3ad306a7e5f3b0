/*
 * Invariants: windows are walked in order, as every rank runs them; the ranks of one window that messages
 * join (a component) share the begin and the end of its group; nothing begins before what it depends on.
 */
#include "scheduler/cost.h"

#include <stdlib.h>

/* What one rank does in one window. */
struct share {
    uint32_t rank, window;
    uint32_t first_peer, peer_count; /* into peers: the ranks that it sends to */
    uint32_t messages;
    uint64_t send_bytes, recv_bytes, pack_bytes, unpack_bytes, local_bytes;
};

/* Where one rank is. Arrays are indexed by window modulo slots. */
struct rank_time {
    double group_end, local_end;
    double reached; /* all windows that must be done before the one at hand are done */
    double queue[8], done[8];
    uint32_t window[8]; /* whose `done` that is */
};

struct model {
    const struct sl_cuts *cuts;
    const struct sl_cost_options *options;
    sl_cost_span_fn span;
    void *context;
    struct sl_mem *mem;
    struct share *shares; /* sorted by window, then rank */
    size_t share_count, share_capacity;
    uint32_t *peers;
    size_t peer_count, peer_capacity;
    struct rank_time *ranks;
    double *window_end;         /* when the last rank was done with it */
    double barrier;             /* lockstep: when the last group so far ended on any rank */
    double *pack_end;           /* per rank, of the window at hand */
    uint32_t *parent;           /* union-find over ranks; the window's component */
    double *begin, *load;       /* per component root */
    uint64_t *params_of_window; /* destination parameters that are whole after a window */
    uint64_t params;
    struct sl_cost cost;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* --- gathering the shares of all ranks --- */

static sluice_status add_share(struct model *m, const struct sl_schedule *schedule, uint32_t rank, uint32_t window)
{
    const struct sl_window *w = &schedule->windows[window];
    struct share share = {.rank = rank,
                          .window = window,
                          .first_peer = (uint32_t)m->peer_count,
                          .messages = w->message_count,
                          .local_bytes = w->local_bytes};
    for (uint32_t i = 0; i < w->message_count; i++) {
        const struct sl_message *message = &schedule->messages[w->first_message + i];
        _Bool staged = message->offset != SL_NO_SLOT;
        if (message->receive) {
            share.recv_bytes += message->bytes;
            share.unpack_bytes += staged ? message->bytes : 0;
            continue;
        }
        share.send_bytes += message->bytes;
        share.pack_bytes += staged ? message->bytes : 0;
        sluice_status status =
            sl_grow(m->mem, &m->peers, &m->peer_capacity, m->peer_count + 1, sizeof *m->peers, "cost peers");
        if (status != SLUICE_OK)
            return status;
        m->peers[m->peer_count++] = message->peer;
    }
    share.peer_count = (uint32_t)m->peer_count - share.first_peer;
    sluice_status status =
        sl_grow(m->mem, &m->shares, &m->share_capacity, m->share_count + 1, sizeof *m->shares, "cost shares");
    if (status == SLUICE_OK)
        m->shares[m->share_count++] = share;
    return status;
}

static sluice_status count_params(struct model *m, const struct sl_half *half, const struct sl_schedule *schedule)
{
    const struct sl_plan *plan = m->cuts->plan;
    uint32_t *last = sl_new_array(m->mem, plan->param_count, sizeof *last, "cost parameters");
    if (last == NULL)
        return SLUICE_NOMEM;
    sl_schedule_last_windows(plan, half, schedule, last);
    for (size_t p = 0; p < plan->param_count; p++)
        if (last[p] != UINT32_MAX) {
            m->params_of_window[last[p]]++;
            m->params++;
        }
    sl_free(m->mem, last);
    return SLUICE_OK;
}

static sluice_status gather_rank(struct model *m, uint32_t rank)
{
    struct sl_schedule schedule;
    sluice_status status = sl_cuts_schedule(m->cuts, rank, &schedule);
    if (status != SLUICE_OK)
        return status;
    uint32_t groups = 0;
    for (uint32_t w = 0; status == SLUICE_OK && w < schedule.rule.windows; w++) {
        const struct sl_window *window = &schedule.windows[w];
        groups += window->message_count > 0;
        if (window->message_count > m->cost.items_max)
            m->cost.items_max = window->message_count;
        if (window->message_count > 0 || window->local_count > 0)
            status = add_share(m, &schedule, rank, w);
    }
    if (status == SLUICE_OK)
        status = count_params(m, &m->cuts->halves[rank], &schedule);
    uint64_t staging = m->cuts->rule.slots * (schedule.slot_send_bytes + schedule.slot_recv_bytes);
    uint64_t larger_side = schedule.send_bytes > schedule.recv_bytes ? schedule.send_bytes : schedule.recv_bytes;
    m->cost.staging_max = staging > m->cost.staging_max ? staging : m->cost.staging_max;
    m->cost.bound_bytes = larger_side > m->cost.bound_bytes ? larger_side : m->cost.bound_bytes;
    m->cost.groups_max = groups > m->cost.groups_max ? groups : m->cost.groups_max;
    sl_schedule_drop(&schedule);
    return status;
}

static int by_window(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->window != y->window)
        return x->window < y->window ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* --- components of a window --- */

static uint32_t root_of(uint32_t *parent, uint32_t rank)
{
    while (parent[rank] != rank) {
        parent[rank] = parent[parent[rank]];
        rank = parent[rank];
    }
    return rank;
}

static void join_window(struct model *m, const struct share *shares, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m->parent[shares[i].rank] = shares[i].rank;
        for (uint32_t p = 0; p < shares[i].peer_count; p++)
            m->parent[m->peers[shares[i].first_peer + p]] = m->peers[shares[i].first_peer + p];
    }
    for (size_t i = 0; i < count; i++)
        for (uint32_t p = 0; p < shares[i].peer_count; p++) {
            uint32_t a = root_of(m->parent, shares[i].rank);
            uint32_t b = root_of(m->parent, m->peers[shares[i].first_peer + p]);
            m->parent[a > b ? a : b] = a > b ? b : a;
        }
}

/* --- walking a window --- */

static void emit(const struct model *m, const struct share *share, uint32_t node, double begin, double end)
{
    if (m->span != NULL && end > begin)
        m->span(m->context, &(struct sl_cost_span){share->rank, share->window, node, begin, end});
}

/* A window may begin when every window up to `slots` before it is done. */
static void reach(const struct model *m, struct rank_time *rank, uint32_t window)
{
    for (uint32_t slot = 0; slot < m->cuts->rule.slots; slot++)
        if ((uint64_t)rank->window[slot] + m->cuts->rule.slots <= window)
            rank->reached = larger(rank->reached, rank->done[slot]);
}

static double pack_share(struct model *m, const struct share *share)
{
    struct rank_time *rank = &m->ranks[share->rank];
    uint32_t slot = share->window % m->cuts->rule.slots;
    reach(m, rank, share->window);
    double begin = larger(rank->queue[slot], rank->reached);
    double end = begin + (double)share->pack_bytes / m->options->pack_rate;
    emit(m, share, SL_COST_PACK, begin, end);
    m->cost.pack_seconds += end - begin;
    return end;
}

static double copy_local(struct model *m, const struct share *share)
{
    struct rank_time *rank = &m->ranks[share->rank];
    double begin = larger(rank->local_end, rank->reached);
    double end = begin + (double)share->local_bytes / m->options->pack_rate;
    if (share->local_bytes == 0)
        return begin;
    emit(m, share, SL_COST_LOCAL, begin, end);
    m->cost.local_seconds += end - begin;
    rank->local_end = end;
    return end;
}

static void finish_share(struct model *m, const struct share *share)
{
    struct rank_time *rank = &m->ranks[share->rank];
    uint32_t slot = share->window % m->cuts->rule.slots;
    double end = m->pack_end[share->rank];
    if (share->messages > 0) {
        uint32_t root = root_of(m->parent, share->rank);
        double ready = larger(end, rank->group_end);
        double begin = m->begin[root];
        end = begin + m->options->group_overhead + m->load[root] / m->options->link;
        emit(m, share, SL_COST_WAIT, ready, begin);
        emit(m, share, SL_COST_GROUP, begin, end);
        m->cost.wait_seconds += begin - ready;
        m->cost.group_seconds += end - begin;
        rank->group_end = end;
        m->barrier = larger(m->barrier, end);
    }
    double unpacked = end + (double)share->unpack_bytes / m->options->pack_rate;
    emit(m, share, SL_COST_UNPACK, end, unpacked);
    m->cost.unpack_seconds += unpacked - end;
    double copied = copy_local(m, share);
    rank->queue[slot] = unpacked;
    rank->done[slot] = larger(unpacked, copied);
    rank->window[slot] = share->window;
    m->window_end[share->window] = larger(m->window_end[share->window], rank->done[slot]);
    m->cost.makespan = larger(m->cost.makespan, rank->done[slot]);
}

static void walk_window(struct model *m, const struct share *shares, size_t count)
{
    join_window(m, shares, count);
    for (size_t i = 0; i < count; i++) {
        m->begin[shares[i].rank] = m->options->lockstep ? m->barrier : 0;
        m->load[shares[i].rank] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        double packed = pack_share(m, &shares[i]);
        m->pack_end[shares[i].rank] = packed;
        if (shares[i].messages == 0)
            continue;
        uint32_t root = root_of(m->parent, shares[i].rank);
        uint64_t bytes = shares[i].send_bytes > shares[i].recv_bytes ? shares[i].send_bytes : shares[i].recv_bytes;
        m->begin[root] = larger(m->begin[root], larger(packed, m->ranks[shares[i].rank].group_end));
        m->load[root] = larger(m->load[root], (double)bytes);
    }
    for (size_t i = 0; i < count; i++)
        finish_share(m, &shares[i]);
}

static void mark_params(struct model *m)
{
    uint64_t whole = 0;
    uint32_t mark = 0;
    double time = 0;
    for (uint32_t w = 0; w < m->cuts->rule.windows; w++) {
        whole += m->params_of_window[w];
        time = larger(time, m->window_end[w]);
        while (mark < SL_COST_MARKS && m->params > 0 && whole * SL_COST_MARKS >= m->params * (mark + 1))
            m->cost.param_marks[mark++] = time;
    }
}

static sluice_status prepare(struct model *m)
{
    uint32_t world = m->cuts->plan->world;
    m->ranks = sl_new_array(m->mem, world, sizeof *m->ranks, "cost ranks");
    m->pack_end = sl_new_array(m->mem, world, sizeof *m->pack_end, "cost ranks");
    m->parent = sl_new_array(m->mem, world, sizeof *m->parent, "cost ranks");
    m->begin = sl_new_array(m->mem, world, sizeof *m->begin, "cost ranks");
    m->load = sl_new_array(m->mem, world, sizeof *m->load, "cost ranks");
    m->window_end = sl_new_array(m->mem, m->cuts->rule.windows, sizeof *m->window_end, "cost windows");
    m->params_of_window = sl_new_array(m->mem, m->cuts->rule.windows, sizeof *m->params_of_window, "cost windows");
    if (!m->ranks || !m->pack_end || !m->parent || !m->begin || !m->load || !m->window_end || !m->params_of_window)
        return SLUICE_NOMEM;
    for (uint32_t r = 0; r < world; r++) {
        sluice_status status = gather_rank(m, r);
        if (status != SLUICE_OK)
            return status;
    }
    if (m->share_count > 0)
        qsort(m->shares, m->share_count, sizeof *m->shares, by_window);
    return SLUICE_OK;
}

static void drop_model(struct model *m)
{
    void *const blocks[] = {m->shares, m->peers, m->ranks,      m->pack_end,        m->parent,
                            m->begin,  m->load,  m->window_end, m->params_of_window};
    for (size_t i = 0; i < SL_COUNT(blocks); i++)
        sl_free(m->mem, blocks[i]);
}

sluice_status sl_cost_run(const struct sl_cuts *cuts, const struct sl_cost_options *options, sl_cost_span_fn span,
                          void *context, struct sl_cost *ret)
{
    SL_ASSERT(options->link > 0 && options->pack_rate > 0 && cuts->rule.slots <= 8);
    struct model m = {.cuts = cuts, .options = options, .span = span, .context = context, .mem = cuts->mem};
    m.cost.windows = cuts->rule.windows;
    m.cost.blocks = cuts->rule.blocks;
    sluice_status status = prepare(&m);
    if (status == SLUICE_OK) {
        size_t begin = 0;
        while (begin < m.share_count) {
            size_t end = begin;
            while (end < m.share_count && m.shares[end].window == m.shares[begin].window)
                end++;
            walk_window(&m, &m.shares[begin], end - begin);
            begin = end;
        }
        mark_params(&m);
        for (size_t t = 0; t < cuts->plan->task_count; t++)
            m.cost.bytes += sl_task_bytes(&cuts->plan->tasks[t]);
        m.cost.bound = (double)m.cost.bound_bytes / options->link;
        *ret = m.cost;
    }
    drop_model(&m);
    return status;
}
