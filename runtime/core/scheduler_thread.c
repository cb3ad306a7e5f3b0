/*
 * scheduler_thread.c: a thread around a driver.
 *
 * Invariants: all signals are blocked; it sleeps on the mailbox's descriptor alone, after it has asked
 * the backend to wake it; `dead` is set before the mailbox is emptied for the last time, so that no
 * order is lost; it closes what it opened.
 */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "runtime/core/runtime_object.h"
#include "runtime/core/sealed.h"
#include "runtime/core/transfer_object.h"

/* While the backend has launches in progress it wants to be polled (NCCL's non-blocking mode). */
#define BUSY_SLEEP_NS (100 * SLUICE_MICROSECOND)

static void sleep_until(const struct sl_driver *driver, uint64_t now, uint64_t until)
{
    struct pollfd wait = {.fd = driver->box.fd, .events = POLLIN};
    uint64_t left = until - now;
    struct timespec span = {.tv_sec = (time_t)(left / SLUICE_SECOND), .tv_nsec = (long)(left % SLUICE_SECOND)};
    SL_IGNORE(ppoll(&wait, 1, until == UINT64_MAX ? NULL : &span, NULL));
}

static void run(struct sluice_runtime *runtime)
{
    struct sl_driver *driver = &runtime->driver;
    while (!driver->finished) {
        uint64_t next = sl_driver_step(driver, sl_now(runtime->clock));
        uint64_t now = sl_now(runtime->clock);
        if (driver->finished || next <= now)
            continue;
        if (!sl_driver_arm(driver) && next - now > BUSY_SLEEP_NS)
            next = now + BUSY_SLEEP_NS;
        sleep_until(driver, now, next);
    }
}

/* Orders that came before `dead` are acted on; runs and seals among them fail with CLOSED. */
static void empty_mailbox(struct sl_driver *driver)
{
    struct sluice_error error;
    struct sl_mail *mail = NULL;
    SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "runtime", "the runtime was closed"));
    while ((mail = sl_mailbox_take(&driver->box)) != NULL)
        while (mail != NULL) {
            struct sl_order *order = (struct sl_order *)mail;
            mail = mail->next;
            order->act(driver, order);
        }
    sl_seal_fail_all(driver, &error, 1);
}

void sl_runtime_end(struct sluice_runtime *runtime)
{
    struct sl_driver *driver = &runtime->driver;
    sl_control_close(runtime->control);
    pthread_mutex_lock(&runtime->lock);
    runtime->dead = 1;
    pthread_mutex_unlock(&runtime->lock);
    empty_mailbox(driver);
    /* What is still in flight may use staging and sets: then they are left as they are. */
    while (sl_transfer_leave_late(driver, UINT64_MAX))
        ;
    if (driver->in_flight == 0)
        sl_transfer_free_stuck(driver);
    while (driver->in_flight == 0 && driver->seals != NULL)
        sl_sealed_drop(driver->seals);
    sl_driver_close(driver);
    sl_notices_post(&runtime->notices, SLUICE_EVENT_CLOSED, NULL, runtime->identity.rank, sl_now(runtime->clock), NULL);
    if (!driver->abandoned)
        sl_runtime_release(runtime); /* the scheduler's */
}

static void report_opened(struct sluice_runtime *runtime, sluice_status status)
{
    pthread_mutex_lock(&runtime->lock);
    if (status != SLUICE_OK)
        sl_error_take(&runtime->open_error);
    runtime->dead = status != SLUICE_OK;
    runtime->opened = 1;
    pthread_cond_broadcast(&runtime->opened_changed);
    pthread_mutex_unlock(&runtime->lock);
}

static void *scheduler(void *context)
{
    struct sluice_runtime *runtime = context;
    SL_IGNORE(prctl(PR_SET_TIMERSLACK, 1)); /* the default lets sleeps of 40 us last 90 */
    sluice_status status = sl_driver_open(&runtime->driver, &runtime->driver_config);
    report_opened(runtime, status);
    if (status != SLUICE_OK)
        return NULL;
    run(runtime);
    sl_runtime_end(runtime);
    return NULL;
}

static sluice_status start_thread(struct sluice_runtime *runtime)
{
    sigset_t all, before;
    sigfillset(&all);
    SL_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    int failed = pthread_create(&runtime->thread, NULL, scheduler, runtime);
    SL_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, failed, "runtime",
                              "the scheduler thread could not be started");
    runtime->thread_started = 1;
    return SLUICE_OK;
}

sluice_status sl_scheduler_start(struct sluice_runtime *runtime)
{
    if (runtime->hooks.threadless)
        report_opened(runtime, sl_driver_open(&runtime->driver, &runtime->driver_config));
    else if (start_thread(runtime) != SLUICE_OK)
        return SLUICE_SYSTEM;
    pthread_mutex_lock(&runtime->lock);
    while (!runtime->opened)
        pthread_cond_wait(&runtime->opened_changed, &runtime->lock);
    struct sluice_error error = runtime->open_error;
    pthread_mutex_unlock(&runtime->lock);
    return error.status == SLUICE_OK ? SLUICE_OK : sl_fail_copy(&error);
}

void sl_scheduler_join(struct sluice_runtime *runtime)
{
    if (!runtime->thread_started)
        return;
    runtime->thread_started = 0;
    SL_ASSERT(pthread_join(runtime->thread, NULL) == 0);
}
