/*
 * connect.c: the thread that opens a communicator.
 *
 * - Of each pair the higher rank connects and brings the pair's shared memory; the lower one accepts. A rank first
 *   dials all lower ranks and then accepts, so rank 0 accepts at once and nobody waits in a circle.
 * - Each end proves that it holds the other's blob by the secret in it. A connection that does not is closed and
 *   forgotten; it cannot end the opening.
 * - The thread never sleeps longer than a slice without looking whether the communicator was aborted. Deadlines belong
 *   to whoever opened it.
 * - `state` is written last; from then on the thread touches nothing of the communicator.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"

#define HELLO_MAGIC 0x534c4849u
#define STRANGERS   64u /* connections that have not said yet who they are */
#define EVENTS      64
#define SLICE_MS    20

struct hello {
    uint32_t magic;
    uint32_t rank;
    uint8_t secret[32]; /* from the receiver's blob */
};

struct waiting {
    int fd;
    struct sl_host_link *link; /* NULL: accepted, waits for the hello; else dialled, waits for the reply */
};

/* Hundreds of peers answer one by one: looking at all sockets for each answer would cost more than all else. */
struct opening {
    struct sluice_group *group;
    struct sl_host_address self;
    struct waiting *waiting;
    int epoll;      /* all that wait, and the listener while there is room */
    bool listening; /* the listener is among them */
    uint32_t count, capacity;
    uint32_t connected;
};

static sluice_status watch(const struct opening *opening, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(opening->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return SLUICE_OK;
    return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot wait for peers");
}

static void unwatch(const struct opening *opening, int fd)
{
    SL_IGNORE(epoll_ctl(opening->epoll, EPOLL_CTL_DEL, fd, NULL));
}

/* Without room for another stranger the listener has to wait. */
static sluice_status watch_listener(struct opening *opening)
{
    bool room = opening->count < opening->capacity;
    if (room == opening->listening)
        return SLUICE_OK;
    opening->listening = room;
    if (room)
        return watch(opening, opening->group->listener);
    unwatch(opening, opening->group->listener);
    return SLUICE_OK;
}

static sluice_status check_aborted(const struct sluice_group *group)
{
    if (!atomic_load(&group->aborted))
        return SLUICE_OK;
    return sl_fail(SLUICE_ABORTED, SL_HOST_WHERE, "rank %u gave up connecting to its peers", group->rank);
}

static void pause_briefly(void)
{
    const struct timespec time = {.tv_nsec = 1000000};
    nanosleep(&time, NULL);
}

static sluice_status dial_link(struct opening *opening, struct sl_host_link *link)
{
    struct sluice_group *group = opening->group;
    struct sl_host_address address;
    sluice_status status = sl_host_address_read(group->device, &group->blobs[link->peer], link->peer, &address);
    int fd = -1;
    while (status == SLUICE_OK && (status = sl_host_dial(&address, link->peer, &fd)) == SLUICE_AGAIN) {
        pause_briefly();
        status = check_aborted(group);
    }
    if (status != SLUICE_OK)
        return status;
    opening->waiting[opening->count++] = (struct waiting){.fd = fd, .link = link};
    status = watch(opening, fd);
    if (status != SLUICE_OK)
        return status;
    if (!sl_host_same_user(fd))
        return sl_fail(SLUICE_AUTH, SL_HOST_WHERE, "the socket of rank %u belongs to another user", link->peer);
    status = sl_host_memory_open(sizeof(struct sl_host_pair), "sluice-pair", true, &link->pair);
    if (status != SLUICE_OK)
        return status;
    struct hello hello = {.magic = HELLO_MAGIC, .rank = group->rank};
    memcpy(hello.secret, address.secret, sizeof(hello.secret));
    const int fds[] = {link->pair.fd, group->page.fd};
    if (sl_host_send(fd, &hello, sizeof(hello), fds, 2) != SLUICE_OK)
        return sl_fail(SLUICE_PEER_LOST, SL_HOST_WHERE, "rank %u closed the connection at once", link->peer);
    close(link->pair.fd);
    link->pair.fd = -1;
    return SLUICE_OK;
}

/* Takes the same time for every difference, so that answers tell nothing about the secret. */
static bool same_secret(const uint8_t *a, const uint8_t *b)
{
    uint8_t difference = 0;
    for (size_t i = 0; i < sizeof(((struct hello *)0)->secret); i++)
        difference |= (uint8_t)(a[i] ^ b[i]);
    return difference == 0;
}

static bool hello_is_ours(const struct opening *opening, const struct hello *hello)
{
    return hello->magic == HELLO_MAGIC && same_secret(hello->secret, opening->self.secret);
}

static void close_all(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

static void established(struct opening *opening, uint32_t index)
{
    struct waiting *waiting = &opening->waiting[index];
    unwatch(opening, waiting->fd);
    waiting->link->fd = waiting->fd;
    *waiting = opening->waiting[--opening->count];
    opening->connected++;
}

static void forget(struct opening *opening, uint32_t index)
{
    close(opening->waiting[index].fd);
    opening->waiting[index] = opening->waiting[--opening->count];
}

/* A connected socket said who it is. */
static sluice_status greet(struct opening *opening, uint32_t index, const struct hello *hello, const int *fds)
{
    struct sluice_group *group = opening->group;
    struct sl_host_link *link = group->links[hello->rank];
    sluice_status status = sl_host_memory_map(fds[0], sizeof(struct sl_host_pair), true, &link->pair);
    if (status == SLUICE_OK)
        status = sl_host_memory_map(fds[1], sizeof(struct sl_host_page), true, &link->page);
    else
        close(fds[1]);
    struct sl_host_address address;
    if (status == SLUICE_OK)
        status = sl_host_address_read(group->device, &group->blobs[link->peer], link->peer, &address);
    if (status != SLUICE_OK)
        return status;
    struct hello reply = {.magic = HELLO_MAGIC, .rank = group->rank};
    memcpy(reply.secret, address.secret, sizeof(reply.secret));
    if (sl_host_send(opening->waiting[index].fd, &reply, sizeof(reply), &group->page.fd, 1) != SLUICE_OK)
        return sl_fail(SLUICE_PEER_LOST, SL_HOST_WHERE, "rank %u closed the connection while it was greeted",
                       link->peer);
    opening->waiting[index].link = link;
    established(opening, index);
    return SLUICE_OK;
}

static sluice_status hear_hello(struct opening *opening, uint32_t index)
{
    struct sluice_group *group = opening->group;
    struct hello hello;
    int fds[SL_HOST_FDS_MAX];
    uint32_t fd_count = 0;
    sluice_status status = sl_host_receive(opening->waiting[index].fd, &hello, sizeof(hello), fds, &fd_count);
    if (status == SLUICE_AGAIN)
        return SLUICE_OK;
    bool good = status == SLUICE_OK && fd_count == 2 && hello_is_ours(opening, &hello) && hello.rank > group->rank &&
                hello.rank < group->world && group->links[hello.rank] != NULL &&
                group->links[hello.rank]->pair.base == NULL;
    if (good)
        return greet(opening, index, &hello, fds);
    close_all(fds, fd_count);
    forget(opening, index);
    SL_LOG(&group->device->log, SLUICE_LOG_WARN, SL_HOST_WHERE,
           "rank %u refused a connection that did not know its secret or was not expected", group->rank);
    return SLUICE_OK;
}

static sluice_status hear_reply(struct opening *opening, uint32_t index)
{
    struct sl_host_link *link = opening->waiting[index].link;
    struct hello hello;
    int fds[SL_HOST_FDS_MAX];
    uint32_t fd_count = 0;
    sluice_status status = sl_host_receive(opening->waiting[index].fd, &hello, sizeof(hello), fds, &fd_count);
    if (status == SLUICE_AGAIN)
        return SLUICE_OK;
    if (status != SLUICE_OK)
        return sl_fail(SLUICE_PEER_LOST, SL_HOST_WHERE, "rank %u closed the connection before it was established",
                       link->peer);
    if (fd_count != 1 || hello.rank != link->peer || !hello_is_ours(opening, &hello)) {
        close_all(fds, fd_count);
        return sl_fail(SLUICE_AUTH, SL_HOST_WHERE, "the process that answered as rank %u is not that rank", link->peer);
    }
    status = sl_host_memory_map(fds[0], sizeof(struct sl_host_page), true, &link->page);
    if (status == SLUICE_OK)
        established(opening, index);
    return status;
}

static void accept_all(struct opening *opening)
{
    while (opening->count < opening->capacity) {
        int fd = accept4(opening->group->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (sl_host_same_user(fd) && watch(opening, fd) == SLUICE_OK)
            opening->waiting[opening->count++] = (struct waiting){.fd = fd};
        else
            close(fd);
    }
}

static sluice_status hear(struct opening *opening, int fd)
{
    for (uint32_t i = 0; i < opening->count; i++)
        if (opening->waiting[i].fd == fd)
            return opening->waiting[i].link == NULL ? hear_hello(opening, i) : hear_reply(opening, i);
    return SLUICE_OK;
}

static sluice_status serve(struct opening *opening)
{
    struct epoll_event events[EVENTS];
    sluice_status status = watch_listener(opening);
    int count = status == SLUICE_OK ? epoll_wait(opening->epoll, events, EVENTS, SLICE_MS) : 0;
    if (count < 0 && errno != EINTR)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot wait for peers");
    for (int i = 0; status == SLUICE_OK && i < count; i++)
        if (events[i].data.fd == opening->group->listener)
            accept_all(opening);
        else
            status = hear(opening, events[i].data.fd);
    return status;
}

static sluice_status open_all(struct opening *opening)
{
    struct sluice_group *group = opening->group;
    sluice_status status = sl_host_address_read(group->device, &group->blobs[group->rank], group->rank, &opening->self);
    opening->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (opening->epoll < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot wait for peers");
    for (uint32_t rank = 0; rank < group->rank && status == SLUICE_OK; rank++)
        if (group->links[rank] != NULL) {
            status = check_aborted(group);
            if (status == SLUICE_OK)
                status = dial_link(opening, group->links[rank]);
        }
    while (status == SLUICE_OK && opening->connected < group->link_count) {
        status = check_aborted(group);
        if (status == SLUICE_OK)
            status = serve(opening);
    }
    return status;
}

static void wire_lanes(struct sluice_group *group)
{
    for (uint32_t rank = 0; rank < group->world; rank++) {
        struct sl_host_link *link = group->links[rank];
        if (link == NULL)
            continue;
        struct sl_host_pair *pair = (struct sl_host_pair *)(void *)link->pair.base;
        uint32_t up = group->rank < rank ? 0 : 1; /* the lane in which we send */
        link->sending.lane = (group->peers[rank] & SLUICE_PEER_SEND) != 0 ? &pair->lanes[up] : NULL;
        link->receiving.lane = (group->peers[rank] & SLUICE_PEER_RECEIVE) != 0 ? &pair->lanes[1 - up] : NULL;
    }
}

void *sl_host_connect(void *argument)
{
    struct sluice_group *group = argument;
    struct sluice_device *device = group->device;
    struct sl_mem *mem = device->mem;
    struct opening opening = {.group = group, .epoll = -1, .capacity = group->link_count + STRANGERS};
    opening.waiting = sl_new_array(mem, opening.capacity, sizeof(*opening.waiting), "connections");
    sluice_status status = SLUICE_NOMEM;
    if (opening.waiting != NULL)
        status = open_all(&opening);
    if (status != SLUICE_OK)
        sl_error_take(&group->open_error);
    else
        wire_lanes(group);
    while (opening.count > 0)
        forget(&opening, opening.count - 1);
    sl_free(mem, opening.waiting);
    if (opening.epoll >= 0)
        close(opening.epoll);
    close(group->listener);
    group->listener = -1;
    atomic_store(&group->state, status == SLUICE_OK ? SL_HOST_OPEN : SL_HOST_OPEN_FAILED);
    sl_host_notify(device);
    return NULL;
}
