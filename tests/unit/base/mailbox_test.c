/* The way into a library thread: nothing is lost, one producer's order is kept. */
#include "runtime/base/mailbox.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "runtime/base/error.h"

struct letter {
    struct sl_mail mail;
    int producer;
    int number;
};

static _Bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

Test(mailbox, empty_box_gives_nothing_and_is_quiet)
{
    struct sl_mailbox box;
    cr_assert_eq(sl_mailbox_open(&box), SLUICE_OK);
    cr_assert_null(sl_mailbox_take(&box));
    cr_assert_not(is_readable(box.fd));
    sl_mailbox_close(&box);
    cr_assert_eq(box.fd, -1);
    sl_mailbox_close(&box);
}

Test(mailbox, mail_comes_out_oldest_first)
{
    struct sl_mailbox box;
    struct letter letters[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
    cr_assert_eq(sl_mailbox_open(&box), SLUICE_OK);
    for (int i = 0; i < 3; i++)
        sl_mailbox_post(&box, &letters[i].mail);
    cr_assert(is_readable(box.fd));
    struct sl_mail *mail = sl_mailbox_take(&box);
    for (int i = 0; i < 3; i++, mail = mail->next)
        cr_assert_eq(mail, &letters[i].mail);
    cr_assert_null(mail);
    cr_assert_not(is_readable(box.fd));
    cr_assert_null(sl_mailbox_take(&box));
    sl_mailbox_close(&box);
}

Test(mailbox, wake_without_mail_is_readable_once)
{
    struct sl_mailbox box;
    cr_assert_eq(sl_mailbox_open(&box), SLUICE_OK);
    sl_mailbox_wake(&box);
    sl_mailbox_wake(&box);
    cr_assert(is_readable(box.fd));
    cr_assert_null(sl_mailbox_take(&box));
    cr_assert_not(is_readable(box.fd));
    sl_mailbox_close(&box);
}

Test(mailbox, descriptor_is_not_inherited_and_does_not_block)
{
    struct sl_mailbox box;
    cr_assert_eq(sl_mailbox_open(&box), SLUICE_OK);
    cr_assert(fcntl(box.fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(box.fd, F_GETFL) & O_NONBLOCK);
    sl_mailbox_close(&box);
}

enum { PRODUCERS = 4, LETTERS = 20000 };

static struct sl_mailbox shared_box;
static struct letter letters[PRODUCERS][LETTERS];

static void *produce(void *argument)
{
    struct letter *mine = argument;
    for (int i = 0; i < LETTERS; i++)
        sl_mailbox_post(&shared_box, &mine[i].mail);
    return NULL;
}

/* The consumer sleeps on the descriptor alone: a lost wake-up would end in the poll's deadline. */
Test(mailbox, many_producers_lose_nothing_and_keep_their_order)
{
    pthread_t threads[PRODUCERS];
    int next[PRODUCERS] = {0};
    int left = PRODUCERS * LETTERS;
    cr_assert_eq(sl_mailbox_open(&shared_box), SLUICE_OK);
    for (int p = 0; p < PRODUCERS; p++) {
        for (int i = 0; i < LETTERS; i++)
            letters[p][i] = (struct letter){.producer = p, .number = i};
        cr_assert_eq(pthread_create(&threads[p], NULL, produce, letters[p]), 0);
    }
    while (left > 0) {
        struct pollfd poll_fd = {.fd = shared_box.fd, .events = POLLIN};
        cr_assert_eq(poll(&poll_fd, 1, 60000), 1, "wake-up lost with %d letters left", left);
        for (struct sl_mail *mail = sl_mailbox_take(&shared_box); mail; mail = mail->next, left--) {
            struct letter *letter = (struct letter *)mail;
            cr_assert_eq(letter->number, next[letter->producer]++);
        }
    }
    for (int p = 0; p < PRODUCERS; p++)
        cr_assert_eq(pthread_join(threads[p], NULL), 0);
    sl_mailbox_close(&shared_box);
}
