/*
 * transfer.c: one group operation.
 *
 * - Group operations of a communicator run one at a time, in the order in which they were submitted, on whatever
 *   queues: ticket by ticket. Whoever has the turn owns the links' state.
 * - Every pass gives each pair and direction one step. The worker sleeps only when a whole pass moved nothing, and looks
 *   at the bell before the pass, so nothing that a peer does in between is missed.
 * - A lost or failed peer ends the operation only after a pass that began after this was known and moved nothing: what
 *   the peer left in shared memory before it went still counts.
 * - A failure is final for the communicator: where the two ends stand in their lanes is no longer known.
 */
#include "runtime/backend/host/host.h"

static bool given_up(const struct sluice_queue *queue, const struct sluice_group *group)
{
    return atomic_load(&group->aborted) || atomic_load(&queue->stop);
}

static sluice_status aborted(const struct sluice_group *group)
{
    return sl_fail(SLUICE_ABORTED, SL_HOST_WHERE, "rank %u: the communicator was aborted", group->rank);
}

/* Only an aborted communicator lets go of the order: then nobody moves anything any more. */
static sluice_status wait_turn(const struct sluice_queue *queue, struct sluice_group *group, uint64_t ticket)
{
    struct sl_bell *bell = &queue->device->bell;
    for (;;) {
        uint32_t seen = sl_bell_look(bell);
        if (given_up(queue, group))
            return aborted(group);
        if (atomic_load(&group->serving) == ticket)
            return SLUICE_OK;
        sl_bell_wait(bell, seen, SL_HOST_SLICE);
    }
}

static void pass_turn(struct sluice_group *group, uint64_t ticket)
{
    atomic_store(&group->serving, ticket + 1);
    sl_bell_ring(&group->device->bell);
}

static void append(struct sluice_group *group, struct sl_host_step *step, uint32_t index)
{
    struct sl_host_link *link = group->links[step->messages[index].peer];
    if (link->sending.move == SL_HOST_END && link->receiving.move == SL_HOST_END)
        group->active[group->active_count++] = link;
    struct sl_host_side *side = step->messages[index].receive ? &link->receiving : &link->sending;
    step->queue->next[index] = SL_HOST_END;
    if (side->move == SL_HOST_END)
        side->move = side->post = index;
    else
        step->queue->next[side->last] = index;
    side->last = index;
}

static sluice_status step_link(struct sl_host_link *link, struct sl_host_step *step)
{
    sluice_status status = SLUICE_OK;
    if (link->sending.move != SL_HOST_END)
        status = sl_host_step_send(link, step);
    if (status == SLUICE_OK && link->receiving.move != SL_HOST_END)
        status = sl_host_step_receive(link, step);
    if (link->dirty) {
        link->dirty = false;
        sl_bell_ring(&sl_host_page(&link->page)->bell);
    }
    return status;
}

/* One pass over all pairs; finished ones leave the list. */
static sluice_status step_all(struct sluice_group *group, struct sl_host_step *step)
{
    for (uint32_t i = group->active_count; i-- > 0;) {
        struct sl_host_link *link = group->active[i];
        sluice_status status = step_link(link, step);
        if (status != SLUICE_OK)
            return status;
        if (link->sending.move == SL_HOST_END && link->receiving.move == SL_HOST_END)
            group->active[i] = group->active[--group->active_count];
    }
    return SLUICE_OK;
}

static sluice_status peer_gone(struct sl_host_link *link)
{
    sluice_status why = (sluice_status) - (int32_t)atomic_load(&sl_host_page(&link->page)->down);
    if (why == SLUICE_OK) /* one that failed first and went then is no loss */
        return sl_fail(SLUICE_PEER_LOST, SL_HOST_WHERE, "rank %u is gone: rank %u waited for it in a group", link->peer,
                       link->group->rank);
    return sl_fail(SLUICE_PEER_FAILED, SL_HOST_WHERE, "rank %u left a group with rank %u: %s", link->peer,
                   link->group->rank, sluice_status_words(why));
}

/* After a pass that moved nothing. `*ret_news`: a peer's end was found just now, so one more pass is due. */
static sluice_status check_peers(struct sluice_group *group, bool look_at_sockets, bool *ret_news)
{
    *ret_news = false;
    for (uint32_t i = 0; i < group->active_count; i++) {
        struct sl_host_link *link = group->active[i];
        if (link->doomed)
            return peer_gone(link);
        bool down = atomic_load(&sl_host_page(&link->page)->down) != 0;
        bool lost = look_at_sockets ? sl_host_link_lost(link) : atomic_load(&link->lost);
        link->doomed = down || lost;
        *ret_news = *ret_news || link->doomed;
    }
    return SLUICE_OK;
}

static sluice_status pump(struct sluice_group *group, struct sl_host_step *step)
{
    struct sl_bell *bell = &sl_host_page(&group->page)->bell;
    uint64_t looked = 0;
    while (group->active_count > 0) {
        uint32_t seen = sl_bell_look(bell);
        if (given_up(step->queue, group))
            return aborted(group);
        step->moved = false;
        sluice_status status = step_all(group, step);
        if (status != SLUICE_OK)
            return status;
        if (step->moved)
            continue;
        uint64_t now = sl_host_now(group->device);
        bool look = now - looked >= SL_HOST_SLICE;
        if (look)
            looked = now;
        bool news = false;
        status = check_peers(group, look, &news);
        if (status != SLUICE_OK)
            return status;
        if (!news)
            sl_bell_wait(bell, seen, SL_HOST_SLICE);
    }
    return SLUICE_OK;
}

static sluice_status exchange(struct sluice_group *group, struct sl_host_step *step, uint32_t count)
{
    if (group->failure.status != SLUICE_OK)
        return sl_fail(SLUICE_ABORTED, SL_HOST_WHERE, "the communicator of rank %u failed before: %s", group->rank,
                       group->failure.text);
    group->active_count = 0;
    for (uint32_t i = 0; i < count; i++)
        append(group, step, i);
    return pump(group, step);
}

/* Tells everybody who may wait for us. */
static void fail_group(struct sluice_group *group)
{
    if (group->failure.status == SLUICE_OK)
        sl_error_take(&group->failure);
    struct sl_host_page *page = sl_host_page(&group->page);
    uint32_t running = 0;
    atomic_compare_exchange_strong(&page->down, &running, (uint32_t)-group->failure.status);
    for (uint32_t rank = 0; rank < group->world; rank++)
        if (group->links[rank] != NULL)
            sl_bell_ring(&sl_host_page(&group->links[rank]->page)->bell);
}

sluice_status sl_host_group_run(struct sluice_queue *queue, struct sl_host_op *slot)
{
    struct sluice_group *group = slot->op.group;
    struct sl_host_step step = {.queue = queue, .messages = slot->op.messages};
    sl_host_landings_release(queue);
    sl_host_leases_prune(queue);
    sluice_status status = wait_turn(queue, group, slot->ticket);
    if (status == SLUICE_OK) {
        if (queue->device->config.trace)
            slot->completion.begin_ns = sl_host_now(queue->device);
        for (uint32_t i = 0; i < slot->op.message_count; i++)
            queue->landings[i] = (struct sl_host_landing){0};
        queue->landing_count = slot->op.message_count;
        status = exchange(group, &step, slot->op.message_count);
        if (status != SLUICE_OK) {
            fail_group(group);
            sl_host_landings_release(queue);
        }
        pass_turn(group, slot->ticket);
    }
    queue->landing_status = status;
    return status;
}
