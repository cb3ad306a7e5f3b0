/*
 * socket.c: abstract unix sockets, and descriptors in their messages.
 *
 * - Every rank listens on an abstract name with 128 random bits; it vanishes with its last descriptor.
 * - Who may connect is decided by the kernel's word on the user id and by a secret that only ranks which got the blobs
 *   know; both are checked before anything else is read.
 * - SOCK_SEQPACKET keeps message borders, so a message is whole or absent. No call here blocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"
#include "runtime/base/hash.h"

#define MAGIC   0x534c4855u
#define VERSION 1u
#define BACKLOG 4096

_Static_assert(sizeof(struct sl_host_address) <= SLUICE_BLOB_MAX, "an address fits a blob");

union control {
    char bytes[CMSG_SPACE(SL_HOST_FDS_MAX * sizeof(int))];
    struct cmsghdr alignment;
};

sluice_status sl_host_send(int fd, const void *data, size_t bytes, const int *fds, uint32_t fd_count)
{
    SL_ASSERT(fd_count <= SL_HOST_FDS_MAX);
    union control control = {{0}};
    struct iovec vector = {.iov_len = bytes};
    memcpy(&vector.iov_base, &data, sizeof(data)); /* sendmsg reads only, but its type is not const */
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)bytes)
        return SLUICE_OK;
    return errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS ? SLUICE_AGAIN : SLUICE_PEER_LOST;
}

static uint32_t take_descriptors(struct msghdr *message, int *fds)
{
    uint32_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = header->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof(int) <= bytes && count < SL_HOST_FDS_MAX; at += sizeof(int))
            memcpy(&fds[count++], CMSG_DATA(header) + at, sizeof(int));
    }
    return count;
}

sluice_status sl_host_receive(int fd, void *data, size_t bytes, int *fds, uint32_t *ret_fd_count)
{
    union control control;
    struct iovec vector = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    do
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got < 0 && errno == EAGAIN ? SLUICE_AGAIN : SLUICE_PEER_LOST;
    uint32_t count = take_descriptors(&message, fds);
    if ((size_t)got == bytes && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        *ret_fd_count = count;
        return SLUICE_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    return sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE, "a peer sent a message of %zd bytes where %zu are due", got, bytes);
}

bool sl_host_same_user(int fd)
{
    struct ucred who;
    socklen_t length = sizeof(who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == geteuid();
}

/* Abstract names are per network namespace, and a blob of the boot before must not be taken for one of now. */
uint64_t sl_host_identity(void)
{
    char text[128] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        SL_IGNORE(read(fd, text, sizeof(text) - 1) < 0);
        close(fd);
    }
    struct stat space;
    uint64_t inode = stat("/proc/self/ns/net", &space) == 0 ? (uint64_t)space.st_ino : 0;
    return sl_hash64(text, sizeof(text), inode);
}

static socklen_t fill_name(struct sockaddr_un *socket_address, const char *name)
{
    *socket_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(socket_address->sun_path + 1, name, length); /* a zero byte first: abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static sluice_status make_address(const struct sluice_device *device, struct sl_host_address *ret)
{
    uint8_t random[16];
    *ret = (struct sl_host_address){.magic = MAGIC, .version = VERSION, .host = device->host};
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random) ||
        getrandom(ret->secret, sizeof(ret->secret), 0) != (ssize_t)sizeof(ret->secret))
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "no random bytes");
    size_t used = (size_t)snprintf(ret->name, sizeof(ret->name), "sluice-");
    for (size_t i = 0; i < sizeof(random); i++)
        used += (size_t)snprintf(ret->name + used, sizeof(ret->name) - used, "%02x", random[i]);
    return SLUICE_OK;
}

static sluice_status listen_on(const struct sl_host_address *address, int *ret)
{
    struct sockaddr_un name;
    socklen_t length = fill_name(&name, address->name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&name, length) == 0 && listen(fd, BACKLOG) == 0) {
        *ret = fd;
        return SLUICE_OK;
    }
    sluice_status status = sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE,
                                          "cannot listen for the other ranks of this host");
    if (fd >= 0)
        close(fd);
    return status;
}

sluice_status sl_host_listener_open(struct sluice_device *device, struct sluice_blob *ret)
{
    struct sl_host_listener *listener = sl_new(device->mem, sizeof(*listener), "listener");
    if (listener == NULL)
        return SLUICE_NOMEM;
    struct sl_host_address address;
    sluice_status status = make_address(device, &address);
    if (status == SLUICE_OK)
        status = listen_on(&address, &listener->fd);
    if (status != SLUICE_OK) {
        sl_free(device->mem, listener);
        return status;
    }
    listener->blob.bytes = sizeof(address);
    memcpy(listener->blob.data, &address, sizeof(address));
    listener->next = device->listeners;
    device->listeners = listener;
    *ret = listener->blob;
    return SLUICE_OK;
}

void sl_host_listener_drop(struct sluice_device *device, struct sl_host_listener *listener)
{
    if (listener->fd >= 0)
        close(listener->fd);
    sl_free(device->mem, listener);
}

int sl_host_listener_take(struct sluice_device *device, const struct sluice_blob *blob)
{
    for (struct sl_host_listener **at = &device->listeners; *at != NULL; at = &(*at)->next) {
        struct sl_host_listener *listener = *at;
        if (listener->blob.bytes != blob->bytes || memcmp(listener->blob.data, blob->data, blob->bytes) != 0)
            continue;
        int fd = listener->fd;
        listener->fd = -1;
        *at = listener->next;
        sl_host_listener_drop(device, listener);
        return fd;
    }
    return -1;
}

sluice_status sl_host_address_read(const struct sluice_device *device, const struct sluice_blob *blob, uint32_t rank,
                                   struct sl_host_address *ret)
{
    struct sl_host_address address;
    if (blob->bytes != sizeof(address))
        return sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE,
                       "the address of rank %u has %u bytes instead of %zu: do all ranks "
                       "use the host backend of one version?",
                       rank, blob->bytes, sizeof(address));
    memcpy(&address, blob->data, sizeof(address));
    if (address.magic != MAGIC || address.version != VERSION || memchr(address.name, 0, sizeof(address.name)) == NULL)
        return sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE,
                       "the address of rank %u is not one of this version's host backend", rank);
    if (address.host != device->host)
        return sl_fail(SLUICE_UNSUPPORTED, SL_HOST_WHERE,
                       "rank %u runs on another host or in another network namespace: the host backend connects ranks "
                       "of one host",
                       rank);
    *ret = address;
    return SLUICE_OK;
}

sluice_status sl_host_dial(const struct sl_host_address *address, uint32_t rank, int *ret_fd)
{
    struct sockaddr_un name;
    socklen_t length = fill_name(&name, address->name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot open a socket");
    int result;
    do
        result = connect(fd, (const struct sockaddr *)&name, length);
    while (result < 0 && errno == EINTR);
    if (result == 0) {
        *ret_fd = fd;
        return SLUICE_OK;
    }
    int reason = errno;
    close(fd);
    if (reason == EAGAIN)
        return SLUICE_AGAIN;
    return sl_fail_native(SLUICE_PEER_LOST, SLUICE_DOMAIN_SYSTEM, reason, SL_HOST_WHERE,
                          "rank %u does not listen any more: it ended or gave up", rank);
}
