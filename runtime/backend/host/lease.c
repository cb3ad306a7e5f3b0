/*
 * lease.c: packed data is copied twice in all, because an unpack set reads it where the sender packed it.
 *
 * - A landing says that a received message lies in the sender's memory. It is released when the unpack set behind the
 *   group has run, or, when there was none, before the queue's next group or pack set, or when the queue or the
 *   communicator closes.
 * - A lease is the sender's side of it: the next pack set of the queue waits until all are released, because slots
 *   belong to queues. A peer that closed or whose socket is at its end reads nothing any more. A peer that merely
 *   failed still may.
 * - Landings and leases hold their communicator, so the links in them stay valid after it was closed.
 */
#include <poll.h>

#include "runtime/backend/host/host.h"

bool sl_host_link_lost(struct sl_host_link *link)
{
    if (atomic_load(&link->lost))
        return true;
    struct pollfd one = {.fd = link->fd, .events = POLLRDHUP};
    if (poll(&one, 1, 0) == 1 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        atomic_store(&link->lost, true);
    return atomic_load(&link->lost);
}

static void release_landing(struct sl_host_landing *landing)
{
    struct sl_host_link *link = landing->link;
    atomic_store(&link->receiving.lane->leases[landing->lease], landing->sequence + 1);
    sl_bell_ring(&sl_host_page(&link->page)->bell);
    atomic_fetch_sub(&landing->map->held, 1);
    landing->link = NULL;
    sl_host_group_release(link->group);
}

void sl_host_landings_release(struct sluice_queue *queue)
{
    for (uint32_t i = 0; i < queue->landing_count; i++)
        if (queue->landings[i].link != NULL)
            release_landing(&queue->landings[i]);
    queue->landing_count = 0;
}

void sl_host_lease_add(struct sluice_queue *queue, struct sl_host_link *link, uint64_t sequence, uint32_t index)
{
    SL_ASSERT(queue->lease_count < 2 * SL_HOST_MESSAGES_MAX);
    sl_host_group_hold(link->group);
    queue->leases[queue->lease_count++] = (struct sl_host_lease){.link = link, .sequence = sequence, .index = index};
}

static bool lease_ended(const struct sl_host_lease *lease)
{
    if (atomic_load(&sl_host_page(&lease->link->page)->closed))
        return true;
    /* A later message with the same lease means that this one was released long ago. */
    return atomic_load(&lease->link->sending.lane->leases[lease->index]) > lease->sequence;
}

void sl_host_leases_prune(struct sluice_queue *queue)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue->lease_count; i++) {
        if (lease_ended(&queue->leases[i]))
            sl_host_group_release(queue->leases[i].link->group);
        else
            queue->leases[kept++] = queue->leases[i];
    }
    queue->lease_count = kept;
}

static sluice_status wait_one(struct sluice_queue *queue, const struct sl_host_lease *lease)
{
    struct sluice_group *group = lease->link->group;
    struct sl_bell *bell = &sl_host_page(&group->page)->bell;
    for (;;) {
        uint32_t seen = sl_bell_look(bell);
        if (lease_ended(lease) || sl_host_link_lost(lease->link))
            return SLUICE_OK;
        bool aborted = atomic_load(&group->aborted) && !atomic_load(&group->finished);
        if (aborted || atomic_load(&queue->stop))
            return sl_fail(SLUICE_ABORTED, SL_HOST_WHERE,
                           "rank %u still reads the memory that this pack set would write, and the communicator was "
                           "aborted",
                           lease->link->peer);
        sl_bell_wait(bell, seen, SL_HOST_SLICE);
    }
}

sluice_status sl_host_leases_wait(struct sluice_queue *queue)
{
    sluice_status status = SLUICE_OK;
    while (queue->lease_count > 0 && status == SLUICE_OK) {
        struct sl_host_lease *lease = &queue->leases[queue->lease_count - 1];
        status = wait_one(queue, lease);
        if (status == SLUICE_OK) {
            queue->lease_count--;
            sl_host_group_release(lease->link->group);
        }
    }
    return status;
}

void sl_host_leases_drop(struct sluice_queue *queue)
{
    sl_host_landings_release(queue);
    while (queue->lease_count > 0)
        sl_host_group_release(queue->leases[--queue->lease_count].link->group);
}
