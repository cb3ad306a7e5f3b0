/* Copy sets: which bytes move, and that no other byte changes. */
#include <stdlib.h>
#include <string.h>

#include "conformance/names.h"
#include "runtime/base/random.h"

#define CANARY 0xa5

static uint8_t *device_copy_of(struct rig_rank *rank, const uint8_t *content, uint64_t bytes)
{
    uint8_t *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, bytes);
    rig_write(rank, memory, content, bytes);
    return memory;
}

CONFORMANCE(backend_copy, contiguous_piece_of_any_address_and_length)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { BYTES = 4096 };
    uint8_t content[BYTES], canaries[BYTES], got[BYTES];
    rig_pattern(content, BYTES, 1);
    memset(canaries, CANARY, BYTES);
    uint8_t *from = device_copy_of(rank, content, BYTES);
    uint8_t *to = device_copy_of(rank, canaries, BYTES);
    static const struct {
        uint32_t from, to, bytes;
    } cases[] = {{0, 0, 1}, {1, 0, 1}, {3, 5, 7}, {7, 1, 16}, {1, 1, 4095}, {13, 64, 1000}, {0, 0, 4096}};
    uint64_t cookie = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig_write(rank, to, canaries, BYTES);
        struct sluice_copy piece =
            rig_piece(from + cases[i].from, to + cases[i].to, cases[i].bytes, SLUICE_MESSAGE_NONE);
        struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
        rig_copy(rank, 0, set, cookie);
        rig_wait(rank, cookie++);
        rig_read(rank, got, to, BYTES);
        for (uint32_t at = 0; at < BYTES; at++) {
            _Bool inside = at >= cases[i].to && at - cases[i].to < cases[i].bytes;
            cr_assert_eq(got[at], inside ? content[cases[i].from + at - cases[i].to] : CANARY, "case %zu byte %u", i,
                         at);
        }
        rig.ops->set_close(set);
    }
    rig_free(rank, SLUICE_MEMORY_DEVICE, from, BYTES);
    rig_free(rank, SLUICE_MEMORY_DEVICE, to, BYTES);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, plain_memory_of_the_process_may_be_either_end)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { BYTES = 9000001 };
    uint8_t *plain = malloc(BYTES + 1), *back = malloc(BYTES + 3), *beside = malloc(BYTES);
    uint8_t *device = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    rig_pattern(plain + 1, BYTES, 1);
    memset(back, CANARY, BYTES + 3);
    const struct sluice_copy pieces[] = {rig_piece(plain + 1, device, BYTES, SLUICE_MESSAGE_NONE),
                                         rig_piece(device, back + 1, BYTES, SLUICE_MESSAGE_NONE),
                                         rig_piece(plain + 1, beside, BYTES, SLUICE_MESSAGE_NONE)};
    for (uint64_t i = 0; i < 3; i++) {
        struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &pieces[i], 1);
        rig_copy(rank, 0, set, i);
        rig_wait(rank, i);
        rig.ops->set_close(set);
    }
    cr_assert_eq(rig_compare(back + 1, BYTES, 1), BYTES);
    cr_assert_eq(rig_compare(beside, BYTES, 1), BYTES);
    cr_assert(back[0] == CANARY && back[BYTES + 1] == CANARY && back[BYTES + 2] == CANARY);
    rig_free(rank, SLUICE_MEMORY_DEVICE, device, BYTES);
    free(plain);
    free(back);
    free(beside);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, strided_rows_move_and_gaps_keep_their_canaries)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t content[96], canaries[48], got[48];
    memset(content, CANARY, sizeof(content));
    for (uint32_t i = 0; i < 24; i++)
        content[i / 8 * 32 + i % 8] = (uint8_t)(i + 1);
    memset(canaries, CANARY, sizeof(canaries));
    uint8_t *from = device_copy_of(rank, content, sizeof(content));
    uint8_t *to = device_copy_of(rank, canaries, sizeof(canaries));
    const struct sluice_copy piece = {
        .from = {.address = (uint64_t)(uintptr_t)from, .row_bytes = 8, .pitch = 32},
        .to = {.address = (uint64_t)(uintptr_t)to, .row_bytes = 8, .pitch = 16},
        .bytes = 24,
        .message = SLUICE_MESSAGE_NONE,
    };
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
    rig_copy(rank, 0, set, 1);
    rig_wait(rank, 1);
    rig_read(rank, got, to, sizeof(got));
    for (uint32_t i = 0; i < 48; i++)
        cr_assert_eq(got[i], i % 16 < 8 ? i / 16 * 8 + i % 16 + 1 : CANARY, "byte %u", i);
    rig.ops->set_close(set);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, packed_small_pieces_of_several_widths_round_trip)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    static const uint32_t widths[] = {2, 2, 2, 4, 1, 8, 8};
    enum { PIECES = 7, BYTES = 256 };
    uint8_t content[BYTES], canaries[BYTES], got[BYTES];
    rig_pattern(content, BYTES, 2);
    memset(canaries, CANARY, BYTES);
    uint8_t *from = device_copy_of(rank, content, BYTES);
    uint8_t *slot = device_copy_of(rank, canaries, BYTES);
    uint8_t *to = device_copy_of(rank, canaries, BYTES);
    struct sluice_copy packs[PIECES], unpacks[PIECES];
    uint32_t at = 1; /* an odd base */
    for (uint32_t i = 0; i < PIECES; i++) {
        packs[i] = rig_piece(from + at, slot + i * SLUICE_UNIT, widths[i], 0);
        unpacks[i] = rig_piece(slot + i * SLUICE_UNIT, to + at, widths[i], SLUICE_MESSAGE_NONE);
        at += widths[i];
    }
    struct sluice_set *pack = rig_set(rank, SLUICE_COPY_PACK, packs, PIECES);
    struct sluice_set *unpack = rig_set(rank, SLUICE_COPY_COMMIT, unpacks, PIECES);
    rig_copy(rank, 0, pack, 1);
    rig_copy(rank, 0, unpack, 2);
    rig_wait(rank, 2);
    rig_read(rank, got, to, BYTES);
    for (uint32_t i = 0; i < BYTES; i++)
        cr_assert_eq(got[i], i >= 1 && i < at ? content[i] : CANARY, "byte %u", i);
    rig.ops->set_close(pack);
    rig.ops->set_close(unpack);
    rig_close(&rig);
}

struct shape {
    uint64_t row_bytes, pitch;
};

static struct shape random_shape(struct sl_random *random)
{
    uint64_t row = 1 + sl_random_below(random, 40);
    return (struct shape){.row_bytes = row, .pitch = row + sl_random_below(random, 9)};
}

static uint64_t place(const struct shape *shape, uint64_t byte)
{
    return byte / shape->row_bytes * shape->pitch + byte % shape->row_bytes;
}

CONFORMANCE(backend_copy, random_strides_that_begin_inside_rows)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { BYTES = 1 << 15, ROUNDS = 100 };
    uint8_t *content = malloc(BYTES), *expected = malloc(BYTES), *got = malloc(BYTES);
    rig_pattern(content, BYTES, 3);
    uint8_t *from = device_copy_of(rank, content, BYTES);
    uint8_t *to = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    struct sl_random random = {.state = 5};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct shape a = random_shape(&random), b = random_shape(&random);
        uint64_t bytes = 1 + sl_random_below(&random, 400);
        uint64_t a_begin = sl_random_below(&random, 300), b_begin = sl_random_below(&random, 300);
        memset(expected, CANARY, BYTES);
        rig_write(rank, to, expected, BYTES);
        const struct sluice_copy piece = {
            .from = {(uint64_t)(uintptr_t)from + round % 8, a.row_bytes, a.pitch, a_begin},
            .to = {(uint64_t)(uintptr_t)to + round % 5, b.row_bytes, b.pitch, b_begin},
            .bytes = bytes,
            .message = SLUICE_MESSAGE_NONE};
        struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
        rig_copy(rank, 0, set, round);
        rig_wait(rank, round);
        for (uint64_t i = 0; i < bytes; i++)
            expected[round % 5 + place(&b, b_begin + i)] = content[round % 8 + place(&a, a_begin + i)];
        rig_read(rank, got, to, BYTES);
        cr_assert_eq(memcmp(got, expected, BYTES), 0, "round %u", round);
        rig.ops->set_close(set);
    }
    free(content);
    free(expected);
    free(got);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, thousands_of_pieces_in_one_set)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { PIECES = 20000, BYTES = PIECES * 48 };
    uint8_t *content = malloc(BYTES), *got = malloc(BYTES);
    struct sluice_copy *pieces = malloc(PIECES * sizeof(*pieces));
    rig_pattern(content, BYTES, 4);
    uint8_t *from = device_copy_of(rank, content, BYTES);
    uint8_t *to = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    for (uint32_t i = 0; i < PIECES; i++)
        pieces[i] = rig_piece(from + i * 48, to + (PIECES - 1 - i) * 48, 48, SLUICE_MESSAGE_NONE);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, pieces, PIECES);
    rig_copy(rank, 0, set, 1);
    rig_wait(rank, 1);
    rig_read(rank, got, to, BYTES);
    for (uint32_t i = 0; i < PIECES; i++)
        cr_assert_eq(memcmp(got + (PIECES - 1 - i) * 48, content + i * 48, 48), 0, "piece %u", i);
    rig.ops->set_close(set);
    free(content);
    free(got);
    free(pieces);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, set_without_pieces_completes)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    struct sluice_set *set = rig_set(&rig.rank[0], SLUICE_COPY_LOCAL, NULL, 0);
    rig_copy(&rig.rank[0], 0, set, 1);
    rig_wait(&rig.rank[0], 1);
    rig.ops->set_close(set);
    rig_close(&rig);
}

CONFORMANCE(backend_copy, piece_with_bytes_and_a_null_address_is_refused)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    uint8_t *memory = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, 64);
    struct sluice_copy piece = rig_piece(NULL, memory, 8, SLUICE_MESSAGE_NONE);
    struct sluice_set *set = NULL;
    cr_assert_eq(rig.ops->set_open(rig.rank[0].device, SLUICE_COPY_LOCAL, &piece, 1, &set), SLUICE_INVALID);
    cr_assert_null(set);
    rig_close(&rig);
}
