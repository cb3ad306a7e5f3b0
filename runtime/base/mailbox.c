/*
 * mailbox.c: a stack of mail, turned round by the one consumer.
 *
 * - Whoever finds the stack empty writes the eventfd, after its push; the consumer clears the eventfd
 *   before it takes the stack. So mail that is there always has a wake-up that is still to come or
 *   not yet cleared; a wake-up without mail is harmless.
 * - The consumer takes the whole stack at once, so no node is popped alone and no address comes back
 *   under a running compare-and-swap.
 * - After its push a producer does not touch the node again.
 */
#include "runtime/base/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/error.h"

sluice_status sl_mailbox_open(struct sl_mailbox *box)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "mailbox", "cannot create an eventfd");
    atomic_init(&box->head, NULL);
    box->fd = fd;
    return SLUICE_OK;
}

void sl_mailbox_close(struct sl_mailbox *box)
{
    if (box->fd >= 0)
        SL_IGNORE(close(box->fd));
    box->fd = -1;
}

void sl_mailbox_wake(struct sl_mailbox *box)
{
    int saved = errno; /* a signal handler may be the caller */
    uint64_t one = 1;
    ssize_t wrote;
    do
        wrote = write(box->fd, &one, sizeof one);
    while (wrote < 0 && errno == EINTR);
    /* EAGAIN: the counter is full, so the consumer is awake anyway. */
    SL_ASSERT(wrote == (ssize_t)sizeof one || errno == EAGAIN);
    errno = saved;
}

void sl_mailbox_post(struct sl_mailbox *box, struct sl_mail *mail)
{
    struct sl_mail *head = atomic_load_explicit(&box->head, memory_order_relaxed);
    do
        mail->next = head;
    while (!atomic_compare_exchange_weak_explicit(&box->head, &head, mail, memory_order_release, memory_order_relaxed));
    if (!head)
        sl_mailbox_wake(box);
}

struct sl_mail *sl_mailbox_take(struct sl_mailbox *box)
{
    uint64_t count;
    SL_IGNORE(read(box->fd, &count, sizeof count) < 0);
    struct sl_mail *newest = atomic_exchange_explicit(&box->head, NULL, memory_order_acquire);
    struct sl_mail *oldest = NULL;
    while (newest) {
        struct sl_mail *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}
