/*
 * Digesting and scheduling a plan: time and memory on the rank that has all tasks, and the time for all ranks of a
 * large world.
 *
 * Usage: bench_schedule [TASKS] [RANKS]. Rank 0 sends every task of the first plan; the tasks of the second go from
 * the lower half of the ranks to the upper one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "scheduler/schedule.h"

#define PARAMS       30000u
#define WINDOW_BYTES UINT64_C(256000000)

static void check(sluice_status status)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "bench_schedule: %s\n", sluice_last_error()->text);
    exit(1);
}

static double seconds(void)
{
    return (double)sl_now(sl_clock_system()) * 1e-9;
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Tasks of one expert size, one in ten small: from rank 0, or from the lower half of the ranks to the upper one. */
static void make(struct sl_plan *plan, size_t count, uint32_t ranks, _Bool from_first)
{
    struct sl_random random = {1};
    sl_plan_init(plan, sl_mem_default(), ranks);
    plan->own_tasks = sl_new_array(plan->mem, count, sizeof(*plan->own_tasks), "tasks");
    check(plan->own_tasks != NULL ? SLUICE_OK : SLUICE_NOMEM);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = i % 10 == 0 ? 1 + sl_random_below(&random, 65536) : 131072;
        struct sluice_region region = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
        uint32_t low = (uint32_t)sl_random_below(&random, ranks / 2);
        uint32_t first = from_first ? 1 : ranks / 2;
        plan->own_tasks[i] = (struct sluice_task){
            .id = i,
            .source = from_first ? 0 : low,
            .destination = first + (uint32_t)sl_random_below(&random, ranks - first),
            .param = (uint32_t)(i * PARAMS / count),
            .source_dtype = SLUICE_DTYPE_BF16,
            .destination_dtype = SLUICE_DTYPE_BF16,
            .from = region,
            .to = region,
        };
    }
    plan->tasks = plan->own_tasks;
    plan->task_count = count;
    plan->param_count = PARAMS;
}

static void drop(struct sl_plan *plan)
{
    plan->param_count = 0;
    sl_plan_drop(plan);
}

static void one_rank(size_t count, uint32_t ranks)
{
    struct sl_plan plan;
    struct sl_half half;
    struct sl_schedule schedule;
    struct sl_rule rule = {.slots = 3, .blocks = 1};
    make(&plan, count, ranks, 1);
    long before = resident_kib();
    double start = seconds();
    check(sl_half_build(&plan, 0, plan.mem, &half));
    double built = seconds();
    uint64_t digest = 0;
    for (uint32_t i = 0; i < half.stream_count; i++)
        digest ^= sl_stream_digest(&plan, &half, &half.streams[i]);
    double digested = seconds();
    check(sl_propose_windows(&half, WINDOW_BYTES, 1, NULL, 0, &rule.windows));
    check(sl_schedule_build(&plan, &half, &rule, NULL, NULL, plan.mem, &schedule));
    double end = seconds();
    printf("one rank   %zu tasks, %" PRIu32 " peers, %" PRIu32 " windows, %zu messages, %zu pieces, digest %016" PRIx64
           "\n",
           count, half.stream_count, rule.windows, schedule.message_count, schedule.piece_count, digest);
    printf("           half %.3f s, digests %.3f s, schedule %.3f s, together %.3f s and %ld MiB\n", built - start,
           digested - built, end - digested, end - start, (resident_kib() - before) / 1024);
    sl_schedule_drop(&schedule);
    sl_half_drop(&half);
    drop(&plan);
}

static void all_ranks(size_t count, uint32_t ranks)
{
    struct sl_plan plan;
    struct sl_plan_index index;
    struct sl_rule rule = {.slots = 3, .blocks = 1, .windows = 100};
    size_t streams = 0, pieces = 0;
    make(&plan, count, ranks, 0);
    double start = seconds();
    check(sl_plan_index_build(&plan, plan.mem, &index));
    double indexed = seconds();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct sl_half half;
        struct sl_schedule schedule;
        check(sl_half_build_indexed(&plan, &index, rank, plan.mem, &half));
        check(sl_schedule_build(&plan, &half, &rule, NULL, NULL, plan.mem, &schedule));
        streams += half.stream_count;
        pieces += schedule.piece_count;
        sl_schedule_drop(&schedule);
        sl_half_drop(&half);
    }
    printf("all ranks  %zu tasks, %" PRIu32 " ranks, %zu streams, %zu pieces\n", count, ranks, streams, pieces);
    printf("           index %.3f s, halves and schedules %.3f s\n", indexed - start, seconds() - indexed);
    sl_plan_index_drop(&index);
    drop(&plan);
}

int main(int argc, char **argv)
{
    uint64_t count = 470000, ranks = 512;
    if (argc > 3 || (argc > 1 && !sl_parse_u64(argv[1], &count)) || (argc > 2 && !sl_parse_u64(argv[2], &ranks)) ||
        count == 0 || count > 100000000 || ranks < 2 || ranks > SLUICE_WORLD_MAX) {
        fprintf(stderr, "Usage: bench_schedule [TASKS] [RANKS]\n");
        return 2;
    }
    one_rank((size_t)count, (uint32_t)ranks);
    all_ranks((size_t)count, (uint32_t)ranks);
    return 0;
}
