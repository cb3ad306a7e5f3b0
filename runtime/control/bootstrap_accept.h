/*
 * bootstrap_accept.h: the listener of a rank and the guests who have not shown who they are.
 *
 * A guest has SL_GUEST_NS to prove the token and send its first frame; until the proof nothing but a
 * greeting of fixed size is read. The number of guests is bounded: the oldest without a proof goes first.
 * All on the control thread.
 */
#ifndef SL_CONTROL_BOOTSTRAP_ACCEPT_H
#define SL_CONTROL_BOOTSTRAP_ACCEPT_H

#include <event2/event_struct.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/control/bootstrap_address.h"
#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/wire.h"

#define SL_GUEST_NS   (5 * SLUICE_SECOND)
#define SL_GUESTS_MAX 1024u

struct sl_guest;

struct sl_accept {
    /* Set by the owner before open. */
    struct sl_wires *wires;
    const struct sl_clock *clock;
    const struct sl_log *log;
    struct sl_token token;
    _Bool leading; /* false: prove and send away */
    /* A guest proved the token and sent its first frame; the wire is the callee's. */
    void (*on_guest)(void *context, struct sl_wire *wire, const char *address, const uint8_t *payload, size_t bytes);
    void *context;
    /* Own. */
    int fd;
    struct event event;
    TAILQ_HEAD(, sl_guest) guests; /* oldest first */
    uint32_t guest_count;
    uint64_t refused;
    uint64_t resume_at; /* no descriptors were left: accept again then; UINT64_MAX: not paused */
};

/* Takes the listening `fd` over, on success only. NOMEM. */
sluice_status sl_accept_open(struct sl_accept *accept, int fd);
void sl_accept_close(struct sl_accept *accept);
/* When sl_accept_due is wanted; UINT64_MAX: never. */
uint64_t sl_accept_timer(const struct sl_accept *accept);
void sl_accept_due(struct sl_accept *accept, uint64_t now);
/* Logs a refusal with its address, but not every one of thousands. */
void sl_accept_log_refused(struct sl_accept *accept, const char *address, const char *why);

#endif
