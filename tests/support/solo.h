/*
 * solo.h: a runtime of one rank on the backend of hand.h, a plan of local tasks, and a record of events.
 */
#ifndef TESTS_SUPPORT_SOLO_H
#define TESTS_SUPPORT_SOLO_H

#include <pthread.h>

#include "sluice/runtime.h"
#include "sluice/transfer.h"
#include "support/hand.h"

enum { SOLO_EVENTS = 4096, SOLO_PARAMS = 4, SOLO_BYTES = 4096 };

struct solo_event {
    uint32_t kind;
    uint32_t window;
    uint32_t param;
    sluice_status status;
    sluice_transfer *transfer;
    char text[256];
};

struct solo {
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t source[SOLO_PARAMS][SOLO_BYTES];
    uint8_t destination[SOLO_PARAMS][SOLO_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct solo_event events[SOLO_EVENTS];
    uint32_t count;
    void (*react)(struct solo *solo, const struct sluice_event *event); /* inside the callback */
    void *context;
};

/* `options` may be NULL: delivery by thread. Destinations are poisoned with 0xee. */
void solo_open(struct solo *solo, const struct sluice_runtime_options *options);
/* The plan: one local task a parameter. `windows` equal windows each. */
void solo_seal(struct solo *solo, uint32_t windows, uint64_t shadow_bytes);
/* Options that send events here. */
struct sluice_transfer_options solo_options(struct solo *solo);
sluice_transfer *solo_submit(struct solo *solo, const struct sluice_transfer_options *options);
void solo_close(struct solo *solo);

/* What the transfer waits for, in the words of its scheduler thread: all that was asked before has reached it then. */
const char *solo_explain(const sluice_transfer *transfer);

/* Waits until `count` events are there (asserts after 20 s). */
void solo_await(struct solo *solo, uint32_t count);
/* Waits for an event of that kind; returns its index. */
uint32_t solo_await_kind(struct solo *solo, uint32_t kind);
uint32_t solo_count_kind(struct solo *solo, uint32_t kind);
_Bool solo_all(const uint8_t *bytes, size_t count, uint8_t value);
void solo_on_event(const struct sluice_event *event, void *user);

#endif
