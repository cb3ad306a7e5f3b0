/*
 * mailbox.h: many producers, one consumer, wake-up through an eventfd written only when the box was
 * empty. Nodes are intrusive; order of one producer is kept. The only way into a library thread.
 */
#ifndef SL_BASE_MAILBOX_H
#define SL_BASE_MAILBOX_H

#include <stdatomic.h>

#include "sluice/base.h"

struct sl_mail {
    struct sl_mail *next;
};

struct sl_mailbox {
    _Atomic(struct sl_mail *) head; /* newest first */
    int fd;                         /* eventfd, non-blocking, close-on-exec */
};

sluice_status sl_mailbox_open(struct sl_mailbox *box);
void sl_mailbox_close(struct sl_mailbox *box);
/* Any thread. */
void sl_mailbox_post(struct sl_mailbox *box, struct sl_mail *mail);
/* Wakes the consumer without a message. Any thread, signal handlers too. */
void sl_mailbox_wake(struct sl_mailbox *box);
/* Consumer: takes all, oldest first; clears the eventfd first. NULL when empty. */
struct sl_mail *sl_mailbox_take(struct sl_mailbox *box);

#endif
