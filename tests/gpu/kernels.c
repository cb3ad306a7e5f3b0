/*
 * kernels.c: copies and digests of the device against the CPU, with memory of every kind; a program of its own, for the
 * sanitizers of CUDA.
 *
 * - Everything goes through the backend's table, so descriptors and kernels are tested together.
 * - Memory is written with random bytes, NaN patterns among them, and every byte outside of the pieces must stay.
 * - kernels [ROUNDS [BYTES]]: exits with 0, 1 (wrong) or 77 (no device; CTest takes it for skipped).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/backend/strided.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"

enum { PIECES_MAX = 64, NO_DEVICE = 77, CANARY = 0xa5 };

/* Areas of equal size; pinned memory is what the others are written and read through. */
enum { PINNED, DEVICE, PAGEABLE, KINDS };

struct bench {
    const struct sluice_backend_ops *ops;
    struct sluice_device *device;
    struct sluice_queue *queue;
    uint64_t bytes;
    uint8_t *from[KINDS], *to[KINDS];
    uint8_t *expected[KINDS]; /* in `to` */
    struct sl_random random;
};

static void must(sluice_status status, const char *what)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "kernels: %s: %s\n", what, sluice_last_error()->text);
    exit(1);
}

static void open_bench(struct bench *bench, uint32_t max_ctas)
{
    struct sluice_backend_config config = sl_backend_config_alone();
    config.max_ctas = max_ctas;
    const struct sluice_backend_ops *ops = bench->ops;
    must(ops->open(&config, &bench->device), "open");
    must(ops->queue_open(bench->device, &bench->queue), "queue_open");
    for (int kind = PINNED; kind <= DEVICE; kind++) {
        enum sluice_memory memory_kind = kind == PINNED ? SLUICE_MEMORY_PINNED : SLUICE_MEMORY_DEVICE;
        void *memory[2];
        for (int i = 0; i < 2; i++)
            must(ops->mem_alloc(bench->device, memory_kind, bench->bytes, &memory[i]), "mem_alloc");
        bench->from[kind] = memory[0];
        bench->to[kind] = memory[1];
    }
}

static void close_bench(struct bench *bench)
{
    const struct sluice_backend_ops *ops = bench->ops;
    for (int kind = PINNED; kind <= DEVICE; kind++) {
        enum sluice_memory memory_kind = kind == PINNED ? SLUICE_MEMORY_PINNED : SLUICE_MEMORY_DEVICE;
        ops->mem_free(bench->device, memory_kind, bench->from[kind], bench->bytes);
        ops->mem_free(bench->device, memory_kind, bench->to[kind], bench->bytes);
    }
    ops->queue_close(bench->queue);
    ops->close(bench->device);
}

static void run_op(struct bench *bench, const struct sluice_op *op)
{
    struct sluice_completion done;
    uint32_t got = 0;
    must(bench->ops->submit(bench->queue, op), "submit");
    uint64_t deadline = sl_now(sl_clock_system()) + 60 * SLUICE_SECOND;
    while (got == 0 && sl_now(sl_clock_system()) < deadline)
        must(bench->ops->poll(bench->device, &done, 1, &got), "poll");
    if (got == 0 || done.status != SLUICE_OK) {
        fprintf(stderr, "kernels: an operation did not end: %s\n", got == 0 ? "deadline" : done.error.text);
        exit(1);
    }
}

static void copy(struct bench *bench, const struct sluice_copy *pieces, size_t count)
{
    struct sluice_set *set = NULL;
    must(bench->ops->set_open(bench->device, SLUICE_COPY_LOCAL, pieces, count, &set), "set_open");
    run_op(bench, &(struct sluice_op){.kind = SLUICE_OP_COPY, .set = set, .notify = 1});
    bench->ops->set_close(set);
}

static struct sluice_strided flat(const void *memory)
{
    return (struct sluice_strided){.address = (uint64_t)(uintptr_t)memory, .row_bytes = UINT64_MAX};
}

static void move(struct bench *bench, const void *from, void *to)
{
    struct sluice_copy whole = {.from = flat(from), .to = flat(to), .bytes = bench->bytes};
    copy(bench, &whole, 1);
}

/* A strided or flat place for `bytes` inside [at, at + room); false: it does not fit. */
static _Bool place(struct bench *bench, uint64_t base, uint64_t at, uint64_t room, uint64_t bytes,
                   struct sluice_strided *ret)
{
    uint64_t skew = sl_random_below(&bench->random, 17);
    *ret = (struct sluice_strided){.address = base + at + skew, .row_bytes = UINT64_MAX};
    if (sl_random_below(&bench->random, 2) == 0)
        return skew + bytes <= room;
    uint64_t row = 1 + sl_random_below(&bench->random, sl_random_below(&bench->random, 2) ? 4096 : 64);
    uint64_t unit = sl_random_below(&bench->random, 2) ? 16 : 1;
    row = row < unit ? unit : row / unit * unit;
    ret->row_bytes = row;
    ret->pitch = row + unit * sl_random_below(&bench->random, 32);
    ret->begin = sl_random_below(&bench->random, row);
    return skew + ((ret->begin + bytes) / row + 1) * ret->pitch <= room;
}

static uint64_t offset_of(const struct sluice_strided *end, uint64_t base, uint64_t i)
{
    if (end->row_bytes == UINT64_MAX)
        return end->address - base + i;
    uint64_t at = end->begin + i;
    return end->address - base + at / end->row_bytes * end->pitch + at % end->row_bytes;
}

struct piece {
    struct sluice_copy copy;
    int from, to; /* kinds of memory */
};

/* Pieces in cells of their own, so that destinations never overlap. */
static size_t make_pieces(struct bench *bench, _Bool mixed, struct piece *pieces)
{
    uint64_t cell = bench->bytes / PIECES_MAX;
    size_t count = 0;
    for (uint64_t i = 0; i < PIECES_MAX; i++) {
        uint64_t bytes = 1 + sl_random_below(&bench->random, sl_random_below(&bench->random, 3) == 0 ? 64 : cell / 2);
        struct piece piece = {.copy = {.bytes = bytes}, .from = DEVICE, .to = DEVICE};
        if (mixed) {
            piece.from = (int)sl_random_below(&bench->random, KINDS);
            piece.to = (int)sl_random_below(&bench->random, KINDS);
        }
        if (place(bench, (uint64_t)(uintptr_t)bench->from[piece.from], i * cell, cell, bytes, &piece.copy.from) &&
            place(bench, (uint64_t)(uintptr_t)bench->to[piece.to], (PIECES_MAX - 1 - i) * cell, cell, bytes,
                  &piece.copy.to))
            pieces[count++] = piece;
    }
    return count;
}

/* The sources' digests, twice: a set may run again. */
static void check_digests(struct bench *bench, const struct piece *pieces, size_t count, uint32_t round)
{
    uint64_t digests[PIECES_MAX];
    struct sluice_copy copies[PIECES_MAX];
    struct sluice_set *set = NULL;
    for (size_t p = 0; p < count; p++)
        copies[p] = pieces[p].copy;
    must(bench->ops->set_open(bench->device, SLUICE_COPY_DIGEST, copies, count, &set), "set_open");
    for (int again = 0; again < 2; again++) {
        memset(digests, 0, sizeof digests);
        run_op(bench, &(struct sluice_op){.kind = SLUICE_OP_DIGEST, .set = set, .digests = digests, .notify = 1});
        for (size_t p = 0; p < count; p++) {
            struct sluice_strided place = copies[p].from; /* the same bytes in memory of the host */
            place.address +=
                (uint64_t)(uintptr_t)bench->from[PINNED] - (uint64_t)(uintptr_t)bench->from[pieces[p].from];
            uint64_t expected = sl_strided_digest(&place, copies[p].bytes);
            if (digests[p] == expected)
                continue;
            fprintf(stderr, "kernels: round %u: the digest of piece %zu is %llx, not %llx\n", round, p,
                    (unsigned long long)digests[p], (unsigned long long)expected);
            exit(1);
        }
    }
    bench->ops->set_close(set);
}

static void copy_pieces(struct bench *bench, const struct piece *pieces, size_t count)
{
    struct sluice_copy copies[PIECES_MAX];
    for (size_t p = 0; p < count; p++) {
        const struct piece *piece = &pieces[p];
        copies[p] = piece->copy;
        for (uint64_t i = 0; i < piece->copy.bytes; i++)
            bench->expected[piece->to][offset_of(&piece->copy.to, (uint64_t)(uintptr_t)bench->to[piece->to], i)] =
                bench->from[PINNED][offset_of(&piece->copy.from, (uint64_t)(uintptr_t)bench->from[piece->from], i)];
    }
    copy(bench, copies, count);
}

static void check(const struct bench *bench, uint32_t round, int kind)
{
    static const char *const names[] = {"pinned", "device", "pageable"};
    const uint8_t *have = bench->to[kind == DEVICE ? PINNED : kind];
    for (uint64_t i = 0; i < bench->bytes; i++)
        if (have[i] != bench->expected[kind][i]) {
            fprintf(stderr, "kernels: round %u: byte %llu of %s memory is %02x, not %02x\n", round,
                    (unsigned long long)i, names[kind], have[i], bench->expected[kind][i]);
            exit(1);
        }
}

/* Every second round is of device memory alone. */
static void run_round(struct bench *bench, uint32_t round)
{
    struct piece pieces[PIECES_MAX];
    for (uint64_t i = 0; i < bench->bytes; i++)
        bench->from[PINNED][i] = (uint8_t)sl_random_next(&bench->random);
    for (uint64_t i = 0; i + 4 <= bench->bytes; i += 64)
        memcpy(bench->from[PINNED] + i, &(uint32_t){0x7fa00001u + (uint32_t)i}, 4); /* signalling NaNs */
    for (int kind = 0; kind < KINDS; kind++)
        memset(bench->expected[kind], CANARY, bench->bytes);
    memset(bench->to[PINNED], CANARY, bench->bytes);
    memset(bench->to[PAGEABLE], CANARY, bench->bytes);
    memcpy(bench->from[PAGEABLE], bench->from[PINNED], bench->bytes);
    move(bench, bench->from[PINNED], bench->from[DEVICE]);
    move(bench, bench->to[PINNED], bench->to[DEVICE]);
    size_t count = make_pieces(bench, round % 2 != 0, pieces);
    copy_pieces(bench, pieces, count);
    check_digests(bench, pieces, count, round);
    check(bench, round, PINNED);
    check(bench, round, PAGEABLE);
    move(bench, bench->to[DEVICE], bench->to[PINNED]);
    check(bench, round, DEVICE);
}

int main(int argc, char **argv)
{
    static const uint32_t ctas[] = {0, 4, 16};
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20;
    struct bench bench = {.bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 4 << 20, .random = {.state = 5}};
    struct sluice_backend_info info = {.size = sizeof info};
    if (sl_backend_find("cuda", &bench.ops) != SLUICE_OK) {
        printf("kernels: skipped: %s\n", sluice_last_error()->text);
        return NO_DEVICE;
    }
    must(bench.ops->query(&info), "query");
    if (!info.usable) {
        printf("kernels: skipped: %s\n", info.reason);
        return NO_DEVICE;
    }
    for (int kind = 0; kind < KINDS; kind++)
        bench.expected[kind] = calloc(1, bench.bytes);
    bench.from[PAGEABLE] = malloc(bench.bytes);
    bench.to[PAGEABLE] = malloc(bench.bytes);
    for (size_t c = 0; c < SL_COUNT(ctas); c++) {
        open_bench(&bench, ctas[c]);
        for (uint32_t round = 0; round < rounds; round++)
            run_round(&bench, round);
        close_bench(&bench);
    }
    for (int kind = 0; kind < KINDS; kind++)
        free(bench.expected[kind]);
    free(bench.from[PAGEABLE]);
    free(bench.to[PAGEABLE]);
    printf("kernels: %u rounds of %zu kinds of launch are right\n", rounds, SL_COUNT(ctas));
    return 0;
}
