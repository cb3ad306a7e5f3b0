/*
 * bootstrap_address.c: socket addresses. Invariants: a listener is bound to the address given and to no
 * other; every descriptor is close-on-exec and non-blocking.
 */
#include "runtime/control/bootstrap_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"

enum { BACKLOG = 4096 };

static void take(const struct addrinfo *info, uint32_t port, struct sl_address *ret)
{
    *ret = (struct sl_address){.bytes = info->ai_addrlen};
    memcpy(&ret->u, info->ai_addr, info->ai_addrlen);
    sl_address_set_port(ret, port);
}

sluice_status sl_address_resolve(const char *host, uint32_t port, struct sl_address *ret)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code != 0)
        return sl_fail(SLUICE_CONFIG, "bootstrap", "cannot find the address of \"%.200s\": %s", host,
                       code == EAI_SYSTEM ? sl_errno_words(errno) : gai_strerror(code));
    const struct addrinfo *chosen = NULL;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        if (i->ai_family == AF_INET || (i->ai_family == AF_INET6 && chosen == NULL))
            chosen = i;
        if (i->ai_family == AF_INET)
            break;
    }
    if (chosen != NULL)
        take(chosen, port, ret);
    freeaddrinfo(list);
    if (chosen == NULL)
        return sl_fail(SLUICE_CONFIG, "bootstrap", "\"%.200s\" has no IPv4 or IPv6 address", host);
    return SLUICE_OK;
}

_Bool sl_address_loopback(const struct sl_address *address)
{
    if (address->u.any.sa_family == AF_INET)
        return ntohl(address->u.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address->u.v6.sin6_addr) != 0;
}

uint32_t sl_address_port(const struct sl_address *address)
{
    return ntohs(address->u.any.sa_family == AF_INET6 ? address->u.v6.sin6_port : address->u.v4.sin_port);
}

void sl_address_set_port(struct sl_address *address, uint32_t port)
{
    if (address->u.any.sa_family == AF_INET6)
        address->u.v6.sin6_port = htons((uint16_t)port);
    else
        address->u.v4.sin_port = htons((uint16_t)port);
}

const char *sl_address_text(const struct sl_address *address, char *text, size_t capacity)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->bytes == 0)
        (void)snprintf(text, capacity, "an unknown address");
    else if (address->u.any.sa_family == AF_INET6)
        (void)snprintf(text, capacity, "[%s]:%u",
                       inet_ntop(AF_INET6, &address->u.v6.sin6_addr, host, sizeof(host)) == NULL ? "?" : host,
                       sl_address_port(address));
    else
        (void)snprintf(text, capacity, "%s:%u",
                       inet_ntop(AF_INET, &address->u.v4.sin_addr, host, sizeof(host)) == NULL ? "?" : host,
                       sl_address_port(address));
    return text;
}

void sl_address_encode(const struct sl_address *address, uint8_t *ret)
{
    memset(ret, 0, SL_ADDRESS_BYTES);
    if (address->bytes == 0)
        return;
    _Bool v6 = address->u.any.sa_family == AF_INET6;
    uint32_t port = sl_address_port(address);
    ret[0] = v6 ? 6 : 4;
    ret[1] = (uint8_t)port;
    ret[2] = (uint8_t)(port >> 8);
    if (v6)
        memcpy(ret + 3, &address->u.v6.sin6_addr, 16);
    else
        memcpy(ret + 3, &address->u.v4.sin_addr, 4);
}

_Bool sl_address_decode(const uint8_t *bytes, struct sl_address *ret)
{
    *ret = (struct sl_address){0};
    if (bytes[0] == 6) {
        ret->bytes = sizeof(ret->u.v6);
        ret->u.v6.sin6_family = AF_INET6;
        memcpy(&ret->u.v6.sin6_addr, bytes + 3, 16);
    } else if (bytes[0] == 4) {
        ret->bytes = sizeof(ret->u.v4);
        ret->u.v4.sin_family = AF_INET;
        memcpy(&ret->u.v4.sin_addr, bytes + 3, 4);
    } else {
        return bytes[0] == 0;
    }
    sl_address_set_port(ret, (uint32_t)bytes[1] | (uint32_t)bytes[2] << 8);
    return 1;
}

void sl_address_of_peer(int fd, struct sl_address *ret)
{
    *ret = (struct sl_address){.bytes = sizeof(ret->u)};
    if (getpeername(fd, &ret->u.any, &ret->bytes) != 0)
        ret->bytes = 0;
}

void sl_address_of_self(int fd, struct sl_address *ret)
{
    *ret = (struct sl_address){.bytes = sizeof(ret->u)};
    if (getsockname(fd, &ret->u.any, &ret->bytes) != 0)
        ret->bytes = 0;
}

static sluice_status cannot_listen(const struct sl_address *address, int code)
{
    char text[SL_ADDRESS_TEXT];
    sl_address_text(address, text, sizeof(text));
    if (code == EADDRINUSE)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, code, "bootstrap",
                              "rank 0 cannot listen on %s: the port is in use; choose another with SLUICE_PORT", text);
    if (code == EADDRNOTAVAIL)
        return sl_fail(SLUICE_CONFIG, "bootstrap",
                       "address not local: rank 0 cannot listen on %s; MASTER_ADDR must be an address of rank 0's host",
                       text);
    return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, code, "bootstrap", "cannot listen on %s", text);
}

sluice_status sl_address_listen(struct sl_address *address, int *ret_fd)
{
    int fd = socket(address->u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1; /* a port in TIME_WAIT from an earlier job is free; one with a listener is not */
    if (fd < 0)
        return cannot_listen(address, errno);
    SL_IGNORE(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
    if (bind(fd, &address->u.any, address->bytes) != 0 || listen(fd, BACKLOG) != 0) {
        sluice_status status = cannot_listen(address, errno);
        SL_IGNORE(close(fd));
        return status;
    }
    sl_address_of_self(fd, address);
    *ret_fd = fd;
    return SLUICE_OK;
}

sluice_status sl_address_outward(struct sl_address *ret)
{
    /* Connecting a datagram socket sends nothing; it only asks for the route. The address is one reserved for examples. */
    struct sl_address probe = {.bytes = sizeof(probe.u.v4)};
    probe.u.v4.sin_family = AF_INET;
    probe.u.v4.sin_addr.s_addr = htonl(UINT32_C(0xc0000201)); /* 192.0.2.1 */
    probe.u.v4.sin_port = htons(9);
    *ret = (struct sl_address){0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, &probe.u.any, probe.bytes) == 0)
        sl_address_of_self(fd, ret);
    if (fd >= 0)
        SL_IGNORE(close(fd));
    if (ret->bytes == 0 || sl_address_loopback(ret))
        return sl_fail(SLUICE_CONFIG, "bootstrap",
                       "this host has no default route to tell its address from: give the option address");
    sl_address_set_port(ret, 0);
    return SLUICE_OK;
}
