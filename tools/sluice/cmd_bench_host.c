/*
 * sluice bench host: what the host backend reaches between two source and two destination processes.
 *
 * Invariants: ways that are compared run in turn, round by round, so that the machine's moods hit all of
 * them; every refit is verified; the median of the rounds counts, least and most are printed beside it.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"

enum { OPT_BYTES = TOOL_LONG, OPT_TASKS, OPT_TASK_BYTES, OPT_WINDOW_BYTES, OPT_ROUNDS, OPT_JSON };
enum { SIDES = 2, WORLD = 2 * SIDES, ROUNDS_MAX = 1000, REFITS = 2 /* the first of a seal warms up */ };

static const struct tool_option options[] = {
    {"bytes", "SIZE", "of a tensor; one goes from each source to each destination (default 256Mi)", OPT_BYTES},
    {"tasks", "N", "small tasks that each source sends (default 20000)", OPT_TASKS},
    {"task-bytes", "SIZE", "of a small task (default 4Ki)", OPT_TASK_BYTES},
    {"window-bytes", "SIZE", "of a rank and window (default 8Mi)", OPT_WINDOW_BYTES},
    {"rounds", "N", "how often each way runs (default 5)", OPT_ROUNDS},
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "bench host",
    .synopsis = "[OPTIONS]",
    .about = "Moves tensors from two processes to two others over the host backend, beside a bare loop that copies\n"
             "the same bytes in and out of shared memory; then many small tasks, packed and as messages of their\n"
             "own, beside one task of the same bytes. Prints the median of the rounds; 'cpu(s)' is the processor time\n"
             "of all processes, which says more than time on a busy machine; 'us/window' is that of a source's\n"
             "scheduler thread per window: copies and transport run on threads of their own.",
    .options = options,
};

enum way { BARE, LARGE, WHOLE, PACKED, SINGLES, WAYS };
static const char *const names[] = {"bare", "tensor", "whole", "packed", "singles"};
static const char *const words[] = {"bare copy loop, the bytes of 'tensor'", "one tensor a pair",
                                    "one task a pair, the bytes of 'packed'", "small tasks, packed",
                                    "small tasks, each a message"};

struct bench {
    uint64_t bytes, task_bytes, window_bytes;
    uint32_t tasks, rounds;
    _Bool json;
    double seconds[WAYS][ROUNDS_MAX];
    double cpu[WAYS][ROUNDS_MAX]; /* seconds, all processes and threads */
    double scheduler_us[WAYS];    /* per window, the mean of the rounds */
    uint32_t windows[WAYS];
};

/* --- plans --- */

static sluice_status add_task(struct sl_plan *plan, uint64_t id, uint32_t pair, uint64_t offset, uint64_t bytes)
{
    struct sluice_region region = {.offset = offset, .row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_task task = {.id = id,
                               .source = pair / SIDES,
                               .destination = SIDES + pair % SIDES,
                               .param = pair,
                               .source_dtype = SLUICE_DTYPE_BYTES,
                               .destination_dtype = SLUICE_DTYPE_BYTES,
                               .from = region,
                               .to = region,
                               .origin = offset};
    return sl_plan_add_task(plan, &task);
}

/* `count` tasks of `bytes` for each pair. */
static sluice_status make_plan(uint32_t count, uint64_t bytes, struct sl_plan *ret)
{
    sl_plan_init(ret, sl_mem_default(), WORLD);
    sluice_status status = SLUICE_OK;
    for (uint32_t pair = 0; pair < SIDES * SIDES && status == SLUICE_OK; pair++) {
        struct sluice_param param = {.id = pair, .dtype = SLUICE_DTYPE_BYTES, .bytes = count * bytes, .name = "tensor"};
        status = sl_plan_add_param(ret, &param);
        for (uint32_t i = 0; i < count && status == SLUICE_OK; i++)
            status = add_task(ret, (uint64_t)pair * count + i, pair, i * bytes, bytes);
    }
    return status == SLUICE_OK ? sl_plan_validate(ret) : status;
}

/* --- one way --- */

static int run_plan(struct bench *bench, enum way way, struct sl_plan *plan, uint32_t round)
{
    struct run_options opt = {.seal = SLUICE_SEAL_OPTIONS_INIT, .repeat = REFITS, .backend = "host"};
    struct run_job job = {.options = &opt, .plan = plan, .content = {.plan = plan}, .launched = 1, .quiet = 1};
    opt.seal.window_bytes = bench->window_bytes;
    opt.seal.direct_min = way == SINGLES ? 1 : 0;
    if (run_board_open(WORLD, REFITS, &job.board) != SLUICE_OK)
        return tool_fail();
    int status = run_launch(&job);
    if (status == TOOL_OK) {
        const struct run_seat *seat = &job.board->seats[0];
        bench->seconds[way][round] = run_seconds(job.board, REFITS - 1);
        bench->cpu[way][round] = 0;
        for (uint32_t r = 0; r < WORLD; r++)
            bench->cpu[way][round] += (double)job.board->seats[r].process_ns / 1e9;
        bench->windows[way] = seat->windows;
        bench->scheduler_us[way] += (double)seat->scheduler_ns / 1e3 / seat->windows / REFITS / bench->rounds;
    }
    run_board_close(job.board);
    return status;
}

static int run_way(struct bench *bench, enum way way, uint32_t round)
{
    uint32_t per_pair = bench->tasks / SIDES;
    struct sl_plan plan;
    if (way == BARE)
        return bench_bare_copy(bench->bytes, bench->window_bytes / SIDES, 3, &bench->seconds[BARE][round],
                               &bench->cpu[BARE][round]) == SLUICE_OK
                   ? TOOL_OK
                   : tool_fail();
    uint32_t count = way == LARGE || way == WHOLE ? 1 : per_pair;
    uint64_t bytes = way == LARGE ? bench->bytes : way == WHOLE ? per_pair * bench->task_bytes : bench->task_bytes;
    int status = make_plan(count, bytes, &plan) == SLUICE_OK ? run_plan(bench, way, &plan, round) : tool_fail();
    sl_plan_drop(&plan);
    return status;
}

/* --- report --- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(const double *sorted, uint32_t count)
{
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static double gigabytes(const struct bench *bench, enum way way)
{
    uint64_t pair = way == BARE || way == LARGE ? bench->bytes : bench->tasks / SIDES * bench->task_bytes;
    return (double)pair * SIDES * SIDES / 1e9;
}

/* How much of `base` a way reaches, by the medians of time or processor time. */
static double part_of(double (*numbers)[ROUNDS_MAX], uint32_t rounds, enum way base, enum way way)
{
    return median(numbers[base], rounds) / median(numbers[way], rounds);
}

static void print_text(struct bench *bench)
{
    printf("# %d+%d processes, windows of %llu bytes a rank, %u rounds: median, least and most\n", SIDES, SIDES,
           (unsigned long long)bench->window_bytes, bench->rounds);
    printf("%-8s %9s %9s %9s %8s %9s %8s %10s  %s\n", "way", "time(s)", "least", "most", "GB/s", "cpu(s)", "windows",
           "us/window", "what");
    for (int way = 0; way < WAYS; way++) {
        const double *s = bench->seconds[way];
        double middle = median(s, bench->rounds);
        printf("%-8s %9.4f %9.4f %9.4f %8.2f %9.4f %8u %10.1f  %s\n", names[way], middle, s[0], s[bench->rounds - 1],
               gigabytes(bench, (enum way)way) / middle, median(bench->cpu[way], bench->rounds), bench->windows[way],
               bench->scheduler_us[way], words[way]);
    }
    printf("tensor / bare   %.3f by time, %.3f by processor time\n",
           part_of(bench->seconds, bench->rounds, BARE, LARGE), part_of(bench->cpu, bench->rounds, BARE, LARGE));
    printf("packed / whole  %.3f by time, %.3f by processor time\n",
           part_of(bench->seconds, bench->rounds, WHOLE, PACKED), part_of(bench->cpu, bench->rounds, WHOLE, PACKED));
}

static void print_json(struct bench *bench)
{
    struct sl_json_writer w;
    sl_json_begin(&w, stdout, 0);
    sl_json_object(&w);
    sl_json_key(&w, "rounds");
    sl_json_put_u64(&w, bench->rounds);
    sl_json_key(&w, "window_bytes");
    sl_json_put_u64(&w, bench->window_bytes);
    sl_json_key(&w, "ways");
    sl_json_list(&w);
    for (int way = 0; way < WAYS; way++) {
        const double *s = bench->seconds[way];
        const struct {
            const char *key;
            double value;
        } numbers[] = {{"seconds_median", median(s, bench->rounds)},
                       {"seconds_min", s[0]},
                       {"seconds_max", s[bench->rounds - 1]},
                       {"gigabytes_per_second", gigabytes(bench, (enum way)way) / median(s, bench->rounds)},
                       {"cpu_seconds", median(bench->cpu[way], bench->rounds)},
                       {"scheduler_microseconds_per_window", bench->scheduler_us[way]}};
        sl_json_object(&w);
        sl_json_key(&w, "way");
        sl_json_put_text(&w, names[way]);
        sl_json_key(&w, "windows");
        sl_json_put_u64(&w, bench->windows[way]);
        for (size_t i = 0; i < SL_COUNT(numbers); i++) {
            sl_json_key(&w, numbers[i].key);
            sl_json_put_double(&w, numbers[i].value);
        }
        sl_json_object_end(&w);
    }
    sl_json_list_end(&w);
    const struct {
        const char *key;
        double value;
    } parts[] = {{"tensor_of_bare", part_of(bench->seconds, bench->rounds, BARE, LARGE)},
                 {"tensor_of_bare_cpu", part_of(bench->cpu, bench->rounds, BARE, LARGE)},
                 {"packed_of_whole", part_of(bench->seconds, bench->rounds, WHOLE, PACKED)},
                 {"packed_of_whole_cpu", part_of(bench->cpu, bench->rounds, WHOLE, PACKED)}};
    for (size_t i = 0; i < SL_COUNT(parts); i++) {
        sl_json_key(&w, parts[i].key);
        sl_json_put_double(&w, parts[i].value);
    }
    sl_json_object_end(&w);
    SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
}

static int measure(struct bench *bench)
{
    for (uint32_t round = 0; round < bench->rounds; round++)
        for (int way = 0; way < WAYS; way++) {
            int status = run_way(bench, (enum way)way, round);
            if (status != TOOL_OK)
                return status;
        }
    for (int way = 0; way < WAYS; way++) {
        qsort(bench->seconds[way], bench->rounds, sizeof(double), by_value);
        qsort(bench->cpu[way], bench->rounds, sizeof(double), by_value);
    }
    if (bench->json)
        print_json(bench);
    else
        print_text(bench);
    return tool_finish(TOOL_OK);
}

static _Bool take_option(struct tool_args *args, int option, struct bench *bench)
{
    switch (option) {
    case OPT_BYTES:
        return tool_size(args, &bench->bytes);
    case OPT_TASKS:
        return tool_u32(args, SIDES, 10000000, &bench->tasks);
    case OPT_TASK_BYTES:
        return tool_size(args, &bench->task_bytes);
    case OPT_WINDOW_BYTES:
        return tool_size(args, &bench->window_bytes);
    case OPT_ROUNDS:
        return tool_u32(args, 1, ROUNDS_MAX, &bench->rounds);
    default:
        bench->json = 1;
        return 1;
    }
}

int cmd_bench_host(int argc, char **argv)
{
    static struct bench bench; /* large; there is one */
    struct tool_args args;
    char **operands;
    bench = (struct bench){.bytes = UINT64_C(256) << 20,
                           .tasks = 20000,
                           .task_bytes = 4096,
                           .window_bytes = UINT64_C(8) << 20,
                           .rounds = 5};
    tool_begin(&args, &syntax, argc, argv);
    int option;
    while ((option = tool_next(&args)) >= 0)
        if (!take_option(&args, option, &bench))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    if (tool_operands(&args, &operands) > 0)
        return tool_usage(&args, "unexpected argument '%s'", operands[0]);
    if (bench.bytes == 0 || bench.task_bytes == 0 || bench.bytes > UINT64_C(1) << 40 ||
        bench.task_bytes > UINT64_C(1) << 30 || bench.window_bytes < 4096 || bench.window_bytes > UINT64_C(1) << 32)
        return tool_usage(&args,
                          "--bytes up to 1Ti, --task-bytes up to 1Gi and --window-bytes 4Ki to 4Gi are possible");
    return measure(&bench);
}
