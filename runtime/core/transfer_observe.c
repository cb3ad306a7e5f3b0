/*
 * transfer_observe.c: progress and explanation for any thread.
 *
 * Invariants: a snapshot is read until its sequence number did not change; words about a running
 * transfer are made by the scheduler thread, and awaited for a short time only.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

union snapshot_copy {
    struct sluice_progress progress;
    uint64_t words[SL_PROGRESS_WORDS];
};

/* False before the first publication. */
static _Bool read_snapshot(const struct sl_snapshot *snapshot, union snapshot_copy *ret)
{
    for (;;) {
        uint_fast32_t before = atomic_load_explicit(&snapshot->sequence, memory_order_acquire);
        if (before == 0)
            return 0;
        for (size_t i = 0; i < SL_PROGRESS_WORDS; i++)
            ret->words[i] = atomic_load_explicit(&snapshot->words[i], memory_order_acquire);
        if (before % 2 == 0 && atomic_load_explicit(&snapshot->sequence, memory_order_relaxed) == before)
            return 1;
    }
}

static enum sluice_transfer_state end_state(unsigned ended)
{
    if (ended == SLUICE_EVENT_FAILED)
        return SLUICE_TRANSFER_FAILED;
    return ended == SLUICE_EVENT_CANCELLED ? SLUICE_TRANSFER_CANCELLED : SLUICE_TRANSFER_DONE;
}

/* Brings a snapshot from when it was taken to now. */
static void age(const struct sluice_transfer *transfer, uint64_t taken_ns, struct sluice_progress *progress)
{
    unsigned ended = atomic_load_explicit(&transfer->ended, memory_order_acquire);
    if (ended != 0) {
        progress->state = end_state(ended);
        progress->left_ns = 0;
        return;
    }
    uint64_t now = sl_now(transfer->runtime->clock);
    uint64_t passed = now > taken_ns ? now - taken_ns : 0;
    progress->elapsed_ns += passed;
    if (progress->left_ns != UINT64_MAX)
        progress->left_ns -= passed < progress->left_ns ? passed : progress->left_ns;
}

sluice_status sluice_transfer_progress(const sluice_transfer *transfer, struct sluice_progress *ret)
{
    if (transfer == NULL || ret == NULL || ret->size < sizeof ret->size)
        return sl_fail(SLUICE_INVALID, "progress", "a transfer and a struct whose size is set are needed");
    union snapshot_copy copy = {.words = {0}};
    if (!read_snapshot(&transfer->snapshot, &copy)) {
        /* What was fixed by submit: of a partial transfer the whole plan, until the scheduler thread has begun it. */
        const struct sl_view *whole = &transfer->sealed->full;
        copy.progress.windows_total = transfer->config.windows;
        copy.progress.version = transfer->config.version;
        copy.progress.params_total = whole->arrival_count;
        copy.progress.bytes_total = whole->bytes;
        copy.progress.left_ns = UINT64_MAX;
        copy.words[SL_PROGRESS_WORDS - 1] = transfer->submitted_ns;
    }
    uint32_t size = ret->size < sizeof copy.progress ? ret->size : (uint32_t)sizeof copy.progress;
    age(transfer, copy.words[SL_PROGRESS_WORDS - 1], &copy.progress);
    copy.progress.size = size;
    memcpy(ret, &copy.progress, size);
    return SLUICE_OK;
}

enum { EXPLAIN_MAX = 1024 };
#define EXPLAIN_WAIT (200 * SLUICE_MILLISECOND)

/* A question to the scheduler thread; whoever drops it last frees it. */
struct question {
    struct sl_order order;
    atomic_uint references;
    struct sluice_transfer *transfer;
    atomic_bool answered;
    char text[EXPLAIN_MAX];
};

static void drop_question(struct question *question)
{
    if (atomic_fetch_sub(&question->references, 1) != 1)
        return;
    struct sluice_transfer *transfer = question->transfer;
    sl_free(transfer->runtime->mem, question);
    sl_transfer_release(transfer);
}

static void answer(struct sl_driver *driver, struct sl_order *order)
{
    struct question *question = (struct question *)order;
    const struct sluice_transfer *transfer = question->transfer;
    if (transfer->run != SL_NO_RUN)
        SL_IGNORE(
            sl_engine_explain(driver->engine, transfer->run, driver->now, question->text, sizeof question->text) == 0);
    atomic_store(&question->answered, 1);
    sl_delivery_signal(driver->config.delivery);
    drop_question(question);
}

static _Bool is_answered(void *context)
{
    return atomic_load(&((struct question *)context)->answered);
}

static size_t say(char *text, size_t bytes, const char *what)
{
    int length = snprintf(text, bytes, "%s", what);
    return length < 0 ? 0 : (size_t)length;
}

/* What can be said without the scheduler thread. */
static const char *plain_words(const struct sluice_transfer *transfer)
{
    switch (atomic_load_explicit(&transfer->ended, memory_order_acquire)) {
    case 0:
        return "the scheduler thread is busy and has not answered";
    case SLUICE_EVENT_FAILED:
    case SLUICE_EVENT_CANCELLED:
        return transfer->error.text;
    default:
        return "the transfer is complete";
    }
}

static struct question *ask(struct sluice_transfer *transfer)
{
    struct sluice_runtime *runtime = transfer->runtime;
    struct question *question = sl_new(runtime->mem, sizeof *question, "question");
    if (question == NULL)
        return NULL;
    question->order.act = answer;
    question->transfer = transfer;
    sl_transfer_keep(transfer);
    atomic_init(&question->references, 2);
    if (sl_runtime_post(runtime, &question->order))
        return question;
    drop_question(question);
    drop_question(question);
    return NULL;
}

size_t sluice_transfer_explain(const sluice_transfer *transfer, char *text, size_t bytes)
{
    if (transfer == NULL || sl_runtime_check(transfer->runtime, "transfer") != SLUICE_OK)
        return say(text, bytes, "no transfer");
    struct sluice_transfer *own = (struct sluice_transfer *)(uintptr_t)transfer; /* for its counts */
    struct question *question = NULL;
    if (atomic_load_explicit(&transfer->ended, memory_order_acquire) == 0)
        question = ask(own);
    if (question == NULL)
        return say(text, bytes, plain_words(transfer));
    uint64_t deadline = sl_deadline(sl_now(sl_clock_system()), EXPLAIN_WAIT);
    _Bool threadless = transfer->runtime->hooks.threadless;
    if (threadless)
        SL_IGNORE(sl_runtime_step(own->runtime, sl_now(own->runtime->clock)) == 0);
    else
        SL_IGNORE(sl_delivery_wait(&own->runtime->delivery, SL_WAIT_OTHERS, is_answered, question, deadline));
    const char *words = is_answered(question) && question->text[0] != '\0' ? question->text : plain_words(transfer);
    size_t length = say(text, bytes, words);
    drop_question(question);
    return length;
}
