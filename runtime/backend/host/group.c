/*
 * group.c: communicators: their life, their turns, their end.
 *
 * - A communicator is freed when its handle is closed and no landing or lease points into it any more. Peers see the
 *   closing at once: by a flag, and after an abort by the end of the sockets. After a good end the sockets stay open as
 *   long as a peer may read our memory, because only they tell that it died.
 * - Abort only sets flags and rings bells: whoever sleeps looks at the flags when it wakes, and no sleep is longer than
 *   a slice. That is why it may come from any thread, in any state, and twice.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"
#include "runtime/backend/op_check.h"

static void free_link(struct sl_mem *mem, struct sl_host_link *link)
{
    sl_host_maps_drop(link);
    sl_host_memory_drop(&link->pair);
    sl_host_memory_drop(&link->page);
    if (link->fd >= 0)
        close(link->fd);
    sl_free(mem, link);
}

/* Also of a half-built one. */
static void free_group(struct sluice_group *group)
{
    struct sl_mem *mem = group->device->mem;
    for (uint32_t i = 0; group->links != NULL && i < group->world; i++)
        if (group->links[i] != NULL)
            free_link(mem, group->links[i]);
    if (group->listener >= 0)
        close(group->listener);
    sl_host_memory_drop(&group->page);
    sl_free(mem, group->links);
    sl_free(mem, group->active);
    sl_free(mem, group->blobs);
    sl_free(mem, group->peers);
    sl_free(mem, group);
}

void sl_host_group_hold(struct sluice_group *group)
{
    atomic_fetch_add(&group->refs, 1);
}

void sl_host_group_release(struct sluice_group *group)
{
    if (atomic_fetch_sub(&group->refs, 1) == 1)
        free_group(group);
}

static sluice_status check_config(const struct sluice_device *device, const struct sluice_group_config *config)
{
    if (config->world == 0 || config->world > SLUICE_WORLD_MAX || config->rank >= config->world)
        return sl_fail(SLUICE_INVALID, SL_HOST_WHERE, "rank %u of a communicator of %u ranks", config->rank,
                       config->world);
    if (config->lent != NULL)
        return sl_fail(SLUICE_UNSUPPORTED, SL_HOST_WHERE, "the host backend takes no communicator of the caller");
    if ((config->peers[config->rank] & (SLUICE_PEER_SEND | SLUICE_PEER_RECEIVE)) != 0)
        return sl_fail(SLUICE_INVALID, SL_HOST_WHERE, "rank %u names itself as a peer: local copies are no messages",
                       config->rank);
    struct sl_host_address address;
    for (uint32_t rank = 0; rank < config->world; rank++) {
        if ((config->peers[rank] & (SLUICE_PEER_SEND | SLUICE_PEER_RECEIVE)) == 0 && rank != config->rank)
            continue;
        sluice_status status = sl_host_address_read(device, &config->blobs[rank], rank, &address);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

static sluice_status make_links(struct sluice_group *group)
{
    struct sl_mem *mem = group->device->mem;
    for (uint32_t rank = 0; rank < group->world; rank++) {
        if ((group->peers[rank] & (SLUICE_PEER_SEND | SLUICE_PEER_RECEIVE)) == 0)
            continue;
        struct sl_host_link *link = sl_new(mem, sizeof(*link), "link to a peer");
        if (link == NULL)
            return SLUICE_NOMEM;
        link->group = group;
        link->peer = rank;
        link->fd = -1;
        link->pair.fd = -1;
        link->page.fd = -1;
        link->sending.post = link->sending.move = SL_HOST_END;
        link->receiving.post = link->receiving.move = SL_HOST_END;
        group->links[rank] = link;
        group->link_count++;
    }
    return SLUICE_OK;
}

static sluice_status make_tables(struct sluice_group *group, const struct sluice_group_config *config)
{
    struct sl_mem *mem = group->device->mem;
    group->links = sl_new_array(mem, config->world, sizeof(*group->links), "links");
    group->active = sl_new_array(mem, config->world, sizeof(struct sl_host_link *), "links");
    group->blobs = sl_new_array(mem, config->world, sizeof(*group->blobs), "addresses");
    group->peers = sl_new(mem, config->world, "peers");
    if (group->links == NULL || group->active == NULL || group->blobs == NULL || group->peers == NULL)
        return SLUICE_NOMEM;
    memcpy(group->blobs, config->blobs, config->world * sizeof(*group->blobs));
    memcpy(group->peers, config->peers, config->world);
    sluice_status status = make_links(group);
    if (status == SLUICE_OK)
        status = sl_host_memory_open(sizeof(struct sl_host_page), "sluice-page", true, &group->page);
    return status;
}

static sluice_status start_opening(struct sluice_group *group)
{
    group->listener = sl_host_listener_take(group->device, &group->blobs[group->rank]);
    if (group->listener < 0)
        return sl_fail(SLUICE_INVALID, SL_HOST_WHERE, "the address of rank %u is not one that this device gave out",
                       group->rank);
    sluice_status status = sl_host_thread(sl_host_connect, group, "sluice-open", &group->thread);
    group->thread_started = status == SLUICE_OK;
    return status;
}

sluice_status sl_host_group_open(struct sluice_device *device, const struct sluice_group_config *config,
                                 uint64_t cookie, struct sluice_group **ret)
{
    sluice_status status = check_config(device, config);
    if (status != SLUICE_OK)
        return status;
    struct sluice_group *group = sl_new(device->mem, sizeof(*group), "communicator");
    if (group == NULL)
        return SLUICE_NOMEM;
    group->device = device;
    group->rank = config->rank;
    group->world = config->world;
    group->cookie = cookie;
    group->listener = -1;
    group->page.fd = -1;
    atomic_store(&group->refs, 1);
    status = make_tables(group, config);
    if (status == SLUICE_OK)
        status = start_opening(group);
    if (status != SLUICE_OK) {
        free_group(group);
        return status;
    }
    group->next = device->groups;
    device->groups = group;
    *ret = group;
    return SLUICE_OK;
}

static void unlist(struct sluice_group *group)
{
    struct sluice_group **at = &group->device->groups;
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
}

/* Our queues are through with the communicator: its peers need not wait for what we have not unpacked. */
static void tell_closed(struct sluice_group *group)
{
    atomic_store(&sl_host_page(&group->page)->closed, 1);
    for (uint32_t i = 0; i < group->world; i++)
        if (group->links[i] != NULL && group->links[i]->page.base != NULL)
            sl_bell_ring(&sl_host_page(&group->links[i]->page)->bell);
}

void sl_host_group_close(struct sluice_group *group)
{
    if (group == NULL)
        return;
    bool finished = !atomic_load(&group->aborted) && atomic_load(&group->state) == SL_HOST_OPEN;
    atomic_store(&group->finished, finished);
    SL_IGNORE(sl_host_group_abort(group) != SLUICE_OK);
    pthread_join(group->thread, NULL);
    unlist(group);
    tell_closed(group);
    for (uint32_t i = 0; i < group->world && !finished; i++)
        if (group->links[i] != NULL && group->links[i]->fd >= 0)
            shutdown(group->links[i]->fd, SHUT_RDWR);
    sl_host_group_release(group);
}

sluice_status sl_host_group_abort(struct sluice_group *group)
{
    atomic_store(&group->aborted, true);
    struct sl_host_page *page = sl_host_page(&group->page);
    uint32_t running = 0;
    atomic_compare_exchange_strong(&page->down, &running, (uint32_t)-SLUICE_ABORTED);
    sl_bell_ring(&page->bell);
    sl_bell_ring(&group->device->bell);
    return SLUICE_OK;
}

sluice_status sl_host_group_check(const struct sluice_group *group, const struct sluice_op *op)
{
    if (atomic_load(&group->state) != SL_HOST_OPEN)
        return sl_fail(SLUICE_STATE, SL_HOST_WHERE, "the communicator is not open");
    if (op->message_count > SL_HOST_MESSAGES_MAX)
        return sl_fail(SLUICE_LIMIT, SL_HOST_WHERE, "a group of %u messages: %u at most", op->message_count,
                       SL_HOST_MESSAGES_MAX);
    return sl_op_check_messages(SL_HOST_WHERE, op, group->rank, group->world, group->peers);
}
