/*
 * agree.c: the rounds of a transfer.
 *
 * Invariants: nothing here runs inside a drain of the engine but what only notes; what is due is done by
 * sl_agree_advance. A check that was launched is answered to the engine once, also when the run ended before it.
 */
#include "runtime/core/agree.h"

#include <stdio.h>
#include <string.h>

#include "runtime/core/checks.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

static _Bool has_bit(uint32_t bits, uint32_t index)
{
    return (bits >> index) & 1u;
}

static uint32_t windows_of(const struct sluice_transfer *transfer)
{
    return transfer->config.windows;
}

/* Which check a window belongs to. */
static uint32_t check_of(const struct sluice_transfer *transfer, uint32_t window)
{
    return window < transfer->config.staged ? 0 : 1;
}

static uint32_t check_begin(const struct sluice_transfer *transfer, uint32_t check)
{
    return check == 0 ? 0 : transfer->config.staged;
}

static uint32_t check_end(const struct sluice_transfer *transfer, uint32_t check)
{
    return check == 0 ? transfer->config.staged : windows_of(transfer);
}

static _Bool has_check(const struct sluice_transfer *transfer, uint32_t check)
{
    return transfer->verify && check_begin(transfer, check) < check_end(transfer, check);
}

static uint32_t count_operations(uint8_t flags)
{
    uint32_t count = 0;
    for (flags &= (uint8_t)~SL_WINDOW_VERIFY; flags != 0; flags &= (uint8_t)(flags - 1))
        count++;
    return count;
}

void sl_agree_count(struct sluice_transfer *transfer)
{
    for (uint32_t w = 0; transfer->verify && w < windows_of(transfer); w++)
        transfer->agree.left[check_of(transfer, w)] += count_operations(transfer->flags[w]);
}

void sl_agree_launched(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window)
{
    uint32_t check = check_of(transfer, window);
    if (!transfer->verify || window + 1 != check_end(transfer, check))
        return;
    transfer->agree.launched |= (uint8_t)(1u << check);
    driver->chores = 1;
}

void sl_agree_done(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window)
{
    uint32_t *left = &transfer->agree.left[check_of(transfer, window)];
    if (!transfer->verify || *left == 0)
        return;
    --*left;
    driver->chores = 1;
}

/* --- giving parts --- */

/* A part: one word that is 1 while the rank takes part, then the words of the round. */
static uint64_t *new_part(const struct sluice_transfer *transfer, uint32_t kind, size_t *ret_words)
{
    size_t params = transfer->sealed->plan->store.param_count;
    *ret_words = 1 + (kind == SL_ROUND_CHANGED ? (params + 63) / 64 : kind == SL_ROUND_RESUME ? 1 : params);
    return sl_new_array(transfer->runtime->mem, *ret_words, sizeof(uint64_t), "part of a round");
}

static void fill_part(const struct sluice_transfer *transfer, uint32_t kind, uint64_t *part)
{
    part[0] = 1;
    if (kind == SL_ROUND_RESUME)
        part[1] = transfer->resume_windows;
    if (kind == SL_ROUND_CHANGED)
        sl_changed_fill(transfer, part + 1);
    if (kind == SL_ROUND_RESUME || kind == SL_ROUND_CHANGED)
        return;
    uint32_t check = kind - SL_ROUND_DIGESTS;
    sl_checks_sum(transfer->checks, check_begin(transfer, check), check_end(transfer, check), part + 1);
}

static void answer_alone(struct sl_driver *driver, const struct sluice_transfer *transfer, uint32_t kind,
                         const uint64_t *part, size_t bytes)
{
    struct sluice_error error = {0};
    struct sl_bytes parts = {(const uint8_t *)part, bytes};
    uint8_t *data = NULL;
    size_t data_bytes = 0;
    struct sl_mem *mem = driver->config.mem;
    sluice_status status = sl_agree_reduce(kind, &parts, 1, mem, &data, &data_bytes, &error);
    sl_agree_round_ended(driver, kind, transfer->config.key, status == SLUICE_OK ? NULL : &error, data, data_bytes);
    sl_free(mem, data);
}

/* Where the round ends at once, the transfer may be over and gone with it. */
static void give(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t kind, _Bool takes_part)
{
    size_t words = 0;
    struct sl_mem *mem = driver->config.mem;
    struct sluice_error error = {.status = SLUICE_NOMEM, .text = "out of memory for a round of the transfer"};
    transfer->agree.given |= (uint8_t)(1u << (kind - SL_ROUND_CHANGED));
    uint64_t *part = new_part(transfer, kind, &words);
    if (part == NULL) {
        sl_agree_round_ended(driver, kind, transfer->config.key, &error, NULL, 0);
        return;
    }
    if (takes_part)
        fill_part(transfer, kind, part);
    const struct sl_link *link = &driver->config.link;
    if (driver->config.world == 1)
        answer_alone(driver, transfer, kind, part, words * sizeof *part);
    else if (link->round(link->context, kind, transfer->config.key, part, words * sizeof *part, UINT64_MAX) !=
             SLUICE_OK) {
        sl_error_take(&error);
        sl_agree_round_ended(driver, kind, transfer->config.key, &error, NULL, 0);
    }
    sl_free(mem, part);
}

static _Bool given(const struct sluice_transfer *transfer, uint32_t kind)
{
    return has_bit(transfer->agree.given, kind - SL_ROUND_CHANGED);
}

void sl_agree_end(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    unsigned ended = atomic_load_explicit(&transfer->ended, memory_order_relaxed);
    sl_changed_note(transfer, ended == SLUICE_EVENT_COMPLETED || ended == SLUICE_EVENT_COMMITTED);
    if (driver->config.world == 1)
        return;
    if (transfer->changed_only && !given(transfer, SL_ROUND_CHANGED))
        give(driver, transfer, SL_ROUND_CHANGED, 0);
    if (transfer->resume && !given(transfer, SL_ROUND_RESUME))
        give(driver, transfer, SL_ROUND_RESUME, 0);
    for (uint32_t check = 0; check < SL_CHECKS; check++)
        if (has_check(transfer, check) && !given(transfer, SL_ROUND_DIGESTS + check))
            give(driver, transfer, SL_ROUND_DIGESTS + check, 0);
}

/* --- which parameters changed --- */

static void tell_gate(struct sl_driver *driver, const struct sluice_transfer *transfer,
                      const struct sluice_error *error)
{
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_GATE,
                                                            .run = transfer->run,
                                                            .index = transfer->agree.changed_gate,
                                                            .error = error});
}

static void fail_gate(struct sl_driver *driver, const struct sluice_transfer *transfer)
{
    struct sluice_error error;
    sl_error_take(&error);
    tell_gate(driver, transfer, &error);
}

/* Every gate that a read of the sources needs. */
static _Bool sources_open(const struct sluice_transfer *transfer)
{
    for (uint32_t i = 0; i < transfer->config.gate_count; i++)
        if (i != transfer->agree.changed_gate && !transfer->gates[i].open && !transfer->gates[i].consumer)
            return 0;
    return 1;
}

static _Bool advance_changed(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    struct sl_agree *agree = &transfer->agree;
    if (agree->changed == SL_CHANGED_GATES && driver->digesting == NULL && sources_open(transfer)) {
        if (sl_changed_start(driver, transfer) != SLUICE_OK) {
            agree->changed = SL_CHANGED_KNOWN;
            fail_gate(driver, transfer);
            return 1;
        }
        agree->changed = agree->source_count > 0 ? SL_CHANGED_DIGESTS : SL_CHANGED_DIGESTED;
        if (agree->source_count > 0)
            sl_launch_sources(driver, transfer);
        return 1;
    }
    if (agree->changed != SL_CHANGED_DIGESTED)
        return 0;
    agree->changed = SL_CHANGED_ROUND;
    give(driver, transfer, transfer->resume ? SL_ROUND_RESUME : SL_ROUND_CHANGED, 1);
    return 1;
}

void sl_agree_digested(struct sl_driver *driver, const struct sluice_completion *completion)
{
    struct sluice_transfer *transfer = driver->digesting;
    driver->digesting = NULL;
    driver->chores = 1;
    SL_ASSERT(transfer != NULL);
    if (transfer->leaving) {
        sl_transfer_leave(driver, transfer);
        return;
    }
    transfer->agree.changed = SL_CHANGED_DIGESTED;
    if (completion->status == SLUICE_OK || transfer->run == SL_NO_RUN)
        return;
    transfer->agree.changed = SL_CHANGED_KNOWN;
    tell_gate(driver, transfer, &completion->error);
}

/* The ranks have told what changed: the transfer gets its windows. */
static void take_changed(struct sl_driver *driver, struct sluice_transfer *transfer, const uint8_t *data, size_t bytes)
{
    size_t words = (transfer->sealed->plan->store.param_count + 63) / 64;
    if (bytes != words * sizeof(uint64_t)) {
        (void)sl_fail(SLUICE_PROTOCOL, "transfer", "rank 0 sent a malformed set of parameters");
        fail_gate(driver, transfer);
        return;
    }
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, data + i * sizeof word, sizeof word);
        transfer->moved[i] = transfer->params != NULL ? transfer->params[i] & word : word;
    }
    if (sl_view_open(transfer->sealed, transfer->moved, words, &transfer->moved_part) == SLUICE_OK)
        transfer->view = &transfer->moved_part;
    if (transfer->view != &transfer->moved_part || sl_transfer_tables(transfer) != SLUICE_OK) {
        fail_gate(driver, transfer);
        return;
    }
    transfer->agree.changed = SL_CHANGED_KNOWN;
    tell_gate(driver, transfer, NULL);
}

/* The ranks have told how many windows they have. */
static void take_resume(struct sl_driver *driver, struct sluice_transfer *transfer, const uint8_t *data, size_t bytes)
{
    uint64_t least = UINT64_MAX;
    if (bytes == sizeof least)
        memcpy(&least, data, sizeof least);
    if (least > transfer->resume_windows) {
        (void)sl_fail(SLUICE_PROTOCOL, "transfer", "rank 0 sent a malformed number of windows");
        fail_gate(driver, transfer);
        return;
    }
    transfer->skipped = (uint32_t)least;
    if (sl_transfer_tables(transfer) != SLUICE_OK) {
        fail_gate(driver, transfer);
        return;
    }
    transfer->agree.changed = SL_CHANGED_KNOWN;
    tell_gate(driver, transfer, NULL);
}

/* --- digests --- */

static void answer_check(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t check,
                         const struct sluice_error *error)
{
    transfer->agree.passed |= (uint8_t)(1u << check);
    sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_DONE,
                                                            .run = transfer->run,
                                                            .index = check_end(transfer, check) - 1,
                                                            .node = SL_NODE_VERIFY,
                                                            .begin_ns = driver->now,
                                                            .end_ns = driver->now,
                                                            .error = error});
}

static void name_bad(const struct sluice_transfer *transfer, const uint8_t *data, size_t bytes,
                     struct sluice_error *ret)
{
    const struct sl_plan *store = &transfer->sealed->plan->store;
    uint32_t param = 0;
    memcpy(&param, data, sizeof param);
    if (param >= store->param_count)
        param = 0;
    size_t others = bytes / sizeof param - 1;
    char more[48] = "";
    if (others > 0)
        SL_IGNORE(snprintf(more, sizeof more, " and %zu more", others));
    SL_IGNORE(sl_error_set(ret, SLUICE_CORRUPT, "transfer",
                           "what landed of parameter %u (%.200s)%s is not what was sent: look for a failing link or "
                           "memory, or a source that changed while it was read, and submit again",
                           param, sl_param_name(store, param), more));
}

static void take_check(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t check, const uint8_t *data,
                       size_t bytes)
{
    struct sluice_error error;
    if (bytes < sizeof(uint32_t)) {
        answer_check(driver, transfer, check, NULL);
        return;
    }
    name_bad(transfer, data, bytes, &error);
    answer_check(driver, transfer, check, &error);
}

static _Bool advance_check(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t check)
{
    const struct sl_agree *agree = &transfer->agree;
    uint8_t bit = (uint8_t)(1u << check);
    if (!(agree->launched & bit) || (agree->passed & bit))
        return 0;
    if (atomic_load_explicit(&transfer->ended, memory_order_relaxed) != 0) {
        answer_check(driver, transfer, check, NULL); /* nobody looks at it any more */
        return 1;
    }
    if (agree->left[check] > 0 || given(transfer, SL_ROUND_DIGESTS + check))
        return 0;
    give(driver, transfer, SL_ROUND_DIGESTS + check, 1);
    return 1;
}

/* --- all runs --- */

static _Bool advance(struct sl_driver *driver, uint32_t run)
{
    _Bool moved = 0;
    for (uint32_t check = 0; check < SL_CHECKS; check++) {
        struct sluice_transfer *transfer = driver->runs[run];
        if (transfer != NULL && transfer->verify)
            moved |= advance_check(driver, transfer, check);
    }
    struct sluice_transfer *transfer = driver->runs[run];
    if (transfer != NULL && (transfer->changed_only || transfer->resume) && atomic_load(&transfer->ended) == 0)
        moved |= advance_changed(driver, transfer);
    return moved;
}

_Bool sl_agree_advance(struct sl_driver *driver)
{
    _Bool moved = 0;
    if (!driver->chores)
        return 0;
    driver->chores = 0;
    for (uint32_t run = 0; run < driver->config.transfers_max; run++)
        moved |= advance(driver, run);
    driver->chores |= moved;
    return moved;
}

void sl_agree_round_ended(struct sl_driver *driver, uint32_t kind, uint64_t id, const struct sluice_error *error,
                          const uint8_t *data, size_t bytes)
{
    struct sluice_transfer *transfer = NULL;
    for (uint32_t run = 0; run < driver->config.transfers_max && transfer == NULL; run++)
        if (driver->runs[run] != NULL && driver->runs[run]->config.key == id)
            transfer = driver->runs[run];
    if (transfer == NULL || atomic_load(&transfer->ended) != 0)
        return; /* it has ended here */
    driver->chores = 1;
    if (kind == SL_ROUND_CHANGED || kind == SL_ROUND_RESUME) {
        if (transfer->agree.changed != SL_CHANGED_ROUND)
            return;
        if (error != NULL)
            tell_gate(driver, transfer, error);
        else if (kind == SL_ROUND_RESUME)
            take_resume(driver, transfer, data, bytes);
        else
            take_changed(driver, transfer, data, bytes);
        return;
    }
    uint32_t check = kind - SL_ROUND_DIGESTS;
    if (check >= SL_CHECKS || has_bit(transfer->agree.passed, check) || !has_bit(transfer->agree.launched, check))
        return;
    if (error != NULL)
        answer_check(driver, transfer, check, error);
    else
        take_check(driver, transfer, check, data, bytes);
}

void sl_agree_drop(struct sluice_transfer *transfer)
{
    struct sl_agree *agree = &transfer->agree;
    struct sl_mem *mem = transfer->plan->mem;
    if (agree->sources != NULL)
        transfer->sealed->driver->config.ops->set_close(agree->sources);
    sl_free(mem, agree->source_params);
    sl_free(mem, agree->source_digests);
    agree->sources = NULL;
    agree->source_params = NULL;
    agree->source_digests = NULL;
    agree->source_count = 0;
    sl_checks_drop(transfer->checks);
    transfer->checks = NULL;
}

/* --- rank 0 --- */

static sluice_status check_parts(const struct sl_bytes *parts, uint32_t world, struct sluice_error *error)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t takes_part = 0;
        if (parts[rank].bytes < sizeof takes_part || parts[rank].bytes % sizeof takes_part != 0 ||
            parts[rank].bytes != parts[0].bytes)
            return sl_error_set(error, SLUICE_PROTOCOL, "transfer", "rank %u sent a malformed part of a round", rank);
        memcpy(&takes_part, parts[rank].data, sizeof takes_part);
        if (takes_part != 1)
            return sl_error_set(error, SLUICE_PEER_FAILED, "transfer", "rank %u gave the transfer up", rank);
    }
    return SLUICE_OK;
}

static void join_word(uint32_t kind, uint64_t *into, uint64_t word)
{
    if (kind == SL_ROUND_RESUME)
        *into = word < *into ? word : *into;
    else
        *into = kind == SL_ROUND_CHANGED ? *into | word : *into + word;
}

/* In place: words become the ids of those that are not 0. */
static size_t keep_ids(uint64_t *words, size_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t word = words[i];
        if (word != 0)
            memcpy((uint8_t *)words + kept++ * sizeof i, &i, sizeof i);
    }
    return kept * sizeof(uint32_t);
}

sluice_status sl_agree_reduce(uint32_t kind, const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem,
                              uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error)
{
    sluice_status status = check_parts(parts, world, error);
    if (status != SLUICE_OK)
        return status;
    size_t count = parts[0].bytes / sizeof(uint64_t) - 1;
    uint64_t *words = sl_new_array(mem, count, sizeof *words, "result of a round");
    if (words == NULL)
        return sl_error_set(error, SLUICE_NOMEM, "transfer", "rank 0 is out of memory for a round");
    if (kind == SL_ROUND_RESUME)
        memset(words, 0xff, count * sizeof *words);
    for (uint32_t rank = 0; rank < world; rank++)
        for (size_t i = 0; i < count; i++) {
            uint64_t word;
            memcpy(&word, parts[rank].data + (i + 1) * sizeof word, sizeof word);
            join_word(kind, &words[i], word);
        }
    *ret_data = (uint8_t *)words;
    *ret_bytes = kind == SL_ROUND_CHANGED || kind == SL_ROUND_RESUME ? count * sizeof *words : keep_ids(words, count);
    return SLUICE_OK;
}
