/*
 * crew.c: see crew.h.
 *
 * Invariants: the lock is held for a few instructions, never while bytes are copied; threads block all signals and
 * call nothing of the application.
 */
#include "runtime/backend/crew.h"

#include <pthread.h>
#include <signal.h>

#include "runtime/backend/strided.h"
#include "runtime/base/error.h"

struct sl_crew {
    struct sl_mem *mem;
    void (*wake)(void *context);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct sl_crew_job *first, *last;
    _Bool closing;
    uint32_t count;
    pthread_t threads[SL_CREW_MAX];
};

static struct sl_crew_job *take_job(struct sl_crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    while (crew->first == NULL && !crew->closing)
        pthread_cond_wait(&crew->work, &crew->lock);
    struct sl_crew_job *job = crew->first;
    if (job != NULL)
        crew->first = job->next;
    pthread_mutex_unlock(&crew->lock);
    return job;
}

static void do_job(const struct sl_crew_job *job)
{
    for (size_t i = 0; i < job->count; i++)
        if (job->digests == NULL)
            sl_strided_copy(&job->copies[i], 0);
        else
            job->digests[i] = sl_strided_digest(&job->copies[i].from, job->copies[i].bytes);
}

static void end_job(struct sl_crew *crew, struct sl_crew_job *job)
{
    pthread_mutex_lock(&crew->lock);
    atomic_store(&job->done, 1);
    pthread_cond_broadcast(&crew->done);
    pthread_mutex_unlock(&crew->lock);
    if (crew->wake != NULL)
        crew->wake(crew->context);
}

static void *be_member(void *argument)
{
    struct sl_crew *crew = argument;
    struct sl_crew_job *job;
    while ((job = take_job(crew)) != NULL) {
        do_job(job);
        end_job(crew, job);
    }
    return NULL;
}

static sluice_status start_threads(struct sl_crew *crew, uint32_t threads)
{
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->count < threads && failed == 0) {
        failed = pthread_create(&crew->threads[crew->count], NULL, be_member, crew);
        if (failed == 0)
            pthread_setname_np(crew->threads[crew->count], "sluice-stage");
        crew->count += failed == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, failed, "crew", "starting a thread that copies");
    return SLUICE_OK;
}

sluice_status sl_crew_open(struct sl_mem *mem, uint32_t threads, void (*wake)(void *context), void *context,
                           struct sl_crew **ret)
{
    SL_ASSERT(threads > 0 && threads <= SL_CREW_MAX);
    struct sl_crew *crew = sl_new(mem, sizeof *crew, "threads that copy");
    if (crew == NULL)
        return SLUICE_NOMEM;
    crew->mem = mem;
    crew->wake = wake;
    crew->context = context;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->done, NULL);
    sluice_status status = start_threads(crew, threads);
    if (status != SLUICE_OK) {
        sl_crew_close(crew);
        return status;
    }
    *ret = crew;
    return SLUICE_OK;
}

void sl_crew_close(struct sl_crew *crew)
{
    if (crew == NULL)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->closing = 1;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->count; i++)
        pthread_join(crew->threads[i], NULL);
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->work);
    pthread_mutex_destroy(&crew->lock);
    sl_free(crew->mem, crew);
}

void sl_crew_push(struct sl_crew *crew, struct sl_crew_job *job)
{
    job->next = NULL;
    atomic_store(&job->done, 0);
    pthread_mutex_lock(&crew->lock);
    if (crew->first == NULL)
        crew->first = job;
    else
        crew->last->next = job;
    crew->last = job;
    pthread_cond_signal(&crew->work);
    pthread_mutex_unlock(&crew->lock);
}

void sl_crew_wait(struct sl_crew *crew, const struct sl_crew_job *job)
{
    pthread_mutex_lock(&crew->lock);
    while (!atomic_load(&job->done))
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}
