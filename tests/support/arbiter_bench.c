/* arbiter_bench.c: builds notes; see arbiter_bench.h. */
#include "support/arbiter_bench.h"

#include <stdio.h>

#include "runtime/base/error.h"

struct sl_arbiter *arbiter;
uint64_t arbiter_now;

void arbiter_open_world(uint32_t world)
{
    struct sl_arbiter_config config = {.world = world, .runs_max = 4, .mem = sl_mem_default()};
    arbiter = sl_arbiter_create(&config);
    arbiter_now = MS;
    SL_ASSERT(arbiter);
}

void arbiter_close_world(void)
{
    sl_arbiter_destroy(arbiter);
}

const char *arbiter_told(struct sl_note note)
{
    arbiter_now += MS;
    sl_arbiter_note(arbiter, &note, arbiter_now);
    return arbiter_words(arbiter);
}

const char *arbiter_join(uint32_t rank, uint32_t run, uint32_t windows)
{
    return arbiter_told((struct sl_note){.kind = SL_NOTE_JOIN, .rank = rank, .key = run, .a = windows, .b = 5});
}

const char *arbiter_join_shadow(uint32_t rank, uint32_t run, uint32_t windows, uint32_t staged)
{
    return arbiter_told(
        (struct sl_note){.kind = SL_NOTE_JOIN, .rank = rank, .key = run, .a = windows, .b = 5, .f = staged + 1u});
}

const char *arbiter_ready(uint32_t rank, uint32_t run, uint32_t windows)
{
    return arbiter_told((struct sl_note){.kind = SL_NOTE_READY, .rank = rank, .key = run, .a = windows});
}

const char *arbiter_launched(uint32_t rank, uint32_t run, uint32_t windows, uint32_t freeze)
{
    return arbiter_told(
        (struct sl_note){.kind = SL_NOTE_LAUNCHED, .rank = rank, .key = run, .a = windows, .b = freeze});
}

const char *arbiter_vote(uint32_t rank, uint32_t run, enum sl_phase phase)
{
    return arbiter_told((struct sl_note){.kind = SL_NOTE_VOTE, .rank = rank, .key = run, .a = phase});
}

const char *arbiter_asked(uint32_t rank, uint32_t run, enum sl_request request)
{
    return arbiter_told((struct sl_note){.kind = SL_NOTE_REQUEST, .rank = rank, .key = run, .a = request});
}

const char *arbiter_failed(uint32_t rank, uint32_t run, uint32_t kind, sluice_status status)
{
    struct sl_note note = {.kind = kind, .rank = rank, .key = run, .status = status};
    note.a = kind == SL_NOTE_VOTE ? (uint32_t)SL_PHASE_FINAL : (uint32_t)SL_REQUEST_FAIL;
    snprintf(note.text, sizeof note.text, "rank %u: a reason", rank);
    return arbiter_told(note);
}

const char *arbiter_lost(uint32_t rank)
{
    sl_arbiter_lost(arbiter, rank, "rank is gone: connection closed", arbiter_now);
    return arbiter_words(arbiter);
}
