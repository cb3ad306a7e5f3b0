/*
 * seal_drive.c: seals in progress, on the scheduler thread.
 *
 * Invariants: one seal at a time is under way, in the order of the calls, so that ranks number plans and
 * open the communicator alike; every failure of this rank is told in the next round, so that no rank
 * waits for its deadline; a seal ends exactly once (finish), with one event unless the caller knows.
 */
#include <stdio.h>

#include "runtime/core/runtime_object.h"
#include "runtime/core/sealed.h"

enum { STEPS_MAX = 32 }; /* rounds of one seal; parts of a round's id */

static void give_ready(struct sl_driver *driver, struct sl_sealed *sealed, enum sl_seal_stage stage);
static void give_terms(struct sl_driver *driver, struct sl_sealed *sealed);

static struct sl_sealed *by_begin(struct sl_order *order)
{
    return (struct sl_sealed *)((char *)order - offsetof(struct sl_sealed, begin));
}

static struct sl_sealed *by_orphan(struct sl_order *order)
{
    return (struct sl_sealed *)((char *)order - offsetof(struct sl_sealed, orphan));
}

static void unqueue(struct sl_driver *driver, struct sl_sealed *sealed)
{
    struct sl_sealed *before = NULL;
    struct sl_sealed **link = &driver->seal_head;
    while (*link != sealed) {
        before = *link;
        link = &(*link)->next_seal;
    }
    *link = sealed->next_seal;
    if (driver->seal_tail == sealed)
        driver->seal_tail = before;
    driver->sealing--;
}

static void drop_sealing(struct sl_sealed *sealed)
{
    struct sl_sealing *sealing = sealed->sealing;
    sl_seal_end(sealing->seal);
    sl_free(sealing->mem, sealing->window_of_task);
    sl_free(sealing->mem, sealing);
    sealed->sealing = NULL;
}

/* Writes the outcome where sluice_plan_seal_wait and the plan's functions look. */
static void settle_plan(struct sl_sealed *sealed, const struct sluice_error *error)
{
    struct sluice_plan *plan = sealed->plan;
    pthread_mutex_lock(&plan->lock);
    plan->seal_error = error != NULL ? *error : (struct sluice_error){0};
    if (error == NULL)
        atomic_store(&plan->windows, sealed->schedule.rule.windows);
    if (error == NULL)
        plan->cuts = sealed->schedule.rule;
    if (error != NULL)
        plan->sealed = NULL;
    atomic_store(&plan->state, error == NULL ? SL_PLAN_SEALED : SL_PLAN_OPEN);
    atomic_store(&plan->seal_ended, 1);
    pthread_mutex_unlock(&plan->lock);
}

/* `error` NULL: the plan is sealed. */
static void finish(struct sl_driver *driver, struct sl_sealed *sealed, const struct sluice_error *error)
{
    _Bool silent = sealed->sealing->silent;
    struct sluice_error copy = error != NULL ? *error : (struct sluice_error){0};
    SL_ASSERT(error != NULL || !silent);
    unqueue(driver, sealed);
    drop_sealing(sealed);
    if (!silent) {
        settle_plan(sealed, error != NULL ? &copy : NULL);
        sl_notices_post(driver->config.notices, error != NULL ? SLUICE_EVENT_FAILED : SLUICE_EVENT_SEALED, sealed->plan,
                        driver->config.rank, driver->now, error != NULL ? &copy : NULL);
        sl_delivery_signal(driver->config.delivery);
    }
    if (error != NULL || sealed->orphaned)
        sl_sealed_drop(sealed);
}

static void finish_here(struct sl_driver *driver, struct sl_sealed *sealed)
{
    struct sluice_error error;
    sl_error_take(&error);
    finish(driver, sealed, &error);
}

/* This rank cannot go on; the next round tells the others. */
static void fail_here(struct sl_sealed *sealed)
{
    if (sealed->sealing->failure.status == SLUICE_OK)
        sl_error_take(&sealed->sealing->failure);
}

static void give(struct sl_driver *driver, struct sl_sealed *sealed, enum sl_round_kind kind, const void *data,
                 size_t bytes)
{
    struct sl_sealing *sealing = sealed->sealing;
    uint64_t left = sealing->deadline > driver->now ? sealing->deadline - driver->now : 1;
    uint64_t id = (uint64_t)sealed->number * STEPS_MAX + sealing->step;
    SL_ASSERT(sealing->step < STEPS_MAX);
    const struct sl_link *link = &driver->config.link;
    if (link->round(link->context, kind, id, data, bytes, left) != SLUICE_OK)
        finish_here(driver, sealed);
}

static void build(struct sl_driver *driver, struct sl_sealed *sealed)
{
    struct sl_sealing *sealing = sealed->sealing;
    const struct sl_seal_result *agreed = sl_seal_result(sealing->seal);
    if (sl_sealed_build(sealed, agreed, sealing->window_of_task) != SLUICE_OK)
        fail_here(sealed);
    give_ready(driver, sealed, SL_STAGE_READY);
}

static void feed_terms(struct sl_driver *driver, struct sl_sealed *sealed, const uint8_t *data, size_t bytes)
{
    _Bool done = 0;
    if (sealed->sealing->seal == NULL || sl_seal_feed(sealed->sealing->seal, data, bytes, &done) != SLUICE_OK)
        fail_here(sealed);
    sealed->sealing->step++;
    if (done)
        build(driver, sealed);
    else
        give_terms(driver, sealed);
}

/* A world of one needs no control plane: it reduces its own part. */
static void reduce_alone(struct sl_driver *driver, struct sl_sealed *sealed, const struct sl_bytes *part)
{
    struct sl_mem *mem = sealed->sealing->mem;
    struct sluice_error error;
    uint8_t *data = NULL;
    size_t bytes = 0;
    if (sl_seal_reduce(part, 1, mem, &data, &bytes, &error) != SLUICE_OK) {
        finish(driver, sealed, &error);
        return;
    }
    feed_terms(driver, sealed, data, bytes);
    sl_free(mem, data);
}

static sluice_status terms_part(struct sl_sealing *sealing, struct sl_bytes *ret, uint8_t **ret_owned)
{
    if (sealing->failure.status == SLUICE_OK) {
        sluice_status status = sl_seal_next_part(sealing->seal, ret);
        if (status == SLUICE_OK)
            return SLUICE_OK;
        sl_error_take(&sealing->failure);
    }
    size_t bytes = 0;
    sluice_status status = sl_seal_failed_part(&sealing->failure, sealing->mem, ret_owned, &bytes);
    *ret = (struct sl_bytes){*ret_owned, bytes};
    return status;
}

static void give_terms(struct sl_driver *driver, struct sl_sealed *sealed)
{
    struct sl_sealing *sealing = sealed->sealing;
    struct sl_mem *mem = sealing->mem;
    struct sl_bytes part = {0};
    uint8_t *owned = NULL;
    sealing->stage = SL_STAGE_TERMS;
    if (terms_part(sealing, &part, &owned) != SLUICE_OK)
        finish_here(driver, sealed);
    else if (driver->config.world == 1)
        reduce_alone(driver, sealed, &part);
    else
        give(driver, sealed, SL_ROUND_TERMS, part.data, part.bytes);
    sl_free(mem, owned);
}

static _Bool opens_group(const struct sl_driver *driver)
{
    return driver->group_state != SL_GROUP_OPEN;
}

/* READY or OPENED. */
static void give_ready(struct sl_driver *driver, struct sl_sealed *sealed, enum sl_seal_stage stage)
{
    struct sl_sealing *sealing = sealed->sealing;
    struct sluice_blob blob = {0};
    struct sl_ready_part part;
    if (driver->config.world == 1) {
        struct sluice_error failure = sealing->failure;
        finish(driver, sealed, failure.status != SLUICE_OK ? &failure : NULL);
        return;
    }
    _Bool address = stage == SL_STAGE_READY && opens_group(driver);
    if (address && driver->config.ops->group_address(driver->device, &blob) != SLUICE_OK)
        fail_here(sealed);
    sl_ready_fill(&sealing->failure, address ? &blob : NULL, &part);
    sealing->stage = stage;
    sealing->step++;
    give(driver, sealed, stage == SL_STAGE_READY ? SL_ROUND_READY : SL_ROUND_OPENED, &part, sizeof part);
}

/*
 * Any rank may be a peer of a later plan; only this plan's pairs are warmed up. Those that a later seal adds connect
 * with their first message: a group of its own would come between the groups of runs in an order that no one agreed on.
 */
static void fill_peers(const struct sl_half *half, uint8_t *peers)
{
    for (uint32_t rank = 0; rank < half->world; rank++)
        peers[rank] = rank == half->rank ? 0 : SLUICE_PEER_SEND | SLUICE_PEER_RECEIVE;
    for (uint32_t s = 0; s < half->stream_count; s++) {
        const struct sl_stream *stream = &half->streams[s];
        if (stream->units > 0)
            peers[stream->peer] |= stream->receive ? SLUICE_PEER_WARM_RECEIVE : SLUICE_PEER_WARM_SEND;
    }
}

static sluice_status open_group(struct sl_driver *driver, struct sl_sealed *sealed, const uint8_t *data, size_t bytes)
{
    uint32_t world = driver->config.world;
    struct sl_mem *mem = sealed->sealing->mem;
    struct sluice_blob *blobs = NULL;
    sluice_status status = sl_ready_blobs(data, bytes, world, mem, &blobs);
    if (status != SLUICE_OK)
        return status;
    uint8_t *peers = sl_new(mem, world, "peers");
    status = peers != NULL ? SLUICE_OK : SLUICE_NOMEM;
    if (status == SLUICE_OK)
        fill_peers(&sealed->half, peers);
    struct sluice_group_config config = {.size = sizeof config,
                                         .rank = driver->config.rank,
                                         .world = world,
                                         .blobs = blobs,
                                         .peers = peers,
                                         .lent = atomic_load(&driver->lent)};
    if (status == SLUICE_OK)
        status = driver->config.ops->group_open(driver->device, &config, SL_COOKIE_GROUP_OPEN, &driver->group);
    sl_free(mem, peers);
    sl_free(mem, blobs);
    return status;
}

/* The others may wait for this rank in their own opening, for as long as a seal may take. */
static void tell_no_group(struct sl_driver *driver, const struct sl_sealed *sealed)
{
    const struct sluice_error *failure = &sealed->sealing->failure;
    struct sl_note note = {.kind = SL_NOTE_SEAL_FAILED,
                           .key = SL_KEY_NONE,
                           .a = sealed->number,
                           .rank = driver->config.rank,
                           .status = failure->status};
    snprintf(note.text, sizeof note.text, "%.*s", (int)sizeof note.text - 1, failure->text);
    SL_IGNORE(driver->config.link.tell(driver->config.link.context, &note));
}

static void on_ready(struct sl_driver *driver, struct sl_sealed *sealed, const uint8_t *data, size_t bytes)
{
    if (!opens_group(driver)) {
        finish(driver, sealed, NULL);
        return;
    }
    if (open_group(driver, sealed, data, bytes) != SLUICE_OK) {
        fail_here(sealed);
        tell_no_group(driver, sealed);
        give_ready(driver, sealed, SL_STAGE_OPENED);
        return;
    }
    driver->group_state = SL_GROUP_OPENING;
    sealed->sealing->stage = SL_STAGE_GROUP;
}

static void close_group(struct sl_driver *driver)
{
    if (driver->group != NULL)
        driver->config.ops->group_close(driver->group);
    driver->group = NULL;
    driver->group_state = SL_GROUP_NONE;
}

void sl_seal_group_opened(struct sl_driver *driver, const struct sluice_completion *completion)
{
    SL_ASSERT(driver->group_state == SL_GROUP_OPENING);
    driver->group_state = SL_GROUP_OPEN;
    if (completion->status != SLUICE_OK)
        close_group(driver);
    struct sl_sealed *sealed = driver->seal_head;
    if (sealed == NULL || sealed->sealing->stage != SL_STAGE_GROUP)
        return; /* its seal was failed meanwhile */
    if (completion->status != SLUICE_OK && sealed->sealing->failure.status == SLUICE_OK) {
        sealed->sealing->failure = completion->error;
        tell_no_group(driver, sealed);
    }
    give_ready(driver, sealed, SL_STAGE_OPENED);
}

void sl_seal_round_ended(struct sl_driver *driver, uint32_t kind, uint64_t id, const struct sluice_error *error,
                         const uint8_t *data, size_t bytes)
{
    struct sl_sealed *sealed = driver->seal_head;
    if (sealed == NULL || id != (uint64_t)sealed->number * STEPS_MAX + sealed->sealing->step)
        return; /* of a seal that has ended here */
    if (error != NULL) {
        if (kind == SL_ROUND_OPENED)
            close_group(driver);
        finish(driver, sealed, error);
        return;
    }
    if (kind == SL_ROUND_TERMS)
        feed_terms(driver, sealed, data, bytes);
    else if (kind == SL_ROUND_READY)
        on_ready(driver, sealed, data, bytes);
    else
        finish(driver, sealed, NULL);
}

void sl_seal_begin_order(struct sl_driver *driver, struct sl_order *order)
{
    struct sl_sealed *sealed = by_begin(order);
    sealed->driver = driver;
    sealed->number = driver->seal_count++;
    sealed->next = driver->seals;
    driver->seals = sealed;
    sealed->next_seal = NULL;
    if (driver->seal_tail != NULL)
        driver->seal_tail->next_seal = sealed;
    else
        driver->seal_head = sealed;
    driver->seal_tail = sealed;
    driver->sealing++;
}

void sl_seal_orphan_order(struct sl_driver *driver, struct sl_order *order)
{
    struct sl_sealed *sealed = by_orphan(order);
    (void)driver;
    sealed->orphaned = 1;
    if (sealed->sealing == NULL && !sealed->dropped)
        sl_sealed_drop(sealed);
    sl_sealed_release(sealed);
}

static void abort_group(struct sl_driver *driver, struct sl_sealing *sealing)
{
    sealing->aborted = 1;
    sealing->deadline = sl_deadline(driver->now, driver->config.abort_timeout_ns);
    SL_IGNORE(driver->config.ops->abort(driver->group));
}

void sl_seal_heard(struct sl_driver *driver, const struct sl_note *note)
{
    struct sl_sealed *sealed = driver->seal_head;
    if (sealed == NULL || sealed->number != note->a || sealed->sealing->stage != SL_STAGE_GROUP ||
        sealed->sealing->aborted || note->rank == driver->config.rank)
        return;
    sl_error_set(&sealed->sealing->failure, SLUICE_PEER_FAILED, "seal", "rank %u: %s", note->rank, note->text);
    abort_group(driver, sealed->sealing);
}

void sl_seal_lost(struct sl_driver *driver, const struct sluice_error *error)
{
    struct sl_sealed *sealed = driver->seal_head;
    if (sealed == NULL || sealed->sealing->stage != SL_STAGE_GROUP || sealed->sealing->aborted)
        return; /* rounds fail by themselves */
    if (sealed->sealing->failure.status == SLUICE_OK)
        sealed->sealing->failure = *error;
    abort_group(driver, sealed->sealing);
}

/* The communicator did not open in time: it is aborted once, then awaited once more. */
static _Bool late_group(struct sl_driver *driver, struct sl_sealed *sealed)
{
    struct sl_sealing *sealing = sealed->sealing;
    if (sealing->stage != SL_STAGE_GROUP || driver->now < sealing->deadline)
        return 0;
    SL_IGNORE(sl_fail(SLUICE_TIMEOUT, "seal", "the communicator did not open within the seal deadline"));
    fail_here(sealed);
    if (!sealing->aborted) {
        abort_group(driver, sealing);
        return 1;
    }
    sl_driver_poison(driver, &sealing->failure);
    give_ready(driver, sealed, SL_STAGE_OPENED);
    return 1;
}

_Bool sl_seal_advance(struct sl_driver *driver)
{
    struct sl_sealed *sealed = driver->seal_head;
    struct sluice_error error;
    if (sealed == NULL)
        return 0;
    if (sealed->sealing->stage != SL_STAGE_QUEUED)
        return late_group(driver, sealed);
    if (driver->closing && !sealed->sealing->silent) {
        SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "seal", "the runtime was closed before the seal began"));
        finish(driver, sealed, &error);
        return 1;
    }
    sealed->sealing->deadline = sl_deadline(driver->now, sealed->sealing->timeout_ns);
    give_terms(driver, sealed);
    return 1;
}

uint64_t sl_seal_timer(const struct sl_driver *driver)
{
    const struct sl_sealed *sealed = driver->seal_head;
    return sealed != NULL && sealed->sealing->stage == SL_STAGE_GROUP ? sealed->sealing->deadline : UINT64_MAX;
}

void sl_seal_fail_all(struct sl_driver *driver, const struct sluice_error *error, _Bool silent_too)
{
    if (driver->group_state == SL_GROUP_OPENING)
        SL_IGNORE(driver->config.ops->abort(driver->group));
    struct sl_sealed *sealed = driver->seal_head;
    while (sealed != NULL) {
        struct sl_sealed *next = sealed->next_seal;
        if (silent_too || !sealed->sealing->silent)
            finish(driver, sealed, error);
        sealed = next;
    }
}
