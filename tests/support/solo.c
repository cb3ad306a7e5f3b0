/* solo.c: see solo.h. */
#include "support/solo.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/core/runtime_object.h"

void solo_on_event(const struct sluice_event *event, void *user)
{
    struct solo *solo = user;
    pthread_mutex_lock(&solo->lock);
    cr_assert_lt(solo->count, SOLO_EVENTS);
    struct solo_event *entry = &solo->events[solo->count++];
    *entry = (struct solo_event){
        .kind = event->kind, .window = event->window, .param = event->param, .transfer = event->transfer};
    if (event->error != NULL) {
        entry->status = event->error->status;
        (void)snprintf(entry->text, sizeof entry->text, "%.*s", (int)sizeof entry->text - 1, event->error->text);
    }
    pthread_cond_broadcast(&solo->changed);
    pthread_mutex_unlock(&solo->lock);
    if (solo->react != NULL)
        solo->react(solo, event);
}

void solo_open(struct solo *solo, const struct sluice_runtime_options *given)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    struct sl_runtime_hooks hooks = {.backend = hand_backend()};
    hand_reset();
    memset(solo, 0, sizeof *solo);
    pthread_mutex_init(&solo->lock, NULL);
    pthread_cond_init(&solo->changed, NULL);
    if (given != NULL)
        options = *given;
    options.world = 1;
    options.on_event = solo_on_event;
    options.user = solo;
    cr_assert_eq(sl_runtime_open_with(&options, &hooks, &solo->runtime), SLUICE_OK, "%s", sluice_last_error()->text);
    memset(solo->destination, 0xee, sizeof solo->destination);
    for (uint32_t p = 0; p < SOLO_PARAMS; p++)
        memset(solo->source[p], (int)(p + 1), SOLO_BYTES);
}

static void add_param(struct solo *solo, uint32_t p, uint64_t id)
{
    struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = SOLO_BYTES, .name = "w"};
    struct sluice_region whole = {.row_bytes = SOLO_BYTES, .rows = 1, .pitch = SOLO_BYTES};
    struct sluice_task task = {
        .id = id,
        .param = p,
        .from = whole,
        .to = whole,
        .source_dtype = SLUICE_DTYPE_U8,
        .destination_dtype = SLUICE_DTYPE_U8,
    };
    cr_assert_eq(sluice_plan_add_param(solo->plan, &param), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_task(solo->plan, &task), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(solo->plan, p, SLUICE_ROLE_SOURCE, solo->source[p], SOLO_BYTES), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(solo->plan, p, SLUICE_ROLE_DESTINATION, solo->destination[p], SOLO_BYTES), SLUICE_OK);
}

void solo_seal(struct solo *solo, uint32_t windows, uint64_t shadow_bytes)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    cr_assert_eq(sluice_plan_create(1, &solo->plan), SLUICE_OK);
    for (uint32_t p = 0; p < SOLO_PARAMS; p++)
        add_param(solo, p, (uint64_t)p * windows / SOLO_PARAMS * 256 + p);
    options.policy = SLUICE_POLICY_WINDOWS; /* 256 task ids a window: local bytes alone would make one */
    options.shadow_bytes = shadow_bytes;
    cr_assert_eq(sluice_plan_seal_wait(solo->plan, solo->runtime, &options, 0), SLUICE_OK, "%s",
                 sluice_last_error()->text);
    cr_assert_eq(sluice_plan_windows(solo->plan), windows);
}

struct sluice_transfer_options solo_options(struct solo *solo)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.on_event = solo_on_event;
    options.user = solo;
    return options;
}

sluice_transfer *solo_submit(struct solo *solo, const struct sluice_transfer_options *options)
{
    sluice_transfer *transfer = NULL;
    cr_assert_eq(sluice_submit(solo->plan, options, &transfer), SLUICE_OK, "%s", sluice_last_error()->text);
    return transfer;
}

const char *solo_explain(const sluice_transfer *transfer)
{
    static char words[1024];
    do
        cr_assert_gt(sluice_transfer_explain(transfer, words, sizeof words), 0u);
    while (strstr(words, "has not answered") != NULL); /* in time: the machine is busy */
    return words;
}

void solo_close(struct solo *solo)
{
    sluice_plan_destroy(solo->plan);
    sluice_runtime_close_wait(solo->runtime);
    cr_assert_eq(atomic_load(&hand.memory), 0u);
    cr_assert_eq(atomic_load(&hand.sets), 0u);
    pthread_mutex_destroy(&solo->lock);
    pthread_cond_destroy(&solo->changed);
}

static void wait_change(struct solo *solo)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    cr_assert_eq(pthread_cond_timedwait(&solo->changed, &solo->lock, &until), 0, "no event came within 20 s");
}

void solo_await(struct solo *solo, uint32_t count)
{
    pthread_mutex_lock(&solo->lock);
    while (solo->count < count)
        wait_change(solo);
    pthread_mutex_unlock(&solo->lock);
}

/* With the lock held: UINT32_MAX when there is none. */
static uint32_t find_kind(const struct solo *solo, uint32_t kind)
{
    for (uint32_t i = 0; i < solo->count; i++)
        if (solo->events[i].kind == kind)
            return i;
    return UINT32_MAX;
}

uint32_t solo_await_kind(struct solo *solo, uint32_t kind)
{
    uint32_t index;
    pthread_mutex_lock(&solo->lock);
    while ((index = find_kind(solo, kind)) == UINT32_MAX)
        wait_change(solo);
    pthread_mutex_unlock(&solo->lock);
    return index;
}

uint32_t solo_count_kind(struct solo *solo, uint32_t kind)
{
    uint32_t count = 0;
    pthread_mutex_lock(&solo->lock);
    for (uint32_t i = 0; i < solo->count; i++)
        count += solo->events[i].kind == kind;
    pthread_mutex_unlock(&solo->lock);
    return count;
}

_Bool solo_all(const uint8_t *bytes, size_t count, uint8_t value)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}
