/*
 * bootstrap_join.h: the way of a rank to rank 0: connect until it listens, prove the token, say who we are.
 * All on the control thread. Gives up only when told to; `reason` says why it is not there yet.
 */
#ifndef SL_CONTROL_BOOTSTRAP_JOIN_H
#define SL_CONTROL_BOOTSTRAP_JOIN_H

#include <event2/event_struct.h>

#include "runtime/base/clock.h"
#include "runtime/control/bootstrap_address.h"
#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/wire.h"

struct sl_join {
    /* Set by the owner before open. */
    struct sl_wires *wires;
    const struct sl_clock *clock;
    struct sl_address address;
    struct sl_token token;  /* unless token_path is given */
    const char *token_path; /* the default file, read again before each attempt; NULL: `token` counts */
    /* Both sides know the token: say who we are. The wire is the callee's. */
    void (*on_secure)(void *context, struct sl_wire *wire);
    /* Never mind trying: AUTH, CONFIG, PROTOCOL, SYSTEM in the thread's last error. */
    void (*on_failed)(void *context, sluice_status status);
    void *context;
    /* Own. */
    struct event event;
    int fd; /* -1: none */
    struct sl_greet greet;
    _Bool connecting, answered;
    _Bool unheard; /* the last attempt found nobody listening */
    uint32_t have;
    uint8_t in[SL_GREET_HELLO];
    uint64_t retry_at;   /* UINT64_MAX: an attempt runs or it is over */
    uint64_t give_up_at; /* of this attempt */
    uint64_t pause_ns;
    char reason[160];
};

void sl_join_open(struct sl_join *join);
void sl_join_close(struct sl_join *join);
uint64_t sl_join_timer(const struct sl_join *join);
void sl_join_due(struct sl_join *join, uint64_t now);

#endif
