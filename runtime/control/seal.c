/*
 * seal.c: one rank's side of the seal.
 *
 * Invariants: the phase moves TERMS -> (RECHECK)* -> done, or to DETAIL, which never ends well. A fault
 * found here is not returned but becomes the next part, so that the round tells every rank. N never
 * falls from one proposal to the next.
 */
#include "runtime/control/seal.h"

#include <string.h>

#include "runtime/base/hash.h"
#include "runtime/control/seal_format.h"

struct sl_seal {
    struct sl_mem *mem;
    const struct sl_plan *plan;
    const struct sl_half *half;
    struct sl_seal_terms terms;
    char *environment;
    enum sl_seal_phase phase;
    _Bool done;
    uint32_t windows, base, blocks, attempt;
    uint32_t source, destination; /* of the pair to list */
    uint16_t *block_of_stream;
    struct sluice_error failure; /* status OK: none */
    uint8_t *part;
    struct sl_seal_result result;
};

static void note_failure(struct sl_seal *seal)
{
    sl_error_take(&seal->failure);
    seal->phase = SL_SEAL_FAILED;
}

static void propose(struct sl_seal *seal, uint32_t at_least)
{
    at_least = seal->terms.windows > at_least ? seal->terms.windows : at_least;
    if (seal->terms.policy != SLUICE_POLICY_BALANCED) {
        seal->windows = at_least;
        return;
    }
    if (sl_propose_windows(seal->half, seal->terms.window_bytes, seal->blocks, seal->block_of_stream, at_least,
                           &seal->windows) != SLUICE_OK)
        note_failure(seal);
}

sluice_status sl_seal_begin(const struct sl_plan *plan, const struct sl_half *half, const struct sl_seal_terms *terms,
                            struct sl_mem *mem, struct sl_seal **ret)
{
    struct sl_seal *seal = sl_new(mem, sizeof(*seal), "a seal");
    if (seal == NULL)
        return SLUICE_NOMEM;
    seal->mem = mem;
    seal->plan = plan;
    seal->half = half;
    seal->terms = *terms;
    seal->phase = SL_SEAL_TERMS;
    seal->blocks = 1;
    seal->environment = sl_strdup(mem, terms->environment == NULL ? "" : terms->environment);
    if (seal->environment == NULL) {
        sl_seal_end(seal);
        return SLUICE_NOMEM;
    }
    propose(seal, 1);
    *ret = seal;
    return SLUICE_OK;
}

void sl_seal_end(struct sl_seal *seal)
{
    if (seal == NULL)
        return;
    sl_free(seal->mem, seal->environment);
    sl_free(seal->mem, seal->block_of_stream);
    sl_free(seal->mem, seal->part);
    sl_free(seal->mem, seal);
}

/* --- parts --- */

static uint64_t padded(uint64_t units)
{
    return units > UINT64_MAX / SLUICE_UNIT ? UINT64_MAX : units * SLUICE_UNIT;
}

static uint64_t landing_bytes(const struct sl_half *half)
{
    uint64_t units = half->local.units;
    for (uint32_t i = 0; i < half->stream_count; i++)
        units += half->streams[i].receive ? half->streams[i].units : 0;
    return padded(units);
}

static void put_own_proposal(const struct sl_seal *seal, struct sl_writer *w)
{
    struct sl_seal_proposal p = {.window_bytes = seal->terms.window_bytes,
                                 .shadow_bytes = seal->terms.shadow_bytes,
                                 .landing_bytes = landing_bytes(seal->half),
                                 .windows = seal->windows,
                                 .base = seal->base,
                                 .blocks = seal->blocks,
                                 .attempt = seal->attempt,
                                 .packed = seal->terms.want_packed || seal->terms.direct_min == 0};
    sl_seal_put_proposal(w, &p);
}

static uint32_t window_of(const struct sl_seal *seal, const struct sl_entry *entry)
{
    return seal->terms.window_of_task == NULL ? 0 : seal->terms.window_of_task[entry->task];
}

/* Where tasks were given to windows, both ends must have given each task to the same one. */
static uint64_t digest_of(const struct sl_seal *seal, const struct sl_stream *stream)
{
    uint64_t digest = sl_stream_digest(seal->plan, seal->half, stream);
    if (seal->terms.window_of_task == NULL)
        return digest;
    for (uint32_t i = 0; i < stream->count; i++)
        digest = sl_mix64(digest + window_of(seal, &seal->half->entries[stream->first + i]) + 1);
    return digest;
}

static void put_terms(const struct sl_seal *seal, struct sl_writer *w)
{
    const struct sl_seal_terms *terms = &seal->terms;
    const uint64_t values[SL_TERMS] = {[SL_TERM_WORLD] = seal->plan->world,
                                       [SL_TERM_POLICY] = (uint64_t)terms->policy,
                                       [SL_TERM_WINDOW_BYTES] = terms->window_bytes,
                                       [SL_TERM_DIRECT_MIN] = terms->direct_min,
                                       [SL_TERM_SLOTS] = terms->slots,
                                       [SL_TERM_FORCE] = terms->force,
                                       [SL_TERM_ITEMS_MAX] = terms->items_max,
                                       [SL_TERM_BACKEND_VERSION] = terms->backend_version};
    put_own_proposal(seal, w);
    for (int i = 0; i < SL_TERMS; i++)
        sl_put_u64(w, values[i]);
    sl_put_text(w, seal->environment, SL_SEAL_ENVIRONMENT_MAX);
    sl_put_u32(w, seal->half->stream_count);
    for (uint32_t i = 0; i < seal->half->stream_count; i++) {
        const struct sl_stream *s = &seal->half->streams[i];
        struct sl_seal_stream stream = {.peer = s->peer,
                                        .receive = s->receive,
                                        .digest = digest_of(seal, s),
                                        .units = s->units,
                                        .bytes = s->bytes,
                                        .count = s->count};
        sl_seal_put_stream(w, &stream);
    }
}

static void put_tasks(const struct sl_seal *seal, const struct sl_stream *stream, struct sl_writer *w)
{
    uint32_t listed = stream == NULL ? 0 : stream->count;
    if (listed > SL_SEAL_DETAIL_MAX / SL_SEAL_TASK_BYTES)
        listed = SL_SEAL_DETAIL_MAX / SL_SEAL_TASK_BYTES;
    sl_put_u32(w, listed);
    for (uint32_t i = 0; i < listed; i++) {
        const struct sl_entry *entry = &seal->half->entries[stream->first + i];
        const struct sluice_task *task = &seal->plan->tasks[entry->task];
        struct sl_seal_task out = {.id = task->id,
                                   .bytes = entry->bytes,
                                   .window = window_of(seal, entry),
                                   .part = task->part,
                                   .dtype = stream->receive ? task->destination_dtype : task->source_dtype};
        sl_seal_put_task(w, &out);
    }
}

static void put_detail(const struct sl_seal *seal, struct sl_writer *w)
{
    uint32_t rank = seal->half->rank;
    const struct sl_stream *stream = NULL;
    if (rank == seal->source)
        stream = sl_half_find(seal->half, seal->destination, 0);
    else if (rank == seal->destination)
        stream = sl_half_find(seal->half, seal->source, 1);
    sl_put_u32(w, seal->source);
    sl_put_u32(w, seal->destination);
    put_tasks(seal, stream, w);
}

sluice_status sl_seal_failed_part(const struct sluice_error *failure, struct sl_mem *mem, uint8_t **ret_data,
                                  size_t *ret_bytes)
{
    struct sl_writer w;
    sl_writer_init(&w, mem);
    sl_seal_put_head(&w, SL_SEAL_FAILED);
    sl_put_error(&w, failure);
    return sl_writer_take(&w, ret_data, ret_bytes);
}

static sluice_status make_part(const struct sl_seal *seal, uint8_t **ret_data, size_t *ret_bytes)
{
    struct sl_writer w;
    sl_writer_init(&w, seal->mem);
    sl_seal_put_head(&w, seal->phase);
    if (seal->phase == SL_SEAL_TERMS)
        put_terms(seal, &w);
    else if (seal->phase == SL_SEAL_RECHECK)
        put_own_proposal(seal, &w);
    else
        put_detail(seal, &w);
    return sl_writer_take(&w, ret_data, ret_bytes);
}

sluice_status sl_seal_next_part(struct sl_seal *seal, struct sl_bytes *ret)
{
    SL_ASSERT(!seal->done);
    uint8_t *data = NULL;
    size_t bytes = 0;
    sluice_status status = seal->phase == SL_SEAL_FAILED ? sl_seal_failed_part(&seal->failure, seal->mem, &data, &bytes)
                                                         : make_part(seal, &data, &bytes);
    if (status != SLUICE_OK)
        return status;
    sl_free(seal->mem, seal->part);
    seal->part = data;
    *ret = (struct sl_bytes){.data = data, .bytes = bytes};
    return SLUICE_OK;
}

/* --- results --- */

static void map_stream(struct sl_seal *seal, uint32_t peer, _Bool receive, uint16_t block)
{
    const struct sl_stream *stream = sl_half_find(seal->half, peer, receive);
    if (stream != NULL)
        seal->block_of_stream[stream - seal->half->streams] = block;
}

static sluice_status read_map(struct sl_seal *seal, const struct sl_seal_answer *answer)
{
    if (answer->map_count == 0)
        return SLUICE_OK;
    seal->block_of_stream = sl_new_array(seal->mem, seal->half->stream_count, sizeof(uint16_t), "the map of blocks");
    if (seal->block_of_stream == NULL)
        return SLUICE_NOMEM;
    struct sl_reader r = sl_reader_of(answer->map, answer->map_count * SL_SEAL_MAP_BYTES);
    for (size_t i = 0; i < answer->map_count; i++) {
        uint32_t source = sl_get_u32(&r);
        uint32_t destination = sl_get_u32(&r);
        uint16_t block = sl_get_u16(&r);
        if (block >= answer->blocks)
            return sl_fail(SLUICE_PROTOCOL, "seal", "rank 0 dealt block %u of %u", block, answer->blocks);
        if (source == seal->half->rank)
            map_stream(seal, destination, 0, block);
        if (destination == seal->half->rank)
            map_stream(seal, source, 1, block);
    }
    return SLUICE_OK;
}

static void finish(struct sl_seal *seal, const struct sl_seal_answer *answer)
{
    seal->done = 1;
    seal->result.rule = (struct sl_rule){.policy = seal->terms.policy,
                                         .window_bytes = seal->terms.window_bytes,
                                         .direct_min = answer->packed ? 0 : seal->terms.direct_min,
                                         .slots = seal->terms.slots,
                                         .windows = answer->windows,
                                         .blocks = seal->blocks};
    seal->result.staged = answer->staged;
    seal->result.block_of_stream = seal->block_of_stream;
}

static sluice_status recheck(struct sl_seal *seal, const struct sl_seal_answer *answer)
{
    sluice_status status = read_map(seal, answer);
    if (status != SLUICE_OK)
        return status;
    seal->phase = SL_SEAL_RECHECK;
    seal->blocks = answer->blocks;
    seal->base = answer->windows;
    seal->attempt = answer->attempt;
    seal->terms.want_packed = answer->packed;
    propose(seal, answer->windows);
    return SLUICE_OK;
}

/* Whether numbers fit each other, so that nothing behind has to ask. */
static _Bool answer_fits(const struct sl_seal *seal, const struct sl_seal_answer *answer)
{
    _Bool mapped = answer->map_count > 0 || seal->block_of_stream != NULL;
    if (answer->windows == 0 || answer->windows > SLUICE_WINDOWS_MAX || answer->staged > answer->windows)
        return 0;
    if (answer->map_count > 0 && (seal->block_of_stream != NULL || answer->kind != SL_SEAL_AGAIN))
        return 0; /* dealt twice, or for nobody */
    if (answer->kind == SL_SEAL_AGREED)
        return answer->windows % seal->blocks == 0;
    return answer->blocks == 1 || (answer->blocks <= UINT16_MAX && mapped);
}

sluice_status sl_seal_feed(struct sl_seal *seal, const uint8_t *data, size_t bytes, _Bool *ret_done)
{
    SL_ASSERT(!seal->done);
    struct sl_reader r = sl_reader_of(data, bytes);
    struct sl_seal_answer answer = {0};
    sl_seal_get_answer(&r, &answer);
    if (!sl_reader_done(&r) || !answer_fits(seal, &answer))
        return sl_fail(SLUICE_PROTOCOL, "seal", "the result of a seal round from rank 0 is malformed (%zu bytes)",
                       bytes);
    if (answer.kind == SL_SEAL_AGREED) {
        finish(seal, &answer);
    } else if (answer.kind == SL_SEAL_AGAIN) {
        sluice_status status = recheck(seal, &answer);
        if (status != SLUICE_OK)
            return status;
    } else {
        seal->phase = SL_SEAL_DETAIL;
        seal->source = answer.source;
        seal->destination = answer.destination;
    }
    *ret_done = seal->done;
    return SLUICE_OK;
}

const struct sl_seal_result *sl_seal_result(const struct sl_seal *seal)
{
    SL_ASSERT(seal->done);
    return &seal->result;
}
