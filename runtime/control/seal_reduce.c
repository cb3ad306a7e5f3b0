/*
 * seal_reduce.c: rank 0's side of a round: what all ranks must have alike, and the agreement on N.
 *
 * Invariants: the result is a function of the parts alone; the first disagreement found is the one of
 * the lowest rank with rank 0. Dealing into blocks happens here, once, from the pair totals.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/int128.h"
#include "runtime/base/parse.h"
#include "runtime/control/seal_format.h"

sluice_status sl_seal_bad_part(struct sl_seal_round *round, uint32_t rank)
{
    return sl_error_set(round->error, SLUICE_PROTOCOL, "seal", "rank %u gave a malformed part to a seal round", rank);
}

/* --- agreeing on N --- */

static uint32_t staged_windows(const struct sl_seal_proposal *p, uint32_t windows, uint32_t blocks, _Bool proportional)
{
    if (p->shadow_bytes >= p->landing_bytes)
        return windows;
    if (!proportional)
        return 0;
    uint32_t staged = (uint32_t)sl_mul_div(windows, p->shadow_bytes, p->landing_bytes);
    return staged - staged % blocks; /* a prefix of whole shares is in proportion to the whole */
}

static void stage(const struct sl_seal_round *round, const struct sl_seal_proposal *proposals, _Bool proportional,
                  struct sl_seal_answer *answer)
{
    answer->staged = answer->windows;
    for (uint32_t i = 0; i < round->world; i++) {
        uint32_t staged = staged_windows(&proposals[i], answer->windows, answer->blocks, proportional);
        if (staged < answer->staged)
            answer->staged = staged;
    }
}

static sluice_status too_many_rechecks(struct sl_seal_round *round, const struct sl_seal_proposal *p, uint32_t rank)
{
    char limit[32];
    return sl_error_set(round->error, SLUICE_LIMIT, "seal",
                        "after %u rounds rank %u still needs %u windows to keep each within window_bytes %s: raise "
                        "window_bytes",
                        SL_SEAL_RECHECKS, rank, p->windows, sl_format_bytes(p->window_bytes, limit, sizeof(limit)));
}

sluice_status sl_seal_settle(struct sl_seal_round *round, const struct sl_seal_proposal *proposals, uint32_t base,
                             struct sl_seal_answer *ret)
{
    _Bool all_equal = 1;
    uint32_t top = 0;
    for (uint32_t i = 0; i < round->world; i++) {
        if (proposals[i].windows > proposals[top].windows)
            top = i;
        all_equal = all_equal && proposals[i].windows == proposals[0].windows;
        ret->packed = ret->packed || proposals[i].packed;
    }
    ret->windows = proposals[top].windows;
    ret->blocks = proposals[0].blocks;
    _Bool agreed = all_equal && (base == 0 || base == ret->windows);
    if (!agreed && proposals[0].attempt >= SL_SEAL_RECHECKS)
        return too_many_rechecks(round, &proposals[top], top);
    ret->kind = agreed ? SL_SEAL_AGREED : SL_SEAL_AGAIN;
    ret->attempt = proposals[0].attempt + 1;
    if (agreed)
        stage(round, proposals, 1, ret);
    return SLUICE_OK;
}

sluice_status sl_seal_reduce_recheck(struct sl_seal_round *round, struct sl_writer *out)
{
    struct sl_seal_proposal *all = sl_new_array(round->mem, round->world, sizeof(*all), "proposals");
    if (all == NULL)
        return sl_error_set(round->error, SLUICE_NOMEM, "seal", "out of memory for the proposals of a seal");
    sluice_status status = SLUICE_OK;
    for (uint32_t i = 0; i < round->world && status == SLUICE_OK; i++) {
        sl_seal_get_proposal(&round->readers[i], &all[i]);
        _Bool same = all[i].base == all[0].base && all[i].blocks == all[0].blocks && all[i].attempt == all[0].attempt;
        if (!sl_reader_done(&round->readers[i]) || !same || all[i].windows < all[i].base)
            status = sl_seal_bad_part(round, i);
    }
    struct sl_seal_answer answer = {0};
    if (status == SLUICE_OK)
        status = sl_seal_settle(round, all, all[0].base, &answer);
    if (status == SLUICE_OK)
        sl_seal_put_answer(out, &answer);
    sl_free(round->mem, all);
    return status;
}

/* --- the terms --- */

struct terms {
    struct sl_seal_proposal proposal;
    uint64_t values[SL_TERMS];
    const char *environment; /* not terminated */
    size_t environment_bytes;
};

/* A stream and whose it is. */
struct seen {
    uint32_t source, destination;
    struct sl_seal_stream stream;
};

struct gathered {
    struct sl_seal_round *round;
    struct terms *terms; /* one a rank */
    struct seen *seen;
    size_t seen_count, seen_capacity;
    _Bool crowded; /* some rank has more streams than a group may hold */
};

static const char *term_name(int term)
{
    static const char *const names[SL_TERMS] = {"plan's world", "policy", "window_bytes", "direct_min",
                                                "slots",        "force",  "items_max",    "transport version"};
    return names[term];
}

static const char *term_text(int term, uint64_t value, char *text, size_t capacity)
{
    static const char *const policies[] = {"balanced", "ordered", "lockstep", "windows", "single"};
    if (term == SL_TERM_POLICY && value < SL_COUNT(policies))
        return policies[value];
    (void)snprintf(text, capacity, "%" PRIu64, value);
    return text;
}

static sluice_status compare_values(struct gathered *g, uint32_t rank)
{
    char mine[32];
    char theirs[32];
    for (int i = 0; i < SL_TERMS; i++) {
        uint64_t a = g->terms[0].values[i];
        uint64_t b = g->terms[rank].values[i];
        if (a != b)
            return sl_error_set(g->round->error, SLUICE_MISMATCH, "seal", "%s differs: rank 0 has %s, rank %u has %s",
                                term_name(i), term_text(i, a, mine, sizeof(mine)), rank,
                                term_text(i, b, theirs, sizeof(theirs)));
    }
    return SLUICE_OK;
}

static size_t line_bytes(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end == NULL ? bytes : (size_t)(end - text);
}

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t common = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = common == 0 ? 0 : memcmp(a, b, common);
    return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static size_t name_bytes(const char *line, size_t bytes)
{
    const char *end = bytes == 0 ? NULL : memchr(line, '=', bytes);
    return end == NULL ? bytes : (size_t)(end - line);
}

#define LINE_SHOWN 100 /* bytes of a variable in an error */

static sluice_status environment_differs(struct gathered *g, uint32_t rank, const char *a, size_t a_bytes,
                                         const char *b, size_t b_bytes)
{
    int order = compare_names(a, name_bytes(a, a_bytes), b, name_bytes(b, b_bytes));
    _Bool a_has = a_bytes > 0 && (b_bytes == 0 || order <= 0);
    _Bool b_has = b_bytes > 0 && (a_bytes == 0 || order >= 0);
    int a_shown = a_bytes > LINE_SHOWN ? LINE_SHOWN : (int)a_bytes;
    int b_shown = b_bytes > LINE_SHOWN ? LINE_SHOWN : (int)b_bytes;
    if (a_has && b_has)
        return sl_error_set(g->round->error, SLUICE_MISMATCH, "seal",
                            "environment differs: rank 0 has %.*s, rank %u has %.*s; set it alike on all ranks",
                            a_shown, a, rank, b_shown, b);
    if (a_has)
        return sl_error_set(g->round->error, SLUICE_MISMATCH, "seal",
                            "environment differs: rank 0 has %.*s, rank %u has it not set; set it alike on all ranks",
                            a_shown, a, rank);
    return sl_error_set(g->round->error, SLUICE_MISMATCH, "seal",
                        "environment differs: rank %u has %.*s, rank 0 has it not set; set it alike on all ranks", rank,
                        b_shown, b);
}

static sluice_status compare_environment(struct gathered *g, uint32_t rank)
{
    const char *a = g->terms[0].environment;
    const char *b = g->terms[rank].environment;
    size_t a_left = g->terms[0].environment_bytes;
    size_t b_left = g->terms[rank].environment_bytes;
    while (a_left > 0 || b_left > 0) {
        size_t a_line = a_left == 0 ? 0 : line_bytes(a, a_left);
        size_t b_line = b_left == 0 ? 0 : line_bytes(b, b_left);
        if (a_line == 0 || b_line == 0 || compare_names(a, a_line, b, b_line) != 0)
            return environment_differs(g, rank, a, a_line, b, b_line);
        size_t a_step = a_line + (a_line < a_left);
        size_t b_step = b_line + (b_line < b_left);
        a += a_step;
        b += b_step;
        a_left -= a_step;
        b_left -= b_step;
    }
    return SLUICE_OK;
}

static sluice_status gather_streams(struct gathered *g, uint32_t rank, struct sl_reader *r)
{
    uint32_t count = sl_get_u32(r);
    if (r->failed || r->left != (size_t)count * SL_SEAL_STREAM_BYTES)
        return sl_seal_bad_part(g->round, rank);
    if (sl_grow(g->round->mem, &g->seen, &g->seen_capacity, g->seen_count + count, sizeof(*g->seen), "pair streams") !=
        SLUICE_OK)
        return sl_error_set(g->round->error, SLUICE_NOMEM, "seal", "out of memory for the pair streams of a seal");
    uint64_t items = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct seen *seen = &g->seen[g->seen_count++];
        sl_seal_get_stream(r, &seen->stream);
        if (seen->stream.peer >= g->round->world || seen->stream.peer == rank)
            return sl_error_set(g->round->error, SLUICE_PLAN, "seal",
                                "the plan of rank %u names rank %u as a peer; the job has ranks 0 to %u", rank,
                                seen->stream.peer, g->round->world - 1);
        seen->source = seen->stream.receive ? seen->stream.peer : rank;
        seen->destination = seen->stream.receive ? rank : seen->stream.peer;
        items += seen->stream.units > 0;
    }
    uint64_t items_max = g->terms[rank].values[SL_TERM_ITEMS_MAX];
    g->crowded = g->crowded || (items_max > 0 && items > items_max);
    return SLUICE_OK;
}

static sluice_status gather_rank(struct gathered *g, uint32_t rank)
{
    struct sl_reader *r = &g->round->readers[rank];
    struct terms *terms = &g->terms[rank];
    sl_seal_get_proposal(r, &terms->proposal);
    for (int i = 0; i < SL_TERMS; i++)
        terms->values[i] = sl_get_u64(r);
    terms->environment_bytes = sl_get_u16(r);
    terms->environment = (const char *)sl_get_bytes(r, terms->environment_bytes);
    if (r->failed)
        return sl_seal_bad_part(g->round, rank);
    if (terms->values[SL_TERM_WORLD] != g->round->world)
        return sl_error_set(g->round->error, SLUICE_MISMATCH, "seal",
                            "the plan of rank %u is for a world of %" PRIu64 ", the job has %u ranks", rank,
                            terms->values[SL_TERM_WORLD], g->round->world);
    sluice_status status = compare_values(g, rank);
    if (status == SLUICE_OK)
        status = compare_environment(g, rank);
    return status == SLUICE_OK ? gather_streams(g, rank, r) : status;
}

/* --- pairs --- */

static int order_seen(const void *left, const void *right)
{
    const struct seen *a = left;
    const struct seen *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->destination != b->destination)
        return a->destination < b->destination ? -1 : 1;
    return (int)a->stream.receive - (int)b->stream.receive;
}

static _Bool matches(const struct seen *a, const struct seen *b)
{
    return a->source == b->source && a->destination == b->destination && !a->stream.receive && b->stream.receive &&
           a->stream.digest == b->stream.digest && a->stream.units == b->stream.units &&
           a->stream.bytes == b->stream.bytes && a->stream.count == b->stream.count;
}

/* The first pair whose two ends differ; NULL when all match. A stream without its other end differs too. */
static const struct seen *first_mismatch(const struct gathered *g)
{
    for (size_t i = 0; i < g->seen_count; i += 2)
        if (i + 1 == g->seen_count || !matches(&g->seen[i], &g->seen[i + 1]))
            return &g->seen[i];
    return NULL;
}

static sluice_status deal(struct gathered *g, struct sl_pair_total *pairs, uint16_t *block_of_pair,
                          struct sl_seal_answer *answer, struct sl_writer *map)
{
    size_t count = 0;
    for (size_t i = 0; i < g->seen_count; i += 2)
        if (g->seen[i].stream.units > 0)
            pairs[count++] = (struct sl_pair_total){
                .source = g->seen[i].source, .destination = g->seen[i].destination, .units = g->seen[i].stream.units};
    uint32_t items_max = (uint32_t)g->terms[0].values[SL_TERM_ITEMS_MAX];
    sluice_status status =
        sl_deal_blocks(pairs, count, g->round->world, items_max, g->round->mem, block_of_pair, &answer->blocks);
    if (status != SLUICE_OK) {
        sl_error_take(g->round->error);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        sl_put_u32(map, pairs[i].source);
        sl_put_u32(map, pairs[i].destination);
        sl_put_u16(map, block_of_pair[i]);
    }
    answer->map_count = count;
    answer->kind = SL_SEAL_AGAIN; /* with blocks the windows are others: everybody proposes again */
    return SLUICE_OK;
}

static sluice_status deal_pairs(struct gathered *g, struct sl_seal_answer *answer, struct sl_writer *map)
{
    size_t pairs_max = g->seen_count / 2;
    struct sl_pair_total *pairs = sl_new_array(g->round->mem, pairs_max, sizeof(*pairs), "pair totals");
    uint16_t *blocks = sl_new_array(g->round->mem, pairs_max, sizeof(*blocks), "blocks of pairs");
    sluice_status status = SLUICE_NOMEM;
    if (pairs != NULL && blocks != NULL)
        status = deal(g, pairs, blocks, answer, map);
    else
        SL_IGNORE(sl_error_set(g->round->error, SLUICE_NOMEM, "seal", "out of memory for dealing pairs into blocks"));
    sl_free(g->round->mem, pairs);
    sl_free(g->round->mem, blocks);
    return status;
}

static sluice_status agree(struct gathered *g, struct sl_seal_answer *answer, struct sl_writer *map)
{
    struct sl_seal_round *round = g->round;
    struct sl_seal_proposal *all = sl_new_array(round->mem, round->world, sizeof(*all), "proposals");
    if (all == NULL)
        return sl_error_set(round->error, SLUICE_NOMEM, "seal", "out of memory for the proposals of a seal");
    for (uint32_t i = 0; i < round->world; i++)
        all[i] = g->terms[i].proposal;
    _Bool balanced = g->terms[0].values[SL_TERM_POLICY] == SLUICE_POLICY_BALANCED;
    sluice_status status = sl_seal_settle(round, all, 0, answer);
    if (status == SLUICE_OK && balanced && g->crowded)
        status = deal_pairs(g, answer, map);
    if (status == SLUICE_OK && !balanced) {
        answer->kind = SL_SEAL_AGREED; /* more windows than a rank proposed are empty there */
        stage(round, all, 0, answer);
    }
    sl_free(round->mem, all);
    return status;
}

static sluice_status decide(struct gathered *g, struct sl_writer *out)
{
    struct sl_seal_answer answer = {.windows = 1, .blocks = 1};
    struct sl_writer map;
    sl_writer_init(&map, g->round->mem);
    if (g->seen_count > 0)
        qsort(g->seen, g->seen_count, sizeof(*g->seen), order_seen);
    const struct seen *odd = first_mismatch(g);
    sluice_status status = SLUICE_OK;
    if (odd != NULL) {
        answer.kind = SL_SEAL_COMPARE;
        answer.source = odd->source;
        answer.destination = odd->destination;
    } else {
        status = agree(g, &answer, &map);
    }
    if (status == SLUICE_OK) {
        sl_seal_put_answer(out, &answer);
        sl_put_bytes(out, map.data, map.bytes);
        out->failed = out->failed || map.failed;
    }
    sl_writer_drop(&map);
    return status;
}

sluice_status sl_seal_reduce_terms(struct sl_seal_round *round, struct sl_writer *out)
{
    struct gathered g = {.round = round};
    g.terms = sl_new_array(round->mem, round->world, sizeof(*g.terms), "the terms of a seal");
    if (g.terms == NULL)
        return sl_error_set(round->error, SLUICE_NOMEM, "seal", "out of memory for the terms of a seal");
    sluice_status status = SLUICE_OK;
    for (uint32_t rank = 0; rank < round->world && status == SLUICE_OK; rank++)
        status = gather_rank(&g, rank);
    if (status == SLUICE_OK)
        status = decide(&g, out);
    sl_free(round->mem, g.seen);
    sl_free(round->mem, g.terms);
    return status;
}
