/*
 * Digest sets: a value depends on the bytes in order alone, is what the header defines, and comes again.
 *
 * The literal values were computed from the definition in sluice/backend.h by a program of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "conformance/names.h"
#include "runtime/base/random.h"

enum { LONGEST = 100003, ROOM = 1 << 20 };

static const struct {
    uint32_t bytes;
    uint64_t value;
} literals[] = {
    {1, 0xaee969cafd97f93e},  {7, 0x6618d48b7a3f0ffb},    {8, 0x06e885fffc93d650},    {9, 0xf730d7f3d609515d},
    {16, 0x8de25ae5d1fb8d5e}, {1000, 0x9dfcef36b70bc233}, {4095, 0xd09787e6aadf0f06}, {LONGEST, 0xbd4ec47bbc2b206f},
};

static void open_rig(struct rig *rig, const char *backend)
{
    struct sluice_backend_info info = {.size = sizeof(info)};
    rig_open(rig, backend, 1, 2, 0);
    cr_assert_eq(rig->ops->query(&info), SLUICE_OK);
    if (!info.digests) {
        rig_close(rig);
        cr_skip_test("%s makes no digests", backend);
    }
}

/* What the literal values are of. */
static void fill(uint8_t *content, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        content[i] = (uint8_t)(i * 31 + i / 256 + 7);
}

static struct sluice_copy piece_at(struct sluice_strided place, uint64_t bytes)
{
    return (struct sluice_copy){.from = place, .to = place, .bytes = bytes, .message = SLUICE_MESSAGE_NONE};
}

static void run(struct rig_rank *rank, struct sluice_set *set, uint64_t *digests)
{
    const struct sluice_op op = {.kind = SLUICE_OP_DIGEST, .set = set, .digests = digests, .cookie = 1, .notify = 1};
    rank->ends[1] = (struct rig_end){0};
    rig_submit(rank, 0, &op);
    rig_wait(rank, 1);
}

static uint64_t digest_of(struct rig_rank *rank, struct sluice_strided place, uint64_t bytes)
{
    uint64_t value = 0;
    struct sluice_copy piece = piece_at(place, bytes);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_DIGEST, &piece, 1);
    run(rank, set, &value);
    rank->rig->ops->set_close(set);
    return value;
}

static struct sluice_strided flat(const uint8_t *memory)
{
    return rig_flat(memory);
}

CONFORMANCE(backend_digest, values_are_those_of_the_definition_at_any_address)
{
    static const uint32_t skews[] = {0, 8, 16, 1, 2, 3, 4, 7, 13};
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *content = malloc(LONGEST), *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, ROOM);
    fill(content, LONGEST);
    for (size_t s = 0; s < sizeof(skews) / sizeof(skews[0]); s++) {
        rig_write(rank, memory + skews[s], content, LONGEST);
        for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++)
            cr_expect_eq(digest_of(rank, flat(memory + skews[s]), literals[i].bytes), literals[i].value,
                         "%u bytes at address %u", literals[i].bytes, skews[s]);
    }
    free(content);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, rows_of_any_width_have_the_value_of_the_bytes_in_one_place)
{
    static const struct {
        uint64_t row, pitch, skew;
    } shapes[] = {{8, 24, 0},  {64, 80, 0},     {64, 72, 8},      {4096, 5008, 0}, {24, 32, 4},
                  {37, 50, 0}, {2, 3, 0},       {1, 2, 1},        {290, 580, 2},   {50000, 60000, 0},
                  {5, 9, 3},   {4000, 4001, 0}, {60001, 60010, 0}};
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *content = malloc(LONGEST), *rows = malloc(ROOM), *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, ROOM);
    fill(content, LONGEST);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        memset(rows, 0xa5, ROOM);
        for (uint32_t i = 0; i < LONGEST; i++)
            rows[shapes[s].skew + i / shapes[s].row * shapes[s].pitch + i % shapes[s].row] = content[i];
        rig_write(rank, memory, rows, ROOM);
        for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
            const struct sluice_strided place = {.address = (uint64_t)(uintptr_t)memory + shapes[s].skew,
                                                 .row_bytes = shapes[s].row,
                                                 .pitch = shapes[s].pitch};
            cr_expect_eq(digest_of(rank, place, literals[i].bytes), literals[i].value, "%u bytes, rows of %u",
                         literals[i].bytes, (uint32_t)shapes[s].row);
        }
    }
    free(content);
    free(rows);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, a_piece_that_begins_inside_a_row_has_the_value_of_its_bytes)
{
    enum { ROUNDS = 60, SPAN = 1 << 17 };
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *content = malloc(ROOM), *chosen = malloc(SPAN);
    uint8_t *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, ROOM);
    uint8_t *other = rig_memory(rank, SLUICE_MEMORY_DEVICE, SPAN);
    struct sl_random random = {.state = 11};
    rig_pattern(content, ROOM, 6);
    rig_write(rank, memory, content, ROOM);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t unit = round % 3 == 0 ? 8 : 1;
        uint64_t row = unit * (1 + sl_random_below(&random, round % 2 ? 40 : 3000));
        uint64_t pitch = row + unit * sl_random_below(&random, 30), begin = unit * sl_random_below(&random, 2000);
        uint64_t most = (ROOM / pitch - 1) * row;
        cr_assert_gt(most, begin);
        uint64_t bytes = 1 + sl_random_below(&random, most - begin < SPAN ? most - begin : SPAN);
        for (uint64_t i = 0; i < bytes; i++)
            chosen[i] = content[(begin + i) / row * pitch + (begin + i) % row];
        rig_write(rank, other, chosen, bytes);
        const struct sluice_strided place = {(uint64_t)(uintptr_t)memory, row, pitch, begin};
        cr_assert_eq(digest_of(rank, place, bytes), digest_of(rank, flat(other), bytes),
                     "round %u: %lu bytes from %lu on, rows of %lu", round, (unsigned long)bytes, (unsigned long)begin,
                     (unsigned long)row);
    }
    free(content);
    free(chosen);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, many_pieces_have_their_own_values_each_time_the_set_runs)
{
    enum { PIECES = 5000, EACH = 77 };
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *content = malloc(ROOM), *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, ROOM);
    struct sluice_copy *pieces = malloc(PIECES * sizeof(*pieces));
    uint64_t *first = calloc(PIECES, sizeof(*first)), *again = calloc(PIECES, sizeof(*again));
    for (uint32_t p = 0; p < PIECES; p++) {
        memset(content + p * EACH, (int)(p / 2), EACH); /* pairs alike */
        pieces[p] = piece_at(flat(memory + p * EACH), EACH);
    }
    rig_write(rank, memory, content, PIECES * EACH);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_DIGEST, pieces, PIECES);
    run(rank, set, first);
    run(rank, set, again);
    for (uint32_t p = 0; p < PIECES; p++) {
        cr_assert_eq(first[p], again[p], "piece %u", p);
        cr_assert_eq(first[p], first[p / 2 * 2], "piece %u", p);
        if (p >= 2 && p % 2 == 0)
            cr_assert_neq(first[p], first[p - 1], "piece %u", p);
    }
    content[3 * EACH + 40] ^= 1;
    rig_write(rank, memory, content, PIECES * EACH);
    run(rank, set, again);
    for (uint32_t p = 0; p < PIECES; p++)
        cr_assert_eq(first[p] != again[p], p == 3, "piece %u", p);
    rig.ops->set_close(set);
    free(content);
    free(pieces);
    free(first);
    free(again);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, every_flipped_bit_every_swap_and_every_length_changes_the_value)
{
    enum { BYTES = 256 };
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t content[BYTES] = {0}, *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    rig_write(rank, memory, content, BYTES);
    uint64_t zeros = digest_of(rank, flat(memory), BYTES);
    cr_expect_eq(digest_of(rank, flat(memory), 8), 0x8f98e8e272f5ded6);
    cr_expect_eq(digest_of(rank, flat(memory), 16), 0x8578389e40845123);
    for (uint32_t bytes = 1; bytes < BYTES; bytes++)
        cr_expect_neq(digest_of(rank, flat(memory), bytes), zeros, "%u bytes", bytes);
    for (uint32_t bit = 0; bit < 8 * BYTES; bit += 37) {
        content[bit / 8] = (uint8_t)(1u << bit % 8);
        rig_write(rank, memory, content, BYTES);
        cr_expect_neq(digest_of(rank, flat(memory), BYTES), zeros, "bit %u", bit);
        content[bit / 8] = 0;
    }
    content[8] = 1;
    rig_write(rank, memory, content, BYTES);
    uint64_t second = digest_of(rank, flat(memory), BYTES);
    content[8] = 0;
    content[16] = 1;
    rig_write(rank, memory, content, BYTES);
    cr_expect_neq(digest_of(rank, flat(memory), BYTES), second);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, a_silent_one_is_there_when_what_is_behind_it_has_ended)
{
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t content[16], *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, 16);
    uint64_t value = 0;
    fill(content, 16);
    rig_write(rank, memory, content, 16);
    struct sluice_copy piece = piece_at(flat(memory), 16);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_DIGEST, &piece, 1);
    const struct sluice_op silent = {.kind = SLUICE_OP_DIGEST, .set = set, .digests = &value};
    rig_submit(rank, 0, &silent);
    rig_fence(rank, 0, 2);
    rig_wait(rank, 2);
    cr_expect_eq(value, 0x8de25ae5d1fb8d5e);
    rig.ops->set_close(set);
    rig_close(&rig);
}

CONFORMANCE(backend_digest, without_a_place_or_with_a_set_of_another_kind_is_refused)
{
    struct rig rig;
    open_rig(&rig, backend->text);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, 32);
    uint64_t value = 0;
    struct sluice_copy piece = piece_at(flat(memory), 16), copy = rig_piece(memory, memory + 16, 16, 0);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_DIGEST, &piece, 1);
    struct sluice_set *local = rig_set(rank, SLUICE_COPY_LOCAL, &copy, 1);
    const struct sluice_op wrong[] = {{.kind = SLUICE_OP_DIGEST, .set = set},
                                      {.kind = SLUICE_OP_DIGEST, .digests = &value},
                                      {.kind = SLUICE_OP_DIGEST, .set = local, .digests = &value}};
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_eq(rig.ops->submit(rank->queues[0], &wrong[i]), SLUICE_INVALID, "operation %u", i);
    rig.ops->set_close(set);
    rig.ops->set_close(local);
    rig_close(&rig);
}
