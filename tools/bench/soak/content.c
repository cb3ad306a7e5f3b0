/*
 * content.c: a rank's weights, the plan that moves them, and what they have to be.
 *
 * Invariants: every word follows from the version that brought it, its parameter, its source and its place, so a
 * destination verifies without asking anybody. Each source has a part of every parameter; a destination has both,
 * one behind the other or row by row in turn.
 */
#include <stdlib.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "soak.h"

enum { ROW_WORDS = 64, ROWS_LEAST = 32, ROWS_MORE = 8 };

_Bool soak_is_source(uint32_t rank)
{
    return rank < SOAK_SOURCES;
}

static uint64_t part_words(uint32_t param)
{
    return ROW_WORDS * (uint64_t)(ROWS_LEAST + ROWS_MORE * param);
}

static _Bool in_turn(uint32_t param)
{
    return param % 2 == 1;
}

/* Where a destination has a source's word. */
static uint64_t place(uint32_t param, uint32_t source, uint64_t word)
{
    if (!in_turn(param))
        return source * part_words(param) + word;
    return (word / ROW_WORDS * SOAK_SOURCES + source) * ROW_WORDS + word % ROW_WORDS;
}

static uint64_t word_of(uint64_t version, uint32_t param, uint32_t source, uint64_t word)
{
    return sl_mix64(sl_mix64(version << 8 | (uint64_t)param << 2 | source) + word);
}

static uint64_t buffer_words(uint32_t rank, uint32_t param)
{
    return part_words(param) * (soak_is_source(rank) ? 1 : SOAK_SOURCES);
}

void soak_memory_open(struct soak_rank *rank)
{
    for (uint32_t p = 0; p < SOAK_PARAMS; p++) {
        rank->buffers[p] = calloc(buffer_words(rank->number, p), sizeof(uint64_t));
        SL_ASSERT(rank->buffers[p] != NULL);
    }
}

void soak_memory_close(struct soak_rank *rank)
{
    for (uint32_t p = 0; p < SOAK_PARAMS; p++)
        free(rank->buffers[p]);
}

static struct sluice_region region(uint32_t param, uint32_t source, _Bool at_destination)
{
    const uint64_t row = ROW_WORDS * sizeof(uint64_t), part = part_words(param) * sizeof(uint64_t);
    if (!at_destination)
        return (struct sluice_region){.row_bytes = part, .rows = 1, .pitch = part};
    if (!in_turn(param))
        return (struct sluice_region){.offset = source * part, .row_bytes = part, .rows = 1, .pitch = part};
    return (struct sluice_region){
        .offset = source * row, .row_bytes = row, .rows = part / row, .pitch = SOAK_SOURCES * row};
}

static sluice_status add_tasks(sluice_plan *plan, uint32_t param)
{
    sluice_status status = SLUICE_OK;
    for (uint32_t s = 0; s < SOAK_SOURCES; s++)
        for (uint32_t d = SOAK_SOURCES; d < SOAK_RANKS && status == SLUICE_OK; d++) {
            struct sluice_task task = {
                .id = (uint64_t)(param * SOAK_RANKS + s) * SOAK_RANKS + d,
                .source = s,
                .destination = d,
                .param = param,
                .from = region(param, s, 0),
                .to = region(param, s, 1),
                .origin = SLUICE_ORIGIN_NONE,
                .source_dtype = SLUICE_DTYPE_U64,
                .destination_dtype = SLUICE_DTYPE_U64,
            };
            status = sluice_plan_add_task(plan, &task);
        }
    return status;
}

sluice_status soak_plan(const struct soak_rank *rank, sluice_plan **ret_plan)
{
    enum sluice_role role = soak_is_source(rank->number) ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION;
    sluice_plan *plan = NULL;
    sluice_status status = sluice_plan_create(SOAK_RANKS, &plan);
    for (uint32_t p = 0; p < SOAK_PARAMS && status == SLUICE_OK; p++) {
        struct sluice_param param = {.id = p,
                                     .dtype = SLUICE_DTYPE_U64,
                                     .bytes = SOAK_SOURCES * part_words(p) * sizeof(uint64_t),
                                     .name = "weight"};
        status = sluice_plan_add_param(plan, &param);
        if (status == SLUICE_OK)
            status = add_tasks(plan, p);
        if (status == SLUICE_OK)
            status =
                sluice_plan_bind(plan, p, role, rank->buffers[p], buffer_words(rank->number, p) * sizeof(uint64_t));
    }
    if (status == SLUICE_OK)
        *ret_plan = plan;
    else
        sluice_plan_destroy(plan);
    return status;
}

void soak_fill(const struct soak_rank *rank, uint64_t params)
{
    for (uint32_t p = 0; soak_is_source(rank->number) && p < SOAK_PARAMS; p++)
        for (uint64_t w = 0; (params >> p & 1) != 0 && w < part_words(p); w++)
            rank->buffers[p][w] = word_of(rank->stamp[p], p, rank->number, w);
}

static _Bool part_is(const struct soak_rank *rank, uint32_t param, uint32_t source, uint64_t version)
{
    for (uint64_t w = 0; w < part_words(param); w++)
        if (rank->buffers[param][place(param, source, w)] != word_of(version, param, source, w))
            return 0;
    return 1;
}

_Bool soak_holds(const struct soak_rank *rank)
{
    for (uint32_t p = 0; p < SOAK_PARAMS; p++)
        for (uint32_t s = 0; s < SOAK_SOURCES; s++) {
            if (rank->held[p][s] == 0)
                continue;
            if (!part_is(rank, p, s, rank->held[p][s]))
                return 0;
            atomic_fetch_add(&rank->seat->verified_bytes, part_words(p) * sizeof(uint64_t));
        }
    return 1;
}

_Bool soak_has_stamps(const struct soak_rank *rank, uint64_t params)
{
    for (uint32_t p = 0; p < SOAK_PARAMS; p++)
        for (uint32_t s = 0; s < SOAK_SOURCES; s++)
            if ((params >> p & 1) != 0 && (rank->mask >> s & 1) != 0 && !part_is(rank, p, s, rank->stamp[p]))
                return 0;
    return 1;
}
