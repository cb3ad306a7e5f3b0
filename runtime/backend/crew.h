/*
 * crew.h: threads that copy or digest bytes which only the processor reaches, begun in the order of handing over.
 *
 * Jobs are handed over and taken back by one thread. A job belongs to the crew from push until `done` is true: then
 * everything that it wrote is visible to whoever read that.
 */
#ifndef SL_BACKEND_CREW_H
#define SL_BACKEND_CREW_H

#include <stdatomic.h>

#include "runtime/base/memory.h"
#include "sluice/backend.h"

enum { SL_CREW_MAX = 16 };

struct sl_crew;

struct sl_crew_job {
    struct sl_crew_job *next;
    const struct sluice_copy *copies;
    size_t count;
    uint64_t *digests; /* NULL: copies; else nothing is copied, and this gets a digest of each one's `from` */
    atomic_bool done;
};

/* `wake` is called by a thread of the crew after each job; may be NULL. NOMEM, SYSTEM. */
sluice_status sl_crew_open(struct sl_mem *mem, uint32_t threads, void (*wake)(void *context), void *context,
                           struct sl_crew **ret);
/* Ends the threads after the jobs that they have. NULL is allowed. */
void sl_crew_close(struct sl_crew *crew);
void sl_crew_push(struct sl_crew *crew, struct sl_crew_job *job);
/* Blocks until the job is done: a few milliseconds at most for a slot's bytes. For closing only. */
void sl_crew_wait(struct sl_crew *crew, const struct sl_crew_job *job);

#endif
