/* bootstrap_address.h: socket addresses: names to addresses, listening, words. Any thread. */
#ifndef SL_CONTROL_BOOTSTRAP_ADDRESS_H
#define SL_CONTROL_BOOTSTRAP_ADDRESS_H

#include <netinet/in.h>

#include "sluice/base.h"

struct sl_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } u;
    socklen_t bytes; /* 0: none */
};

#define SL_ADDRESS_TEXT  64 /* "[ffff:...]:65535" */
#define SL_ADDRESS_BYTES 19 /* on the wire: family u8, port u16, 16 bytes */

/* The first IPv4 address of a name or number, else the first IPv6 one. May ask a name server. CONFIG. */
sluice_status sl_address_resolve(const char *host, uint32_t port, struct sl_address *ret);
_Bool sl_address_loopback(const struct sl_address *address);
/* "127.0.0.1:80"; returns text. */
const char *sl_address_text(const struct sl_address *address, char *text, size_t capacity);
uint32_t sl_address_port(const struct sl_address *address);
void sl_address_set_port(struct sl_address *address, uint32_t port);
void sl_address_encode(const struct sl_address *address, uint8_t *ret);
/* False for bytes that are no address. */
_Bool sl_address_decode(const uint8_t *bytes, struct sl_address *ret);

/* The two ends of a socket; `bytes` 0 when the system does not say. */
void sl_address_of_peer(int fd, struct sl_address *ret);
void sl_address_of_self(int fd, struct sl_address *ret);

/*
 * Listens on exactly this address; port 0 takes a free one and `address` then has it. Errors within a
 * moment: CONFIG ("address not local"), SYSTEM (address and port in use, and others).
 */
sluice_status sl_address_listen(struct sl_address *address, int *ret_fd);
/* The address of this host that faces the others; CONFIG when it cannot be told. */
sluice_status sl_address_outward(struct sl_address *ret);

#endif
