/*
 * kernels.c: the copy and digest kernels against the CPU; a program of its own, for the sanitizers of CUDA.
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

enum { PIECES_MAX = 64, NO_DEVICE = 77 };

struct bench {
    const struct sluice_backend_ops *ops;
    struct sluice_device *device;
    struct sluice_queue *queue;
    uint64_t bytes;
    uint8_t *from, *to; /* pinned: what the device reads and writes from the host */
    void *device_from, *device_to;
    uint8_t *expected;
    struct sl_random random;
};

static void must(sluice_status status, const char *what)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "kernels: %s: %s\n", what, sluice_last_error()->text);
    exit(1);
}

static uint64_t now(void *clock)
{
    (void)clock;
    return sl_now(sl_clock_system());
}

static void wake(void *context)
{
    (void)context;
}

static void take_error(const struct sluice_error *error)
{
    SL_IGNORE(sl_fail_copy(error));
}

static void open_bench(struct bench *bench, uint32_t max_ctas)
{
    const struct sluice_backend_config config = {.size = sizeof config,
                                                 .world = 1,
                                                 .max_ctas = max_ctas,
                                                 .abort_timeout_ns = SLUICE_SECOND,
                                                 .now = now,
                                                 .wake = wake,
                                                 .fail = take_error};
    const struct sluice_backend_ops *ops = bench->ops;
    void *memory[2];
    must(ops->open(&config, &bench->device), "open");
    must(ops->queue_open(bench->device, &bench->queue), "queue_open");
    for (int i = 0; i < 2; i++)
        must(ops->mem_alloc(bench->device, SLUICE_MEMORY_PINNED, bench->bytes, &memory[i]), "mem_alloc");
    bench->from = memory[0];
    bench->to = memory[1];
    must(ops->mem_alloc(bench->device, SLUICE_MEMORY_DEVICE, bench->bytes, &bench->device_from), "mem_alloc");
    must(ops->mem_alloc(bench->device, SLUICE_MEMORY_DEVICE, bench->bytes, &bench->device_to), "mem_alloc");
}

static void close_bench(struct bench *bench)
{
    const struct sluice_backend_ops *ops = bench->ops;
    ops->mem_free(bench->device, SLUICE_MEMORY_PINNED, bench->from, bench->bytes);
    ops->mem_free(bench->device, SLUICE_MEMORY_PINNED, bench->to, bench->bytes);
    ops->mem_free(bench->device, SLUICE_MEMORY_DEVICE, bench->device_from, bench->bytes);
    ops->mem_free(bench->device, SLUICE_MEMORY_DEVICE, bench->device_to, bench->bytes);
    ops->queue_close(bench->queue);
    ops->close(bench->device);
}

static void run_op(struct bench *bench, const struct sluice_op *op)
{
    struct sluice_completion done;
    uint32_t got = 0;
    must(bench->ops->submit(bench->queue, op), "submit");
    uint64_t deadline = now(NULL) + 60 * SLUICE_SECOND;
    while (got == 0 && now(NULL) < deadline)
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

/* The sources' digests, twice: a set may run again. */
static void check_digests(struct bench *bench, const struct sluice_copy *pieces, size_t count, uint32_t round)
{
    uint64_t digests[PIECES_MAX];
    struct sluice_set *set = NULL;
    must(bench->ops->set_open(bench->device, SLUICE_COPY_DIGEST, pieces, count, &set), "set_open");
    for (int again = 0; again < 2; again++) {
        memset(digests, 0, sizeof digests);
        run_op(bench, &(struct sluice_op){.kind = SLUICE_OP_DIGEST, .set = set, .digests = digests, .notify = 1});
        for (size_t p = 0; p < count; p++) {
            struct sluice_strided place = pieces[p].from; /* the same bytes in memory of the host */
            place.address += (uint64_t)(uintptr_t)bench->from - (uint64_t)(uintptr_t)bench->device_from;
            uint64_t expected = sl_strided_digest(&place, pieces[p].bytes);
            if (digests[p] == expected)
                continue;
            fprintf(stderr, "kernels: round %u: the digest of piece %zu is %llx, not %llx\n", round, p,
                    (unsigned long long)digests[p], (unsigned long long)expected);
            exit(1);
        }
    }
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

/* Pieces in cells of their own, so that destinations never overlap. */
static size_t make_pieces(struct bench *bench, struct sluice_copy *pieces)
{
    uint64_t from_base = (uint64_t)(uintptr_t)bench->device_from, to_base = (uint64_t)(uintptr_t)bench->device_to;
    uint64_t cell = bench->bytes / PIECES_MAX;
    size_t count = 0;
    for (uint64_t i = 0; i < PIECES_MAX; i++) {
        uint64_t bytes = 1 + sl_random_below(&bench->random, sl_random_below(&bench->random, 3) == 0 ? 64 : cell / 2);
        struct sluice_copy piece = {.bytes = bytes};
        if (place(bench, from_base, i * cell, cell, bytes, &piece.from) &&
            place(bench, to_base, (PIECES_MAX - 1 - i) * cell, cell, bytes, &piece.to))
            pieces[count++] = piece;
    }
    return count;
}

static void run_round(struct bench *bench, uint32_t round)
{
    struct sluice_copy pieces[PIECES_MAX];
    for (uint64_t i = 0; i < bench->bytes; i++) {
        bench->from[i] = (uint8_t)sl_random_next(&bench->random);
        bench->to[i] = bench->expected[i] = 0xa5;
    }
    for (uint64_t i = 0; i + 4 <= bench->bytes; i += 64)
        memcpy(bench->from + i, &(uint32_t){0x7fa00001u + (uint32_t)i}, 4); /* signalling NaNs */
    size_t count = make_pieces(bench, pieces);
    for (size_t p = 0; p < count; p++)
        for (uint64_t i = 0; i < pieces[p].bytes; i++)
            bench->expected[offset_of(&pieces[p].to, (uint64_t)(uintptr_t)bench->device_to, i)] =
                bench->from[offset_of(&pieces[p].from, (uint64_t)(uintptr_t)bench->device_from, i)];
    move(bench, bench->from, bench->device_from);
    move(bench, bench->to, bench->device_to);
    copy(bench, pieces, count);
    check_digests(bench, pieces, count, round);
    move(bench, bench->device_to, bench->to);
    for (uint64_t i = 0; i < bench->bytes; i++)
        if (bench->to[i] != bench->expected[i]) {
            fprintf(stderr, "kernels: round %u: byte %llu is %02x, not %02x\n", round, (unsigned long long)i,
                    bench->to[i], bench->expected[i]);
            exit(1);
        }
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
    bench.expected = calloc(1, bench.bytes);
    for (size_t c = 0; c < SL_COUNT(ctas); c++) {
        open_bench(&bench, ctas[c]);
        for (uint32_t round = 0; round < rounds; round++)
            run_round(&bench, round);
        close_bench(&bench);
    }
    free(bench.expected);
    printf("kernels: %u rounds of %zu kinds of launch are right\n", rounds, SL_COUNT(ctas));
    return 0;
}
