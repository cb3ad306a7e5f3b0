/*
 * hand.h: a backend of one rank whose operations complete when the test says so.
 *
 * Copies happen at completion, so a test sees exactly what was and was not done. No groups. Process-wide
 * state: one runtime at a time.
 */
#ifndef TESTS_SUPPORT_HAND_H
#define TESTS_SUPPORT_HAND_H

#include <stdatomic.h>

#include "sluice/backend.h"

struct hand {
    atomic_uint allowed;   /* operations that may complete; HAND_ALL: any number */
    atomic_uint submitted; /* operations accepted so far */
    atomic_uint completed;
    atomic_uint refuse; /* this many submits answer AGAIN first */
    atomic_int fail_at; /* the completion of this number fails; -1: none */
    atomic_uint memory; /* blocks taken and not given back */
    atomic_uint sets;   /* open copy sets */
    atomic_uint calls;  /* that take or give back memory, queues or sets */
};

#define HAND_ALL UINT32_MAX

extern struct hand hand;

/* As at program start: everything completes at once, nothing fails. */
void hand_reset(void);
const struct sluice_backend_ops *hand_backend(void);
/* Lets `count` more operations complete and wakes the runtime. */
void hand_allow(uint32_t count);

#endif
