/*
 * mailbox.c: producers, wakers and one sleeping consumer, for the thread sanitizer. The consumer frees
 * what it takes, so a producer that touched a node after its post would be seen. A lost wake-up ends
 * in the poll's deadline.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/error.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/memory.h"

enum { PRODUCERS = 4, LETTERS = 20000 };

struct letter {
    struct sl_mail mail;
    int producer;
    int number;
};

static struct sl_mailbox box;
static struct sl_mem *memory;
static int names[PRODUCERS];

static void *produce(void *argument)
{
    int name = *(int *)argument;
    for (int i = 0; i < LETTERS; i++) {
        struct letter *letter = sl_new(memory, sizeof *letter, "letter");
        SL_ASSERT(letter != NULL);
        letter->producer = name;
        letter->number = i;
        sl_mailbox_post(&box, &letter->mail);
    }
    return NULL;
}

static void *wake(void *unused)
{
    (void)unused;
    for (int i = 0; i < LETTERS; i++)
        sl_mailbox_wake(&box);
    return NULL;
}

static int consume(int *next)
{
    int taken = 0;
    struct pollfd poll_fd = {.fd = box.fd, .events = POLLIN};
    if (poll(&poll_fd, 1, 60000) != 1) {
        fprintf(stderr, "stress mailbox: a wake-up was lost\n");
        exit(1);
    }
    for (struct sl_mail *mail = sl_mailbox_take(&box); mail; taken++) {
        struct letter *letter = (struct letter *)mail;
        mail = mail->next;
        SL_ASSERT(letter->number == next[letter->producer]);
        next[letter->producer]++;
        sl_free(memory, letter);
    }
    return taken;
}

int main(void)
{
    pthread_t threads[PRODUCERS + 1];
    int next[PRODUCERS] = {0};
    memory = sl_mem_open();
    SL_ASSERT(memory && sl_mailbox_open(&box) == SLUICE_OK);
    for (int i = 0; i < PRODUCERS; i++) {
        names[i] = i;
        SL_ASSERT(pthread_create(&threads[i], NULL, produce, &names[i]) == 0);
    }
    SL_ASSERT(pthread_create(&threads[PRODUCERS], NULL, wake, NULL) == 0);
    for (int left = PRODUCERS * LETTERS; left > 0;)
        left -= consume(next);
    for (int i = 0; i <= PRODUCERS; i++)
        SL_ASSERT(pthread_join(threads[i], NULL) == 0);
    sl_mailbox_close(&box);
    sl_mem_close(memory);
    return 0;
}
