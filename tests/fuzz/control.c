/*
 * control.c: what authenticated peers can send: fields, notes, the arbiter's diet, parts and answers of a
 * seal. Nothing crashes, and what is accepted is written again alike.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/control/control_state.h"
#include "runtime/control/seal_format.h"

enum { WORLD = 3, STEPS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void decode_note(const uint8_t *data, size_t bytes)
{
    struct sl_note note = {0};
    struct sl_note again = {0};
    struct sl_writer w;
    if (!sl_note_decode(data, bytes, &note))
        return;
    sl_writer_init(&w, sl_mem_default());
    sl_note_encode(&note, &w);
    SL_ASSERT(!w.failed && sl_note_decode(w.data, w.bytes, &again) && memcmp(&note, &again, sizeof(note)) == 0);
    sl_writer_drop(&w);
}

static void drain(struct sl_arbiter *arbiter)
{
    struct sl_note note;
    while (sl_arbiter_next(arbiter, &note))
        SL_ASSERT(note.kind >= SL_NOTE_GRANT);
}

/* Small numbers, so that notes meet each other's runs. */
static void feed_arbiter(const uint8_t *data, size_t bytes)
{
    struct sl_arbiter_config config = {.world = WORLD, .runs_max = 2, .mem = sl_mem_default()};
    struct sl_arbiter *arbiter = sl_arbiter_create(&config);
    SL_ASSERT(arbiter != NULL);
    struct sl_reader r = sl_reader_of(data, bytes);
    for (uint64_t now = 1; now < STEPS_MAX && r.left >= 8; now++) {
        struct sl_note note = {.kind = sl_get_u8(&r) % 24u, .rank = sl_get_u8(&r) % (WORLD + 1u)};
        note.key = sl_get_u8(&r) % 4u;
        note.a = sl_get_u8(&r);
        note.b = sl_get_u8(&r) % 8u;
        note.c = sl_get_u8(&r) % 4u;
        note.f = sl_get_u8(&r) % 4u;
        note.status = -(int32_t)(sl_get_u8(&r) % 3u);
        if (note.kind == 0)
            sl_arbiter_lost(arbiter, note.rank, "lost", now);
        else if (note.kind == 23)
            sl_arbiter_tick(arbiter, now);
        else
            sl_arbiter_note(arbiter, &note, now);
        drain(arbiter);
    }
    sl_arbiter_destroy(arbiter);
}

/* The input is cut into the parts of three ranks. */
static void reduce(const uint8_t *data, size_t bytes)
{
    struct sl_bytes parts[WORLD];
    uint8_t *out = NULL;
    size_t out_bytes = 0;
    struct sluice_error error = {0};
    for (uint32_t i = 0; i < WORLD; i++) {
        size_t begin = bytes * i / WORLD;
        parts[i] = (struct sl_bytes){.data = data + begin, .bytes = bytes * (i + 1) / WORLD - begin};
    }
    if (sl_seal_reduce(parts, WORLD, sl_mem_default(), &out, &out_bytes, &error) == SLUICE_OK)
        sl_free(sl_mem_default(), out);
    else
        SL_ASSERT(error.text[0] != '\0');
}

static void answer(const uint8_t *data, size_t bytes)
{
    struct sl_stream stream = {.peer = 1, .units = 100, .bytes = 1600};
    struct sl_half half = {.mem = sl_mem_default(), .world = WORLD, .streams = &stream, .stream_count = 1};
    struct sl_plan plan;
    struct sl_seal_terms terms = {.window_bytes = 4096, .slots = 3};
    struct sl_seal *seal = NULL;
    struct sl_bytes part;
    _Bool done = 0;
    sl_plan_init(&plan, sl_mem_default(), WORLD);
    SL_ASSERT(sl_seal_begin(&plan, &half, &terms, sl_mem_default(), &seal) == SLUICE_OK);
    if (sl_seal_feed(seal, data, bytes, &done) == SLUICE_OK && !done)
        SL_ASSERT(sl_seal_next_part(seal, &part) == SLUICE_OK);
    sl_seal_end(seal);
    sl_plan_drop(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const targets[])(const uint8_t *, size_t) = {decode_note, feed_arbiter, reduce, answer};
    if (bytes > 0)
        targets[data[0] % SL_COUNT(targets)](data + 1, bytes - 1);
    return 0;
}
